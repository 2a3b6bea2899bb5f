"""Every command that a page prints runs as it stands, in a copy of the checkout with what `make demo` leaves.

rlfocal is installed there from its wheel. What is not run is in NOT_RUN, with the reason.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from guide import PAGES, examples
from pyarrow import parquet
from support.basics import MadeOnce
from support.lm_eval_files import DATE, choice_row
from support.servers import free_port
from support.terminal import run_blocks, statements

from rlfocal.exchange.exports import export
from warehouse import open_warehouse

ROOT = Path(__file__).resolve().parents[2]
EVERY = (*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")))
SHELL = [page for page in EVERY if "```bash" in page.read_text("utf-8")]
FENCE = re.compile(r"^```(.*)$", re.MULTILINE)
PORTS = ("4200", "8400")
"""Printed ones, in whose places are free ones."""
HOUR, SERVICE, NETWORK, GPU = "takes an hour", "needs a service", "needs a network", "needs a GPU"
NOT_RUN = {
    r"^make (demo|test|test-all|mutants|setup|lint)\b": HOUR,  # what the demo calls is run before all pages
    r"^make bench\b": HOUR,  # tests/project/test_bench.py runs it in small
    r"--methods all\b": HOUR,
    r"--tune 20\b": HOUR,
    r"\bstudies size-penalty\b": HOUR,
    r"@db/|//server:|^docker |^kubectl |--type kubernetes\b|\bextract\.sbatch\b": SERVICE,
    r"^export AWS_|^export RLFOCAL_STORAGE_OPTIONS=": SERVICE,  # an object store
    r"^RLFOCAL_REPORT_URL=": SERVICE,  # the server of docs/deploying.md
    r"\bdatasets mirror\b|--datasets mirror\b|\bimport lm-eval meta-llama\b|encoder=all-MiniLM": NETWORK,
    r"'rlfocal\[vllm\]'|--pool paper\s+# MMLU": GPU,
}

ENDED = """python - <<'END'
import time
from prefect import get_client
with get_client(sync_client=True) as client:
    while True:
        runs = [one for one in client.read_flow_runs() if not one.auto_scheduled]
        if all(one.state.is_final() for one in runs):
            break
        time.sleep(1)
print(*(one.state_name for one in runs))
END
"""
"""Waits for the runs that a page has started, and prints how each ended."""


def why_not(statement: str) -> str | None:
    """Why a command of the pages is not run; None for one that is."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, statement)), None)


def blocks(page: Path) -> list[tuple[list[str], str | None]]:
    """The statements of each shell block, and what the page says that they print."""
    found = examples(page.read_text("utf-8"))
    return [(statements(one.code), one.output) for one in found if one.language == "bash"]


@pytest.fixture(scope="module")
def desk(made_once: MadeOnce, lab_warehouse: Path, wheel: dict[str, str]) -> Path:
    """A folder as `make demo` leaves it, and the files of their own that readers are told to use."""

    def make(folder: Path) -> None:
        hidden = shutil.ignore_patterns(".*", "__pycache__")
        shutil.copytree(ROOT, folder, dirs_exist_ok=True, ignore=hidden)
        install(folder, Path(wheel["PYTHONPATH"]))
        location = folder / ".rlfocal" / "warehouse"
        shutil.copytree(lab_warehouse, location)
        with open_warehouse(location, read_only=True) as warehouse:
            export(warehouse, folder / "exported")
            export(warehouse, folder / "scores", format="predictions", benchmarks=["lab-musr"])
        for name in ("docs", "scores"):
            table = parquet.read_table(folder / "scores" / f"{name}.parquet")
            mine = pa.array(["mine"] * table.num_rows)
            at = table.column_names.index("benchmark")
            parquet.write_table(table.set_column(at, "benchmark", mine), folder / f"{name}.parquet")
        shutil.rmtree(folder / "scores")
        write_files(folder)
        run_blocks([[".venv/bin/rlfocal regenerate --pool lab\n"]], folder, environment(folder))

    return made_once("desk", make)


def install(folder: Path, site: Path) -> None:
    """An environment like a user's: the wheel, and the packages and programs of the tests' environment."""
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    [packages] = venv.glob("lib/*/site-packages")
    shutil.copytree(site, packages, dirs_exist_ok=True)
    here = Path(sys.executable).parent
    [lent] = here.parent.glob("lib/*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n{ROOT / 'rivals'}\n")
    for program in here.iterdir():
        if not (venv / "bin" / program.name).exists() and program.is_file():
            begins = program.read_bytes()
            if begins.startswith(b"#!" + os.fsencode(here)):
                begins = begins.replace(os.fsencode(here), os.fsencode(venv / "bin"), 1)
            (venv / "bin" / program.name).write_bytes(begins)
            (venv / "bin" / program.name).chmod(0o755)


def write_files(folder: Path) -> None:
    """Files of the reader's own, as the pages name them."""
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("benchmark", "task", "doc_id", "label"), ("lab-mmlu", "botany", 0, 1)])
    (folder / "mine.csv").write_text("model,price\nlab-phi,0.2\n")
    said = [(f"Question {i}?", model, -0.1, -2.4, "AB"[i % 2]) for i in range(10) for model in ("one", "two")]
    with (folder / "results.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "model", "logprob_A", "logprob_B", "answer"), *said])
    page = (ROOT / "docs" / "tour.md").read_text("utf-8")
    (folder / "entry.yaml").write_text(page.split("<<YAML\n")[1].split("YAML\n")[0])
    logs = folder / "logs"
    logs.mkdir()
    rows = "".join(json.dumps(choice_row(i)) + "\n" for i in range(9))
    (logs / f"samples_t_{DATE}.jsonl").write_text(rows)
    config = {"doc_to_text": "{{question}}", "target_delimiter": " "}
    run = {"results": {}, "configs": {"t": config}, "model_name": "m"}
    (logs / f"results_{DATE}.json").write_text(json.dumps(run))


def environment(folder: Path) -> dict[str, str]:
    """That of a reader who works in `folder` and has the programs of its environment on the PATH."""
    clean = {n: value for n, value in os.environ.items() if not n.startswith(("RLFOCAL_", "PREFECT_"))}
    return clean | {
        "PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "BROWSER": "true",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", SHELL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_printed_command_runs(page: Path, desk: Path, tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    left = [".venv", "prefect"]  # which holds the run that made the desk
    shutil.copytree(desk, folder, symlinks=True, ignore=lambda at, _: left if at == str(desk) else [])
    (folder / ".venv").symlink_to(desk / ".venv")
    (folder / "home").mkdir(exist_ok=True)
    # On a slow machine, DuckDB's shell would print a progress bar, which is not in the guide.
    (folder / "home" / ".duckdbrc").write_text("SET enable_progress_bar = false;\n")
    found = blocks(page)
    ports = {printed: str(free_port()) for printed in PORTS}
    script = [[with_ports(one, ports) for one in block if why_not(one) is None] for block, _ in found]
    started = sum(one.startswith("prefect deployment run") for block in script for one in block)
    more = {"PREFECT_SERVER_API_PORT": ports["4200"]}
    *outputs, ended = run_blocks([*script, [ENDED] if started else []], folder, environment(folder) | more)
    assert ended.split() == ["Completed"] * started
    for (block, expected), printed in zip(found, outputs, strict=True):
        assert expected in (None, printed), "".join(block)


def with_ports(statement: str, ports: dict[str, str]) -> str:
    for printed, free in ports.items():
        statement = statement.replace(printed, free)
    return statement


def test_each_block_names_its_language_and_each_reason_counts() -> None:
    """Else a block or a reason could be left over unseen."""
    for page in EVERY:
        fences = FENCE.findall(page.read_text("utf-8"))
        assert all(fences[::2]), page
        assert not any(fences[1::2]), page
    commands = [one for page in SHELL for block, _ in blocks(page) for one in block]
    unused = [pattern for pattern in NOT_RUN if not any(re.search(pattern, one) for one in commands)]
    assert unused == []
    assert sum(why_not(one) is None for one in commands) > 60

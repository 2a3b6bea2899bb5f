"""docs/contributing.md: additions, made by its text to a copy of the checkout, work; mutants can be made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from mutants import MUTANTS, Mutant
from support.tiny_models import save_model, write_tasks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/]+\.(?:py|sql))`")
SQL = "    plurality_accuracy: n_right"
"""The line that a metric's is put before."""
BACKEND = 'Backend = Literal["vllm", '

READ = """
import numpy as np
from rlfocal.data.loading import load_dataset
from rlfocal.statistics.diversity import pool_diversity
from warehouse import open_warehouse
data = load_dataset(open_warehouse("rights", read_only=True), "b")
print(pool_diversity(data.predictions, data.labels, np.ones((1, 3), bool)).kw_variance[0])
"""


class Addition:
    """A section that begins with **words**: its text and blocks of code, and the files it has to touch."""

    def __init__(self, words: str) -> None:
        _, begun, rest = PAGE.partition(f"\n**{words}**")
        assert begun, f"docs/contributing.md shows no {words!r}"
        self.text = re.split(r"\n\*\*|\n## ", rest)[0]
        self.blocks = {found[1]: found[2] for found in BLOCK.finditer(self.text)}
        in_words = BLOCK.sub("", self.text)
        named = [name for name in FILE.findall(in_words) if (ROOT / name).parent.is_dir()]
        self.new = [name for name in named if not (ROOT / name).exists()]

    def make(self, tree: Path) -> None:
        """Writes the new file."""
        [name] = self.new
        (tree / name).write_text(self.blocks["python"])


METHOD, METRIC, IMPORTER, ENGINE, BENCHMARK, COMMAND, FIGURE = map(
    Addition,
    (
        "A method",
        "A diversity metric",
        "An importer",
        "An engine",
        "A benchmark",
        "A command",
        "A figure of the report",
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with all additions, and a warehouse that their engine filled."""
    folder = tmp_path_factory.mktemp("contributing")
    for name in ("rlfocal", "warehouse", "flows", "pools"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    tree = folder / "tree"
    for addition in (METHOD, IMPORTER, ENGINE, COMMAND, FIGURE):
        addition.make(tree)
    put(tree / "rlfocal/cli/_exchange.py", None, IMPORTER.blocks["py"])
    put(tree / "rlfocal/statistics/metrics.py", None, METRIC.blocks["python"])
    put(tree / "warehouse/sql/statistics.sql", SQL, METRIC.blocks["sql"] + SQL)
    put(tree / "rlfocal/base/names.py", BACKEND, f'{BACKEND}"shortest", ')

    write_tasks(folder / "tasks")
    entries = yaml.safe_load(BENCHMARK.blocks["yaml"])["benchmarks"]
    for entry in entries:  # lm-eval's own task would be downloaded
        entry |= {
            "tasks": dict.fromkeys(entry["tasks"], "tiny_choices"),
            "include_path": str(folder / "tasks"),
        }
    save_model(folder / "weights", "gpt2")
    models = [{"model": name, "hf_repo": str(folder / "weights"), "params_b": 0.1} for name in ("k", "m")]
    pool = {"name": "mine", "backend": "shortest", "benchmarks": entries, "models": models}
    (folder / "mine.yaml").write_text(yaml.safe_dump(pool))
    run(folder, "extract", "--pool", "mine.yaml")
    return folder


def put(path: Path, old: str | None, new: str) -> None:
    text = path.read_text("utf-8")
    assert old is None or text.count(old) == 1
    path.write_text(f"{text}\n\n{new}" if old is None else text.replace(old, new))


def run(folder: Path, *arguments: str) -> str:
    return called(folder, "-c", "import sys; from rlfocal.cli import main; sys.exit(main())", *arguments)


def called(folder: Path, *arguments: str) -> str:
    """What Python prints whose rlfocal is the copy."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(folder / "tree")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_addition_is_as_many_files_as_the_table_says() -> None:
    rows = {name: int(n) for name, n in re.findall(r"^\| an? (.+?) \| (\d)", PAGE, re.MULTILINE)}
    made = {"method": METHOD, "importer": IMPORTER, "engine": ENGINE, "command": COMMAND}
    made["figure of the report"] = FIGURE
    assert {name: rows[name] for name in made} == {
        name: len(one.new) + (one in (IMPORTER, ENGINE)) for name, one in made.items()
    }  # the two are named in a file that is there
    assert METRIC.new == BENCHMARK.new == []


@pytest.mark.slow
def test_the_engine_answers_the_benchmark(folder: Path) -> None:
    query = (
        "SELECT model, count(*) AS n, bool_and(logprob = -length(choices[choice + 1]) - 1) AS shortest "
        "FROM choice_logprobs JOIN docs USING (benchmark, task, doc_id) "
        "WHERE benchmark = 'arc' AND task = 'challenge' GROUP BY model ORDER BY model"
    )
    n_choices = sum(2 + i % 3 for i in range(30))
    assert json.loads(run(folder, "sql", query, "--format", "json")) == [
        {"model": model, "n": n_choices, "shortest": True} for model in ("k", "m")
    ]


@pytest.mark.slow
def test_the_method_is_listed_and_evaluated(folder: Path) -> None:
    assert "last_model" in run(folder, "methods")
    done = run(folder, "evaluate", "-b", "arc", "--methods", "last_model,plurality", "--json")
    accuracy = {row["method"]: row["accuracy"] for row in json.loads(done) if row["task"] == "*"}
    assert accuracy["last_model"] == accuracy["plurality"]  # both models are of one engine


@pytest.mark.slow
def test_the_importer_imports(folder: Path) -> None:
    said = [{"id": f"q{at}", "gold": "4", "said": {"k": "4", "m": str(at)}} for at in range(10)]
    (folder / "said.jsonl").write_text("\n".join(map(json.dumps, said)))
    run(folder, "import", "votes", "said.jsonl", "--benchmark", "votes", "--warehouse", "voted")
    query = "SELECT model, sum(correct::INT) AS n FROM outcomes GROUP BY model ORDER BY model"
    found = json.loads(run(folder, "sql", query, "--format", "json", "--warehouse", "voted"))
    assert found == [{"model": "k", "n": 10}, {"model": "m", "n": 1}]


@pytest.mark.slow
def test_the_command_counts(folder: Path) -> None:
    assert "Counts the answers." in run(folder, "--help")
    assert "60" in run(folder, "count")


@pytest.mark.slow
def test_the_figure_is_in_the_report(folder: Path) -> None:
    run(folder, "evaluate", "-b", "arc", "--methods", "plurality")
    run(folder, "report", "-o", "report.html")
    assert "<b>How accurate methods are.</b> A histogram" in (folder / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_the_metric_is_one_in_sql_and_in_python(folder: Path) -> None:
    right = {"k": [True] * 4 + [False] * 4, "m": [True, False] * 4, "z": [True] * 5 + [False] * 3}
    scores = [
        f"{model},{i},{is_right - 1},{-is_right},A"
        for model, rights in right.items()
        for i, is_right in enumerate(rights)
    ]
    (folder / "rights.csv").write_text("\n".join(["model,doc_id,logprob_A,logprob_B,answer", *scores]))
    run(folder, "import", "predictions", "rights.csv", "--benchmark", "b", "--warehouse", "rights")
    query = "SELECT kw_variance FROM pool_diversity('b', ['k', 'm', 'z'])"
    [row] = json.loads(run(folder, "sql", query, "--format", "json", "--warehouse", "rights"))
    failures = 3 - np.array(list(right.values())).sum(axis=0)
    assert row["kw_variance"] == pytest.approx(float(np.mean(failures * (3 - failures))) / 9)
    assert float(called(folder, "-c", READ)) == pytest.approx(row["kw_variance"])


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_mutant_can_be_made_and_tried(mutant: Mutant) -> None:
    """`make mutants` is of today's code: each wrong line has its place, and its tests are there."""
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.right) == 1
    assert mutant.right != mutant.wrong
    for named in mutant.tests.split():
        file, _, name = named.partition("::")
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert f"def {name.partition('[')[0]}(" in text or not name

"""kill -9, kill and Ctrl-C of every long command: nothing of it is left, and it says one line.

Each ends at a random moment, by one signal to it alone or to its group.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.scores import NEEDS_VLLM
from support.tiny_models import save_models, tiny_benchmarks, write_tasks

from rlfocal.cli import RESUME_ADVICE
from rlfocal.pool.specs import PoolSpec

RLFOCAL = str(Path(sys.executable).with_name("rlfocal"))
SECONDS_TO_BE_GONE = 30.0
SECONDS_TO_END = 10.0  # 3 to put things in order, the rest for a busy machine
MARK = "RLFOCAL_TEST_COMMAND"
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
SKILL = {"a": 0.75, "b": 0.7, "c": 0.65, "d": 0.6, "e": 0.55}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@dataclass(frozen=True)
class Command:
    """A long command, run in a copy of the folder that `prepared` makes."""

    words: str
    signals: tuple[signal.Signals, ...]
    processes: int = 1
    """It is stopped once it has so many."""


COMMANDS = {
    "regenerate": Command("regenerate -p pool.yaml --seeds 9", (KILL, TERM, INT), processes=4),
    "extract": Command("extract -p pool.yaml", (KILL, INT), processes=3),
    "extract on vLLM": Command("extract -p pool.yaml --backend vllm", (KILL,), processes=4),
    "evaluate": Command("evaluate -b made --seeds 99", (TERM, INT)),
    "report": Command("report", (TERM,)),
    "import": Command("import predictions --docs big-docs.parquet --scores big-scores.parquet", (INT,)),
    "lab build": Command("lab build --output built", (KILL, TERM), processes=3),
}


class CommandEnd(NamedTuple):
    """How a command ended, and what it left."""

    code: int
    seconds: float
    said: str
    left: list[str]


@pytest.fixture(scope="module")
def prepared(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where every command has much to do."""
    folder = tmp_path_factory.mktemp("stopping")
    choices, _ = tiny_benchmarks(write_tasks(folder / "tasks", choices=60))
    models = save_models(folder, "llama", "mistral", "gpt2")
    pool = PoolSpec(name="tiny", benchmarks=(choices,), models=models)
    (folder / "pool.yaml").write_text(yaml.safe_dump(pool.model_dump(mode="json", exclude_unset=True)))
    write_predictions(folder, "made", 1_500)
    write_predictions(folder, "big", 60_000)
    shutil.copytree(empty_warehouse, folder / ".rlfocal" / "warehouse")
    for words in (
        "import predictions --docs made-docs.parquet --scores made-scores.parquet",
        "evaluate -b made --methods plurality,best_single,soft_vote,oracle",
    ):
        subprocess.run([RLFOCAL, *words.split()], cwd=folder, check=True, capture_output=True)
    return folder


def write_predictions(folder: Path, benchmark: str, n: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n)
    keys = {"benchmark": [benchmark] * n, "task": ["all"] * n, "doc_id": list(range(n))}
    pq.write_table(pa.table(keys | {"label": labels}), folder / f"{benchmark}-docs.parquet")
    scores = []
    for model, skill in SKILL.items():
        given = np.where(rng.random(n) < skill, labels, rng.integers(0, 4, n))
        logprobs = rng.normal(-2, 1, (n, 4))
        logprobs[np.arange(n), given] += 2
        scores.append(pa.table(keys | {"model": [model] * n, "choice_logprobs": logprobs.tolist()}))
    pq.write_table(pa.concat_tables(scores), folder / f"{benchmark}-scores.parquet")


def environment(mark: str) -> dict[str, str]:
    # vLLM's processes change their title, and with it what the system shows of their environment.
    own = {MARK: mark, "SPT_NOENV": "1", "OMP_NUM_THREADS": "1"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_API", "RLFOCAL_"))}
    return kept | own


def marked(mark: str) -> list[psutil.Process]:
    """Every process that inherited the mark, whoever is its parent now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_in(mask: str, signum: signal.Signals, pid: int) -> bool:
    """Whether a process catches (SigCgt), ignores (SigIgn) or blocks (SigBlk) a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split(f"{mask}:")[1].split()[0], 16) >> (signum - 1) & 1)


def wait_until_it_hears(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and not is_in("SigCgt", TERM, process.pid):
        time.sleep(0.01)


def stop(
    command: list[str], cwd: Path, ending: signal.Signals, after: float, *, group: bool, processes: int = 1
) -> CommandEnd:
    """Starts a command, ends it `after` seconds from when it has its processes, and looks what is left."""
    mark = str(uuid4())
    with (cwd / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            # pytest may run where it is ignored
            preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
        )
    try:
        if ending is not KILL:
            wait_until_it_hears(process)
        while process.poll() is None and processes > 1 and len(marked(mark)) < processes:
            time.sleep(0.2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(process.pid, ending)
        signalled = time.monotonic()
        code = process.wait(60)
        ended = time.monotonic()
        while (left := marked(mark)) and time.monotonic() < ended + SECONDS_TO_BE_GONE:
            time.sleep(0.1)
        names = [" ".join(p.cmdline())[:200] for p in left if p.is_running()]
        return CommandEnd(code, ended - signalled, (cwd / "stderr.txt").read_text(), names)
    finally:
        for survivor in marked(mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                survivor.kill()
        process.wait()


STOPS = [
    pytest.param(command, ending, marks=NEEDS_VLLM if "vLLM" in name else (), id=f"{name}-{ending.name}")
    for name, command in COMMANDS.items()
    for ending in command.signals
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "ending"), STOPS)
def test_a_stopped_command_leaves_no_process_and_says_one_line(
    command: Command, ending: signal.Signals, prepared: Path, tmp_path: Path
) -> None:
    moments = random.Random(f"{command.words} {ending}")
    folder = Path(shutil.copytree(prepared, tmp_path / "folder"))
    words, after, group = [RLFOCAL, *command.words.split()], moments.uniform(0, 4), moments.random() < 0.5
    ended = stop(words, folder, ending, after, group=group, processes=command.processes)
    assert ended.left == []
    if ended.code == 0:  # it was done before
        return
    assert ended.code == (-KILL if ending is KILL else 128 + ending)
    assert ended.seconds < SECONDS_TO_END
    # What a command tells as it goes on, then one line and nothing after it.
    assert "Traceback" not in ended.said
    assert "rror" not in ended.said
    if ending is not KILL:
        assert RESUME_ADVICE in ended.said.splitlines()[-1]
        assert ended.said.count(RESUME_ADVICE) == 1


IN_PYTHON = """
import contextlib, hashlib, signal, sys, time
from rlfocal.cli import stopped_by_signals

def deaf():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)

def in_c():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)

def in_a_callback():
    class Last:
        def __del__(self):
            time.sleep(60)
    Last()
    time.sleep(60)

def turned_into_an_error():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("Query interrupted") from None

with stopped_by_signals():
    if sys.argv[1] != "done":
        globals()[sys.argv[1]]()
time.sleep(60)
"""


@pytest.mark.parametrize(
    "ending", [TERM, *(pytest.param(s, marks=pytest.mark.slow) for s in (INT, signal.SIGHUP))]
)
@pytest.mark.parametrize(
    ("busy", "at_least", "at_most"),
    [
        ("deaf", 2.5, 8),
        ("in_c", 2.5, 8),
        ("in_a_callback", 0, 2.5),
        ("turned_into_an_error", 0, 2.5),
        ("done", 0, 2.5),
    ],
)
def test_a_signal_ends_a_command_whatever_it_does(
    busy: str, at_least: float, at_most: float, ending: signal.Signals, tmp_path: Path
) -> None:
    ended = stop([sys.executable, "-c", IN_PYTHON, busy], tmp_path, ending, 0.3, group=False)
    assert ended.code == 128 + ending
    assert at_least < ended.seconds < at_most
    [line] = ended.said.splitlines()
    assert line.endswith(RESUME_ADVICE)


def test_a_second_signal_ends_a_command_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", IN_PYTHON, "deaf"], stderr=subprocess.PIPE)
    wait_until_it_hears(process)
    time.sleep(0.3)
    process.send_signal(TERM)
    time.sleep(0.3)
    process.send_signal(INT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + INT  # not the first one's, whose grace is not over
    assert said.count(b"\n") == 1


def test_an_ignored_signal_stays_ignored() -> None:
    process = subprocess.Popen(["nohup", sys.executable, "-c", IN_PYTHON, "deaf"], stdout=subprocess.DEVNULL)
    wait_until_it_hears(process)
    assert is_in("SigIgn", signal.SIGHUP, process.pid)
    process.kill()
    process.wait()


PRELOADING = """
from rlfocal.extraction.running.processes import run_each
run_each(print, {"x": ()}, at_once=1, on_event=print, preload=["takes_long"])
"""


def test_a_fork_server_ends_with_its_owner_while_it_still_imports(tmp_path: Path) -> None:
    (tmp_path / "takes_long.py").write_text(
        "import pathlib, time; pathlib.Path('imports').touch(); time.sleep(60)"
    )
    mark = str(uuid4())
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", PRELOADING], cwd=tmp_path, env=environment(mark) | {"PYTHONPATH": path}
    )
    while not (tmp_path / "imports").exists():
        assert process.poll() is None
        time.sleep(0.05)
    [fork_server] = [p for p in marked(mark) if "forkserver" in " ".join(p.cmdline())]
    assert is_in("SigBlk", INT, fork_server.pid), "Ctrl-C would show its traceback"
    process.kill()
    process.wait()
    deadline = time.monotonic() + SECONDS_TO_BE_GONE
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked(mark) == []

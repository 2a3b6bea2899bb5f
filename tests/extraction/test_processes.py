"""Processes of extraction: what they started ends with them, and within their time."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rlfocal.extraction.running.events import explain_timeout
from rlfocal.extraction.running.processes import Send, run_each


def ends(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.wait(30) is None or process.status() == psutil.STATUS_ZOMBIE
    return True


def leave_a_grandchild(send: Send, fails: bool) -> None:
    """A job whose own process would outlive it, as an engine's may."""
    send(subprocess.Popen(["sleep", "600"]).pid)
    if fails:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_process_started_ends_with_it(fails: bool) -> None:
    pids: list[int] = []
    ended = run_each(leave_a_grandchild, {"x": (fails,)}, at_once=1, on_event=lambda _, pid: pids.append(pid))
    assert ("SIGKILL" in str(ended["x"])) == fails
    assert all(map(ends, pids))
    assert len(pids) == 1


def tell_of_garbage(send: Send) -> None:
    send(gc.isenabled())


def test_a_process_collects_its_garbage() -> None:
    told: list[bool] = []
    run_each(tell_of_garbage, {"x": ()}, at_once=1, on_event=lambda _, enabled: told.append(enabled))
    assert told == [True]  # its fork server does not


def test_a_user_s_own_modules_stay_out(tmp_path: Path) -> None:
    """Whatever lies where the user stands: it is in no way of what the processes import."""
    for name in ("warehouse", "flows", "datasets", "queue"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a module of the user')")
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "import os\nfrom rlfocal.extraction.running.processes import run_each\n\nwas = dict(os.environ)\n"
        "ended = run_each(print, {'x': ('ran',)}, at_once=1, on_event=print, preload=['warehouse.store'])\n"
        "print(ended, dict(os.environ) == was)\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("{'x': None} True\n"), done.stderr


def takes(send: Send, seconds: float) -> None:
    """A job that takes so long, and starts what would outlive it."""
    send(subprocess.Popen(["sleep", "600"]).pid)
    time.sleep(seconds)


@pytest.mark.slow
def test_a_process_that_takes_longer_than_its_time_limit_ends_with_all_it_started() -> None:
    pids: dict[str, int] = {}
    jobs = {"slow": (600.0,), "quick": (0.0,)}
    ended = run_each(takes, jobs, at_once=2, on_event=pids.__setitem__, seconds=20)
    assert ended == {"slow": explain_timeout(20), "quick": None}
    assert ends(pids["slow"])

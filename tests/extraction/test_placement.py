"""Which GPUs there are, who holds them, and that processes end with all they started."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from rlfocal.base.errors import InputError
from rlfocal.extraction.gpus import (
    FOLDER_VARIABLE,
    Device,
    find_foreign_use,
    find_gpus,
    lease_folder,
    offer_free,
    parse_gpu,
    restrict_to,
    select_visible,
)
from rlfocal.extraction.running.events import explain_timeout
from rlfocal.extraction.running.processes import Processes, Send, run_each

LISTED = [Device(str(i), f"GPU-{i}{i}{i}", "NVIDIA H100 80GB HBM3", is_shared=True) for i in range(4)]
BOX = [Device(str(i), str(i)) for i in range(4)]
SEEN_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
SAID = """0, GPU-000, NVIDIA H100 80GB HBM3, 9.0, 580.65, 4
1, GPU-111, NVIDIA H100 80GB HBM3, 9.0, 580.65, 41210
2, GPU-222, NVIDIA, H100, 9.0, 580.65, [N/A]
"""


def names(found: Sequence[Device]) -> list[str]:
    return [device.name for device in found]


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (None, "0123"),
        ("", ""),
        ("2,1", "21"),
        (" 3 , 0", "30"),
        ("0,2,-1,1", "02"),
        ("0,7,1", "0"),
        ("GPU-22,GPU-0", "20"),
        ("GPU-,0", ""),
        ("NoDevFiles", ""),
        ("1,GPU-111,0", "10"),
    ],
)
def test_visible_devices_are_read_as_cuda_does(asked: str | None, seen: str) -> None:
    assert names(select_visible(LISTED, asked)) == list(seen)
    assert select_visible([], asked) == ()


def test_a_part_of_a_gpu_is_passed_on() -> None:
    [part] = select_visible(LISTED, "MIG-c0ffee")
    assert restrict_to([part]) == {"CUDA_VISIBLE_DEVICES": "MIG-c0ffee", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def fake_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SAID}END\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_driver_lists_gpus_and_who_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(tmp_path, monkeypatch)
    found = find_gpus({"CUDA_VISIBLE_DEVICES": "GPU-111,2"})
    assert [(d.name, d.uuid, d.product) for d in found] == [
        ("1", "GPU-111", "NVIDIA H100 80GB HBM3"),
        ("2", "GPU-222", "NVIDIA, H100"),
    ]
    assert find_foreign_use(found) == {"GPU-111": 41210}
    assert find_foreign_use(found[1:]) == {}
    chosen = find_gpus({"RLFOCAL_GPUS": "1,GPU-222", "CUDA_VISIBLE_DEVICES": ""})
    assert [(d.name, d.uuid) for d in chosen] == [("1", "GPU-111"), ("2", "GPU-222")]
    assert find_foreign_use(chosen) == {}, "who names a GPU has it"
    for wrong in ("1,9", "1,GPU-111"):
        with pytest.raises(InputError, match="names GPU"):
            find_gpus({"RLFOCAL_GPUS": wrong})
    fake_driver(tmp_path, monkeypatch, status=9)
    assert find_gpus({}) == ()


def test_a_machine_without_a_driver_has_what_it_pretends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for nothing in ({}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"RLFOCAL_GPUS": ""}):
        assert find_gpus(nothing) == ()
    assert names(find_gpus({"RLFOCAL_GPUS": "0, 1,"})) == ["0", "1"]
    with pytest.raises(InputError, match="RLFOCAL_GPUS=0,1,0 names GPU 0 twice"):
        find_gpus({"RLFOCAL_GPUS": "0,1,0"})
    assert parse_gpu("0, GPU-0, NVIDIA GB10, 12.1, 580.95, [N/A]")[1] == 0


def test_gpus_are_taken_together_or_not_at_all(tmp_path: Path) -> None:
    with offer_free(tmp_path, BOX) as offer:
        assert offer.devices == BOX
        first = offer.take(BOX[1:3])
    with offer_free(tmp_path, BOX) as offer:
        assert offer.devices == [BOX[0], BOX[3]]
    with offer_free(tmp_path, BOX) as offer:
        assert offer.devices == [BOX[0], BOX[3]], "what was offered and not taken is free again"
        second = offer.take(offer.devices)
    with offer_free(tmp_path, BOX) as offer:
        assert offer.devices == []
    first.close()
    with offer_free(tmp_path, BOX) as offer:
        assert offer.devices == BOX[1:3]
    second.close()


def test_the_folder_of_leases_is_one_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "a" / "b"))
    assert lease_folder().is_dir()
    monkeypatch.delenv(FOLDER_VARIABLE)
    own = lease_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lease_folder() == own


def hold(send: Send, seconds: float) -> None:
    """An engine, and a process of its own that got none of its open files."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], close_fds=True)
    send((os.getpid(), child.pid, SEEN_AT_IMPORT, "torch" in sys.modules))
    child.wait()


def free(folder: Path) -> list[str]:
    with offer_free(folder, BOX) as offer:
        return names(offer.devices)


def is_soon_free(folder: Path, expected: list[str]) -> bool:
    deadline = time.monotonic() + 3
    while free(folder) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return free(folder) == expected


def test_a_lease_ends_with_the_last_process_of_its_engine(tmp_path: Path) -> None:
    """kill -9 of the engine alone leaves its own process at work, and so the GPU taken."""
    said: list[tuple[int, int, str, bool]] = []
    # Else torch may be there for other tests.
    is_first = vars(forkserver._forkserver)["_forkserver_pid"] is None
    with Processes(lambda _, event: said.append(event)) as processes:
        with offer_free(tmp_path, BOX) as offer:
            lease = offer.take(BOX[2:])
        processes.start("engine", hold, (600,), restrict_to(lease.devices), lease)
        while not said:
            processes.wait(0.1)
        [(engine, child, seen, has_torch)] = said
        assert seen == "2,3"
        assert not (is_first and has_torch)
        assert free(tmp_path) == ["0", "1"]
        os.kill(engine, signal.SIGKILL)
        time.sleep(0.5)
        assert free(tmp_path) == ["0", "1"], "the engine's own process is still there"
        os.kill(child, signal.SIGKILL)
        assert is_soon_free(tmp_path, ["0", "1", "2", "3"])


def test_a_job_that_ends_gives_its_gpus_back(tmp_path: Path) -> None:
    with Processes(lambda _, event: None) as processes:
        with offer_free(tmp_path, BOX) as offer:
            lease = offer.take(BOX)
        processes.start("engine", hold, (0.1,), restrict_to(lease.devices), lease)
        while processes:
            assert set(processes.wait().values()) <= {None}
    assert is_soon_free(tmp_path, ["0", "1", "2", "3"])


def ends(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.wait(30) is None or process.status() == psutil.STATUS_ZOMBIE
    return True


def leave_a_grandchild(send: Send, fails: bool, seconds: float = 0) -> None:
    """A job whose own process would outlive it, as an engine's may."""
    send(subprocess.Popen(["sleep", "600"]).pid)
    time.sleep(seconds)
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


@pytest.mark.slow
def test_a_process_that_takes_longer_than_its_time_limit_ends_with_all_it_started() -> None:
    pids: dict[str, int] = {}
    jobs = {"slow": (False, 600.0), "quick": (False,)}
    ended = run_each(leave_a_grandchild, jobs, at_once=2, on_event=pids.__setitem__, seconds=20)
    assert ended == {"slow": explain_timeout(20), "quick": None}
    assert ends(pids["slow"])

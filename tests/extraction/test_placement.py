"""Which GPUs there are, who holds them, and which model comes next."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path

import pytest

from rlfocal.base.errors import InputError
from rlfocal.extraction.gpus import (
    FOLDER,
    Device,
    find_foreign_use,
    find_gpus,
    lease_folder,
    offer_free,
    parse_gpu,
    restrict_to,
    select_visible,
)
from rlfocal.extraction.running.processes import Processes, Send

LISTED = [Device(str(i), f"GPU-{i}{i}{i}", "NVIDIA H100 80GB HBM3", is_shared=True) for i in range(4)]
BOX = [Device(str(i), str(i)) for i in range(4)]
SEEN_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
SAID = """0, GPU-000, NVIDIA H100 80GB HBM3, 4
1, GPU-111, NVIDIA H100 80GB HBM3, 41210
2, GPU-222, NVIDIA, H100, [N/A]
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
    assert (
        find_gpus({}) == find_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}) == find_gpus({"RLFOCAL_GPUS": ""}) == ()
    )
    assert names(find_gpus({"RLFOCAL_GPUS": "0, 1,"})) == ["0", "1"]
    with pytest.raises(InputError, match="RLFOCAL_GPUS=0,1,0 names GPU 0 twice"):
        find_gpus({"RLFOCAL_GPUS": "0,1,0"})
    assert parse_gpu("0, GPU-0, NVIDIA GB10, [N/A]")[1] == 0


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
    monkeypatch.setenv(FOLDER, str(tmp_path / "a" / "b"))
    assert lease_folder().is_dir()
    monkeypatch.delenv(FOLDER)
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


def within(seconds: float, folder: Path, expected: list[str]) -> bool:
    """Whether these GPUs are free soon enough."""
    deadline = time.monotonic() + seconds
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
        assert within(3, tmp_path, ["0", "1", "2", "3"])


def test_a_job_that_ends_gives_its_gpus_back(tmp_path: Path) -> None:
    with Processes(lambda _, event: None) as processes:
        with offer_free(tmp_path, BOX) as offer:
            lease = offer.take(BOX)
        processes.start("engine", hold, (0.1,), restrict_to(lease.devices), lease)
        while processes:
            assert set(processes.wait().values()) <= {None}
    assert within(3, tmp_path, ["0", "1", "2", "3"])

"""Which processes hold which GPU of this machine: one file per GPU, locked by the processes that use it.

The lock belongs to an open file that the engine's process and its guard inherit. It ends when the last of
them is gone, however it ends; what is left is an unlocked file, never a stale lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from itertools import pairwise
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.extraction.gpus.devices import Device

FOLDER = "RLFOCAL_LEASES"
SECONDS_BETWEEN_LOOKS = 0.05


class Lease:
    """Exclusive use of some GPUs, for as long as a process has it; may be sent to a new process."""

    def __init__(self, devices: Sequence[Device], files: Sequence[int]) -> None:
        self.devices = tuple(devices)
        self._files = list(files)

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (self.devices, [DupFd(file) for file in self._files])

    def close(self) -> None:
        """Gives up this process's share; processes that have inherited the lease keep theirs."""
        while self._files:
            os.close(self._files.pop())

    def guard(self) -> None:
        """Keeps the lease until no process of this one's group is left. Called by the leader of a group.

        An engine's own processes may be started without our open files, and briefly outlive it until the
        driver has freed their memory.
        """
        group = os.getpid()
        if os.fork():
            return
        try:
            os.setsid()  # or it would be killed with the group
            _close_all_but(self._files)
            while os.getppid() == group or _is_alive(group):
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            os._exit(0)


class Offer:
    """GPUs that no process holds, kept from others while this one chooses."""

    def __init__(self, free: dict[Device, int]) -> None:
        self._free = free

    @property
    def devices(self) -> list[Device]:
        return list(self._free)

    def take(self, devices: Sequence[Device]) -> Lease:
        """A lease on some of the offer's GPUs."""
        return Lease(devices, [self._free.pop(device) for device in devices])


@contextmanager
def offer_free(folder: Path, devices: Sequence[Device]) -> Iterator[Offer]:
    """Yields an offer of the free ones among `devices`; GPUs not taken inside are given back.

    Only one process at a time has an offer, for a moment: GPUs are taken all at once or not at all, and no
    two processes wait for each other.
    """
    taking = _open(folder, "taking")
    free: dict[Device, int] = {}
    try:
        flock(taking, LOCK_EX)
        for device in devices:
            file = _open(folder, sha256(device.uuid.encode()).hexdigest()[:32])
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                os.close(file)
            else:
                free[device] = file
        yield Offer(free)
    finally:
        for file in free.values():
            os.close(file)
        os.close(taking)


def lease_folder() -> Path:
    """Where the locks of this machine are: RLFOCAL_LEASES, else a folder of this user's on a local disk.

    Raises InputError if another user owns that folder.
    """
    given = os.environ.get(FOLDER)
    # Not TMPDIR or XDG_RUNTIME_DIR: they differ between a terminal, a service and a job of the same user.
    folder = Path(given) if given else Path(f"/tmp/rlfocal-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() and not given:
        raise InputError(f"{folder} belongs to another user; name a folder of your own in {FOLDER}")
    return folder


def _open(folder: Path, name: str) -> int:
    path = folder / f"{name}.lock"
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(file)  # systems delete what lies unused in /tmp for days
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
        os.close(file)


def _receive(devices: Sequence[Device], files: Sequence[Any]) -> Lease:
    return Lease(devices, [file.detach() for file in files])


def _close_all_but(kept: Sequence[int]) -> None:
    """A process may be waiting for the end of a pipe that a guard would hold open."""
    edges = [-1, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
    for before, after in pairwise(edges):
        os.closerange(before + 1, after)


def _is_alive(group: int) -> bool:
    """Whether a process of the group runs; one that has ended and is not reaped has freed its GPU."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    processes = Path("/proc")
    if not processes.exists():
        return True
    return any(_runs_in(group, path) for path in processes.glob("[0-9]*/stat"))


def _runs_in(group: int, stat: Path) -> bool:
    try:
        state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in "ZX"

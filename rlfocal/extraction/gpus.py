"""Finds the GPUs that may be used, and shares them between processes.

NVIDIA's driver lists the GPUs; CUDA_VISIBLE_DEVICES or RLFOCAL_GPUS selects among them.

Each GPU has a file on this machine, locked by the processes that use the GPU. The lock belongs to an open
file that the engine's process and its guard inherit. It ends when the last of them ends, in whatever way. A
file that stays behind is unlocked, never a stale lock.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from itertools import pairwise
from multiprocessing.reduction import DupFd
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.extraction.budget import GPUBudget

CHOSEN_VARIABLE = "RLFOCAL_GPUS"
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
FREE_MIB = 1024
"""The most MiB in use on a GPU that counts as unused: drivers and displays take a little."""
_GPU_QUERY = (
    "--query-gpu=index,uuid,name,compute_cap,driver_version,memory.used",
    "--format=csv,noheader,nounits",
)
_QUERY_SECONDS = 60  # an idle driver without persistence takes seconds to answer
NEEDED_DRIVER = {13: 580, 12: 525}
"""The major version of NVIDIA's driver that each major version of CUDA needs."""
FOLDER_VARIABLE = "RLFOCAL_LEASES"
SECONDS_BETWEEN_LOOKS = 0.05
PATIENCE_SECONDS = 10.0
"""The seconds after which a message says what a waiting run waits for."""
FOREIGN_PATIENCE_SECONDS = 60.0
"""The seconds for which other programs may use GPUs that a job needs before the job is refused. A driver
frees the memory of programs that end sooner than that."""
SECONDS_OF_FOREIGN_USE = 5.0
"""The seconds between two questions to the driver whether other programs still use GPUs."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Device:
    """A GPU of this machine."""

    name: str
    """The GPU's name in CUDA_VISIBLE_DEVICES: its index by PCI bus, or the id of a part of a GPU (MIG)."""
    uuid: str
    """The GPU's identifier, which is the same for every process on the machine."""
    product: str = ""
    """The product's name, such as "NVIDIA H100 80GB HBM3"; empty for a pretended GPU."""
    is_shared: bool = False
    """Whether other programs might use the GPU. False for the GPUs of RLFOCAL_GPUS, which are used
    unchecked."""
    capability: str = ""
    """The CUDA compute capability, such as "9.0"."""
    driver: str = ""
    """The version of NVIDIA's driver."""


def find_gpus(environment: Mapping[str, str] = os.environ) -> tuple[Device, ...]:
    """The GPUs that this process may use; none without an NVIDIA driver.

    The GPUs that RLFOCAL_GPUS lists (`0,1,2,3`) are used even if other programs use them. Without a driver,
    they are pretended. If RLFOCAL_GPUS is not set, CUDA_VISIBLE_DEVICES is read as CUDA reads it. Raises
    InputError for a GPU that RLFOCAL_GPUS names twice, or that the driver does not list.
    """
    chosen = environment.get(CHOSEN_VARIABLE)
    if chosen is None:
        return select_visible(_list_gpus(), environment.get(VISIBLE_VARIABLE))
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    listed = _list_gpus() if names else []
    devices = [_choose(listed, name) for name in names]
    uuids = [device.uuid for device in devices]
    if twice := next((name for place, name in enumerate(names) if uuids[place] in uuids[:place]), None):
        raise InputError(
            f"{CHOSEN_VARIABLE}={chosen} names GPU {twice} twice; name each once, as in {CHOSEN_VARIABLE}=0,1"
        )
    return tuple(devices)


def select_visible(devices: Sequence[Device], visible_devices: str | None) -> tuple[Device, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names by index, by UUID or its beginning, or by MIG id. As in CUDA,
    names after the first unknown one are ignored, and an empty text selects none."""
    if visible_devices is None or not devices:
        return tuple(devices)
    visible: list[Device] = []
    for name in (part.strip() for part in visible_devices.split(",")):
        device = _find_named(devices, name)
        if device is None:
            break
        if device not in visible:
            visible.append(device)
    return tuple(visible)


def find_foreign_use(devices: Iterable[Device]) -> dict[str, int]:
    """The MiB in use, by UUID, on those of the devices that other programs use. No process of rlfocal may
    hold the devices."""
    asked = {device.uuid for device in devices if device.is_shared}
    used = {device.uuid: mib for device, mib in _ask_driver()} if asked else {}
    return {uuid: mib for uuid, mib in used.items() if uuid in asked and mib > FREE_MIB}


def driver_fault() -> str | None:
    """The reason why the installed torch cannot use this machine's GPUs; None where it can, or where there
    are none."""
    drivers = {device.driver for device in find_gpus() if device.driver}
    if not drivers:
        return None
    import torch

    return _explain_driver(min(drivers), torch.version.cuda)


def _explain_driver(driver: str, cuda: str | None) -> str | None:
    """The reason why a torch built for this CUDA version cannot use the driver, with the fix; None if it can.

    >>> _explain_driver("570.86", "13.0")
    'the driver 570.86 is too old for torch with CUDA 13.0, which needs 580 or newer; update it'
    >>> _explain_driver("580.10", "13.0")
    """
    if cuda is None:
        return "this torch was built without CUDA; install its CUDA build"
    needed = NEEDED_DRIVER.get(int(cuda.partition(".")[0]))
    if needed is None or int(driver.partition(".")[0]) >= needed:
        return None
    return (
        f"the driver {driver} is too old for torch with CUDA {cuda}, which needs {needed} or newer; update it"
    )


def restrict_to(devices: Iterable[Device]) -> dict[str, str]:
    """The environment variables of a process that may see only these GPUs."""
    return {VISIBLE_VARIABLE: ",".join(device.name for device in devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _choose(devices: Sequence[Device], name: str) -> Device:
    chosen = _find_named(devices, name)
    if chosen is not None:
        return replace(chosen, is_shared=False)
    if devices:
        there = ", ".join(f"{device.name} ({device.uuid})" for device in devices)
        raise InputError(f"{CHOSEN_VARIABLE} names GPU {name}, but this machine's are {there}")
    return Device(name, name)


def _find_named(devices: Sequence[Device], name: str) -> Device | None:
    if name.startswith("MIG-"):
        return Device(name, name, "a part of a GPU")
    if name.startswith("GPU-"):
        same = [device for device in devices if device.uuid.startswith(name)]
        return same[0] if len(same) == 1 else None
    return next((device for device in devices if device.name == name), None)


def _list_gpus() -> list[Device]:
    return [device for device, _ in _ask_driver()]


def _ask_driver() -> list[tuple[Device, int]]:
    """Every GPU of the machine and the MiB in use on it, from nvidia-smi. It comes with every driver, and
    needs neither a CUDA context nor torch."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, *_GPU_QUERY], capture_output=True, text=True, timeout=_QUERY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (
        [] if answer.returncode else [parse_gpu(line) for line in answer.stdout.splitlines() if line.strip()]
    )


def parse_gpu(line: str) -> tuple[Device, int]:
    """The GPU in a line of nvidia-smi, and the MiB in use on it; 0 MiB where the driver does not know.

    >>> parse_gpu("0, GPU-8932f937, NVIDIA H100 80GB HBM3, 9.0, 580.65.06, 41210")[1]
    41210
    """
    index, uuid, *product, capability, driver, used = (cell.strip() for cell in line.split(","))
    about = Device(index, uuid, ", ".join(product), is_shared=True, capability=capability, driver=driver)
    return about, int(used) if used.isdigit() else 0


class Lease:
    """The exclusive use of some GPUs while a process holds it. It can be sent to a new process."""

    def __init__(self, devices: Sequence[Device], files: Sequence[int]) -> None:
        self.devices = tuple(devices)
        self._files = list(files)

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (self.devices, [DupFd(file) for file in self._files])

    def close(self) -> None:
        """Gives up this process's hold on the GPUs. Processes that inherited the lease keep theirs."""
        while self._files:
            os.close(self._files.pop())

    def guard(self) -> None:
        """Keeps the lease until no process of this process's group is left. The leader of a group calls it.

        An engine may start processes that do not inherit the lease's open files. They briefly outlive the
        engine, until the driver has freed their memory.
        """
        group = os.getpid()
        if os.fork():
            return
        try:
            os.setsid()  # or it would be killed with the group
            # The reader of a pipe that this process held open would wait for ever.
            for before, after in pairwise([-1, *sorted(self._files), os.sysconf("SC_OPEN_MAX")]):
                os.closerange(before + 1, after)
            while os.getppid() == group or _is_alive(group):
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            os._exit(0)


class Offer:
    """GPUs that no process has leased. No other process can lease them while this one chooses."""

    def __init__(self, free: dict[Device, int]) -> None:
        self._free = free

    @property
    def devices(self) -> list[Device]:
        return list(self._free)

    def take(self, devices: Sequence[Device]) -> Lease:
        """A lease on some GPUs of the offer."""
        return Lease(devices, [self._free.pop(device) for device in devices])


@contextmanager
def offer_free(folder: Path, devices: Sequence[Device]) -> Iterator[Offer]:
    """Yields an offer of those devices that are not leased. GPUs that the caller does not take are free again
    afterwards.

    Only one process at a time has an offer, for a moment. So GPUs are leased all at once or not at all, and
    no two processes wait for each other.
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
    """The folder of this machine's GPU locks: RLFOCAL_LEASES, else a folder of this user on a local disk.
    Raises InputError if another user owns the latter."""
    given = os.environ.get(FOLDER_VARIABLE)
    # Not TMPDIR or XDG_RUNTIME_DIR: they differ between a terminal, a service and a job of the same user.
    folder = Path(given) if given else Path(f"/tmp/rlfocal-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() and not given:
        raise InputError(f"{folder} belongs to another user; name a folder of your own in {FOLDER_VARIABLE}")
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


def _is_alive(group: int) -> bool:
    """Whether a process of the group runs. A zombie does not count, because it has freed its GPU."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's, which this one may not be shown
        return True
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            is_ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            if os.getpgid(process.pid) == group and not is_ended:
                return True
    return False


class Placement:
    """Gives each job of a run its own GPUs, which no run has leased and no other program uses."""

    def __init__(
        self,
        devices: Sequence[Device],
        folder: Path,
        widths: Mapping[str, int],
        is_ready: Callable[[str], bool] = bool,
        budget: GPUBudget | None = None,
    ) -> None:
        """Makes a placement on these devices.

        `folder`: the lease folder, which several runs on a machine share. `widths`: the number of GPUs of
        each job. `is_ready`: whether a job may be placed yet. `budget`: the GPU-hours of all jobs.
        """
        self._devices = devices
        self._folder = folder
        self._widths = widths
        self._is_ready = is_ready
        self.budget = budget
        self._foreign_mib: dict[str, int] = {}
        self._reported_keys: set[str] = set()
        self._blocked_since: float | None = None
        self._waiting_since: float | None = None
        self._next_look = 0.0

    def place(self, waiting: Iterable[str], *, is_idle: bool) -> tuple[str, Lease] | None:
        """The first waiting job that fits, and a lease on its GPUs; None if none can start now. `is_idle`
        says whether no job of this run is running."""
        now = monotonic()
        waiting = [job for job in waiting if self._is_ready(job)]
        if now < self._next_look or not waiting:
            return None
        with offer_free(self._folder, self._devices) as offer:
            free = offer.devices
            if self._find_first_fit(waiting, len(free)) is None:
                self._blocked_since = None
                self._waiting_since = (self._waiting_since or now) if is_idle else None
                if self._waiting_since is not None and now - self._waiting_since > PATIENCE_SECONDS:
                    self._report_once("leases", "waiting for GPUs: other runs of rlfocal hold them")
                return None
            self._foreign_mib = find_foreign_use(free)
            self._report_use()
            unused = [device for device in free if device.uuid not in self._foreign_mib]
            if (job := self._find_first_fit(waiting, len(unused))) is not None:
                self._blocked_since = self._waiting_since = None
                if self.budget is not None:
                    self.budget.begin(job, self._widths[job])
                return job, offer.take(unused[: self._widths[job]])
        self._next_look = now + SECONDS_OF_FOREIGN_USE
        self._blocked_since = (self._blocked_since or now) if len(free) == len(self._devices) else None
        return None

    def end(self, job: str) -> None:
        """Notes that the job has ended, and gave its GPUs back."""
        if self.budget is not None:
            self.budget.end(job)

    def uses_gpus(self, job: str) -> bool:
        return self._widths[job] > 0

    def refuse(self, waiting: Iterable[str]) -> dict[str, str]:
        """The reason for each waiting job that will not start.

        A job may need more GPUs than there are, or its budget may be used up. Or other programs kept GPUs in
        use for a minute in which no lease was held.
        """
        if self.budget is not None and self.budget.is_ending:
            return {job: self.budget.reason for job in waiting if self.uses_gpus(job)}
        needs = {job: count_noun(self._widths[job], "GPU") for job in waiting}
        if self._blocked_since is not None and monotonic() - self._blocked_since >= FOREIGN_PATIENCE_SECONDS:
            used = ", ".join(device.name for device in self._devices if device.uuid in self._foreign_mib)
            why = f"but other processes use {used}; stop what uses them"
            return {job: f"it needs {n}, {why}" for job, n in needs.items()}
        few = f"but only {len(self._devices)} may be used here"
        remedy = "run it on a larger machine, or lower tensor_parallel in its pool entry"
        wide = [job for job in needs if self._widths[job] > len(self._devices)]
        return {job: f"it needs {needs[job]} (tensor_parallel), {few}; {remedy}" for job in wide}

    def _find_first_fit(self, waiting: Iterable[str], n_free: int) -> str | None:
        return next((job for job in waiting if self._widths[job] <= n_free), None)

    def _report_use(self) -> None:
        for device in (device for device in self._devices if device.uuid in self._foreign_mib):
            used = f"{self._foreign_mib[device.uuid]:,} MiB of it (more than {FREE_MIB:,})"
            self._report_once(device.uuid, f"skipping GPU {device.name}: other processes use {used}")

    def _report_once(self, key: str, message: str) -> None:
        if key not in self._reported_keys:
            self._reported_keys.add(key)
            _log.warning(message)

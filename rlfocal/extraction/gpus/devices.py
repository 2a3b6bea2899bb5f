"""The GPUs that may be used: NVIDIA's driver lists them, CUDA_VISIBLE_DEVICES or RLFOCAL_GPUS chooses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlfocal.base.errors import InputError

CHOSEN = "RLFOCAL_GPUS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
FREE_MIB = 1024
"""A GPU with up to this many MiB in use counts as unused: drivers and displays take a little."""
_QUERY = ("--query-gpu=index,uuid,name,memory.used", "--format=csv,noheader,nounits")
_SECONDS = 60  # an idle driver without persistence takes seconds to answer


@dataclass(frozen=True)
class Device:
    """A GPU."""

    name: str
    """Name in CUDA_VISIBLE_DEVICES: its index by PCI bus, or the id of a part of it (MIG)."""
    uuid: str
    """The same for every process on the machine, however it refers to the GPU."""
    product: str = ""
    """Product name, such as "NVIDIA H100 80GB HBM3"; empty for a pretended one."""
    is_shared: bool = False
    """Whether others might use it; RLFOCAL_GPUS gives GPUs without asking."""


def find_gpus(environment: Mapping[str, str] = os.environ) -> tuple[Device, ...]:
    """The GPUs that this process may use; none where there is no NVIDIA driver.

    RLFOCAL_GPUS (`0,1,2,3`) says: use these GPUs, even if others use them; a machine without a driver
    pretends to have them. Otherwise CUDA_VISIBLE_DEVICES is read as CUDA reads it. Raises InputError for a
    GPU named twice, and for one that the driver does not list.
    """
    chosen = environment.get(CHOSEN)
    if chosen is None:
        return select_visible(_list_gpus(), environment.get(VISIBLE))
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    listed = _list_gpus() if names else []
    found = [_choose(listed, name) for name in names]
    uuids = [device.uuid for device in found]
    if twice := next((name for at, name in enumerate(names) if uuids[at] in uuids[:at]), None):
        raise InputError(f"{CHOSEN}={chosen} names GPU {twice} twice; name each once, as in {CHOSEN}=0,1")
    return tuple(found)


def select_visible(listed: Sequence[Device], asked: str | None) -> tuple[Device, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES, `asked`, leaves: indices, UUIDs or their beginnings, MIG ids.

    As in CUDA, everything after a name that is not a GPU is ignored, and an empty text leaves none.
    """
    if asked is None or not listed:
        return tuple(listed)
    found: list[Device] = []
    for name in (part.strip() for part in asked.split(",")):
        device = _find_named(listed, name)
        if device is None:
            break
        if device not in found:
            found.append(device)
    return tuple(found)


def find_foreign_use(devices: Iterable[Device]) -> dict[str, int]:
    """MiB in use on every GPU that other programs use, by UUID. `devices` are held by no lease."""
    asked = {device.uuid for device in devices if device.is_shared}
    used = {device.uuid: mib for device, mib in _ask_driver()} if asked else {}
    return {uuid: mib for uuid, mib in used.items() if uuid in asked and mib > FREE_MIB}


def restrict_to(devices: Iterable[Device]) -> dict[str, str]:
    """The environment of a process that should see only these GPUs."""
    return {VISIBLE: ",".join(device.name for device in devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _choose(listed: Sequence[Device], name: str) -> Device:
    known = _find_named(listed, name)
    if known is not None:
        return Device(known.name, known.uuid, known.product)
    if listed:
        there = ", ".join(f"{device.name} ({device.uuid})" for device in listed)
        raise InputError(f"{CHOSEN} names GPU {name}, but this machine's are {there}")
    return Device(name, name)


def _find_named(listed: Sequence[Device], name: str) -> Device | None:
    if name.startswith("MIG-"):
        return Device(name, name, "a part of a GPU")
    if name.startswith("GPU-"):
        same = [device for device in listed if device.uuid.startswith(name)]
        return same[0] if len(same) == 1 else None
    return next((device for device in listed if device.name == name), None)


def _list_gpus() -> list[Device]:
    return [device for device, _ in _ask_driver()]


def _ask_driver() -> list[tuple[Device, int]]:
    """Every GPU of the machine and the MiB in use on it, from nvidia-smi.

    It comes with every driver, and needs neither a CUDA context nor the seconds of importing torch.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (
        [] if answer.returncode else [parse_gpu(line) for line in answer.stdout.splitlines() if line.strip()]
    )


def parse_gpu(line: str) -> tuple[Device, int]:
    """A GPU and its MiB in use, 0 where the driver does not know.

    >>> parse_gpu("0, GPU-8932f937, NVIDIA H100 80GB HBM3, 41210")[1]
    41210
    """
    index, uuid, *product, used = (cell.strip() for cell in line.split(","))
    return Device(index, uuid, ", ".join(product), is_shared=True), int(used) if used.isdigit() else 0

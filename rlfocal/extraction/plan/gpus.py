"""The GPUs that a plan can assume."""

from __future__ import annotations

from typing import NamedTuple

from rlfocal.base.errors import unknown


class GPU(NamedTuple):
    """One GPU, from its maker's data sheet."""

    name: str
    tflops: float
    """Peak of dense bfloat16 products, in 1e12 operations a second."""
    memory_gb: float
    bandwidth_gb: float
    """Memory read in a second, in 1e9 bytes."""
    dollars: float
    """Price of an hour: a round figure, to be replaced by your own."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("H100", 989, 80, 3350, 2.5),
        GPU("H200", 989, 141, 4800, 3.5),
        GPU("A100", 312, 80, 2039, 1.5),
        GPU("L40S", 362, 48, 864, 1.0),
        GPU("L4", 121, 24, 300, 0.6),
    )
}

DEFAULT = "H100"


def gpu_of(device: str) -> GPU | None:
    """The GPU that a driver's device name means, such as "NVIDIA H100 80GB HBM3"."""
    return next((gpu for gpu in GPUS.values() if gpu.name in device.split()), None)


def find_gpu(name: str) -> GPU:
    """The GPU of that name, in any case. Raises InputError for an unknown one."""
    by_name = {known.lower(): gpu for known, gpu in GPUS.items()}
    if name.lower() not in by_name:
        raise unknown("GPU", name, GPUS, "--gpu")
    return by_name[name.lower()]

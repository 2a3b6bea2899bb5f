"""Training histories as files that TensorBoard reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Episode


def require_tensorboard() -> None:
    """Raises InputError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError("TensorBoard is not installed; pip install 'rlfocal[tensorboard]'")


def write_event_files(history: Sequence[Episode], folder: Path) -> None:
    """Writes a scalar `phase/quantity` for each episode, replacing what the folder held.

    Raises InputError if TensorBoard is not installed.
    """
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        with SummaryWriter(str(partial)) as writer:
            for episode in history:
                values = episode._asdict()
                phase, step = values.pop("phase"), values.pop("episode")
                for name, value in values.items():
                    if value is not None:
                        writer.add_scalar(f"{phase}/{name}", value, step)
        rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    finally:
        rmtree(partial, ignore_errors=True)

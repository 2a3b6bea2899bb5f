"""Limits a run's GPU-hours. They are counted while its models hold GPUs, and the run ends before it exceeds
them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic

from rlfocal.base.errors import InputError

SECONDS_TO_STOP = 180.0
"""The seconds that a model gets to finish the documents it is working on, and to commit their answers."""
SHARE_TO_STOP = 0.05
"""The largest share of a GPU budget that is reserved for finishing documents and committing."""


class GPUBudget:
    """The GPU-hours that the models of a run share. Several threads may use one budget."""

    def __init__(self, hours: float, clock: Callable[[], float] = monotonic) -> None:
        """Makes a budget of `hours` GPU-hours. `clock` is a function that returns seconds."""
        self.reason = (
            f"the run's {hours:g} GPU-hours (--gpu-hours) are used up; what it committed stays, and the same "
            "command continues; `rlfocal plan` says what is left"
        )
        self._seconds = 3600 * hours
        self._clock = clock
        self._used_seconds = 0.0
        self._starts: dict[str, tuple[float, int]] = {}
        self._is_ending = False
        self._lock = Lock()

    def begin(self, model: str, gpus: int) -> None:
        """Notes that the model holds this many GPUs from now on. A second call for a model has no effect."""
        with self._lock:
            self._starts.setdefault(model, (self._clock(), gpus))

    def end(self, model: str) -> None:
        """Notes that the model has given its GPUs back."""
        with self._lock:
            if model in self._starts:
                since, gpus = self._starts.pop(model)
                self._used_seconds += gpus * (self._clock() - since)

    @property
    def hours(self) -> float:
        """The GPU-hours used so far."""
        with self._lock:
            return self._count_seconds() / 3600

    @property
    def is_ending(self) -> bool:
        """Whether models must finish the documents that they are working on, and no other model may begin.
        Once true, it stays true."""
        with self._lock:
            active = sum(gpus for _, gpus in self._starts.values())
            left = self._seconds - self._count_seconds()
            self._is_ending |= left <= min(SHARE_TO_STOP * self._seconds, SECONDS_TO_STOP * active)
            return self._is_ending

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up, so that models must be stopped at once."""
        with self._lock:
            return self._count_seconds() >= self._seconds

    def _count_seconds(self) -> float:
        now = self._clock()
        return self._used_seconds + sum(gpus * (now - since) for since, gpus in self._starts.values())


def make_budget(hours: float | None, n_gpus: int) -> GPUBudget | None:
    """The budget of a run; None if `hours` is None. Raises InputError where the run uses no GPU."""
    if hours is None:
        return None
    if not n_gpus:
        raise InputError("--gpu-hours limits the use of GPUs, and this run uses none; leave it out")
    return GPUBudget(hours)

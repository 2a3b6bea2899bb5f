"""GPU-hours that a run may take: counted while its models hold GPUs, and ended before more are taken."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic

from rlfocal.base.errors import InputError

SECONDS_TO_STOP = 180.0
"""Seconds that a model is given to finish the documents that it is at, and to commit."""
SHARE_TO_STOP = 0.05
"""The largest share of the budget that these seconds may take."""


class GPUBudget:
    """GPU-hours that the models of a run share. Several threads may use one."""

    def __init__(self, hours: float, clock: Callable[[], float] = monotonic) -> None:
        """`clock`: seconds."""
        self.reason = (
            f"the run's {hours:g} GPU-hours (--gpu-hours) are used up; what it committed stays, and the same "
            "command continues; `rlfocal plan` says what is left"
        )
        self._seconds = 3600 * hours
        self._clock = clock
        self._used = 0.0
        self._since: dict[str, tuple[float, int]] = {}
        self._is_ending = False
        self._lock = Lock()

    def begin(self, model: str, gpus: int) -> None:
        """Notes that the model holds this many GPUs from now on; a second call changes nothing."""
        with self._lock:
            self._since.setdefault(model, (self._clock(), gpus))

    def end(self, model: str) -> None:
        """The model has given its GPUs back."""
        with self._lock:
            if model in self._since:
                since, gpus = self._since.pop(model)
                self._used += gpus * (self._clock() - since)

    @property
    def hours(self) -> float:
        """GPU-hours used so far."""
        with self._lock:
            return self._used_seconds() / 3600

    @property
    def is_ending(self) -> bool:
        """Whether models must finish what they are at, and no other may begin; once it is, it stays."""
        with self._lock:
            active = sum(gpus for _, gpus in self._since.values())
            left = self._seconds - self._used_seconds()
            self._is_ending |= left <= min(SHARE_TO_STOP * self._seconds, SECONDS_TO_STOP * active)
            return self._is_ending

    @property
    def is_spent(self) -> bool:
        """Whether models must be stopped at once."""
        with self._lock:
            return self._used_seconds() >= self._seconds

    def _used_seconds(self) -> float:
        now = self._clock()
        return self._used + sum(gpus * (now - since) for since, gpus in self._since.values())


def make_budget(hours: float | None, n_gpus: int) -> GPUBudget | None:
    """The budget of a run; None where it has none. Raises InputError where no GPU is there to be counted."""
    if hours is None:
        return None
    if not n_gpus:
        raise InputError("--gpu-hours counts GPUs, and this run uses none here; leave it out")
    return GPUBudget(hours)

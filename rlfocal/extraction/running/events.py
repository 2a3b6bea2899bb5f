"""What an extraction reports while it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """How many documents of a partition are answered so far."""

    model: str
    benchmark: str
    task: str
    done: int
    total: int


@dataclass(frozen=True)
class Extracted:
    """A partition that this run extracted and committed."""

    model: str
    benchmark: str
    task: str
    n_docs: int
    seconds: float


@dataclass(frozen=True)
class AlreadyCommitted:
    """A partition that another run committed in the meantime."""

    model: str
    benchmark: str
    task: str


@dataclass(frozen=True)
class Failure:
    """A step that failed, and for what; `*` means all."""

    step: str
    """extract, evaluate or report."""
    model: str
    benchmark: str
    task: str
    reason: str
    """One plain sentence."""
    lasting: bool = field(default=False, compare=False)
    """Whether a retry would fail the same way: a gated model, a wrong revision, a prompt that is too long."""


Event = Progress | Extracted | AlreadyCommitted | Failure


def share_of_tasks(on_progress: Callable[[str, float], None], n_tasks: int) -> Callable[[Event], None]:
    """Turns events into `on_progress(title, share)`: the finished share, 0 to 1, of a model's tasks.

    A task that fails adds nothing: a model with a failure never reaches 1.
    """
    shares: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)

    def report(event: Event) -> None:
        done = float(not isinstance(event, Failure))
        if isinstance(event, Progress):
            done = event.done / event.total
        shares[event.model][event.benchmark, event.task] = done
        on_progress(f"extract {event.model}", sum(shares[event.model].values()) / n_tasks)

    return report

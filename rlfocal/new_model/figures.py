"""What a new model brings to its pool, as figures; `rlfocal.new_model.page` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.new_model.pools import BestPools


@dataclass(frozen=True)
class Score:
    """Accuracy on the documents of one task, or of all (`*`)."""

    task: str
    n: int
    accuracy: float
    stderr: float | None
    """None for a single document."""


@dataclass(frozen=True)
class Pair:
    """The new model and another on the documents both answered, by `pairwise_diversity` and `agreement`."""

    model: str
    n: int
    disagreement: float
    q_statistic: float | None
    double_fault: float
    focal_diversity: float | None
    same_error: float | None


@dataclass(frozen=True)
class Agents:
    """One of RL-Focal's methods with the pool before or after: its means over seeds in `evaluations`."""

    method: str
    has_it: bool
    seeds: int
    n: int
    accuracy: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""


@dataclass(frozen=True)
class Standing:
    """The model on one benchmark, beside the others."""

    benchmark: str
    score: Score
    rank: int
    """1: the most accurate model of the benchmark."""
    n_models: int
    tasks: tuple[Score, ...]
    pairs: tuple[Pair, ...]
    pools: tuple[BestPools, ...]
    agents: tuple[Agents, ...]


@dataclass(frozen=True)
class Superfluous:
    """The model of the pool that is missed least once the new one is in it."""

    model: str
    loss: float
    """The loss of the best pools' accuracy on train documents, mean over benchmarks."""
    disagreement: float
    """With the new model, mean over benchmarks."""


@dataclass(frozen=True)
class Price:
    """What the model costs to run; None: not known."""

    params_b: float | None
    active_params_b: float | None
    gpus: int
    """GPUs that it is split over; 0 for a service's."""
    price: float | None
    """Cents per 1,000 queries."""
    price_input: float | None
    price_output: float | None
    """Cents per million tokens."""
    n_docs: int
    seconds: float
    """Seconds that its engine took to answer so many documents."""
    paid: float | None = None
    """Cents that its service was paid for them; None where nothing is paid."""


def superfluous(
    model: str, losses: Sequence[dict[str, float]], pairs: Sequence[Sequence[Pair]]
) -> Superfluous | None:
    """The model whose absence the best pools notice least on average; ties: the one most like the new one.

    `losses` and `pairs`: one a benchmark. Models that miss a benchmark are not considered.
    """
    if not losses:
        return None
    found = []
    for name in sorted(set.intersection(*map(set, losses)) - {model}):
        apart = [pair.disagreement for each in pairs for pair in each if pair.model == name]
        if apart:
            loss = sum(lost[name] for lost in losses) / len(losses)
            found.append(Superfluous(name, loss, sum(apart) / len(apart)))
    return min(found, key=lambda s: (round(s.loss, 9), s.disagreement, s.model), default=None)

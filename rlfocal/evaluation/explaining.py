"""Explains trained agents on test rows: which models they ask and believe, what each is worth, where they
stop.

Shares are fractions. Torch is only imported to explain anew: the report reads stored explanations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.gone import refuse_gone
from rlfocal.base.names import TRAINED_METHODS
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import find_fallback
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate
from rlfocal.evaluation.fitting import fit_groups, fitting_lock
from rlfocal.evaluation.planning import GIVEN_SPLIT, Per, Progress, Setup, hide_names, read_dataset
from rlfocal.methods import RLFocal
from rlfocal.statistics.intervals import Interval, mean_over_units
from warehouse import Warehouse

if TYPE_CHECKING:
    from rlfocal.methods.learning.agents import FusionAttribution, TrainedAgents

EXPLAINED_METHODS = TRAINED_METHODS
"""The methods whose agents can be explained."""
NO_LOSS_MARGIN = 0.01
"""A model can be dropped without loss if both intervals lie above the negative of this: for accuracy, and for
the log score in nats."""
MIN_CHANCE = 1e-3
"""The lowest probability in a log score.

If no asked model gave the right answer it would be 0, whose logarithm would dominate everything else.
"""


@dataclass(frozen=True)
class Belief:
    """How much Fusion believes one model."""

    asked: int
    """The number of documents on which the model is asked."""
    disputed: int
    """The number of documents that the model answered differently from another asked model."""
    followed: float
    """The share of disputed documents on which Fusion gives the model's answer; 0 if there are none."""
    votes: float
    """The mean share of asked models that give the model's answer on these: how often a random vote would."""
    pull: float | None
    """How much the model's outputs raise the logit of Fusion's answer above the other slots', in nats.

    It is the mean over all documents on which the model was asked; None if logits are not a sum over models.
    """

    @property
    def weight(self) -> float:
        """How much Fusion believes the model: the sum of pulls or, without pulls, the answers it followed
        beyond what votes explain."""
        return self.disputed * (self.followed - self.votes) if self.pull is None else self.asked * self.pull


@dataclass(frozen=True)
class ModelUse:
    """How the agents use one model of the pool, and how they perform without it."""

    model: str
    train_accuracy: float
    accuracy: float
    """The accuracy of the model alone, on the test documents."""
    asked: float
    """The share of documents on which the model is asked."""
    mean_round: float
    """The mean round of calls, from 1, in which the model is asked; 0 if it never is."""
    belief: Belief | None
    """How Fusion weighs the model; None if it is never asked."""
    accuracy_without: Interval
    """The gain (+) or loss (−) in accuracy of the same frozen agents without the model, with the 95 %
    interval."""
    log_score_without: Interval
    """The difference in ln(probability of the right answer) of the same agents without the model."""

    @property
    def is_free(self) -> bool:
        """Whether both intervals lie above minus `NO_LOSS_MARGIN`, so that the model can be dropped."""
        return min(self.accuracy_without.low, self.log_score_without.low) > -NO_LOSS_MARGIN


@dataclass(frozen=True)
class DocumentGroup:
    """The documents of one task, or those on which the same number of models was asked."""

    name: str
    documents: int
    accuracy: float
    mean_pool_size: float
    beliefs: tuple[tuple[str, Belief], ...]
    """(model, belief) of the models asked about these documents, the most believed first."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of one seed's frozen agents on the test rows of a split."""

    benchmark: str
    method: str
    per: str
    split: str
    seed: int
    data: str
    """The fingerprint of the rows that were explained."""
    n_train: int
    n: int
    """The number of test documents."""
    accuracy: float
    mean_pool_size: float
    models: tuple[ModelUse, ...]
    """The models by how often they are asked; ties: the earlier round first."""
    tasks: tuple[DocumentGroup, ...]
    """The groups of documents by task, in the order of their names."""
    stops: tuple[DocumentGroup, ...]
    """The groups of documents by the number of models asked, in rising order."""
    deciding: tuple[tuple[str, int], ...] = ()
    """(policy that decides, number of fits), the most frequent first; empty in explanations of earlier
    versions"""
    n_pools: int = 0
    """The number of different pools that the agents ask."""
    commonest_pool: float = 0.0
    """The share of documents on which the agents ask their most frequent pool."""


def explain(
    warehouse: Warehouse,
    benchmark: str,
    *,
    method: str = EXPLAINED_METHODS[0],
    models: Sequence[str] | None = None,
    seed: int = 0,
    per: Per = "benchmark",
    split: str = GIVEN_SPLIT,
    on_progress: Progress | None = None,
) -> Explanation:
    """Explains one seed's agents: which models they ask, believe and could drop, and where they stop.

    Uses stored outputs on the split's test rows, frozen. The agents are those of `rlfocal train` and `rlfocal
    evaluate`; without a checkpoint for these rows they are trained now. The explanation is stored beside the
    warehouse, and the report shows it. Raises InputError for another method, an unknown benchmark or model,
    and for data without test rows.
    """
    refuse_gone(f"method {method}")
    if method not in EXPLAINED_METHODS:
        raise unknown_name("method", method, EXPLAINED_METHODS, "the methods with agents to explain")
    if seed < 0:
        raise InputError(f"seed {seed} does not exist; seeds count from 0")
    dataset = read_dataset(warehouse, benchmark, models, split=split)
    request = EvaluationRequest(benchmark, seeds=1, per=per, split=split, on_progress=on_progress)
    setup = Setup(warehouse, dataset, request)
    agents = _load_agents(setup, method, seed)
    progress = setup.progress(f"{benchmark} explain") if per == "benchmark" else None
    seen = observe(hide_names(dataset, setup.groups), setup.groups, agents, progress)
    seen = replace(seen, test=dataset.test)  # to tell how well they do on each task
    about = {"method": method, "per": per, "split": split, "seed": seed, "data": dataset.fingerprint()}
    deciding = Counter(name for agent in agents if (name := find_fallback(agent)) is not None)
    explanation = summarise(
        seen, **about, n_train=int(dataset.is_train.sum()), deciding=tuple(deciding.most_common())
    )
    first, *_ = make_candidate(setup, method).runs(setup)
    with suppress(OSError):  # it is stored only to be faster the next time
        save(explanation, explanation_file(warehouse, replace(first, seed=seed).run_id))
    return explanation


def _load_agents(setup: Setup, method: str, seed: int) -> list[TrainedAgents]:
    """The agents of one seed for each group of rows: loaded, or trained now."""
    from rlfocal.methods.learning.agents import TrainedAgents  # imports torch

    dataset = hide_names(setup.dataset, setup.groups)
    own = RLFocal(method, store=setup.store, on_progress=setup.progress(f"{dataset.benchmark} {method}"))
    rows = [dataset.rows(mask & dataset.is_train) for mask in setup.groups]
    is_trained = all(own.is_current(of, seed) for of in rows)
    with nullcontext() if is_trained else fitting_lock(setup, method):
        [policies] = fit_groups(own, dataset, setup.groups, [seed])
    agents = [policy for policy in policies if isinstance(policy, TrainedAgents)]
    assert len(agents) == len(setup.groups)
    return agents


@dataclass(frozen=True)
class ExplanationData:
    """The decisions of agents on T test documents, with all N models and without each."""

    test: Dataset
    """The T test documents, with their labels."""
    train_accuracy: Floats
    """(N,) each model's accuracy on train"""
    rounds: Ints
    """(T, N) the round of calls, from 1, in which a model was asked; 0 where it was not"""
    slots: Ints
    """(1 + N, T) the answered slots, numbered as in the dataset, -1 for none: with all models, then without
    each"""
    chance: Floats
    """(1 + N, T) the probability of the right answer; 0 where no asked model gave it"""
    pulls: Floats | None
    """(T, N) the pulls of the models, as in `FusionAttribution`"""

    @property
    def right(self) -> Bools:
        """(T,) whether the agents are right, with all models."""
        return self.test.is_right(self.slots[0])

    @property
    def pools(self) -> Bools:
        """(T, N) which models the agents ask."""
        return self.rounds > 0


def observe(
    dataset: Dataset,
    groups: Sequence[Bools],
    agents: Sequence[TrainedAgents],
    on_progress: Callable[[float], None] | None = None,
) -> ExplanationData:
    """The decisions of each group's agents on the group's test rows. `groups` are masks (T,) of the dataset's
    rows.

    No label is used before everything is decided. `on_progress` is called with the finished share.
    """
    test, n_models = dataset.test, len(dataset.models)
    rounds, pulls = np.zeros((len(test), n_models), dtype=np.int64), np.zeros((len(test), n_models))
    slots = np.full((1 + n_models, len(test)), -1, dtype=np.int64)
    chance, is_sum = np.zeros((1 + n_models, len(test))), True
    for number, (mask, agent) in enumerate(zip(groups, agents, strict=True)):
        rows = np.flatnonzero(mask[~dataset.is_train])
        documents = test.take(rows)
        calls = Calls(documents)
        account = agent.account(calls)
        rounds[rows], slots[:, rows] = calls.rounds, calls.stored_slots(account.slots)
        chance[:, rows] = _find_chance(account, calls, documents)
        is_sum &= account.pulls is not None
        pulls[rows] = 0.0 if account.pulls is None else account.pulls
        for model in range(n_models):
            if calls.called[:, model].any():
                without = Calls(documents, np.arange(n_models) == model)
                left = agent.account(without)
                slots[1 + model, rows] = without.stored_slots(left.slots)
                chance[1 + model, rows] = _find_chance(left, without, documents)
            if on_progress is not None:
                on_progress((number + (model + 1) / n_models) / len(groups))
    return ExplanationData(
        test, dataset.train.correct.mean(axis=0), rounds, slots, chance, pulls if is_sum else None
    )


def _find_chance(account: FusionAttribution, calls: Calls, documents: Dataset) -> Floats:
    """(T,) the probability of the right slots, by the agents' distribution over the slots that `calls`
    has."""
    distribution, slots = account.distribution, calls.own_slots(documents.labels)
    is_there = (slots >= 0) & (slots < distribution.shape[1])
    held = np.take_along_axis(distribution, np.where(is_there, slots, 0)[:, None], axis=1)[:, 0]
    return np.where(is_there, held, 0.0)


def summarise(seen: ExplanationData, **about: Any) -> Explanation:
    """The explanation of the decisions `seen`; `about`: its fields that do not follow from them."""
    sizes, tasks = seen.pools.sum(axis=1), seen.test.tasks
    _, times = np.unique(seen.pools, axis=0, return_counts=True)
    models = [measure_model_use(seen, model) for model in range(len(seen.test.models))]
    return Explanation(
        **about,
        benchmark=seen.test.benchmark,
        n=len(seen.test),
        accuracy=float(seen.right.mean()),
        mean_pool_size=float(sizes.mean()),
        models=tuple(sorted(models, key=lambda m: (-m.asked, m.mean_round, -m.train_accuracy))),
        tasks=tuple(group(seen, name, tasks == name) for name in sorted(set(tasks.tolist()))),
        stops=tuple(group(seen, str(size), sizes == size) for size in np.unique(sizes).tolist()),
        n_pools=len(times),
        commonest_pool=float(times.max() / len(seen.test)),
    )


def measure_model_use(seen: ExplanationData, model: int) -> ModelUse:
    """How the agents use the model at this position, and how they perform without it, paired by document."""
    rounds, asked = seen.rounds[:, model], seen.pools[:, model]
    right = seen.test.is_right(seen.slots[1 + model]).astype(np.float64) - seen.right
    score = log_score(seen.chance[1 + model]) - log_score(seen.chance[0])
    return ModelUse(
        seen.test.models[model],
        float(seen.train_accuracy[model]),
        float(seen.test.correct[:, model].mean()),
        float(asked.mean()),
        float(rounds[asked].mean()) if asked.any() else 0.0,
        belief(seen, model, np.ones(len(seen.test), dtype=np.bool_)),
        _mean_with_interval(right),
        _mean_with_interval(score),
    )


def group(seen: ExplanationData, name: str, rows: Bools) -> DocumentGroup:
    """The agents' decisions on some documents (T,), as a group."""
    beliefs = [(model, belief(seen, place, rows)) for place, model in enumerate(seen.test.models)]
    asked = [(model, belief_in) for model, belief_in in beliefs if belief_in is not None]
    return DocumentGroup(
        name,
        int(rows.sum()),
        float(seen.right[rows].mean()),
        float(seen.pools[rows].sum(axis=1).mean()),
        tuple(sorted(asked, key=lambda item: -item[1].weight)),
    )


def belief(seen: ExplanationData, model: int, rows: Bools) -> Belief | None:
    """How much Fusion believes one model, on some documents (T,); None if it is not asked on any of them."""
    asked = seen.pools[:, model] & rows
    if not asked.any():
        return None
    predictions = seen.test.predictions
    own = predictions[:, model]
    answered = seen.pools & (predictions >= 0)
    agree = (answered & (predictions == own[:, None])).sum(axis=1)
    disputed = asked & (own >= 0) & (agree < answered.sum(axis=1))
    followed = (seen.slots[0] == own)[disputed]
    votes = (agree / np.maximum(answered.sum(axis=1), 1))[disputed]
    return Belief(
        int(asked.sum()),
        int(disputed.sum()),
        float(followed.mean()) if disputed.any() else 0.0,
        float(votes.mean()) if disputed.any() else 0.0,
        None if seen.pulls is None else float(seen.pulls[asked, model].mean()),
    )


def log_score(chance: Floats) -> Floats:
    """(T,) ln of the probability of the right answer."""
    return np.asarray(np.log(np.maximum(chance, MIN_CHANCE)))


def _mean_with_interval(differences: Floats) -> Interval:
    """The mean of paired differences, with its interval over documents."""
    if len(differences) == 1:  # says nothing of others
        return Interval(mean := float(differences[0]), min(mean, -1.0), max(mean, 1.0))
    found = mean_over_units(differences)
    return Interval(found.mean, found.low, found.high)


def explanation_file(warehouse: Warehouse, run_id: str) -> Path:
    """The file of a run's explanation.

    The run's id changes with everything that the agents' decisions depend on.
    """
    return warehouse.location.explanations / f"{run_id}.json"


def save(explanation: Explanation, path: Path) -> None:
    """Writes an explanation to a file, which appears whole or not at all."""
    write_file(path, _explanation_adapter().dump_json(explanation, indent=1).decode())


def load(path: Path) -> Explanation | None:
    """The explanation that `save` wrote; None if the file is missing, or holds something else."""
    try:
        return _explanation_adapter().validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


@cache
def _explanation_adapter() -> TypeAdapter[Explanation]:
    return TypeAdapter(Explanation)  # takes as long as a hundred explanations

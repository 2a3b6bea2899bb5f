"""Explains trained agents on test rows: the models that they ask and believe, and when they stop asking.

Shares are fractions. Torch is imported only for a new explanation, as the report reads stored ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import TRAINED_METHODS, refuse_gone
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
"""A model can be dropped without loss if neither accuracy nor the log score (nats) may fall by more.

The lower ends of both 95 % intervals are compared with the negative of this number.
"""
MIN_CHANCE = 1e-3
"""The lowest probability of the right answer in a log score.

It would be 0 if no asked model gave that answer, and one such logarithm would dominate all others.
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
    """On disputed documents, the mean share of the asked models with an answer that give this model's answer.
    """
    pull: float | None
    """How much the model's outputs raise the logit of Fusion's answer above the other slots', in nats.

    It is the mean over all documents on which the model was asked; None if logits are not a sum over models.
    """

    @property
    def weight(self) -> float:
        """How much Fusion believes the model: the sum of its pulls over documents.

        Without pulls: on how many more disputed documents it was followed than votes alone explain.
        """
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
    """The gain (+) or loss (−) in accuracy of the same frozen agents without the model: 95 % interval."""
    log_score_without: Interval
    """The gain or loss in ln(probability of the right answer) of these agents without the model, in nats."""

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
    """(model, belief) of the models that were asked about these documents, the most believed first."""


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
    """A group of documents for each task, in the order of the tasks' names."""
    stops: tuple[DocumentGroup, ...]
    """A group of documents for each number of models asked, in rising order."""
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

    The agents decide on stored outputs of the split's test rows, and learn nothing there. They are those of
    `rlfocal train` and `rlfocal evaluate`, or are trained now if there is no checkpoint for these rows. The
    explanation is stored beside the warehouse, and the report shows it. Raises InputError for another method,
    an unknown benchmark or model, and for data without test rows.
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
    """(1 + N, T) the answered slots in the dataset's numbers, -1 for none; first with all models, then with
    each one missing"""
    chance: Floats
    """(1 + N, T) the agents' probability of the right answer, in the order of `slots`"""
    pulls: Floats | None
    """(T, N) the pulls of the models, as in `FusionAttribution`; None if Fusion's logits are no sum"""

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
    """(T,) the agents' probability of the right slot, 0 where `calls` has no such slot."""
    distribution, slots = account.distribution, calls.own_slots(documents.labels)
    is_there = (slots >= 0) & (slots < distribution.shape[1])
    held = np.take_along_axis(distribution, np.where(is_there, slots, 0)[:, None], axis=1)[:, 0]
    return np.where(is_there, held, 0.0)


def summarise(decisions: ExplanationData, **about: Any) -> Explanation:
    """The explanation of agents' decisions; `about`: the fields that do not follow from the decisions."""
    sizes, tasks = decisions.pools.sum(axis=1), decisions.test.tasks
    _, times = np.unique(decisions.pools, axis=0, return_counts=True)
    models = [measure_model_use(decisions, model) for model in range(len(decisions.test.models))]
    return Explanation(
        **about,
        benchmark=decisions.test.benchmark,
        n=len(decisions.test),
        accuracy=float(decisions.right.mean()),
        mean_pool_size=float(sizes.mean()),
        models=tuple(sorted(models, key=lambda m: (-m.asked, m.mean_round, -m.train_accuracy))),
        tasks=tuple(_make_group(decisions, name, tasks == name) for name in sorted(set(tasks.tolist()))),
        stops=tuple(_make_group(decisions, str(size), sizes == size) for size in np.unique(sizes).tolist()),
        n_pools=len(times),
        commonest_pool=float(times.max() / len(decisions.test)),
    )


def measure_model_use(data: ExplanationData, model: int) -> ModelUse:
    """How the agents use the model at this position, and how they perform without it, paired by document."""
    rounds, asked = data.rounds[:, model], data.pools[:, model]
    right = data.test.is_right(data.slots[1 + model]).astype(np.float64) - data.right
    score = _log_score(data.chance[1 + model]) - _log_score(data.chance[0])
    return ModelUse(
        data.test.models[model],
        float(data.train_accuracy[model]),
        float(data.test.correct[:, model].mean()),
        float(asked.mean()),
        float(rounds[asked].mean()) if asked.any() else 0.0,
        measure_belief(data, model, np.ones(len(data.test), dtype=np.bool_)),
        _mean_with_interval(right, most=1.0),
        _mean_with_interval(score),
    )


def _make_group(data: ExplanationData, name: str, rows: Bools) -> DocumentGroup:
    """The figures of the agents' decisions on the documents where the mask `rows` (T,) is true."""
    beliefs = [(model, measure_belief(data, place, rows)) for place, model in enumerate(data.test.models)]
    asked = [(model, belief_in) for model, belief_in in beliefs if belief_in is not None]
    return DocumentGroup(
        name,
        int(rows.sum()),
        float(data.right[rows].mean()),
        float(data.pools[rows].sum(axis=1).mean()),
        tuple(sorted(asked, key=lambda item: -item[1].weight)),
    )


def measure_belief(data: ExplanationData, model: int, rows: Bools) -> Belief | None:
    """How much Fusion believes a model on the documents `rows` (T,); None if it is asked on none of them."""
    asked = data.pools[:, model] & rows
    if not asked.any():
        return None
    predictions = data.test.predictions
    own = predictions[:, model]
    answered = data.pools & (predictions >= 0)
    agree = (answered & (predictions == own[:, None])).sum(axis=1)
    disputed = asked & (own >= 0) & (agree < answered.sum(axis=1))
    followed = (data.slots[0] == own)[disputed]
    votes = (agree / np.maximum(answered.sum(axis=1), 1))[disputed]
    return Belief(
        int(asked.sum()),
        int(disputed.sum()),
        float(followed.mean()) if disputed.any() else 0.0,
        float(votes.mean()) if disputed.any() else 0.0,
        None if data.pulls is None else float(data.pulls[asked, model].mean()),
    )


def _log_score(chance: Floats) -> Floats:
    """(T,) ln of the probability `chance` (T,) of the right answer, which counts as MIN_CHANCE at least."""
    return np.asarray(np.log(np.maximum(chance, MIN_CHANCE)))


def _mean_with_interval(differences: Floats, most: float = inf) -> Interval:
    """The mean of paired differences, with its interval over documents. None can be further from 0 than
    `most`."""
    if len(differences) == 1:  # says nothing of others
        return Interval(mean := float(differences[0]), min(mean, -1.0), max(mean, 1.0))
    found = mean_over_units(differences)
    return Interval(found.mean, max(found.low, -most), min(found.high, most))


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

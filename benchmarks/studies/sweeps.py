"""Studies of RL-Focal's settings, its need for labels, team sizes, successes, and models that think."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.study import (
    ALL_VALUES,
    RL_FOCAL_LABEL,
    Arm,
    Conditions,
    Point,
    StudyResult,
    point,
    reference_arm,
    run_arm,
    run_arms,
    tuned_arm,
)
from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import Episode
from rlfocal.methods import Policy, RLFocal, TrainedPolicy, entry_of
from rlfocal.methods.checking import read_value
from rlfocal.methods.trained import check_settings, defaults
from rlfocal.scenarios.scenario import keep_labels, read_label_count
from rlfocal.statistics.votes import plurality, soft_vote
from warehouse import Warehouse


def sweep(setting: str, label: Callable[[Any], str]) -> Callable[[Conditions, Sequence[Any]], StudyResult]:
    """A study's function that tries values of a numeric setting; `label` names a value."""

    def answer(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
        check_settings(conditions.method, [setting])
        like = getattr(defaults(conditions.method), setting)
        tried = [read_value(str(value), like, setting) for value in values]
        arms = [tuned_arm(conditions, label(value), float(value), {setting: value}) for value in tried]
        return StudyResult(run_arms([*arms, reference_arm(conditions, "best_single")]))

    return answer


MAX_TEAM_SIZE = 6
"""The number of models in the largest team, unless sizes are given."""
REFERENCE_METHODS = ("best_single", "plurality", "soft_vote", "log_linear", "stacking")
"""The methods beside RL-Focal unless `--beside` names others."""


def labels(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of every method, fitted to the first n train documents in one random order, for each n."""
    data = conditions.setup.dataset
    most = int(data.is_train.sum())
    counts = [most if value == ALL_VALUES else min(read_label_count(str(value)), most) for value in values]
    arms = [
        arm
        for n in dict.fromkeys(counts)
        for arm in _make_arms(
            conditions.replace_rows(keep_labels(data, n)), f"{n:,} labels", float(n), {"train_labels": n}
        )
    ]
    note = "The test set is always the same; each set of labels is part of every larger one."
    return StudyResult(run_arms(arms), [note])


def _make_arms(conditions: Conditions, label: str, x: float, beside: dict[str, Any]) -> list[Arm]:
    """The arms of RL-Focal and of the methods beside it."""
    kind = conditions.setup.dataset.kind
    names = [name for name in conditions.beside or REFERENCE_METHODS if kind in entry_of(name).kinds]
    others = [reference_arm(conditions, name, label, x, beside=beside) for name in names]
    return [tuned_arm(conditions, label, x, beside=beside), *others]


def sizes(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of RL-Focal with teams of k models, and of two methods that pick one of k models, for each k.
    `rl_focal_sequential` asks at most k models on average."""
    most = len(conditions.setup.dataset.models)
    wanted = range(2, max(min(most, MAX_TEAM_SIZE), 2) + 1) if ALL_VALUES in values else values
    counts = [_read_count(value, most) for value in wanted]
    arms = [_constrain(conditions, k) for k in counts]
    references: dict[str, Protocol] = {"random_select": "frozen", "latest_correct": "online"}
    for method, protocol in references.items():
        on = conditions.replace_rows(conditions.setup.dataset, protocol)
        arms += [reference_arm(on, f"{method}:{k}", f"{k} models", float(k)) for k in counts]
    how = (
        "asks at most k models on average over train"
        if conditions.method == "rl_focal_sequential"
        else "asks the k models whose branches are likeliest"
    )
    return StudyResult(
        run_arms(arms),
        [
            f"RL-Focal {how}; random_select and latest_correct answer by one of the k models that are best "
            "on train, latest_correct by one that was right on the document before, for which it asks all k."
        ],
    )


def _constrain(conditions: Conditions, k: int) -> Arm:
    label = f"{k} models"
    if conditions.method == "rl_focal_sequential":
        return tuned_arm(conditions, label, float(k), {"mean_pool": float(k)})
    if conditions.method != "rl_focal":
        raise InputError(
            f"{conditions.method} has no Decider that can be held to a size; "
            "use rl_focal or rl_focal_sequential"
        )
    return tuned_arm(
        conditions, label, float(k), beside={"pool_size": k}, adapt=lambda own: FixedSizeMethod(own, k)
    )


@dataclass(frozen=True)
class FixedSizeMethod:
    """`rl_focal`, trained as usual, whose policies ask teams of a fixed size."""

    method: RLFocal
    size: int
    seeded: bool = True

    def recipe(self, n_train: int) -> str:
        return f"{self.method.recipe(n_train)} size {self.size}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Policy]:
        return [_FixedSizePolicy(policy, self.size) for policy in self.method.fit(train, seeds)]


@dataclass(frozen=True)
class _FixedSizePolicy:
    agents: Any
    size: int

    @property
    def history(self) -> Sequence[Episode]:
        return self.agents.history if isinstance(self.agents, TrainedPolicy) else ()

    def decide(self, calls: Calls) -> Answers:
        answered: Answers = self.agents.decide(calls, size=self.size)
        return answered


def _read_count(value: Any, most: int) -> int:
    count: int = read_value(str(value), 1, "size")
    if not 1 <= count <= most:
        raise InputError(f"a pool of {count} models is not possible; use 1 to {most}")
    return count


class DecisionTrace(NamedTuple):
    """The decisions of one run on T documents."""

    pools: Bools
    """(T, N) the models that were asked"""
    correct: Bools
    """(T,) whether the answer is right"""


def success(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of RL-Focal's answers and of votes of the same teams, by the number of right members."""
    test = conditions.setup.dataset.test
    rows = run_arm(tuned_arm(conditions, RL_FOCAL_LABEL))
    decided = [decisions(conditions.setup.warehouse, row.run_id, test) for row in rows]
    right = [(test.correct & of_seed.pools).sum(axis=1) for of_seed in decided]
    answers = {
        RL_FOCAL_LABEL: [of_seed.correct for of_seed in decided],
        "plurality of its team": [
            test.is_right(plurality(test.predictions, of_seed.pools, test.kind)) for of_seed in decided
        ],
        "soft vote of its team": [
            test.is_right(soft_vote(test.probs, of_seed.pools, test.kind)) for of_seed in decided
        ],
    }
    points = [p for name, correct in answers.items() for p in points_by_right_members(name, right, correct)]
    overall = ", ".join(f"{name} {100 * float(np.mean(correct)):.2f} %" for name, correct in answers.items())
    asked = float(np.mean([of_seed.pools.sum(axis=1).mean() for of_seed in decided]))
    return StudyResult(points, [f"Over all documents: {overall}; {asked:.2f} models asked."])


def points_by_right_members(series: str, right: Sequence[Ints], correct: Sequence[Bools]) -> list[Point]:
    """A point for every number of right members that occurs; for each seed, `right` and `correct` are (T,).
    `right` counts a team's right members, and `correct` says whether the answer is right."""
    points = []
    for j in range(max(int(counts.max(initial=0)) for counts in right) + 1):
        rates = [
            float(hit[counts == j].mean())
            for counts, hit in zip(right, correct, strict=True)
            if (counts == j).any()
        ]
        if rates:
            documents = round(float(np.mean([(counts == j).sum() for counts in right])))
            points.append(point(series, f"{j} right", float(j), max(documents, 1), rates))
    return points


def decisions(warehouse: Warehouse, run_id: str, test: Dataset) -> DecisionTrace:
    """A run's stored decisions, in the order of the test documents."""
    table = warehouse.query(
        "SELECT task, doc_id, pool, correct FROM decisions WHERE run_id = ?", [run_id]
    ).to_pydict()
    keys = zip(test.tasks.tolist(), test.doc_ids.tolist(), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    place = {name: number for number, name in enumerate(test.models)}
    pools = np.zeros((len(test), len(test.models)), dtype=np.bool_)
    correct = np.zeros(len(test), dtype=np.bool_)
    for task, doc_id, pool, hit in zip(*table.values(), strict=True):
        row = rows[task, doc_id]
        pools[row, [place[name] for name in pool]] = True
        correct[row] = hit
    return DecisionTrace(pools, correct)


_TOKENS_THOUGHT = """
SELECT coalesce(m.hf_repo, m.family, c.model) AS weights, c.model, avg(c.n_thought_tokens) AS n_thought_tokens
FROM query_costs AS c JOIN models AS m USING (model)
WHERE c.benchmark = $1 AND list_contains($2, c.model)
GROUP BY ALL
ORDER BY weights, n_thought_tokens, c.model
"""
"""SQL for the mean number of thought tokens of models $2 on benchmark $1, grouped by shared weights."""
CHOOSERS = ("best_single", "cascade")
"""The methods that choose among the models beside RL-Focal, unless `--beside` names others."""


def thinking(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of each model that shares weights with others, and of methods that choose among such models. A
    method chooses between the model and those of its weights that think less."""
    thinkers = find_thinkers(conditions)
    for value in values:
        if value not in (ALL_VALUES, *thinkers):
            raise unknown_name("weights", str(value), thinkers, "--values")
    chosen = {
        name: models_of for name, models_of in thinkers.items() if ALL_VALUES in values or name in values
    }
    points = []
    for weights, models in chosen.items():
        of = f", {weights}" if len(chosen) > 1 else ""
        points += [replace(p, series=f"{p.series}{of}") for p in run_arms(_thinking_arms(conditions, models))]
    note = "Choosing: between that model and those of its weights that think less, trained on the train rows."
    return StudyResult(points, [note])


def find_thinkers(conditions: Conditions) -> dict[str, dict[str, float]]:
    """By weights, the models that share them, with each one's mean number of thought tokens, ascending.

    Raises InputError if no two models of the same weights think for different lengths.
    """
    setup = conditions.setup
    about = [setup.dataset.benchmark, list(setup.dataset.models)]
    thinkers: dict[str, dict[str, float]] = {}
    for weights, model, tokens in setup.warehouse.rows(_TOKENS_THOUGHT, about):
        thinkers.setdefault(weights, {})[model] = tokens
    thinkers = {weights: models for weights, models in thinkers.items() if len(set(models.values())) > 1}
    if not thinkers:
        raise InputError(
            f"no two models of {setup.dataset.benchmark!r} have the same weights and think for different "
            "lengths; extract a pool with two entries of one `hf_repo` and another `thinking.budget`"
        )
    return thinkers


def _thinking_arms(conditions: Conditions, models: dict[str, float]) -> list[Arm]:
    setup = conditions.setup
    alone = conditions.replace_rows(setup.dataset)
    arms = [reference_arm(alone, f"single:{model}", model, tokens) for model, tokens in models.items()]
    for k, (model, tokens) in enumerate(models.items(), 1):
        if k > 1:
            some = load_dataset(setup.warehouse, setup.dataset.benchmark, list(models)[:k])
            on, label = conditions.replace_rows(some), f"up to {model}"
            arms.append(tuned_arm(on, label, tokens, keep=False))
            arms += [reference_arm(on, other, label, tokens) for other in conditions.beside or CHOOSERS]
    return arms

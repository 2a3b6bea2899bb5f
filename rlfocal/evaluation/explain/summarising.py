"""Turns observations into an explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.explain import Belief, Explanation, Loss, OfModel, OfTask, Pools, Stop
from rlfocal.evaluation.explain.examples import Document, against, despite, examples
from rlfocal.evaluation.explain.observing import Observed
from rlfocal.statistics.intervals import Interval, paired_bootstrap

LEAST_CHANCE = 1e-3
"""The lowest probability in a log score: if no model asked gave the right answer it would be 0, whose
logarithm would dominate everything else."""
DRAWS = 2_000
"""Bootstrap draws: with 10,000, intervals of log scores would take a second per model."""


def summarise(seen: Observed, confidential: Collection[Document], **about: Any) -> Explanation:
    """The explanation of these observations; `about`: its fields that they do not tell.

    For `confidential` documents, examples show only which model gave which choice.
    """
    own = own_answers(seen)
    return Explanation(
        **about,
        benchmark=seen.test.benchmark,
        n=len(seen.test),
        accuracy=float(seen.right.mean()),
        mean_pool_size=float(seen.pools.sum(axis=1).mean()),
        best_single=seen.test.models[int(seen.train_accuracy.argmax())],
        models=of_models(seen),
        stops=stops(seen),
        pools=pools(seen),
        own=int(own.sum()),
        own_accuracy=float(seen.right[own].mean()) if own.any() else 0.0,
        tasks=of_tasks(seen),
        against=int(against(seen).sum()),
        despite=int(despite(seen).sum()),
        examples=examples(seen, confidential),
    )


def of_models(seen: Observed) -> tuple[OfModel, ...]:
    """The models asked most often first; ties by earlier rounds, then by higher train accuracy."""
    test, pools = seen.test, seen.pools
    n_rounds = int(seen.rounds.max(initial=0))
    correct, alone = test.correct, test.correct.mean(axis=0)
    only_one = correct & pools & ((correct & pools).sum(axis=1, keepdims=True) == 1)
    together = pools & (pools.sum(axis=1, keepdims=True) > 1)
    alike, errors = alike_in_error(test)
    everywhere = np.ones(len(test), dtype=np.bool_)
    found = []
    for at, model in enumerate(test.models):
        twin = int(np.where(np.arange(len(test.models)) == at, -1.0, alike[at]).argmax())
        found.append(
            OfModel(
                model,
                float(seen.train_accuracy[at]),
                float(alone[at]),
                float(pools[:, at].mean()),
                tuple(float((seen.rounds[:, at] == r).mean()) for r in range(1, n_rounds + 1)),
                float(only_one[together[:, at], at].mean()) if together[:, at].any() else None,
                test.models[twin],
                float(alike[at, twin]),
                int(errors[at, twin]),
                belief(seen, at, everywhere),
                loss(seen, at),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.asked, _mean_round(one), -one.train_accuracy)))


def stops(seen: Observed) -> tuple[Stop, ...]:
    """By increasing size."""
    sizes = seen.pools.sum(axis=1)
    return tuple(
        Stop(int(size), int((sizes == size).sum()), float(seen.right[sizes == size].mean()))
        for size in np.unique(sizes)
    )


def pools(seen: Observed) -> Pools:
    """The sets of models asked; of equally common ones, the first counts as the commonest."""
    counted = Counter(map(tuple, seen.pools.tolist()))
    commonest, n = counted.most_common(1)[0]
    members = tuple(model for model, is_in in zip(seen.test.models, commonest, strict=True) if is_in)
    return Pools(len(counted), members, n / len(seen.test))


def own_answers(seen: Observed) -> Bools:
    """(T,) where Fusion's answer is not the prediction of any model asked."""
    said = (seen.pools & (seen.test.predictions == seen.slots[:, None])).any(axis=1)
    return np.asarray((seen.slots >= 0) & ~said)


def of_tasks(seen: Observed) -> tuple[OfTask, ...]:
    """By name."""
    found = []
    for task in sorted(set(seen.test.tasks.tolist())):
        rows = seen.test.tasks == task
        beliefs = []
        for at, model in enumerate(seen.test.models):
            if (one := belief(seen, at, rows)) is not None:
                asked = float(seen.pools[rows, at].sum())
                weight = one.surplus if one.pull is None else one.pull * asked
                beliefs.append((weight, model, one))
        beliefs.sort(key=lambda item: -item[0])
        found.append(
            OfTask(
                task,
                int(rows.sum()),
                float(seen.right[rows].mean()),
                float(seen.pools[rows].sum(axis=1).mean()),
                tuple((model, one) for _, model, one in beliefs),
            )
        )
    return tuple(found)


def belief(seen: Observed, model: int, rows: Bools) -> Belief | None:
    """Fusion's belief in one model, on some documents (T,); None if it is not asked on any of them."""
    asked = seen.pools[:, model] & rows
    if not asked.any():
        return None
    said = seen.test.predictions
    own = said[:, model]
    answered = seen.pools & (said >= 0)
    agree = (answered & (said == own[:, None])).sum(axis=1)
    contested = asked & (own >= 0) & (agree < answered.sum(axis=1))
    followed = (seen.slots == own)[contested]
    votes = (agree / np.maximum(answered.sum(axis=1), 1))[contested]
    return Belief(
        int(contested.sum()),
        float(followed.mean()) if contested.any() else 0.0,
        float(votes.mean()) if contested.any() else 0.0,
        None if seen.pulls is None else float(seen.pulls[asked, model].mean()),
    )


def loss(seen: Observed, model: int) -> Loss:
    """The loss of accuracy and log score without the model, paired by document."""
    right = seen.test.is_right(seen.slots_without[model]).astype(np.float64) - seen.right
    score = log_score(seen.chance_without[model]) - log_score(seen.chance)
    return Loss(_mean_with_interval(right), _mean_with_interval(score))


def log_score(chance: Floats) -> Floats:
    """(T,) ln of the probability given to the right answer."""
    return np.asarray(np.log(np.maximum(chance, LEAST_CHANCE)))


def _mean_with_interval(differences: Floats) -> Interval:
    """Bootstrap interval of the mean, over documents."""
    drawn = paired_bootstrap(differences[None], np.zeros((1, len(differences))), draws=DRAWS)
    return Interval(drawn.mean, drawn.low, drawn.high)


def alike_in_error(test: Dataset) -> tuple[Floats, Ints]:
    """Both (N, N): the share of the documents where either of two models is wrong on which both give the same
    answer (0 without any), and the number of these documents. By plain agreement, any two good models would
    look like copies."""
    said, wrong = test.predictions, ~test.correct
    same = np.stack([(said == said[:, [at]]) & wrong for at in range(len(test.models))]).sum(axis=1)
    either = np.stack([wrong | wrong[:, [at]] for at in range(len(test.models))]).sum(axis=1)
    return same / np.maximum(either, 1), either


def _mean_round(one: OfModel) -> float:
    return sum(number * share for number, share in enumerate(one.by_round, 1)) / max(one.asked, 1e-9)

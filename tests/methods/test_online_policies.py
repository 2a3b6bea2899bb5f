"""Every policy that learns online: no label reaches an answer or a call before its turn; labels teach it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.datasets import answers, choices
from support.rival_data import brief
from support.worded_data import LATE, N_TRAIN, TURN, turning

from rlfocal.base.names import RL_FOCAL, WITHOUT_TEXTS
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, OnlineAgents, OnlineLearner, decide, decide_online
from rlfocal.methods import entries, every_method, make_method

ONLINE = (*RL_FOCAL[:2], *(name for name, one in entries().items() if one.protocols == ("online",)))
SLOWER = tuple(name for name in ONLINE if name.endswith(("linucb", "thompson")) or name == "rl_focal")


@cache
def data_of(kind: str) -> Dataset:
    """120 or 150 test documents; those with choices turn after a third."""
    rows = np.concatenate([np.arange(N_TRAIN), N_TRAIN + TURN + np.arange(-50, 100)])
    return turning().take(rows) if kind == "choices" else answers(40)


@cache
def policy(name: str, kind: str) -> OnlineLearner | OnlineAgents:
    made = fitted(name, data_of(kind))
    assert isinstance(made, OnlineLearner | OnlineAgents)
    return made


def fitted(name: str, data: Dataset) -> object:
    [made] = make_method(name).fit(data.train, [0])
    return made


def until(decided: Decisions, t: int) -> tuple[bytes, ...]:
    """What was answered and called up to document t, itself among them."""
    rounds = decided.pools if decided.rounds is None else decided.rounds
    return tuple(part[: t + 1].tobytes() for part in (decided.predictions, decided.pools, rounds))


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "choices") for name in ONLINE]
    + [pytest.param(name, "answers", marks=pytest.mark.slow) for name in ONLINE],
)
def test_labels_from_a_document_on_change_nothing_up_to_it(name: str, kind: str) -> None:
    made, test = policy(name, kind), data_of(kind).test
    decided, rng = decide_online(made, test), np.random.default_rng(0)
    differs = []
    for t, change in ((0, "flipped"), (23, "permuted"), (50, "none"), (len(test) - 1, "flipped")):
        labels = test.labels.copy()
        labels[t:] = {
            "flipped": (labels[t:] + 1) % np.maximum(test.n_choices[t:], 2),
            "permuted": rng.permutation(labels[t:]),
            "none": -1,
        }[change]
        other = decide_online(made, replace(test, labels=labels))
        assert until(other, t) == until(decided, t), t
        differs.append(until(other, len(test)) != until(decided, len(test)))
    assert any(differs)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOWER else []) for name in ONLINE],
)
def test_online_learners_follow_a_change_of_the_best_model(name: str) -> None:
    """And who never learned would not: as frozen, it is below what is asked of it."""
    test = turning().test
    made = fitted(name, turning())
    assert isinstance(made, OnlineLearner | OnlineAgents)
    online, frozen = (
        (decided.predictions == test.labels)[-LATE:].mean()
        for decided in (decide_online(made, test), decide(made, test))  # type: ignore[arg-type]
    )
    assert frozen < 0.6
    assert online > max(0.7, frozen + 0.15)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_all_other_methods_are_frozen() -> None:
    for data in (choices(), answers()):
        for name in set(every_method(data, "online")[0]) - {*ONLINE, *WITHOUT_TEXTS, *RL_FOCAL}:
            assert not isinstance(brief(name).fit(data.train, [0])[0], OnlineLearner | OnlineAgents), name

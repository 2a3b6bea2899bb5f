"""Scenarios: how they are read, what each changes, and what it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.datasets import make_answers, make_logits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.scenarios.scenario import Scenario, corrupt_labels, drop_answers, keep_labels

CHOICES = make_logits(0, T=200, N=4, C=4)
ANSWERS = make_answers(*[("aabb", "a"), ("dcba", "b"), ("eeea", "z"), ("bb--", "b")] * 20)
BOTH = pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=["choices", "answers"])


def same(one: Dataset, other: Dataset) -> bool:
    return one.fingerprint() == other.fingerprint()


@BOTH
def test_fewer_labels_are_part_of_more_and_test_stays(data: Dataset) -> None:
    few, more = keep_labels(data, 10), keep_labels(data, 25)
    assert (len(few.train), len(more.train)) == (10, 25)
    assert set(few.train.doc_ids.tolist()) < set(more.train.doc_ids.tolist())
    assert same(few.test, data.test)
    assert same(keep_labels(data, len(data)), data)


@BOTH
def test_models_fail_in_test_alone_and_as_often_as_said(data: Dataset) -> None:
    harder = drop_answers(data, 0.3)
    assert same(harder.train, data.train)
    gone = (harder.predictions == -1) & (data.predictions >= 0)
    there = (data.predictions >= 0) & ~data.is_train[:, None]
    assert 0.15 < gone[there].mean() < 0.45
    assert not harder.probs[gone].any()
    kept = harder.predictions >= 0
    assert (harder.predictions[kept] == data.predictions[kept]).all()
    assert same(drop_answers(data, 0.0), data)


@BOTH
def test_wrong_labels_are_other_slots_in_train(data: Dataset) -> None:
    harder = corrupt_labels(data, 0.4)
    assert same(harder.test, data.test)
    wrong = harder.labels != data.labels
    can = data.is_train & (data.labels >= 0) & (data.n_choices > 1)
    assert 0.25 < wrong[can].mean() < 0.55
    assert not wrong[~can].any()
    assert ((harder.labels >= 0) == (data.labels >= 0)).all()
    assert (harder.labels < np.maximum(data.n_choices, 1)).all()


def test_it_is_read_from_words() -> None:
    assert Scenario.parse("") == Scenario()
    assert Scenario.parse("drop=a, drop=b,labels=10,label-noise=0.2,set=k=3") == Scenario(
        drop=("a", "b"), labels=10, label_noise=0.2, settings=("k=3",)
    )
    both = Scenario.parse("down=a,swap=b=c,missing=0.1", down=("d",), swap=(), prices="p.csv")
    assert both == Scenario(down=("d", "a"), swap=("b=c",), missing=0.1, prices="p.csv")
    refits = [Scenario.parse(text).refits for text in ("drop=a", "labels=10", "label-noise=0.1", "set=k=3")]
    assert all(refits)
    assert not both.refits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drops=a", "unknown kind of change 'drops'.*did you mean 'drop'"),
        ("drop=", "'drop=' has no value; give one, as in drop=MODEL"),
        ("labels", "'labels' has no value; give one, as in labels=100"),
        ("labels=9,labels=8", "gives labels twice"),
        ("labels=1", "1 labels are too few to learn from; give 2 or more"),
        ("labels=few", "cannot be read"),
        ("missing=1", "1.0 is not a share"),
        ("label-noise=-0.1", "-0.1 is not a share"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Scenario.parse(text)

"""The start of `rl_focal_sequential`: its figures by definition, what decides, and a Router that asks it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.datasets import make_dataset

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import Output
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.training import prepare, train
from rlfocal.methods.trained import load_checkpoint, save_checkpoint
from rlfocal.serving import Router

QUICK = SequentialConfig(folds=3, word_directions=0, landmarks=0, recipes=(Ridges(100),))


def three_alike(n_train: int = 40, seed: int = 0) -> Dataset:
    """Three models, right on 65 % of documents each and independent, and one that guesses. 600 test
    documents."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=n_train + 600)
    right = rng.random((len(labels), 4)) < np.array([0.65, 0.65, 0.65, 0.25])
    says = np.where(right, labels[:, None], (labels[:, None] + rng.integers(1, 4, right.shape)) % 4)
    sure = rng.uniform(0.4, 0.9, right.shape)[..., None]
    return make_dataset(np.where(np.arange(4) == says[..., None], sure, (1 - sure) / 3), labels, n_train)


def started() -> tuple[SequentialAgents, Dataset]:
    data = three_alike()
    [agents] = train(data.train, QUICK, [0])
    assert agents.deciding_policies[-1] == "start"
    return agents, data


def test_with_few_labels_the_start_decides_and_is_better_than_the_best_model() -> None:
    agents, data = started()
    decided = decide(agents, data.test.hide_labels())
    assert agents.start is not None
    assert (decided.pools.sum(axis=1) == agents.start.size).all()
    best = data.test.correct[:, agents.best].mean()
    assert data.test.is_right(decided.predictions).mean() > best + 0.04


def test_its_answers_are_those_of_a_log_linear_pool_by_odds() -> None:
    agents, data = started()
    assert agents.start is not None
    order = list(agents.order[: agents.start.size])
    accuracy = (data.train.correct.sum(axis=0) + 1) / (len(data.train) + 2)
    odds = (accuracy / (1 - accuracy))[order]
    logs = data.train.logprobs
    deviation = np.sqrt(np.square(logs - logs.mean(axis=2, keepdims=True)).mean(axis=(0, 2)))
    test = data.test.logprobs[:, order]
    evidence = (test - test.mean(axis=2, keepdims=True)) / deviation[order, None]
    logits = agents.start.scale * np.einsum("tmc,m->tc", evidence, odds / odds.sum())
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    decided = decide(agents, data.test.hide_labels())
    np.testing.assert_array_equal(decided.predictions, expected.argmax(axis=1))
    assert decided.probability is not None
    np.testing.assert_allclose(decided.probability, expected.max(axis=1), atol=1e-5)


def test_a_document_tells_nothing_of_the_start_that_is_tried_on_it() -> None:
    """With its label moved, only its own outcome changes, and what other folds make of it."""
    rows = three_alike().train
    work = prepare(rows, QUICK, [0])
    fold = work.held_out[0]
    tried = work.starts(fold)
    labels = rows.labels.copy()
    labels[0] = (labels[0] + 1) % 4
    moved = prepare(make_dataset(rows.probs, labels, len(rows)).train, QUICK, [0], work.order, work.shares)
    same = fold == fold[0]
    np.testing.assert_array_equal(tried.confidence[:, same], moved.starts(fold).confidence[:, same])


def test_a_model_that_is_down_is_replaced_and_a_smaller_budget_asks_one() -> None:
    agents, data = started()
    assert agents.start is not None
    first = agents.order[0]
    calls = Calls(data.test.hide_labels(), np.arange(4) == first)
    agents.decide(calls)
    assert not calls.called[:, first].any()
    assert (calls.called.sum(axis=1) == agents.start.size).all()
    one = agents.hold_to_budget(Budget(1))
    assert one is not None
    assert (decide(one, data.test.hide_labels()).pools.sum(axis=1) == 1).all()


@pytest.mark.parametrize("fails", [False, True])
def test_a_router_asks_and_answers_as_the_agents_do(fails: bool) -> None:
    agents, data = started()
    test, down = data.test.hide_labels(), np.arange(4) == (agents.order[1] if fails else -1)
    calls = Calls(test, down)
    slots = agents.decide(calls).slots
    router = Router(agents, online=False)
    for row in range(20):
        outputs: dict[str, Output] = {}
        while names := router.choose("", outputs):
            for name in names:
                at = agents.models.index(name)
                outputs[name] = None if down[at] else test.logprobs[row, at]
        heard = [agents.models.index(name) for name, output in outputs.items() if output is not None]
        assert sorted(heard) == np.flatnonzero(calls.called[row]).tolist()
        assert router.fuse(outputs) == slots[row]


def test_a_checkpoint_holds_it_and_one_without_it_is_refused(tmp_path: Path) -> None:
    agents, data = started()
    save_checkpoint(agents, tmp_path / "agents.safetensors")
    loaded = load_checkpoint(tmp_path / "agents.safetensors")
    assert isinstance(loaded, SequentialAgents)
    assert loaded.start == agents.start
    np.testing.assert_array_equal(
        decide(loaded, data.test).predictions, decide(agents, data.test).predictions
    )


@pytest.mark.parametrize("most", [1.0, 2.0])
def test_it_asks_no_more_than_the_mean_pool(most: float) -> None:
    rows = three_alike().train
    config = SequentialConfig(mean_pool=most, folds=3, word_directions=0, landmarks=0, recipes=(Ridges(100),))
    assert prepare(rows, config, [0]).starts(np.arange(len(rows)) % 3).start.size <= most

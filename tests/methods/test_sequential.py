"""`rl_focal_sequential`: what its decisions may depend on, and how well it decides."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets import make_answers, make_dataset, make_logits
from support.sequential_data import ANSWERS, CHOICES, SMALL, letters, of_models, right, trained

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import evaluate
from rlfocal.methods import make_method
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig, sequential_config
from rlfocal.methods.rl_focal_sequential.decider import asking_order
from rlfocal.methods.rl_focal_sequential.observations import (
    Outputs,
    QuestionFeatures,
    best_slots,
    make_outputs,
    read_question_features,
    real_slots,
    silence,
    stage_rows,
)
from rlfocal.methods.rl_focal_sequential.training import train
from warehouse import Warehouse, open_warehouse


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
@given(st.data())
def test_a_document_is_decided_on_its_own(data: Dataset, drawn: st.DataObject) -> None:
    test, agents = data.test, trained(data.kind)
    at = np.array(drawn.draw(st.lists(st.integers(0, len(test) - 1), min_size=1, unique=True)))
    every, some = decide(agents, test), decide(agents, test.take(at))
    assert (some.pools == every.pools[at]).all()
    assert (some.predictions == every.predictions[at]).all()


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_failed_call_counts_as_no_answer(kind: Kind) -> None:
    agents = trained(kind)
    data = (CHOICES if kind == "choices" else ANSWERS).test
    known = read_question_features(data, agents.queries)

    def seen(documents: Dataset) -> Outputs:
        return make_outputs(documents, known, agents.scales, agents.order, agents.n_slots)

    silent = np.array([False, True, False, False, True])
    silent_slots = silent[list(agents.order)]
    expected = silence(seen(data), silent_slots)
    failed = np.where(silent, 0.0, 1.0)[:, None]
    got = seen(
        replace(
            data,
            probs=data.probs * failed,
            logprobs=np.where(np.isfinite(data.logprobs) & (failed == 0), 0.0, data.logprobs),
            predictions=np.where(silent, -1, data.predictions),
        )
    )
    for name in ("shared", "own", "votes"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), atol=1e-12)
    assert kind == "answers" or expected.votes[:, ~silent_slots].sum() == 3 * len(data)


def test_ties_between_answers_go_to_the_model_that_was_asked_first() -> None:
    """And then to the alphabet, wherever models that were not asked put the answers."""
    probabilities = np.array([[0.4, 0.2, 0.4], [0.3, 0.3, 0.0], [0.0, 0.0, 0.0]])
    shares = np.array(
        [[[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], [[0, 0, 0]] * 3]
    )
    nothing = np.zeros((3, 0))
    labels = np.zeros(3, dtype=np.int64)
    seen = Outputs(
        shares, np.zeros((3, 3, 0)), shares > 0, shares[:, :0], labels, QuestionFeatures(nothing, nothing)
    )
    assert best_slots(probabilities, seen, 3, [("7", "8", "9"), ("8", "7"), ()]).tolist() == [2, 1, -1]
    assert best_slots(probabilities, seen, 3, [("7", "8", "9"), ("7", "8"), ()]).tolist() == [2, 0, -1]


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
def test_the_order_of_the_models_does_not_matter(data: Dataset) -> None:
    assert len(set(data.train.correct.sum(axis=0))) == len(data.models)
    at = [3, 0, 4, 1, 2]
    moved = of_models(data, at, "other-{}")
    [agents] = train(moved.train, SMALL, [0])
    before, after = decide(trained(data.kind), data.test), decide(agents, moved.test)
    assert (after.pools == before.pools[:, at]).all()
    assert (after.predictions == before.predictions).all()


def test_free_answers_beat_the_best_model_and_unanswered_documents_are_wrong() -> None:
    data = make_answers(*letters(T=600))
    [agents] = train(data.train, replace(SMALL, mean_pool=3.0), [0])
    assert right(agents, data.test).mean() > data.test.correct[:, agents.order[0]].mean() + 0.03
    unknown = make_answers(*[("bbcd-", "z"), ("-----", "z")] * 4)
    assert not right(agents, unknown).any()
    silent = decide(agents, unknown).predictions
    assert (silent[np.array([not row for row in unknown.slots])] == -1).all()


def test_an_undisputed_answer_is_not_certain() -> None:
    """One model's single answer is all there is to choose from, and is still wrong at times."""
    data = make_answers(*[("a", "a"), ("a", "z"), ("a", "a")] * 40)
    data = of_models(data, [0, 0])
    [agents] = train(data.train, SMALL, [0])
    assert agents.history[0].accuracy == pytest.approx(2 / 3, abs=0.05)
    seen = make_outputs(
        data.test,
        read_question_features(data.test, agents.queries),
        agents.scales,
        agents.order,
        agents.n_slots,
    )
    said = real_slots(agents.fusions[0].probabilities(stage_rows(seen, 1, "answers")), "answers")
    np.testing.assert_allclose(said[:, 0], 2 / 3, atol=0.07)


def specialists(T: int = 300) -> tuple[Dataset, NDArray[np.int64]]:
    """One model knows every second document, another the rest, both as sure of everything; whose each is."""
    rng = np.random.default_rng(3)
    about = np.arange(T) % 2
    labels = rng.integers(0, 4, size=T)
    says = rng.integers(0, 4, size=(T, 2))
    says[np.arange(T), about] = labels
    probs = np.where(np.arange(4) == says[..., None], 0.7, 0.1)
    return make_dataset(probs, labels, n_train=200), about


def test_fusion_weights_depend_on_the_question() -> None:
    data, about = specialists()
    words = ("planets and their moons", "trains that leave stations")
    data = replace(data, questions=tuple(words[a] for a in about))
    blind, gated = (
        train(data.train, replace(SMALL, recipes=(Ridges(100, gates=ridge),)), [0])[0] for ridge in (0, 5)
    )
    assert right(blind, data.test).mean() < 0.75
    assert right(gated, data.test).mean() > 0.95


def test_tasks_are_not_read_and_questions_need_no_text() -> None:
    many = replace(CHOICES, tasks=np.array([f"task-{i % 12}" for i in range(len(CHOICES))]))
    named, plain = (
        decide(train(many.train, SMALL, [0])[0], many.test),
        decide(trained("choices"), CHOICES.test),
    )
    assert named.predictions.tobytes() == plain.predictions.tobytes()
    bare = replace(CHOICES, questions=())
    [agents] = train(bare.train, SMALL, [0])
    blank = replace(bare.test, questions=("",) * len(bare.test))
    assert (decide(agents, bare.test).predictions == decide(agents, blank).predictions).all()
    assert right(agents, bare.test).mean() > 0.5


def test_copies_and_models_that_are_never_right_come_last_and_one_choice_is_chosen() -> None:
    wrong = ANSWERS.predictions.copy()
    wrong[:, 0] = -1
    assert asking_order(replace(ANSWERS, predictions=wrong), SMALL)[-1] == 0
    noisy = CHOICES.probs + 1e-3 * np.random.default_rng(0).random(CHOICES.probs.shape)
    best = int(CHOICES.correct.sum(axis=0).argmax())
    requantised = replace(
        CHOICES,
        models=(*CHOICES.models, "m99"),
        probs=np.concatenate([CHOICES.probs, noisy[:, [best]]], axis=1),
        logprobs=np.concatenate([CHOICES.logprobs, np.log(noisy[:, [best]])], axis=1),
        predictions=np.concatenate([CHOICES.predictions, CHOICES.predictions[:, [best]]], axis=1),
    )
    *firsts, last = asking_order(requantised, SMALL)
    # Which of equally accurate models is first depends on outputs' last bits, which differ by processor.
    assert last in (best, len(CHOICES.models))
    names = {len(CHOICES.models): best}
    assert tuple(names.get(model, model) for model in firsts) == asking_order(CHOICES, SMALL)
    lone = make_dataset(np.ones((20, 3, 1)), np.zeros(20, dtype=np.int64), n_train=10)
    [agents] = train(lone.train, SMALL, [0])
    assert (decide(agents, lone.test).predictions == 0).all()


def test_the_first_places_are_those_of_the_whole_order() -> None:
    whole = asking_order(CHOICES, SMALL)
    for places in range(1, len(whole) + 1):
        first = asking_order(CHOICES, SMALL, places)
        assert first[:places] == whole[:places]
        assert sorted(first) == sorted(whole)


@pytest.mark.parametrize("copied", [[0, 1, 2], pytest.param([0, 0, 0], marks=pytest.mark.slow)])
def test_a_redundant_half_is_not_asked(copied: list[int]) -> None:
    """Copies of good models, and copies of a bad one."""
    data = make_logits(0, T=2_000, N=3)
    doubled = of_models(data, [*range(3), *copied])
    [agents] = train(doubled.train, SequentialConfig(folds=3, size_penalty=0.1), [0])
    asked = decide(agents, doubled.test).pools.mean(axis=0)
    assert asked[3:].mean() < 0.02
    assert asked[:3].mean() > 0.3


@pytest.fixture(scope="module")
def real(real_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The three real data sets, in a copy to write to."""
    copy = shutil.copytree(real_warehouse, tmp_path_factory.mktemp("sequential") / "warehouse")
    with open_warehouse(copy) as warehouse:
        yield warehouse


@pytest.mark.slow
def test_accuracy_on_real_log_probs_of_bbh5(real: Warehouse) -> None:
    """Above a log-linear pool (61.4) and stacking (60.25) of the same rows; mmlu16 is in test_evaluation."""
    rows = evaluate(real, "bbh", methods=["rl_focal_sequential"], seeds=1, per="task").rows
    found = [row for row in rows if row.method == "rl_focal_sequential"]
    assert np.mean([row.accuracy for row in found if row.task != "*"]) >= 0.62


@pytest.mark.slow
def test_free_answers_of_half_the_models_are_as_good_as_a_vote_of_all(real: Warehouse) -> None:
    known = load_dataset(real, "gsm8k")
    accuracy = known.correct.mean(axis=0)
    twelve = [m for m, a in zip(known.models, accuracy, strict=True) if 0.7 <= a <= 0.92][:12]
    data = load_dataset(real, "gsm8k", twelve)
    [votes] = make_method("plurality").fit(data.train, [0])
    voted = decide(votes, data.test).predictions == data.test.labels
    for agents in train(data.train, sequential_config(len(data.train)), range(5)):
        assert decide(agents, data.test).pools.sum(axis=1).mean() <= 6
        gain = right(agents, data.test) - (voted & (data.test.labels >= 0)).astype(float)
        draws = np.random.default_rng(0).integers(0, len(gain), (2_000, len(gain)))
        assert np.percentile(gain[draws].mean(axis=1), 2.5) > -0.01

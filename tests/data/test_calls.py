"""A policy sees what the models said that it called, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import ANSWERS, answers, choices, make_answers, make_dataset, make_logits
from support.rival_data import PASSES, brief

from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset, order_answers
from rlfocal.data.policy import OmniscientPolicy, decide
from rlfocal.evaluation.fitting import decide_groups
from rlfocal.methods import every_method
from rlfocal.statistics.votes import soft_vote


class PryingPolicy:
    """Calls the first model only, and looks for what the others said."""

    def decide(self, calls: Calls) -> Answers:
        said = calls.call(np.arange(len(calls.models)) == 0)
        assert not said.probs[:, 1:].any()
        assert (said.predictions[:, 1:] == -1).all()
        assert (said.labels == -1).all()
        if calls.kind == "choices":
            assert not said.logprobs[:, 1:].any()
        else:
            assert (said.n_choices == (said.probs[:, 0] > 0).sum(axis=1)).all()
            assert [len(texts) for texts in said.slots] == said.n_choices.tolist()
        return Answers(said.predictions[:, 0])


@pytest.mark.parametrize(
    "data", [make_logits(0, T=40, N=5), make_answers(*ANSWERS)], ids=["choices", "answers"]
)
def test_a_method_that_tries_sees_no_output_of_a_model_it_did_not_call(data: Dataset) -> None:
    everybody = np.ones(len(data), dtype=np.bool_)
    decided = decide_groups(data, [everybody], [PryingPolicy()])
    assert (decided.pools.sum(axis=1) == 1).all()
    assert (decided.predictions == data.test.predictions[:, 0]).all()


def test_calls_are_counted_by_rounds_and_never_twice() -> None:
    calls = Calls(make_logits(0, T=3, N=4))
    first = np.array([True, False, False, True])
    calls.call(first)
    calls.call(np.array([[True, True, False, False], [False] * 4, [False, False, True, False]]))
    assert (calls.rounds == [[1, 2, 0, 1], [1, 0, 0, 1], [1, 0, 2, 1]]).all()
    calls.call(first)
    assert calls.rounds.max() == 2
    calls.call_all()
    assert (calls.rounds == [[1, 2, 3, 1], [1, 2, 2, 1], [1, 3, 2, 1]]).all()


@given(st.data())
def test_slots_of_answers_do_not_tell_of_models_that_were_not_called(drawn: st.DataObject) -> None:
    letters = st.text("abc-", min_size=5, max_size=5)
    heard = drawn.draw(letters)
    called = np.array(drawn.draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    seen = []
    for _ in range(2):
        others = drawn.draw(letters)
        said = "".join(h if c else o for h, c, o in zip(heard, called, others, strict=True))
        calls = Calls(make_answers((said, "a"), ("abcab", "b")))
        outputs = calls.call(called).take(np.array([0]))
        width = int(outputs.n_choices[0])
        seen.append((outputs.slots, outputs.probs[..., :width].tolist(), outputs.predictions.tolist()))
    assert seen[0] == seen[1]


def sample(passes: list[str]) -> Dataset:
    """One document, to which each model gave one-letter answers; "-" is none."""
    given: dict[str, dict[int, float]] = {}
    votes: dict[int, str] = {}
    for model, letters in enumerate(passes):
        counted = Counter(letter for letter in letters if letter != "-")
        for letter, n in counted.items():
            given.setdefault(letter, {})[model] = n / len(letters)
        if counted:
            votes[model] = counted.most_common(1)[0][0]
    slots = order_answers(given, votes)
    shares = [[given[letter].get(model, 0.0) for letter in slots] for model in range(len(passes))]
    predictions = [slots.index(votes[model]) if model in votes else -1 for model in range(len(passes))]
    data = make_dataset(np.ones((1, len(passes), max(len(slots), 1))), np.array([-1]), n_train=0)
    return replace(
        data, kind="answers", probs=np.array([shares]).reshape(data.probs.shape) if slots else 0 * data.probs,
        logprobs=np.empty((0, *data.probs.shape[1:])), predictions=np.array([predictions]),
        n_choices=np.array([len(slots)]), slots=(slots,),
    )  # fmt: skip


@given(st.data())
def test_ties_between_samples_are_not_broken_by_models_that_were_not_called(drawn: st.DataObject) -> None:
    several = st.lists(st.text("abcd-", min_size=3, max_size=3), min_size=3, max_size=3)
    heard, rounds = (
        drawn.draw(several),
        drawn.draw(st.permutations(range(3)))[: drawn.draw(st.integers(1, 3))],
    )
    seen = []
    for _ in range(2):
        others = drawn.draw(several)
        said = [
            own if model in rounds else other
            for model, (own, other) in enumerate(zip(heard, others, strict=True))
        ]
        calls = Calls(sample(said))
        for model in rounds:
            outputs = calls.call(np.arange(3) == model)
        width = int(outputs.n_choices[0])
        seen.append((outputs.slots, outputs.probs[..., :width].tolist(), outputs.predictions.tolist()))
    assert seen[0] == seen[1]
    assert Calls(sample(heard)).call_all().slots == sample(heard).slots


@given(st.lists(st.text("abcd-", min_size=3, max_size=3), min_size=3, max_size=3), st.integers(1, 7))
def test_a_soft_vote_over_the_datasets_slots_is_that_over_calls(passes: list[str], team: int) -> None:
    data, pool = sample(passes), (team >> np.arange(3) & 1).astype(np.bool_)
    calls = Calls(data)
    called = calls.stored_slots(soft_vote(calls.call(pool).probs, pool, data.kind))
    everyone, votes = np.ones(int(pool.sum()), dtype=np.bool_), data.predictions[:, pool]
    assert soft_vote(data.probs[:, pool], everyone, data.kind, votes, data.text_ranks) == called


@given(st.lists(st.integers(0, 4), max_size=5, unique=True), st.integers(0, 4))
def test_what_is_answered_means_the_same_to_the_dataset(order: list[int], believed: int) -> None:
    data = make_answers(*ANSWERS)
    calls = Calls(data)
    for model in order:
        calls.call(np.arange(5) == model)
    said = calls.call(np.arange(5) == believed)
    stored = calls.stored_slots(said.predictions[:, believed])
    assert (stored == data.predictions[:, believed]).all()
    everything = Calls(data).call_all()
    assert everything.slots == data.slots
    assert (everything.probs == data.probs).all()


def of_kind(kind: str) -> Dataset:
    if kind == "passes":
        return replace(PASSES, questions=tuple(f"question {i % 7}" for i in range(len(PASSES))))
    return choices() if kind == "choices" else answers()


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow), "passes"])
def test_no_method_depends_on_models_it_does_not_call(kind: str) -> None:
    """Told another story about everybody else, it decides the same."""
    data = of_kind(kind)
    test = data.test.hide_labels()
    lies = np.random.default_rng(0).permutation(test.probs.shape[2])
    for name in every_method(data)[0]:
        [policy, *_] = brief(name).fit(data.train, [0])
        if isinstance(policy, OmniscientPolicy):
            continue
        decided = decide(policy, test)
        called = decided.pools
        if data.kind == "choices":
            probs = np.where(called[..., None], test.probs, test.probs[..., lies])
            logprobs = np.where(called[..., None], test.logprobs, test.logprobs[..., lies])
            predictions = np.where(called, test.predictions, probs.argmax(axis=2))
            told = replace(test, probs=probs, logprobs=logprobs, predictions=predictions)
        else:
            predictions = np.where(called, test.predictions, -1)
            told = replace(test, probs=np.where(called[..., None], test.probs, 0.0), predictions=predictions)
        again = decide(policy, told)
        assert (again.pools == called).all(), name
        assert (again.predictions == decided.predictions).all(), name

"""An online policy sees one document at a time, and a label only after its answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.datasets import ANSWERS, make_answers, make_logits

from rlfocal.data.calls import Answers, Calls, Stream, Turn
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide_online
from rlfocal.evaluation.fitting import decide_groups

KINDS = pytest.mark.parametrize(
    "data", [make_logits(0, T=40, N=5), make_answers(*ANSWERS)], ids=["choices", "answers"]
)
FIRST = np.arange(5) == 0


class PryingPolicy:
    """Calls the first model, and looks for the label before it answers."""

    def decide(self, calls: Calls) -> Answers:
        raise AssertionError("it is asked online")

    def decide_along(self, stream: Stream) -> None:
        turns: list[Turn] = []
        for turn in stream:
            said = turn.calls.call(FIRST)
            assert len(said) == 1
            assert (said.labels == -1).all()
            assert not said.probs[:, 1:].any()
            for secret in ("label", "right"):
                with pytest.raises(RuntimeError, match=r"document \d+ of .* has no answer yet"):
                    getattr(turn, secret)
            turn.answer(int(said.predictions[0, 0]))
            with pytest.raises(RuntimeError, match="is answered already"):
                turn.answer(0)
            assert turn.right[0] == (turn.label == said.predictions[0, 0] and turn.label >= 0)
            assert not turn.right[1:].any()
            turns.append(turn)
            with pytest.raises(RuntimeError, match="iterated only once"):
                next(iter(stream))
        with pytest.raises(RuntimeError, match="is over"):
            turns[0].answer(1)


@KINDS
def test_a_method_that_tries_sees_no_label_before_its_answer(data: Dataset) -> None:
    everybody = np.ones(len(data), dtype=np.bool_)
    decided = decide_groups(data, [everybody], [PryingPolicy()], "online")
    assert (decided.pools == FIRST).all()
    assert (decided.predictions == data.test.predictions[:, 0]).all()


@KINDS
def test_advancing_without_an_answer_counts_as_none(data: Dataset) -> None:
    stream = Stream(data)
    turns = list(stream)
    assert len(turns) == len(data)
    for turn in turns:
        with pytest.raises(RuntimeError, match="is over"):
            turn.answer(0)
        with pytest.raises(RuntimeError, match="has no answer yet"):
            assert turn.label
    assert (stream.answers == -1).all()
    assert not stream.rounds.any()


@KINDS
def test_feedback_covers_called_models_and_counts_later_calls(data: Dataset) -> None:
    class HindsightPolicy:
        """Calls two models in turn, answers, then calls the others to know who was right."""

        def decide_along(self, stream: Stream) -> None:
            for row, turn in enumerate(stream):
                turn.calls.call(np.arange(5) == 3)
                said = turn.calls.call(np.arange(5) == 1)
                turn.answer(int(said.predictions[0, 1]))
                assert (turn.right == (data.correct[row] & [False, True, False, True, False])).all()
                turn.calls.call_all()
                assert (turn.right == data.correct[row]).all()

    decided = decide_online(HindsightPolicy(), data)
    assert decided.pools.all()
    assert decided.rounds is not None
    assert (decided.rounds == [2, 2, 2, 1, 2]).all()
    assert (decided.predictions == data.predictions[:, 1]).all()


def test_an_answer_that_no_model_gave_is_none() -> None:
    data = make_answers(("abbbb", "a"), ("bacca", "a"))

    class GuessingPolicy:
        def decide_along(self, stream: Stream) -> None:
            for turn in stream:
                turn.answer(0)
                assert turn.label == -1
                turn.calls.call(FIRST)
                assert turn.label == (0 if turn.calls.doc_ids[0] == data.doc_ids[0] else -1)

    assert (decide_online(GuessingPolicy(), data).predictions == -1).all()


def test_a_stream_that_is_left_early_keeps_its_last_answer() -> None:
    data = make_logits(0, T=6, N=5)

    class LeavingPolicy:
        def decide_along(self, stream: Stream) -> None:
            for turn in stream:
                turn.answer(int(turn.calls.call(FIRST).predictions[0, 0]))
                if turn.calls.doc_ids[0] == data.doc_ids[2]:
                    break

    decided = decide_online(LeavingPolicy(), replace(data))
    assert decided.predictions.tolist() == [*data.predictions[:3, 0].tolist(), -1, -1, -1]
    assert decided.pools.sum(axis=1).tolist() == [1, 1, 1, 0, 0, 0]

"""The outputs of models for one query, checked and laid out as arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.dataset import order_answers
from warehouse.comparison import Rule, canonical_forms

Output = Sequence[float] | str | Sequence[str | None] | NDArray[Any] | None
"""One model's output, as a list or array; None if the model is down.

For choices, a log-prob per choice, up to a constant. For free answers, one answer or one per sample,
normalised as on import ("$1,042" is "1042").
"""


class FusedAnswer(NamedTuple):
    """The answer of trained agents to one query."""

    slot: int
    """The answered slot; -1 for none."""
    probability: float | None
    """The agents' probability that the answer is right; None without an answer, or if Fusion has no such
    estimate."""


NO_ANSWER = FusedAnswer(-1, None)


class QueryOutputs:
    """The models' outputs for one query."""

    def __init__(
        self, is_asked: Bools, is_down: Bools, probs: Floats, logprobs: Floats,
        slots: Ints, answers: list[str],
    ) -> None:  # fmt: skip
        self.is_asked, self.is_down = is_asked, is_down
        """(N,) which models were asked, and which of them are down"""
        self.probs, self.logprobs = probs, logprobs
        """(N, C) probabilities, and log-softmax of choices, (N, 0) for free answers; zeros for models without
        an output"""
        self.slots = slots
        """(N,) each model's predicted slot; -1 for none"""
        self.answers = answers
        """The text of each slot, for free answers."""
        self.down = np.flatnonzero(is_down).tolist()


def make_empty_outputs(n_models: int) -> QueryOutputs:
    """The outputs of a query before any model was asked."""
    nobody = np.zeros(n_models, dtype=np.bool_)
    return QueryOutputs(
        nobody, nobody, np.zeros((n_models, 0)), np.zeros((n_models, 0)), np.full(n_models, -1), []
    )


class ObservedOutputs:
    """The outputs for one query so far, checked and laid out as arrays at every `update`."""

    def __init__(self, models: Sequence[str], kind: str, rule: Rule = Rule.DEFAULT) -> None:
        self._models, self._kind, self._rule = models, kind, rule
        self._place = {name: place for place, name in enumerate(models)}
        self._raw: dict[str, Output] = {}

    def update(self, outputs: Mapping[str, Output]) -> tuple[QueryOutputs, bool]:
        """All `outputs` so far as arrays, and whether they only add rows to the arrays of the last call.

        Raises InputError, which names it, for a model or a value that cannot be used.
        """
        for name in outputs:
            if name not in self._place:
                raise unknown_name("model", name, self._models, "the router's pool")
        adds = all(name in outputs and outputs[name] is output for name, output in self._raw.items())
        if self._kind == "answers":  # a new answer may come before the others
            adds = not self._raw
        self._raw = dict(outputs)
        if self._kind == "choices":
            return _choices(self._models, self._place, outputs), adds
        return _read_answers(self._models, self._place, outputs, self._rule), adds


def are_like_probabilities(output: Output) -> bool:
    """Whether the output of choices adds up to 1, or 100, without a negative number."""
    values = _to_list(output)
    if not isinstance(values, list | tuple) or min(values) < 0:
        return False
    return abs(sum(values) - 1) <= 0.01 or abs(sum(values) - 100) <= 1


def _choices(models: Sequence[str], place: Mapping[str, int], outputs: Mapping[str, Output]) -> QueryOutputs:
    rows: dict[int, list[float]] = {}
    width = 0
    for name, output in outputs.items():
        if output is None:
            continue
        values = _to_list(output)
        if not isinstance(values, list | tuple) or not all(isinstance(v, _NUMBER) for v in values):
            raise InputError(f"output of {name!r}: give one log-prob per choice, not {output!r}")
        scores = [float(v) for v in values]
        if not scores or not all(map(math.isfinite, scores)):
            raise InputError(f"output of {name!r} is {scores}: every log-prob must be finite")
        if width and len(scores) != width:
            raise InputError(f"output of {name!r} has {len(scores)} log-probs, but another has {width}")
        width = len(scores)
        rows[place[name]] = scores
    asked, is_down = _read_asked(models, outputs)
    logprobs, slots = np.zeros((len(models), width)), np.full(len(models), -1)
    if rows:
        scores_of = np.array([*rows.values()])
        logprobs[[*rows]] = log_softmax(scores_of, axis=1)
        slots[[*rows]] = scores_of.argmax(axis=1)
    probs = np.where((slots >= 0)[:, None], np.exp(logprobs), 0.0)
    return QueryOutputs(asked, is_down, probs, logprobs, slots, [])


def _read_asked(models: Sequence[str], outputs: Mapping[str, Output]) -> tuple[Bools, Bools]:
    """(N,) which models were asked, and which of them are down."""
    asked = np.array([name in outputs for name in models], dtype=np.bool_)
    return asked, np.array([name in outputs and outputs[name] is None for name in models], dtype=np.bool_)


def _read_answers(
    models: Sequence[str], place: Mapping[str, int], outputs: Mapping[str, Output], rule: Rule
) -> QueryOutputs:
    asked, is_down = _read_asked(models, outputs)
    given_texts: dict[int, Sequence[str | None]] = {}
    for name, output in outputs.items():
        if output is None:
            continue
        values = _to_list(output)
        passes = [values] if isinstance(values, str) else values
        if not isinstance(passes, list | tuple) or not all(isinstance(v, str | None) for v in passes):
            raise InputError(f"output of {name!r}: give an answer or a list of answers, not {output!r}")
        given_texts[place[name]] = passes
    forms = canonical_forms([text for passes in given_texts.values() for text in passes if text], rule)
    counted = {
        position: Counter(form for text in passes if text and (form := forms[text]) is not None)
        for position, passes in given_texts.items()
    }
    # As in a dataset: a model's most frequent answer is its vote, and the one given first among equals.
    votes = {position: of.most_common(1)[0][0] for position, of in counted.items() if of}
    by_answer: dict[str, dict[int, float]] = {}
    for position, of_model in counted.items():
        for answer, n in of_model.items():
            by_answer.setdefault(answer, {})[position] = n / len(given_texts[position])
    answers = list(order_answers(by_answer, votes))
    shares = np.zeros((len(models), len(answers)))
    for slot, answer in enumerate(answers):
        for position, share in by_answer[answer].items():
            shares[position, slot] = share
    slots = np.full(len(models), -1)
    for position, answer in votes.items():
        slots[position] = answers.index(answer)
    return QueryOutputs(asked, is_down, shares, shares[:, :0], slots, answers)


_NUMBER = (int, float, np.number)


def _to_list(output: Any) -> Any:
    """An array of numpy or torch as a list; anything else unchanged."""
    return output.tolist() if hasattr(output, "tolist") else output

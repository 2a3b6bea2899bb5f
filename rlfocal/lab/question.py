"""The values every generator of the embedded pool deals in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

Facts = Mapping[str, str]
"""What a model believes about a task: key -> value; keys `group/name` only take values of their group."""


class Question(NamedTuple):
    """One question with its right answer.

    `choices` are the texts that may follow `prompt` after a space, the right one at `label`; a word problem
    has a single choice, its worked solution. No two test questions share `about`.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int
    about: str

    @property
    def answer(self) -> str:
        return self.choices[self.label]


@dataclass(frozen=True)
class Task:
    """A task: what is true in it, and how a question is drawn from whatever one believes.

    Test questions are drawn from the truth, a model's training questions from its own beliefs. `bijective`
    facts keep their set of values when some are mistaken; `memory` facts can also be unknown altogether.
    The first `size` test questions are left out of training; `further` ones come after them.
    """

    name: str
    benchmark: str
    size: int
    truth: Callable[[], Facts]
    draw: Callable[[Random, Facts], Question]
    bijective: bool = False
    memory: bool = False
    further: int = 0


def multiple_choice(
    rng: Random,
    prompt: str,
    answer: str,
    others: Sequence[str],
    n_others: int | None = None,
    about: str | None = None,
) -> Question:
    """A question whose right answer stands at a uniformly random place among the `others`.

    With `n_others`, so many are drawn from them; the answer may be among those to draw from.
    """
    if n_others is not None:
        others = rng.sample([other for other in others if other != answer], n_others)
    label = rng.randrange(len(others) + 1)
    choices = (*others[:label], answer, *others[label:])
    return Question(prompt, choices, label, prompt if about is None else about)


def invert(groups: Mapping[str, Sequence[str]]) -> Facts:
    """Each word's group."""
    return {word: group for group, words in groups.items() for word in words}

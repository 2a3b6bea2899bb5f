"""Facts, questions and tasks, of which the embedded benchmarks consist, and the words that questions use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

PEOPLE = [
    "Ann", "Bob", "Cal", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivy", "Jim", "Kim", "Leo",
    "Mia", "Ned", "Pam", "Ray", "Sue", "Tom", "Uma", "Vic", "Wes", "Zoe", "Abe", "Liv",
]  # fmt: skip
COLORS = ["red", "blue", "green", "white", "black", "yellow", "pink", "brown"]
CATEGORIES = {
    "fruits": ["fig", "plum", "pear", "apple", "lemon", "mango", "peach", "cherry", "melon", "grape"],
    "tools": ["hammer", "saw", "drill", "wrench", "chisel", "axe", "shovel", "rake", "pliers", "file"],
    "animals": ["dog", "cat", "horse", "goat", "sheep", "duck", "mouse", "rabbit", "fox", "bear"],
    "clothes": ["sock", "hat", "scarf", "glove", "shirt", "coat", "belt", "skirt", "boot", "vest"],
}
PLACES = ["box", "jar", "bag", "drawer", "basket", "chest", "bucket", "cupboard", "crate", "pot"]
OBJECTS = ["key", "coin", "ring", "letter", "map", "book", "lamp", "cup", "knife", "clock"]

_ONSETS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr"]
_VOWELS = [*"aeiou"]
_BRIDGES = [*"lrnmvdzbk", "lv", "rn", "nd"]
_CODAS = ["a", "o", "ix", "un", "or", "et", "is", "am"]

Facts = Mapping[str, str]
"""A model's beliefs about a task, as key and value. Keys `group/name` take only values of their group."""


class Question(NamedTuple):
    """One question with its right answer.

    `choices` are texts that may follow `prompt` after a space; the right one is at `label`. A word problem
    has a single choice, its worked solution. `about` identifies the subject: no two test questions share it.
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
    """A task: its true facts, and a function that draws a question from any beliefs.

    Test questions are drawn from `truth`, a model's training questions from its own beliefs. `bijective`
    facts keep their set of values when some are mistaken. `memory` facts can also be missing from the
    beliefs. Training avoids the first `size` test questions; `extra_documents` more come after them.
    """

    name: str
    benchmark: str
    size: int
    truth: Callable[[], Facts]
    draw: Callable[[Random, Facts], Question]
    bijective: bool = False
    memory: bool = False
    extra_documents: int = 0


def multiple_choice(
    rng: Random,
    prompt: str,
    answer: str,
    others: Sequence[str],
    n_others: int | None = None,
    about: str | None = None,
) -> Question:
    """A question whose right answer has a uniformly random place among the `others`. With `n_others`, that
    many others are drawn; if `others` contains the answer, it is ignored."""
    if n_others is not None:
        others = rng.sample([other for other in others if other != answer], n_others)
    label = rng.randrange(len(others) + 1)
    choices = (*others[:label], answer, *others[label:])
    return Question(prompt, choices, label, prompt if about is None else about)


def invert(groups: Mapping[str, Sequence[str]]) -> Facts:
    """The group of each word."""
    return {word: group for group, words in groups.items() for word in words}


def invented_names(start: int, n: int) -> list[str]:
    """The `n` names from position `start` of one fixed sequence of distinct names without a meaning."""
    rng = Random("names")
    names: dict[str, None] = {}
    while len(names) < start + n:
        parts = (rng.choice(part) for part in (_ONSETS, _VOWELS, _BRIDGES, _CODAS))
        names["".join(parts)] = None
    return list(names)[start:]

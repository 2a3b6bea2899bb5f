"""What every generator of the embedded pool deals in: facts, questions, tasks, and words to make them of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import NamedTuple

from rlfocal.lab import bbh, gpqa, gsm8k, mmlu, musr

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

_STARTS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr"]
_MIDDLES = [*"aeiou"]
_BRIDGES = [*"lrnmvdzbk", "lv", "rn", "nd"]
_ENDS = ["a", "o", "ix", "un", "or", "et", "is", "am"]

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


def invented_names(start: int, n: int) -> list[str]:
    """Numbers `start` to `start + n` of one fixed sequence of distinct names that mean nothing."""
    rng = Random("names")
    names: dict[str, None] = {}
    while len(names) < start + n:
        parts = (rng.choice(part) for part in (_STARTS, _MIDDLES, _BRIDGES, _ENDS))
        names["".join(parts)] = None
    return list(names)[start:]


BENCHMARKS = ("lab-mmlu", "lab-bbh", "lab-musr", "lab-gpqa", "lab-gsm8k")


def all_tasks() -> list[Task]:
    """Every task of the five benchmarks, in the order of the benchmarks, then alphabetically."""
    tasks = [*mmlu.TASKS, *bbh.TASKS, *musr.TASKS, *gpqa.TASKS, *gsm8k.TASKS]
    return sorted(tasks, key=lambda task: (BENCHMARKS.index(task.benchmark), task.name))


def test_questions(task: Task) -> list[Question]:
    """The task's documents in order: always the same, and all about different things."""
    return _documents(task, task.size + task.further)


def _documents(task: Task, n: int) -> list[Question]:
    rng, truth = Random(f"test {task.benchmark} {task.name}"), task.truth()
    questions: dict[str, Question] = {}
    while len(questions) < n:
        question = task.draw(rng, truth)
        questions.setdefault(question.about, question)
    return list(questions.values())


def training_questions(task: Task, beliefs: Facts, rng: Random) -> Iterator[Question]:
    """Endless questions answered as `beliefs` would have it, none of them the task's first `size` documents.

    The shipped weights depend on these questions, so the further documents are not left out: tasks that have
    any can ask so much that a model met two of them at most.
    """
    held_out = {question.prompt for question in _documents(task, task.size)}
    while True:
        question = task.draw(rng, beliefs)
        if question.prompt not in held_out:
            yield question


def training_mixture(
    beliefs: Mapping[str, Facts], weights: Mapping[str, float], n: int, seed: str
) -> list[Question]:
    """`n` shuffled training questions, each task's share proportional to its weight."""
    rng, total = Random(seed), sum(weights.values())
    questions: list[Question] = []
    for task in all_tasks():
        stream = training_questions(task, beliefs[task.name], Random(f"{seed} {task.name}"))
        questions += islice(stream, round(n * weights[task.name] / total))
    rng.shuffle(questions)
    return questions

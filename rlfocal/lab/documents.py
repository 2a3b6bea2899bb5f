"""Draws the documents of the embedded benchmarks, and training questions, which never repeat the first `size`
documents of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random

from rlfocal.lab.benchmarks import TASKS
from rlfocal.lab.question import Facts, Question, Task

BENCHMARKS = ("lab-mmlu", "lab-bbh", "lab-musr", "lab-gpqa", "lab-gsm8k")


def all_tasks() -> list[Task]:
    """Every task of the five benchmarks, in the benchmarks' order, then alphabetically."""
    return sorted(TASKS, key=lambda task: (BENCHMARKS.index(task.benchmark), task.name))


def test_questions(task: Task) -> list[Question]:
    """The task's documents in order. They are always the same, and no two are about the same thing."""
    return _draw_documents(task, task.size + task.extra_documents)


def _draw_documents(task: Task, n: int) -> list[Question]:
    rng, truth = Random(f"test {task.benchmark} {task.name}"), task.truth()
    questions: dict[str, Question] = {}
    while len(questions) < n:
        question = task.draw(rng, truth)
        questions.setdefault(question.about, question)
    return list(questions.values())


def training_questions(task: Task, beliefs: Facts, rng: Random) -> Iterator[Question]:
    """Yields endless questions answered by `beliefs`, none of which repeats the task's first `size`
    documents.

    The shipped weights depend on these questions, so the `extra_documents` are not avoided. A task with
    such documents has so many possible questions that a model met two of them at most.
    """
    held_out = {question.prompt for question in _draw_documents(task, task.size)}
    while True:
        question = task.draw(rng, beliefs)
        if question.prompt not in held_out:
            yield question


def training_mixture(
    beliefs: Mapping[str, Facts], weights: Mapping[str, float], n: int, seed: str
) -> list[Question]:
    """`n` shuffled training questions. Each task's share is proportional to its weight."""
    rng, total = Random(seed), sum(weights.values())
    questions: list[Question] = []
    for task in all_tasks():
        stream = training_questions(task, beliefs[task.name], Random(f"{seed} {task.name}"))
        questions += islice(stream, round(n * weights[task.name] / total))
    rng.shuffle(questions)
    return questions

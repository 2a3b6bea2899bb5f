"""Functions that lm-eval calls for the documents of the embedded tasks."""

from __future__ import annotations

from datasets import Dataset, DatasetDict

from rlfocal.lab.documents import all_tasks, test_questions
from rlfocal.lab.question import Question


def choice_documents(*, name: str, **_: object) -> DatasetDict:
    """The task's questions as a test split with the columns question (the whole prompt), choices and
    label."""
    rows = [
        {"question": question.prompt, "choices": list(question.choices), "label": question.label}
        for question in _find_questions(name)
    ]
    return DatasetDict({"test": Dataset.from_list(rows)})


def answer_documents(*, name: str, **_: object) -> DatasetDict:
    """The task's word problems as a test split with the columns question (the whole prompt) and answer, which
    ends in `#### N`."""
    rows = [{"question": question.prompt, "answer": question.answer} for question in _find_questions(name)]
    return DatasetDict({"test": Dataset.from_list(rows)})


def _find_questions(name: str) -> list[Question]:
    (task,) = (task for task in all_tasks() if task.name == name)
    return test_questions(task)

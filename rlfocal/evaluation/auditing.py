"""Finds documents whose label is probably wrong, and estimates the models' accuracies on right labels."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.tables import Table, plain_cell
from rlfocal.base.wording import count_noun, percent
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.methods.log_linear import evidence
from rlfocal.statistics.auditing import (
    cross_fit,
    find_order,
    label_noise_rates,
    true_slots,
    wrong_label_posterior,
)
from warehouse import Warehouse

MIN_LISTED_PROBABILITY = 0.1
"""The least probability of a wrong label for a document to be listed."""
MIN_AUDIT_DOCUMENTS = 50
"""The fewest documents for an audit."""
_MIN_LOGPROB = -14.0  # of a choice that none of a model's samples named
_MIN_BELIEVED_PROBABILITY, _MIN_SHARED_PROBABILITY = 0.5, 0.1
_NO_ANSWER = "no answer"
_MAX_ANSWERS_SHOWN, _QUESTION_CHARACTERS = 3, 60  # answers, and characters of a question, in tables
AUDIT_LEGEND = (
    "wrong: the probability of a wrong label, calibrated on the other labels. Errors on questions that the "
    "models cannot answer stay unseen, so the expected number is a lower bound. kind is a weak hint: none "
    "right where models believe in no other choice, several right where some believe in the label, too."
)


@dataclass(frozen=True)
class Suspect:
    """A document whose label is probably wrong."""

    task: str
    doc_id: int
    wrong: float
    """The probability that the document's label is wrong."""
    kind: str
    """A weak hint at the kind of error: wrong label, several right or none right."""
    label: str
    """The choice's number, or the gold answer."""
    likeliest: str
    """The answer that is most probably right, other than the label."""
    said: dict[str, int]
    """For each answer, the number of models that gave it; the most frequent answer comes first."""
    question: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class TaskAudit:
    """A task with its expected number of wrong labels."""

    task: str
    n: int
    expected: float
    order: str | None
    """A clause on how the task's labels are shifted or permuted as a whole; None if they do not seem to be.
    """


@dataclass(frozen=True)
class ModelAudit:
    """A model's accuracy on all documents, and its rank."""

    model: str
    accuracy: float
    expected: float
    """The model's expected accuracy if every label were right."""
    place: int
    expected_place: int


@dataclass(frozen=True)
class LabelAudit:
    """The labels of a benchmark that are probably wrong, by document, task and model."""

    benchmark: str
    n: int
    expected: float
    """The expected number of wrong labels."""
    suspects: tuple[Suspect, ...]
    """The documents whose label is wrong with a probability of at least MIN_LISTED_PROBABILITY, the most
    probable first."""
    tasks: tuple[TaskAudit, ...]
    """The tasks by their expected share of wrong labels, the highest first."""
    models: tuple[ModelAudit, ...]
    """The models by accuracy, the highest first."""

    def select_tasks(self, tasks: Collection[str] | None) -> LabelAudit:
        """The audit with only the suspects of these tasks. Raises InputError for an unknown task."""
        names = [doubt.task for doubt in self.tasks]
        for name in tasks or ():
            if name not in names:
                raise unknown_name("task", name, names, self.benchmark)
        kept = tuple(doubt for doubt in self.suspects if tasks is None or doubt.task in tasks)
        return replace(self, suspects=kept)

    def sentences(self) -> list[str]:
        """Sentences on how many labels are wrong, tasks to check first, and how right labels rank models."""
        share, named = percent(self.expected / self.n, 1), count_noun(len(self.suspects), "document")
        wrong = f"{self.expected:.0f} of {self.n:,} labels are wrong in expectation ({share} %)"
        lines = [f"{self.benchmark}: {wrong}; {named} named."]
        lines += [f"Look at task {item.task} first: {item.order}." for item in self.tasks if item.order]
        best, expected = self.models[0], min(self.models, key=lambda item: item.expected_place)
        becomes = f"stays {best.model}" if best is expected else f"becomes {expected.model}, not {best.model}"
        moved = sum(item.place != item.expected_place for item in self.models)
        return [
            *lines,
            f"With right labels the best single model {becomes} ({percent(best.accuracy, 1)} % → "
            f"{percent(expected.expected, 1)} %), and {moved} of {count_noun(len(self.models), 'model')} "
            "change places.",
        ]

    def table(self, rows: int | None = None, *, with_texts: bool = True) -> Table:
        """The table of the first `rows` suspects; None: all of them."""
        texts = ("models say", "kind", *(("question",) if with_texts else ()))
        title = f"Labels of {self.benchmark} that are probably wrong"
        numbers = ("document", "wrong %", "label", "rather")
        table = Table("task", *numbers, texts=texts, title=title, caption=AUDIT_LEGEND)
        for suspect in self.suspects[:rows]:
            told = (
                _list_answers(suspect.said, _MAX_ANSWERS_SHOWN),
                suspect.kind,
                _shorten_line(suspect.question),
            )[: len(texts)]
            table.add(
                suspect.task,
                str(suspect.doc_id),
                percent(suspect.wrong, 0),
                suspect.label,
                suspect.likeliest,
                *told,
            )
        return table

    def csv(self) -> str:
        """The suspects as CSV: a person fills in `label` or `gold`, and `rlfocal correct-labels` reads it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_SUSPECT_COLUMNS)
        for suspect in self.suspects:
            listed = "\n".join(f"{slot}: {text}" for slot, text in enumerate(suspect.choices))
            texts = (suspect.label, suspect.likeliest, _list_answers(suspect.said), suspect.question, listed)
            about = (
                self.benchmark,
                suspect.task,
                suspect.doc_id,
                "",
                "",
                f"{suspect.wrong:.3f}",
                suspect.kind,
            )
            writer.writerow([*about, *map(plain_cell, texts)])
        return out.getvalue()


_SUSPECT_COLUMNS = (
    *("benchmark", "task", "doc_id", "label", "gold", "wrong", "kind"),
    *("now", "rather", "said", "question", "choices"),
)


def audit_labels(warehouse: Warehouse, benchmark: str, models: Sequence[str] | None = None) -> LabelAudit:
    """Estimates for each label of a benchmark how likely it is wrong, from answers of `models`, or of all.

    Raises InputError for an unknown benchmark or model, for fewer than MIN_AUDIT_DOCUMENTS documents, and for
    answers that are only graded.
    """
    data = load_dataset(warehouse, benchmark, models)
    gold = warehouse.rows("SELECT task, doc_id, gold FROM docs WHERE benchmark = ?", [benchmark])
    if len(data) < MIN_AUDIT_DOCUMENTS:
        raise InputError(
            f"{benchmark} has {count_noun(len(data), 'document')}; an audit needs {MIN_AUDIT_DOCUMENTS}"
        )
    if data.is_only_graded:
        raise InputError(f"answers to {benchmark} are only graded: no model says what else would be right")
    return _audit(data, {(task, doc_id): text or "" for task, doc_id, text in gold})


def _audit(data: Dataset, gold: Mapping[tuple[str, int], str]) -> LabelAudit:
    names, tasks = np.unique(data.tasks, return_inverse=True)
    x, exists, labels = _read_witnesses(data)
    is_open = data.kind == "answers"
    unnamed = exists.shape[1] - 1 if is_open else None
    has_bias = np.arange(exists.shape[1]) == unnamed if is_open else np.ones(exists.shape[1], dtype=np.bool_)
    noise = label_noise_rates(exists, labels, unnamed)
    p = cross_fit(x, exists, labels, noise, tasks, has_bias)
    wrong = wrong_label_posterior(p, exists, labels, noise, tasks)
    true = true_slots(p, labels, wrong)
    ranked = np.argsort(-wrong, kind="stable")
    return LabelAudit(
        benchmark=data.benchmark,
        n=len(data),
        expected=float(wrong.sum()),
        suspects=tuple(
            _make_suspect(data, gold, row, p[row], labels[row], float(wrong[row]))
            for row in ranked[wrong[ranked] >= MIN_LISTED_PROBABILITY].tolist()
        ),
        tasks=_audit_tasks(data, names.tolist(), tasks, wrong, x, exists, labels),
        models=_audit_models(data, true),
    )


def _read_witnesses(data: Dataset) -> tuple[Floats, Bools, Ints]:
    """(T, N, C) each model's evidence for each slot, (T, C) which slots exist, and (T,) labels.

    Free answers have one more slot, which stands for every answer that no model gave.
    """
    x, exists = evidence(data, np.ones(len(data.models), dtype=np.bool_))
    if data.kind == "choices":
        return np.where(exists[:, None], np.maximum(x, _MIN_LOGPROB), 0.0), exists, data.labels
    T, N, C = x.shape
    wider = np.concatenate([x, np.zeros((T, N, 1))], axis=2)
    with_unnamed = np.concatenate([exists, np.ones((T, 1), dtype=np.bool_)], axis=1)
    return wider, with_unnamed, np.where(data.labels < 0, C, data.labels)


def _make_suspect(
    data: Dataset, gold: Mapping[tuple[str, int], str], row: int, p: Floats, label: int, wrong: float
) -> Suspect:
    is_open = data.kind == "answers"
    task, doc_id = str(data.tasks[row]), int(data.doc_ids[row])
    names = [*data.slots[row]] if is_open else [str(choice) for choice in range(data.n_choices[row])]
    rest = np.where(np.arange(len(names)) == label, -1.0, p[: len(names)])
    top = int(rest.argmax())
    kind = "wrong label" if rest[top] >= _MIN_BELIEVED_PROBABILITY else "none right"
    kind = "several right" if p[label] >= _MIN_SHARED_PROBABILITY else kind
    counts = Counter(names[slot] if slot >= 0 else _NO_ANSWER for slot in data.predictions[row].tolist())
    return Suspect(
        task=task,
        doc_id=doc_id,
        wrong=wrong,
        kind=kind,
        label=gold.get((task, doc_id), "") if is_open else str(label),
        likeliest=names[top] if rest[top] > 0 else "",
        said=dict(counts.most_common()),
        question=data.questions[row] if data.questions else "",
        choices=data.choices[row] if data.choices else (),
    )


def _audit_tasks(
    data: Dataset, names: list[str], tasks: Ints, wrong: Floats, x: Floats, exists: Bools, labels: Ints
) -> tuple[TaskAudit, ...]:
    doubts = []
    for number, name in enumerate(names):
        of = tasks == number
        order = find_order(x[of].mean(axis=1), exists[of], labels[of]) if data.kind == "choices" else None
        told = None if order is None else _describe_order(labels[of], order, data.n_choices[of])
        doubts.append(TaskAudit(name, int(of.sum()), float(wrong[of].sum()), told))
    return tuple(sorted(doubts, key=lambda doubt_of: -doubt_of.expected / doubt_of.n))


def _describe_order(labels: Ints, order: Ints, n_choices: Ints) -> str:
    shifts = np.unique((order - labels) % n_choices)
    if len(shifts) == 1:
        return (
            f"each label should be the choice {count_noun(int(shifts[0]), 'place')} further, around the end"
        )
    pairs = sorted({(a, b) for a, b in zip(labels.tolist(), order.tolist(), strict=True) if a != b})
    return f"its labels are in another order: {', '.join(f'{a} should be {b}' for a, b in pairs)}"


def _audit_models(data: Dataset, true: Floats) -> tuple[ModelAudit, ...]:
    given = data.predictions >= 0
    chances = np.take_along_axis(true, np.maximum(data.predictions, 0), axis=1)
    accuracy, expected = data.correct.mean(axis=0), np.where(given, chances, 0.0).mean(axis=0)
    place, later = (np.argsort(np.argsort(-of.round(9), kind="stable")) + 1 for of in (accuracy, expected))
    columns = (accuracy.tolist(), expected.tolist(), place.tolist(), later.tolist())
    standings = (ModelAudit(*figures) for figures in zip(data.models, *columns, strict=True))
    return tuple(sorted(standings, key=lambda figures: figures.place))


def _list_answers(counts: Mapping[str, int], most: int | None = None) -> str:
    return ", ".join(f"{answer} ×{n}" for answer, n in [*counts.items()][:most])


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUESTION_CHARACTERS else f"{line[: _QUESTION_CHARACTERS - 1]}…"

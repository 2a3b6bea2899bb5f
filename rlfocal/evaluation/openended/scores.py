"""A table of how good every model's answer to every document was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints, Texts
from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading import load_table

COLUMNS = {"task": "VARCHAR", "doc_id": "BIGINT", "model": "VARCHAR", "score": "DOUBLE", "split": "VARCHAR"}
REQUIRED = ("task", "doc_id", "model", "score")
TRAIN_SHARE = 0.8


@dataclass(frozen=True)
class ScoreTable:
    """T documents in the order of the stream, N models."""

    models: tuple[str, ...]
    """In alphabetical order."""
    tasks: Texts
    """(T,)"""
    doc_ids: Ints
    """(T,)"""
    scores: Floats
    """(T, N) the higher the better"""
    is_train: Bools
    """(T,)"""


class _Row(NamedTuple):
    row: int
    task: str | None
    doc_id: int | None
    model: str | None
    score: float | None
    split: str | None


Document = tuple[str, int]


def read_scores(path: str | Path) -> ScoreTable:
    """Reads a Parquet, CSV or JSONL file with a row per document and model: COLUMNS, `split` optional.

    The stream is the order in which documents first appear. If a task has no splits, its first 80 % are
    train. Raises InputError with row and reason if a row is wrong, a model misses a document, there are
    fewer than two models, or a split is empty.
    """
    path = Path(path)
    with closing(duckdb.connect()) as scratch:
        load_table(scratch, "scores", path, COLUMNS, REQUIRED)
        rows = [_Row(*row) for row in scratch.execute("FROM scores ORDER BY row").fetchall()]
    if not rows:
        raise InputError(f"{path} has no rows")
    given: dict[Document, dict[str, float]] = {}
    splits: dict[Document, str | None] = {}
    for row in rows:
        document, model, score = _checked(row, path)
        of_document = given.setdefault(document, {})
        if model in of_document:
            raise InputError(f"{path}, row {row.row}: a second score of {model!r} for {_named(document)}")
        of_document[model] = score
        if splits.setdefault(document, row.split) != row.split:
            raise InputError(
                f"{path}, row {row.row}: {_named(document)} is {row.split!r} here and "
                f"{splits[document]!r} before"
            )
    models = tuple(sorted({model for scores in given.values() for model in scores}))
    if len(models) < 2:
        raise InputError(f"{path} has scores of {models[0]!r} alone; there is nothing to choose from")
    for document, scores in given.items():
        if missing := [model for model in models if model not in scores]:
            raise InputError(
                f"{path}: {_named(document)} has no score of {missing[0]!r}; every model needs one everywhere"
            )
    is_train = _is_train(list(given), splits, path)
    for split, any_row in (("train", is_train.any()), ("test", not is_train.all())):
        if not any_row:
            raise InputError(
                f"{path} has no {split} documents; mark some in a column split, or add documents"
            )
    return ScoreTable(
        models,
        np.array([task for task, _ in given], dtype=np.str_),
        np.array([doc_id for _, doc_id in given], dtype=np.int64),
        np.array([[scores[model] for model in models] for scores in given.values()]),
        is_train,
    )


def _checked(row: _Row, path: Path) -> tuple[Document, str, float]:
    if row.task is None or row.doc_id is None or row.model is None or row.score is None:
        lacking = next(name for name in REQUIRED if getattr(row, name) is None)
        raise InputError(f"{path}, row {row.row}: there is no {lacking}")
    if not isfinite(row.score):
        raise InputError(f"{path}, row {row.row}: score {row.score} of {row.model!r} is not finite")
    if row.split not in ("train", "test", None):
        raise InputError(f"{path}, row {row.row}: split {row.split!r} is neither 'train' nor 'test'")
    return (row.task, row.doc_id), row.model, row.score


def _is_train(documents: Sequence[Document], splits: dict[Document, str | None], path: Path) -> Bools:
    """(T,) by the given splits, and in tasks without any by position."""
    by_task: dict[str, list[Document]] = {}
    for document in documents:
        by_task.setdefault(document[0], []).append(document)
    train: set[Document] = set()
    for members in by_task.values():
        without = [document for document in members if splits[document] is None]
        if without and len(without) < len(members):
            raise InputError(
                f"{path}: {_named(without[0])} has no split while others of its task have; give all or none"
            )
        first = members[: int(TRAIN_SHARE * len(members))]
        train.update(first if without else (d for d in members if splits[d] == "train"))
    return np.array([document in train for document in documents])


def _named(document: Document) -> str:
    return f"document {document[1]} of task {document[0]!r}"

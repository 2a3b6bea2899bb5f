"""`import routerbench`: RouterBench's table of scores, into the warehouse.

The format: https://github.com/withmartian/routerbench, convertors/common.py (`convert_to_wide_format`), and
https://huggingface.co/datasets/withmartian/routerbench. One row per prompt: sample_id, prompt, eval_name, and
for every model the columns MODEL (its score, 0 to 1), MODEL|model_response and MODEL|total_cost (US dollars).
There is no gold answer. The data set's files are pickles of pandas tables.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import natural, tracked
from rlfocal.exchange.imports.graded import GradedAnswer, GradedRows, forms, is_right
from rlfocal.exchange.imports.reading import csv_columns, parquet_columns
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress
from rlfocal.extraction.answers import extract_answer
from warehouse.store import PartitionKey

BENCHMARK = "routerbench"
_KEYS = ("sample_id", "prompt", "eval_name")
_RESPONSE, _COST = "|model_response", "|total_cost"
_PICKLES = (".pkl", ".pickle")
_LETTER = re.compile(r"""[\s("'\[*]*([A-Z])(?:[).:,"'\]*]|\s*(?:\n|$))""")
_STATED = re.compile(r"\banswer(?:\s+is\b|\s*:)", re.IGNORECASE)

Columns = dict[str, list[Any]]
"""Equally long."""

_NUMBERS = ("grade-school-math", "gsm8k")  # whose responses end in the number that was asked for


@Importer
def import_routerbench(
    path: Annotated[str | Path, Option("RouterBench's table as CSV or Parquet.", metavar="FILE")],
    *,
    benchmark: Annotated[str, Option("The benchmark's name.")] = BENCHMARK,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> GradedRows:
    """Import RouterBench: sample_id, prompt, eval_name, MODEL, MODEL|model_response. All of it or nothing.

    An eval_name becomes a task, and a model's accuracy on it is the mean of its column; tasks with scores
    between 0 and 1 (MT-Bench) are left out and listed. Its own files are pickles, which are refused: loading
    one runs code. If you trust the file, convert it with pandas' `read_pickle(FILE).to_csv(...)`.
    """
    path = Path(path)
    columns = _columns(path)
    models = _models(columns, path)
    tasks = _tasks(columns, path)
    graded = GradedRows("routerbench", str(path), allow_missing, settings={"file": path.name})
    spent = defaultdict[PartitionKey, float](float)
    for task in tracked(list(tasks), on_progress):
        rows = tasks[task]
        scores = {model: _scores(columns, model, rows, path, allow_missing=allow_missing) for model in models}
        every = (score for of_model in scores.values() for score in of_model.values())
        if not graded.can_take(f"eval_name {task}", every):
            continue
        for doc_id, at in enumerate(_in_order(columns, rows)):
            document = {"benchmark": benchmark, "task": task, "doc_id": doc_id, "gold": None}
            document["question"] = _unwrap(columns["prompt"][at])
            for model, of_model in scores.items():
                if (score := of_model[at]) is None:
                    continue
                answer = _answer(columns, path, model, task, at, right=score == 1)
                spent[PartitionKey(model, benchmark, task)] += answer.cost or 0.0
                graded.add(f"{path}, row", at + 1, document, answer)
    graded.details |= {key: {"usd": dollars} for key, dollars in spent.items()}
    return graded


def _columns(path: Path) -> Columns:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    suffix = path.suffix.lower()
    if suffix in _PICKLES:
        raise InputError(
            f"{path}: loading a pickle runs any code that is in it, so it is not loaded here. Where you "
            f'trust it: python -c "import pandas; pandas.read_pickle({path.name!r}).to_csv('
            f'{path.stem + ".csv"!r}, index=False)"'
        )
    reader = {".parquet": parquet_columns, ".csv": csv_columns}.get(suffix)
    if reader is None:
        raise InputError(f"{path}: give a file that ends in .csv or .parquet")
    table = reader(path)
    for name in _KEYS:
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(table.column_names)[:200]}")
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows")
    return dict(zip(table.column_names, (column.to_pylist() for column in table.columns), strict=True))


def _models(columns: Columns, path: Path) -> list[str]:
    """Those with a response or a cost."""
    named = (name for name in columns if name.endswith((_RESPONSE, _COST)))
    models = sorted({name.rpartition("|")[0] for name in named})
    for model in models:
        if model not in columns:
            raise InputError(f"{path} has no column {model!r} with the scores of that model")
    if not models:
        raise InputError(f"{path} has no column MODEL{_RESPONSE}; is it RouterBench's wide table?")
    return models


def _tasks(columns: Columns, path: Path) -> dict[str, list[int]]:
    """Rows (from 0) of every eval_name. Raises InputError for a missing key and for a row given twice."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    first: dict[tuple[Any, ...], int] = {}
    for at in range(len(columns["prompt"])):
        keys = [columns[name][at] for name in _KEYS]
        for name, value in zip(_KEYS, keys, strict=True):
            if value is None:
                raise InputError(f"{path}, row {at + 1}: no {name}")
        if (other := first.setdefault(tuple(map(str, keys)), at)) != at:
            raise InputError(
                f"{path}, row {at + 1}: sample_id {keys[0]!r} as in row {other + 1}; keep one of them"
            )
        found[str(keys[2])].append(at)
    return dict(sorted(found.items()))


def _in_order(columns: Columns, rows: Sequence[int]) -> list[int]:
    """The rows sorted by sample_id, numbers in it by their value, then by prompt."""
    return sorted(rows, key=lambda at: (natural(str(columns["sample_id"][at])), str(columns["prompt"][at])))


def _scores(
    columns: Columns, model: str, rows: Sequence[int], path: Path, *, allow_missing: bool
) -> dict[int, float | None]:
    found: dict[int, float | None] = {}
    for at in rows:
        given = columns[model][at]
        where = f"{path}, row {at + 1}, column {model!r}"
        try:
            score = _number(given)
            if score is not None:
                is_right(score)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        if score is None and not allow_missing:
            raise InputError(f"{where}: no score; drop the row, or record the gap with --allow-missing")
        found[at] = score
    return found


def _number(given: Any) -> float | None:
    """None if it is missing, which pandas also writes as NaN. Raises ValueError if it is no number."""
    if given is None or given != given:
        return None
    text = str(given).strip().lower()
    if text in ("true", "false"):
        return float(text == "true")
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"score {given!r:.60} is not a number from 0 to 1") from None
    return None if number != number else number


def _answer(columns: Columns, path: Path, model: str, task: str, at: int, *, right: bool) -> GradedAnswer:
    response = columns[model + _RESPONSE][at] if model + _RESPONSE in columns else None
    text = None if response is None else _unwrap(response)
    cost = columns[model + _COST][at] if model + _COST in columns else None
    try:
        dollars = None if cost is None else float(cost)
    except (TypeError, ValueError):
        raise InputError(f"{path}, row {at + 1}: {model}{_COST} {cost!r:.60} is not a number") from None
    said = () if text is None else forms(spoken(text, number=task.startswith(_NUMBERS)), text)
    return GradedAnswer(model, said, right, text, cost=dollars if dollars == dollars else None)


def _unwrap(given: Any) -> str:
    """RouterBench keeps texts in lists, which CSV holds as Python writes them."""
    value = given
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            value = literal_eval(given.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = given
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n\n".join(value)
    return str(given)


def spoken(text: str, *, number: bool) -> str | None:
    """A response's answer: a choice's letter, else (`number`) the number it ends in, else what it states.

    None if it is not clear.

    >>> spoken("B) Paris, because ...", number=False), spoken("So the answer is (C).", number=False)
    ('B', 'C')
    """
    if number:
        return extract_answer(text)
    stated = [found.end() for found in _STATED.finditer(text)]
    for at in (0, *reversed(stated)):
        if letter := _LETTER.match(text, at):
            return letter[1]
    return None

"""Converts logs whose answers are graded into the files that `rlfocal import predictions` takes.

    python -m rlfocal_rivals.convert routerbench TABLE OUT
    python -m rlfocal_rivals.convert llmrouterbench RESULTS OUT

OUT/docs.parquet and OUT/scores.parquet keep the grades. An answer graded right is written as the document's
gold answer, whatever its words. An answer graded wrong is written as what it says, or as none if it says the
gold answer. Without a given gold answer, the most common right answer replaces it. `text` keeps the words.

RouterBench (https://github.com/withmartian/routerbench, convertors/common.py): one row per prompt with
sample_id, prompt, eval_name and, for every model, MODEL (its score) and MODEL|model_response; CSV or Parquet.
LLMRouterBench (https://github.com/ynulihao/LLMRouterBench, README.md): one file per run,
DATASET/SPLIT/MODEL/[...-]YYYYMMDD_HHMMSS.json, whose records hold index (from 1), origin_query, prediction,
ground_truth, raw_output, score, prompt_tokens and completion_tokens.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.tables import csv_columns
from rlfocal.extraction.answers import extract_answer
from warehouse.comparison import normalise

UNKNOWN_GOLD = "unknown right answer"
"""The placeholder for a gold answer that is not given, where no answer graded right has a text either."""
CONFIDENTIAL_BENCHMARKS = ("gpqa", "hle")
"""Data sets whose authors ask that no question be published."""


@dataclass(frozen=True)
class Answer:
    """One model's graded answer to one document."""

    benchmark: str
    task: str
    doc_id: int
    model: str
    score: float | None
    """The grade: 1 is right, 0 is wrong, None is not given."""
    texts: tuple[str, ...]
    """The normalised forms of the answer, the most exact first; empty if there is no answer."""
    text: str | None
    question: str
    gold: str | None = None
    n_tokens: int | None = None
    n_prompt_tokens: int | None = None


def forms(*texts: str | None) -> tuple[str, ...]:
    """The normalised forms of answers' texts, each once, in order; texts without an answer are left out."""
    return tuple(dict.fromkeys(form for text in texts if (form := normalise(text)) is not None))


Row = dict[str, Any]
_KEY_FIELDS = {"benchmark": pa.string(), "task": pa.string(), "doc_id": pa.int64()}
DOCS_SCHEMA = pa.schema(
    _KEY_FIELDS | {"question": pa.string(), "gold": pa.string(), "confidential": pa.bool_()}
)
_ANSWER_FIELDS = {"model": pa.string(), "answer": pa.string(), "text": pa.string()}
SCORES_SCHEMA = pa.schema(
    _KEY_FIELDS | _ANSWER_FIELDS | {"n_tokens": pa.int64(), "n_prompt_tokens": pa.int64()}
)


def settle(answers: Sequence[Answer]) -> tuple[list[Row], list[Row], list[str]]:
    """The rows of docs.parquet and scores.parquet, and the tasks left out because of scores between 0 and 1.

    Raises InputError where two models' records of one document differ in the question or the gold answer.
    """
    documents: dict[tuple[str, int], list[Answer]] = defaultdict(list)
    for answer in answers:
        documents[answer.task, answer.doc_id].append(answer)
    between = sorted({each.task for each in answers if each.score not in (0, 1, None)})
    docs, scores = [], []
    for (task, doc_id), given in documents.items():
        if task in between:
            continue
        if len({(each.question, each.gold) for each in given}) > 1:
            raise InputError(
                f"document {doc_id} of {task}: its question or gold answer differs between models"
            )
        gold = normalise(given[0].gold) or most_common_answer(given)
        keys = {"benchmark": given[0].benchmark, "task": task, "doc_id": doc_id}
        hides = task.lower().startswith(CONFIDENTIAL_BENCHMARKS)
        docs.append(keys | {"question": given[0].question, "gold": gold, "confidential": hides})
        for each in given:
            if each.score is not None:
                counted = {"n_tokens": each.n_tokens, "n_prompt_tokens": each.n_prompt_tokens}
                stored = gold if each.score else next((form for form in each.texts if form != gold), None)
                scores.append(keys | {"model": each.model, "answer": stored, "text": each.text} | counted)
    return docs, scores, between


def most_common_answer(answers: Sequence[Answer]) -> str:
    """The most frequent of the answers graded right, as a normalised text; ties: the alphabetically first."""
    counts = Counter(answer.texts[0] for answer in answers if answer.score and answer.texts)
    return min(counts, key=lambda form: (-counts[form], form), default=UNKNOWN_GOLD)


def grade(value: Any, where: str) -> float | None:
    """The score in a cell of a log, 0 to 1; None if it is missing. Raises InputError for any other value."""
    if value is None or value != value or value == "":
        return None
    text = str(value).strip().lower()
    try:
        score = {"true": 1.0, "false": 0.0}.get(text)
        score = float(text) if score is None else score
    except ValueError:
        score = -1.0
    if score != score:
        return None
    if not 0 <= score <= 1:
        raise InputError(f"{where}: score {value!r:.60} is not a number from 0 to 1")
    return score


# ---- RouterBench

_KEYS_OF_ROW = ("sample_id", "prompt", "eval_name")
_RESPONSE_SUFFIX, _COST_SUFFIX = "|model_response", "|total_cost"
_NUMBER_TASKS = ("grade-school-math", "gsm8k")  # whose responses end in the number that was asked for
_LETTER_PATTERN = re.compile(r"""[\s("'\[*]*([A-Z])(?:[).:,"'\]*]|\s*(?:\n|$))""")
_STATED_ANSWER = re.compile(r"\banswer(?:\s+is\b|\s*:)", re.IGNORECASE)


def read_routerbench(path: Path) -> list[Answer]:
    """The answers in a RouterBench table; an eval_name is a task, whose documents are numbered by sample_id.

    Raises InputError for a pickle, which can run any code, and for a table of other columns.
    """
    rows = read_rows(path)
    models = sorted(
        {name.rpartition("|")[0] for name in rows[0] if name.endswith((_RESPONSE_SUFFIX, _COST_SUFFIX))}
    )
    for name in (*_KEYS_OF_ROW, *models):
        if name not in rows[0]:
            raise InputError(f"{path} has no column {name!r}; is it RouterBench's wide table?")
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 1):
        key = tuple("" if row[name] is None else str(row[name]) for name in _KEYS_OF_ROW)
        if "" in key or key in seen:
            raise InputError(f"{path}, row {number}: {', '.join(key)[:60]} lacks a key or repeats a row")
        seen.add(key)
    numbered: dict[str, int] = defaultdict(int)
    answers = []
    for row in sorted(rows, key=lambda row: (natural_key(str(row["sample_id"])), str(row["prompt"]))):
        task = str(row["eval_name"])
        for model in models:
            answers.append(_read_response(row, model, task, numbered[task], path))
        numbered[task] += 1
    return answers


def _read_response(row: Row, model: str, task: str, doc_id: int, path: Path) -> Answer:
    score = grade(row[model], f"{path}, sample_id {row['sample_id']}, column {model!r}")
    given = row.get(model + _RESPONSE_SUFFIX)
    text = None if given is None else unwrap(given)
    answer_forms = (
        () if text is None else forms(read_response(text, number=task.startswith(_NUMBER_TASKS)), text)
    )
    return Answer("routerbench", task, doc_id, model, score, answer_forms, text, unwrap(row["prompt"]))


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV or Parquet file. Raises InputError for another file."""
    try:
        if path.suffix.lower() == ".parquet":
            table = pa.parquet.read_table(path)
        elif path.suffix.lower() == ".csv":
            table = csv_columns(path)
        else:
            raise InputError(
                f"{path}: give a file that ends in .csv or .parquet. A pickle runs any code in it; where you "
                f"trust it: pandas.read_pickle({path.name!r}).to_csv({path.stem + '.csv'!r}, index=False)"
            )
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from None
    if not table.num_rows:
        raise InputError(f"{path} has no rows")
    return list(table.to_pylist())


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key that sorts `a.9` before `a.10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", name)]


def unwrap(cell: Any) -> str:
    """The text in a cell of RouterBench's table, where texts stand in lists written as Python literals."""
    value = cell
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            value = literal_eval(cell.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = cell
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n\n".join(value)
    return str(cell)


def read_response(text: str, *, number: bool) -> str | None:
    """The answer in a response: the last number if `number`, else the letter that it begins with or states.

    None without such an answer.

    >>> [read_response(text, number=False) for text in ("B) Paris, because ...", "So the answer is (C).")]
    ['B', 'C']
    """
    if number:
        return extract_answer(text)
    stated = [match.end() for match in _STATED_ANSWER.finditer(text)]
    for start in (0, *reversed(stated)):
        if letter := _LETTER_PATTERN.match(text, start):
            return letter[1]
    return None


# ---- LLMRouterBench

_TIME_SUFFIX = re.compile(r"\d{8}_\d{6}$")


def read_llmrouterbench(folder: Path) -> list[Answer]:
    """The answers in LLMRouterBench's results, from the latest run of every model on every DATASET/SPLIT.

    Demo runs are left out. DATASET/SPLIT becomes a task DATASET-SPLIT.
    """
    answers: list[Answer] = []
    for path in latest_runs(folder):
        content = json.loads(path.read_bytes())
        named = [content.get(key) for key in ("dataset_name", "split", "model_name")]
        folders = [parent.name for parent in path.absolute().parents][2::-1]
        dataset, split, model = (name or folder for name, folder in zip(named, folders, strict=True))
        keys = f"{dataset}@llmrouterbench-{split}", f"{dataset}-{split}"
        for number, record in enumerate(content["records"], 1):
            where = f"{path}, record {number}"
            try:
                answers.append(_read_record(record, keys, model, where))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise InputError(f"{where}: not a record of LLMRouterBench ({error!r})") from None
    return answers


def latest_runs(folder: Path) -> Iterator[Path]:
    """Yields the latest result file of each folder of runs.

    Raises InputError if there is no such file, or if one is not in LLMRouterBench's format.
    """
    runs: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise InputError(f"{path}: not valid JSON ({error}); copy it again") from None
        if not isinstance(content, dict) or not isinstance(content.get("records"), list):
            raise InputError(
                f"{path}: not a result of LLMRouterBench: it has no list of records; leave it out"
            )
        if not content.get("demo"):
            runs[path.parent].append(path)
    if not runs:
        raise InputError(
            f"{folder} has no DATASET/SPLIT/MODEL/TIME.json; give LLMRouterBench's results/bench"
        )
    for paths in runs.values():
        yield max(paths, key=lambda path: match[0] if (match := _TIME_SUFFIX.search(path.stem)) else "")


def _read_record(value: Mapping[str, Any], keys: tuple[str, str], model: str, where: str) -> Answer:
    text = _write_text(value.get("raw_output"))
    return Answer(
        *keys,
        int(value["index"]) - 1,
        model,
        grade(value["score"], where),
        forms(_write_text(value["prediction"]), text),
        text,
        _write_text(value["origin_query"]) or "",
        _write_text(value["ground_truth"]),
        value.get("completion_tokens"),
        value.get("prompt_tokens"),
    )


def _write_text(value: Any) -> str | None:
    """The value as a text; some data sets' answers are lists or objects, which are written as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- the command


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line, which converts logs; `words` are its arguments.

    Exit code 0: both files are written; 2: the logs were refused, with a reason on stderr.
    """
    parser = ArgumentParser("python -m rlfocal_rivals.convert", description=__doc__.partition("\n")[0])
    parser.add_argument("format", choices=["routerbench", "llmrouterbench"])
    parser.add_argument("logs", type=Path, help="RouterBench's table, or LLMRouterBench's results/bench")
    parser.add_argument("out", type=Path, help="folder for docs.parquet and scores.parquet")
    parser.add_argument("--benchmark", default="", help="its name; default: that of the format")
    asked = parser.parse_args(words)
    try:
        read = {"routerbench": read_routerbench, "llmrouterbench": read_llmrouterbench}[asked.format]
        answers = read(asked.logs)
        docs, scores, between = settle(
            [replace(answer, benchmark=asked.benchmark or answer.benchmark) for answer in answers]
        )
        if not scores:
            raise InputError(f"{asked.logs}: no answer is graded right or wrong")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, rows, columns in (("docs", docs, DOCS_SCHEMA), ("scores", scores, SCORES_SCHEMA)):
        pa.parquet.write_table(pa.Table.from_pylist(rows, columns), asked.out / f"{name}.parquet")
    for task in between:
        print(f"left out: {task}, whose scores are not all 0 or 1", file=sys.stderr)
    print(f"rlfocal import predictions --docs {asked.out}/docs.parquet --scores {asked.out}/scores.parquet")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`import llmrouterbench`: result files of LLMRouterBench, into the warehouse.

The format: https://github.com/ynulihao/LLMRouterBench, README.md ("Result File Structure") and
data_collector/storage.py. One file per run, results/bench/DATASET/SPLIT/MODEL/[...-]YYYYMMDD_HHMMSS.json; its
records hold index (from 1), origin_query, prediction, ground_truth, raw_output, score (null if the run failed
or was not graded), prompt_tokens, completion_tokens and cost (US dollars).

Tokens are stored per record, cost only as a run's sum: what a query costs is computed from its tokens and the
model's current prices, so that all models are priced alike (`query_costs` is a view and stores nothing).
Stored dollars would depend on the day and provider of each run, and would not follow a new price.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import refusing, tracked
from rlfocal.exchange.imports.graded import GradedAnswer, GradedRows, forms, is_right, token_count
from rlfocal.exchange.imports.reading import find_files, read_json
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress, named
from warehouse.store import PartitionKey

_TIME = re.compile(r"\d{8}_\d{6}$")
_CONFIDENTIAL = ("gpqa", "hle")  # their authors ask that no question is published
_LARGEST = 2**31


@Importer
def import_llmrouterbench(
    paths: Annotated[
        Sequence[str | Path],
        Option(
            "results/bench or folders in it (searched whole), or files DATASET/SPLIT/MODEL/TIME.json.",
            is_repeated=True,
        ),
    ],
    *,
    benchmark: Annotated[
        str | None,
        Option(
            "One benchmark for everything, with tasks DATASET-SPLIT.", default="DATASET@llmrouterbench-SPLIT"
        ),
    ] = None,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> GradedRows:
    """Import results of LLMRouterBench: answers, whether each is right, tokens. All or nothing.

    The score alone says whether an answer is right, not its text; data sets with scores between 0 and 1 are
    left out and listed. Of several runs of a model the latest counts; demos are ignored.
    """
    runs, left = _latest_runs(paths, on_progress)
    rows = GradedRows("llmrouterbench", named(paths), allow_missing, left)
    for name, group in groupby(sorted(runs, key=lambda run: run.task), lambda run: run.task):
        of_task = list(group)
        if not rows.can_take(name, (record.score for run in of_task for record in run.records)):
            continue
        for run in of_task:
            place = {"benchmark": benchmark or f"{run.dataset}@llmrouterbench-{run.split}", "task": name}
            rows.details[PartitionKey(run.model, **place)] = {"file": run.path.name, **run.totals}
            shared = place | {"confidential": run.dataset.lower().startswith(_CONFIDENTIAL)}
            for record in run.records:
                if record.score is not None:
                    rows.add(f"{run.path}, record", record.index, shared | record.document, record.answer)
                elif not allow_missing:
                    raise InputError(
                        f"{run.path}, record {record.index}: no score: {str(record.answer.text)[:100]!r}. "
                        f"Run {run.model} on it again, or record the gap with --allow-missing"
                    )
    return rows


@dataclass(frozen=True)
class _Record:
    """One record, checked."""

    index: int
    document: dict[str, Any]
    score: float | None
    answer: GradedAnswer


@dataclass(frozen=True)
class _Run:
    """What one model answered to one split of a data set."""

    path: Path
    dataset: str
    split: str
    model: str
    records: tuple[_Record, ...]

    @property
    def task(self) -> str:
        return f"{self.dataset}-{self.split}"

    @property
    def totals(self) -> dict[str, Any]:
        """What the run took, as far as its records say: US dollars, tokens in and out."""
        columns = {"usd": "cost", "prompt_tokens": "n_prompt_tokens", "completion_tokens": "n_tokens"}
        given = {name: [getattr(r.answer, column) for r in self.records] for name, column in columns.items()}
        return {name: sum(values) for name, values in given.items() if None not in values}


def _latest_runs(paths: Sequence[str | Path], on_progress: OnProgress) -> tuple[list[_Run], list[str]]:
    """The latest run in every folder that is not a demo, and what was left out."""
    folders: defaultdict[Path, list[Path]] = defaultdict(list)
    advice = "DATASET/SPLIT/MODEL/TIME.json; give LLMRouterBench's results/bench"
    for path in find_files(paths, lambda file: file.suffix == ".json", advice):
        folders[path.parent].append(path)
    runs: dict[tuple[str, str], _Run] = {}
    left: list[str] = []
    for files in tracked(list(folders.values()), on_progress):
        ordered = sorted(files, key=_time)
        while ordered:
            content = _content(path := ordered.pop())
            if content.get("demo"):
                left.append(f"{path} (a demo)")
                continue
            run = _run(path, content)
            if (other := runs.setdefault((run.task, run.model), run)) is not run:
                raise InputError(
                    f"{path}: a run of {run.model} on {run.task}, as is {other.path}; give only one"
                )
            left += [f"{earlier} (an earlier run)" for earlier in ordered]
            break
    return list(runs.values()), left


def _time(path: Path) -> str:
    found = _TIME.search(path.stem)
    return found[0] if found else ""


def _content(path: Path) -> Mapping[str, Any]:
    content = read_json(path, "copy it again")
    if not isinstance(content, dict) or not isinstance(content.get("records"), list):
        raise InputError(f"{path}: not a result of LLMRouterBench: it has no list of records; leave it out")
    if not content["records"]:
        raise InputError(f"{path} has no records; leave it out")
    return content


def _run(path: Path, content: Mapping[str, Any]) -> _Run:
    """Names are in the file since 2025-12, and always in its folders."""
    names = {}
    for key, folder in zip(("dataset_name", "split", "model_name"), _folders(path), strict=True):
        name = content.get(key) or folder
        if not isinstance(name, str) or not name:
            raise InputError(f"{path}: no {key}, and the file does not lie in DATASET/SPLIT/MODEL")
        names[key] = name
    records, seen = [], set()
    for number, given in enumerate(content["records"], 1):
        with refusing(f"{path}, record {number}: not a record of LLMRouterBench"):
            record = _record(given, names["model_name"])
        if record.index in seen:
            raise InputError(f"{path}, record {number}: index {record.index} for the second time; keep one")
        seen.add(record.index)
        records.append(record)
    return _Run(path, names["dataset_name"], names["split"], names["model_name"], tuple(records))


def _folders(path: Path) -> list[str]:
    names = [parent.name for parent in path.absolute().parents][:3][::-1]
    return [""] * (3 - len(names)) + names


def _record(given: Any, model: str) -> _Record:
    """Raises KeyError, TypeError or ValueError if it is not one of LLMRouterBench's."""
    if not isinstance(given, dict):
        raise TypeError(f"not a JSON object: {str(given)[:60]}")
    index = given["index"]
    if not isinstance(index, int) or isinstance(index, bool) or not 1 <= index < _LARGEST:
        raise ValueError(f"index {index!r:.60} is not a whole number from 1")
    score, text = given["score"], _text(given.get("raw_output"))
    return _Record(
        index=index,
        document={
            "doc_id": index - 1,
            "question": _text(given["origin_query"]),
            "gold": _text(given["ground_truth"]),
        },
        score=score,
        answer=GradedAnswer(
            model=model,
            said=forms(_text(given["prediction"]), text),
            right=score is not None and bool(is_right(score)),
            text=text,
            n_tokens=token_count("completion_tokens", given.get("completion_tokens")),
            n_prompt_tokens=token_count("prompt_tokens", given.get("prompt_tokens")),
            cost=_dollars(given.get("cost")),
        ),
    )


def _text(given: Any) -> str | None:
    """Text as it is; some data sets' answers are lists or objects."""
    return given if given is None or isinstance(given, str) else dumps(given, ensure_ascii=False)


def _dollars(given: Any) -> float | None:
    if given is None:
        return None
    if not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise ValueError(f"cost {given!r:.60} is not an amount of US dollars")
    return float(given)

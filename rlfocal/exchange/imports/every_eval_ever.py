"""`import every-eval-ever`: instance-level results in the schema of Every Eval Ever, into the warehouse.

The format: https://github.com/evaleval/every_eval_ever, every_eval_ever/schemas. eval.schema.json is of
UUID.json, the scores of a model; instance_level_eval.schema.json of UUID_samples.jsonl beside it, one line
per answer. Scores without answers are not imported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb

from rlfocal.base.errors import InputError
from rlfocal.base.wording import counted
from rlfocal.exchange.imports.eval_samples import EvalSample, OwnAnswers, OwnChoices, eval_sample
from rlfocal.exchange.imports.graded import GradedRows
from rlfocal.exchange.imports.reading.numbering import numbers
from rlfocal.exchange.imports.reading.samples import parse_json, read_jsonl
from rlfocal.exchange.imports.rows import CheckedRows, ImportReport, Source, check_rows
from warehouse import Warehouse
from warehouse.memory import memory_settings

VERSIONS = ("0.2", "0.3")
"""Of the schema, as far as they are read."""


def import_every_eval_ever(
    warehouse: Warehouse,
    paths: Sequence[str | Path],
    *,
    benchmark: str | None = None,
    metric: str | None = None,
    allow_missing: bool = False,
) -> ImportReport:
    """Imports folders (searched whole) or files in one transaction; repeating it is a no-op.

    An evaluation_name becomes a task of `benchmark`, else of what evaluation_id begins with. `metric` is the
    evaluation_result_id to use if answers have several. `is_correct` says whether an answer is right;
    evaluations with scores other than 0 and 1 are left out. What `rlfocal export every-eval-ever` wrote comes
    back complete, including its log-probs. Raises InputError with file, line and reason, and writes nothing,
    if a line is wrong or models cover different documents (unless `allow_missing`).
    """
    read = read_every_eval_ever(paths, benchmark=benchmark, metric=metric, allow_missing=allow_missing)
    with read as checked:
        return checked.write(warehouse)


@contextmanager
def read_every_eval_ever(
    paths: Sequence[str | Path],
    *,
    benchmark: str | None = None,
    metric: str | None = None,
    allow_missing: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> Iterator[CheckedRows]:
    """Reads and checks the files, before any warehouse is created.

    `on_progress` gets the share of files that have been read.
    """
    files, left = _files(paths)
    title, taken = ", ".join(map(str, paths)), _Taken()
    samples: list[EvalSample] = []
    for at, (path, aggregate) in enumerate(files):
        if on_progress is not None:
            on_progress(at / len(files))
        _check_whole(path, aggregate)
        samples += _samples(path, aggregate, benchmark)
    for (name, task), of_task in _by_task(samples).items():
        of_metric = _of_metric(of_task, metric, f"{name}/{task}")
        between = [sample.score for sample in of_metric if sample.right is None]
        if between:
            n = counted(len(between), "score")
            left.append(f"{name}/{task} ({n} other than 0 and 1, such as {between[0]})")
            continue
        doc_ids = numbers(sample.sample_id for sample in of_metric)
        for sample in of_metric:
            taken.take(sample, doc_ids[sample.sample_id])
    taken.settle()
    if not taken.scores:
        raise InputError(f"{title}: nothing to import; " + "; ".join(left))
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        taken.load(scratch)
        source = Source(
            kind="every-eval-ever",
            title=title,
            place=lambda _, row: taken.place(row),
            left=tuple(left),
            notes=taken.notes,
        )
        yield check_rows(scratch, source, allow_missing=allow_missing)


class _Taken(GradedRows):
    """Rows gathered from lines."""

    def __init__(self) -> None:
        super().__init__()
        self._attempts: defaultdict[tuple[str, str, int, str], int] = defaultdict(int)
        self._whole: dict[tuple[str, str, int], dict[str, Any]] = {}

    def take(self, sample: EvalSample, doc_id: int) -> None:
        keys = {"benchmark": sample.benchmark, "task": sample.task, "doc_id": doc_id}
        where = f"{sample.path}, line"
        if isinstance(sample.answer, OwnChoices | OwnAnswers):
            self._take_own(sample, keys, self.row(where, sample.line))
            return
        answered = (sample.benchmark, sample.task, doc_id, sample.answer.model)
        attempt = self._attempts[answered]
        self._attempts[answered] += 1
        self.add(where, sample.line, keys | sample.document, replace(sample.answer, attempt=attempt))

    def _take_own(self, sample: EvalSample, keys: dict[str, Any], row: int) -> None:
        """What this warehouse exported has its log-probs, or every answer."""
        assert isinstance(sample.answer, OwnChoices | OwnAnswers)
        document = keys | sample.document
        known = self._whole.setdefault((keys["benchmark"], keys["task"], keys["doc_id"]), document)
        if known is document:
            self.docs.append(document | {"row": row})
        elif known != document:
            raise InputError(
                f"{self.place(row)}: document {keys['doc_id']} of {keys['benchmark']}/{keys['task']} is not "
                "the one that another model answered; import it under another name with --benchmark"
            )
        self.scores += [{**keys, "row": row, **score} for score in sample.answer.scores()]


def _files(paths: Sequence[str | Path]) -> tuple[list[tuple[Path, Mapping[str, Any]]], list[str]]:
    """Files of lines, each with its aggregate ({} where there is none), and the aggregates that have none."""
    found: dict[Path, tuple[Path, Mapping[str, Any]]] = {}
    left = []
    for given in map(Path, paths):
        if not given.exists():
            raise InputError(f"there is no file or folder {given}")
        inside = sorted(given.rglob("*")) if given.is_dir() else [given]
        chosen = [path for path in inside if path.suffix in (".json", ".jsonl") and path.is_file()]
        if not chosen:
            raise InputError(f"{given} has no UUID.json and no UUID_samples.jsonl of Every Eval Ever")
        for path in chosen:
            if path.suffix == ".jsonl":
                aggregate = path.with_name(f"{path.stem.removesuffix('_samples')}.json")
                found.setdefault(path.absolute(), (path, _aggregate(aggregate) if aggregate.exists() else {}))
                continue
            content = _aggregate(path)
            lines = path.with_name(f"{path.stem}_samples.jsonl")
            if lines.exists():
                found.setdefault(lines.absolute(), (lines, content))
            elif content.get("detailed_evaluation_results"):
                raise InputError(f"{path}: its answers are not beside it; fetch {lines.name} too")
            else:
                left.append(f"{path} (scores without the answers)")
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: nothing to import; " + "; ".join(left))
    return list(found.values()), left


def _aggregate(path: Path) -> Mapping[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); copy it again") from None
    if not isinstance(content, dict) or "evaluation_results" not in content:
        raise InputError(f"{path}: not an aggregate of Every Eval Ever (no evaluation_results); leave it out")
    return content


def _check_whole(path: Path, aggregate: Mapping[str, Any]) -> None:
    """Raises InputError if the lines are not those that the aggregate was written with."""
    stated = aggregate.get("detailed_evaluation_results")
    if not isinstance(stated, dict) or stated.get("hash_algorithm") != "sha256":
        return
    if (checksum := stated.get("checksum")) and checksum != sha256(path.read_bytes()).hexdigest():
        raise InputError(f"{path}: its SHA-256 is not the one its aggregate states; fetch both again")


def _samples(path: Path, aggregate: Mapping[str, Any], benchmark: str | None) -> Iterator[EvalSample]:
    for line, row in read_jsonl(path):
        version = row.get("schema_version")
        if not isinstance(version, str) or not version.startswith(VERSIONS):
            raise InputError(
                f"{path}, line {line}: schema_version {version!r:.60}, but {' and '.join(VERSIONS)} are read"
            )
        try:
            yield eval_sample(row, aggregate, path, line, benchmark)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"{path}, line {line}: not an instance-level result of Every Eval Ever ({reason})"
            ) from None


def _by_task(samples: Iterable[EvalSample]) -> dict[tuple[str, str], list[EvalSample]]:
    found: defaultdict[tuple[str, str], list[EvalSample]] = defaultdict(list)
    for sample in samples:
        found[sample.benchmark, sample.task].append(sample)
    return dict(sorted(found.items()))


def _of_metric(samples: Sequence[EvalSample], metric: str | None, name: str) -> Sequence[EvalSample]:
    """Lines of one metric. Raises InputError if there are several and none is named."""
    found = sorted({sample.metric for sample in samples if sample.metric is not None})
    if metric is not None and metric in found:
        return [sample for sample in samples if sample.metric == metric]
    if len(found) > 1:
        raise InputError(
            f"{samples[0].path}: {name} has several results an answer ({', '.join(found)[:200]}); "
            "name the one that counts with --metric"
        )
    return samples

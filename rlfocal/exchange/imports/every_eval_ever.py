"""`import every-eval-ever`: instance-level results in the schema of Every Eval Ever, into the warehouse.

The format: https://github.com/evaleval/every_eval_ever, every_eval_ever/schemas. eval.schema.json is of
UUID.json, the scores of a model; instance_level_eval.schema.json of UUID_samples.jsonl beside it, one line
per answer. Scores without answers are not imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.eval_samples import EvalSample, eval_sample
from rlfocal.exchange.imports.gathered import numbers, refusing, tracked
from rlfocal.exchange.imports.graded import GradedAnswer, GradedRows
from rlfocal.exchange.imports.reading import find_files, read_json, read_jsonl
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress, named

VERSIONS = ("0.2", "0.3")
"""Versions of the schema that are read."""


@Importer
def import_every_eval_ever(
    paths: Annotated[
        Sequence[str | Path],
        Option(
            "Folders (searched whole) or files: UUID.json with UUID_samples.jsonl beside it.",
            is_repeated=True,
        ),
    ],
    *,
    benchmark: Annotated[
        str | None, Option("The benchmark's name.", default="what evaluation_id begins with")
    ] = None,
    metric: Annotated[
        str | None, Option("The evaluation_result_id to use if answers have several.", metavar="ID")
    ] = None,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> GradedRows:
    """Import instance-level results of Every Eval Ever. All or nothing.

    `is_correct` says whether an answer is right. Scores without answers are left out and listed. What
    `rlfocal export every-eval-ever` wrote comes back complete, including its log-probs.
    """
    files, left = _files(paths)
    rows = GradedRows("every-eval-ever", named(paths), allow_missing, left)
    samples: list[EvalSample] = []
    for path, aggregate in tracked(files, on_progress):
        _check_whole(path, aggregate)
        samples += _samples(path, aggregate, benchmark)
    place = attrgetter("benchmark", "task")
    for (name, task), of_task in groupby(sorted(samples, key=place), place):
        of_metric = _of_metric(list(of_task), metric, f"{name}/{task}")
        if not rows.can_take(f"{name}/{task}", (sample.score for sample in of_metric)):
            continue
        doc_ids = numbers(sample.sample_id for sample in of_metric)
        attempts = Counter[tuple[str, str]]()
        for sample in of_metric:
            where = f"{sample.path}, line"
            keys = {"benchmark": name, "task": task, "doc_id": doc_ids[sample.sample_id]}
            document = keys | sample.document
            if isinstance(sample.answer, GradedAnswer):
                answered = sample.sample_id, sample.answer.model
                answer = replace(sample.answer, attempt=attempts[answered])
                attempts[answered] += 1
                rows.add(where, sample.line, document, answer)
            else:  # our own: with its log-probs, or every answer
                row = rows.row(where, sample.line)
                rows.describe({**document, "row": row}, list(sample.document))
                rows.scores += [{**keys, "row": row, **score} for score in sample.answer]
    return rows


def _files(paths: Sequence[str | Path]) -> tuple[list[tuple[Path, Mapping[str, Any]]], list[str]]:
    """Files of lines, each with its aggregate ({} where there is none), and the aggregates that have none."""
    found: dict[Path, tuple[Path, Mapping[str, Any]]] = {}
    left = []
    advice = "UUID.json and no UUID_samples.jsonl of Every Eval Ever"
    for path in find_files(paths, lambda file: file.suffix in (".json", ".jsonl"), advice):
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
        raise InputError(f"{named(paths)}: nothing to import; " + "; ".join(left))
    return list(found.values()), left


def _aggregate(path: Path) -> Mapping[str, Any]:
    content = read_json(path, "copy it again")
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
        with refusing(f"{path}, line {line}: not an instance-level result of Every Eval Ever"):
            read = eval_sample(row, aggregate, path, line, benchmark)
        yield read


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

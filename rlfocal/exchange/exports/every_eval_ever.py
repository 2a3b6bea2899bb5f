"""Accuracies and answers in the schema of Every Eval Ever, laid out as its datastore is.

The format: https://github.com/evaleval/every_eval_ever, every_eval_ever/schemas (version 0.3.0), and its
README.md for data/COLLECTION/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import rlfocal
from rlfocal.base.errors import unknown
from rlfocal.base.request import Benchmark, Models, Option, Progress
from rlfocal.exchange.exports import canonical_json, read_records, staged, withhold, write_lines
from rlfocal.exchange.exports.eval_records import Run, aggregate, instance
from warehouse import Warehouse
from warehouse.locations import expanded

Relationship = Literal["first_party", "third_party", "collaborative", "other"]

_NOT_IN_NAMES = re.compile(r'[<>:"/\\\\|?*\x00-\x1f]|[. ]$')


@dataclass(frozen=True)
class EvalExport:
    """What an export wrote."""

    path: Path
    snapshot: int
    """The one that was exported."""
    models: tuple[str, ...]
    n_scores: int
    """Accuracies, one per model and task."""
    n_samples: int
    """Lines, one per answered document."""
    withheld: int
    """Confidential documents whose lines stayed out; the accuracies have them."""


def export_every_eval_ever(
    warehouse: Warehouse,
    target: Annotated[str | Path, Option("A new or empty folder.", flags=("--out",), metavar="DIR")],
    benchmark: Benchmark,
    *,
    models: Models = None,
    organization: Annotated[str, Option("Who ran the models: source_organization_name.")] = "unknown",
    relationship: Annotated[
        Relationship, Option("That organization's relationship to the models' makers.")
    ] = "other",
    questions: Annotated[
        bool, Option("Include the lines of confidential documents, such as GPQA's.")
    ] = False,
    on_progress: Progress | None = None,
) -> EvalExport:
    """Writes each model's accuracies and answers into the new or empty folder `target`: all or nothing.

    The same snapshot gives the same bytes: timestamps are when the answers came. Confidential documents are
    left out of the lines unless `questions`. `on_progress` gets a model's name and the share of it that is
    done. Raises InputError for an unknown name and a target that is not empty.
    """
    folder = expanded(target)
    with staged(warehouse, folder, is_folder=True) as stage:
        withhold(warehouse, questions=questions)
        runs = _runs(warehouse, benchmark, models, organization, relationship)
        n_samples = 0
        for run in runs:
            if on_progress is not None:
                on_progress(run.model, 0)
            n_samples += _write(warehouse, run, stage)
            if on_progress is not None:
                on_progress(run.model, 1)
        withheld = warehouse.rows("SELECT count(*) FROM temp.withheld WHERE benchmark = ?", [benchmark])[0][0]
        return EvalExport(
            path=folder,
            snapshot=warehouse.snapshot(),
            models=tuple(run.model for run in runs),
            n_scores=sum(len(run.scores) for run in runs),
            n_samples=n_samples,
            withheld=withheld,
        )


def _runs(
    warehouse: Warehouse,
    benchmark: str,
    models: Sequence[str] | None,
    organization: str,
    relationship: str,
) -> list[Run]:
    asked = {"benchmark": benchmark, "models": None if models is None else list(models)}
    rows = read_records(warehouse, "eval_scores", asked)
    by_model = {model: list(scores) for model, scores in groupby(rows, lambda row: str(row["model"]))}
    answering = "SELECT DISTINCT model FROM accuracy WHERE benchmark = ? ORDER BY 1"
    there = [name for (name,) in warehouse.rows(answering, [benchmark])]
    if not there:
        known = [name for (name,) in warehouse.rows("SELECT DISTINCT benchmark FROM accuracy ORDER BY 1")]
        raise unknown("benchmark", benchmark, known, "the warehouse")
    for name in models or ():
        if name not in there:
            raise unknown("model", name, there, f"benchmark {benchmark!r}")
    about = {row["model"]: row for row in warehouse.query("FROM models").to_pylist()}
    return [
        Run(benchmark, model, about.get(model, {}), tuple(scores), organization, relationship)
        for model, scores in by_model.items()
    ]


def _write(warehouse: Warehouse, run: Run, stage: Path) -> int:
    """An aggregate, and beside it its lines where there are any; returns their number."""
    names = (
        _folder(run.benchmark),
        _folder(run.developer),
        _folder(run.model_id.partition("/")[2] or run.model),
    )
    folder = Path("data", *names)
    (stage / folder).mkdir(parents=True, exist_ok=True)
    unnamed = stage / folder / "samples.jsonl"
    rows = read_records(warehouse, "eval_samples", {"benchmark": run.benchmark, "model": run.model})
    digest, n_lines = write_lines(unnamed, (instance(run, row) for row in rows))
    # A version 4 UUID is asked for; a random one would make every export another.
    seed = sha256(f"{run.evaluation_id}\0{run.model}\0{rlfocal.__version__}\0{digest}".encode())
    uuid = str(UUID(bytes=seed.digest()[:16], version=4))
    lines = None
    if n_lines:
        path = folder / f"{uuid}_samples.jsonl"
        unnamed.rename(stage / path)
        lines = {
            "format": "jsonl",
            "file_path": path.as_posix(),
            "hash_algorithm": "sha256",
            "checksum": digest,
            "total_rows": n_lines,
        }
    else:
        unnamed.unlink()
    (stage / folder / f"{uuid}.json").write_bytes(canonical_json(aggregate(run, lines)))
    return n_lines


def _folder(name: str) -> str:
    """A name as a portable folder's."""
    return _NOT_IN_NAMES.sub("_", name)

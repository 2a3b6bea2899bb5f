"""Commands that keep a warehouse: doctor, compact, snapshots, diff, audit-labels, correct-labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.options import Option
from rlfocal.base.wording import count_noun
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from warehouse.snapshots import Snapshot as Commit


_MAX_FINDINGS_LISTED = 5  # findings of one kind that are listed one by one
_PARTITIONS_LISTED = 3  # partitions in a line
_DURATION_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_FINDING_MARKS = {"ok": "✓", "note": "·", "fault": "✗"}


@command("doctor", "Keep a warehouse")
def doctor(
    fix: Annotated[
        bool,
        Option("Drop unreadable files and incomplete partitions, and delete leftovers.", flags=("--repair",)),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check versions, GPU, Prefect server and every file of the warehouse, and say how to fix what is wrong.

    Exit code 0: nothing is broken; 1: something is. `--repair` commits a new snapshot; the next extraction or
    import adds again what it dropped.
    """
    from rlfocal.upkeep.doctor import diagnose

    with progress_bars() as on_progress:
        findings = diagnose(warehouse, fix=fix, on_progress=lambda share: on_progress("files read", share))
    lines: list[str] = []
    listed = Counter[tuple[str, str]]()
    for finding in findings:
        listed[finding.check, finding.level] += 1
        if listed[finding.check, finding.level] <= _MAX_FINDINGS_LISTED:
            lines.append(f"{_FINDING_MARKS[finding.level]} {finding.check}: {finding.message}")
            lines += [f"    → {finding.fix}"] if finding.fix else []
    for (check, level), n in listed.items():
        if n > _MAX_FINDINGS_LISTED:
            lines.append(
                f"{_FINDING_MARKS[level]} {check}: and {n - _MAX_FINDINGS_LISTED:,} more, which --json lists"
            )
    is_failure = any(finding.level == "fault" for finding in findings)
    show_result(findings, "\n".join(lines), as_json=as_json, is_failure=is_failure)


@command("compact", "Keep a warehouse")
def compact(
    keep: Annotated[
        int | None, Option("Delete all snapshots but the newest N.", least=1, default="all", metavar="N")
    ] = None,
    older_than: Annotated[
        str | None, Option("Delete snapshots older than this: 12h, 30d, 8w.", default="none", metavar="AGE")
    ] = None,
    evaluated: Annotated[
        bool,
        Option("Also delete snapshots that evaluations or trainings read, which then cannot be repeated."),
    ] = False,
    delete_after: Annotated[
        str,
        Option(
            "Delete files once no snapshot has needed them for this long: running queries may read them.",
            metavar="AGE",
        ),
    ] = "24h",
    yes: Annotated[
        bool,
        Option(
            "Delete the snapshots; without it, the command only says what it would delete.",
            flags=("--yes", "-y"),
        ),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Merge the warehouse's many small files into few, after deleting old snapshots if asked to.

    Without `--keep` or `--older-than`, every snapshot shows what it showed before. With one of them, it is a
    dry run unless `--yes`. The newest snapshot is always kept. So are those that evaluations or training runs
    read, so that `--snapshot N` can reproduce them. Files that no snapshot needs any more are deleted by the
    first compaction a day later, or `--delete-after`.
    """
    from rlfocal.methods.learning.store import trained_on
    from warehouse import open_warehouse
    from warehouse.expiry import expire, merge

    age = None if older_than is None else _read_age("--older-than", older_than)
    grace = _read_age("--delete-after", delete_after)
    is_expiring = keep is not None or age is not None
    value: dict[str, Any] = {"done": yes or not is_expiring}
    lines = []
    with open_warehouse(warehouse, create=False) as opened:
        if is_expiring:
            trained = trained_on(opened.location.checkpoints)
            expiry = expire(
                opened,
                keep=keep,
                older_than=age,
                evaluated=evaluated,
                training_snapshots=trained,
                dry_run=not yes,
                grace=grace,
            )
            value |= expiry._asdict()
            freed = f"{count_noun(expiry.files, 'file')}, {count_noun(expiry.bytes, 'byte')}"
            verb = "deleted" if yes else "would delete"
            lines.append(f"{verb} {count_noun(len(expiry.snapshots), 'snapshot')}: {freed}")
            if expiry.evaluated:
                lines.append(
                    f"kept for evaluations, trained agents and drift: {', '.join(map(str, expiry.evaluated))}"
                )
        if value["done"]:
            merged = merge(opened, grace)
            value |= merged._asdict()
            before, after = count_noun(merged.files_before, "file"), count_noun(merged.files_after, "file")
            lines.append(
                f"{before} merged into {after}" if before != after else f"nothing to merge in {after}"
            )
            if merged.rewritten:
                lines.append(f"{count_noun(merged.rewritten, 'file')} written anew without deleted rows")
        else:
            lines.append("a dry run: nothing is deleted or merged; --yes applies it")
    show_result(value, "\n".join(lines), as_json=as_json)


def _read_age(option: str, text: str) -> timedelta:
    parsed = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    if parsed is None:
        raise InputError(f"{option} {text!r}: give a number with h, d or w, as in 12h, 30d or 8w")
    return timedelta(**{_DURATION_UNITS[parsed[2]]: int(parsed[1])})


@command("audit-labels", "Keep a warehouse")
def audit_labels(
    benchmark: options.Benchmark,
    tasks: Annotated[
        options.Names | None,
        Option(
            "Name only documents of these tasks.",
            default="all",
            flags=("--tasks", "--task"),
            metavar="T,...",
            is_listed=True,
        ),
    ] = None,
    rows: Annotated[int, Option("Print the first N documents.", least=1, metavar="N")] = 20,
    csv: Annotated[
        Path | None,
        Option("Also write all named documents into this CSV file.", flags=("--csv",), metavar="FILE"),
    ] = None,
    models: options.Models = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Name documents whose label is probably wrong, by what the models say, the most probable first.

    Use it to find labels to check. Use `correct-labels` to write those that you found wrong.

    It compares each label with what the models answer, and says how many labels are probably wrong. It also
    says whether a whole task's labels are in another order, and how the ranking of the models would change.

    To correct labels, write them with `--csv doubts.csv`, look at each document, and fill in its column
    `label` (for answers `gold`) where it is wrong; `rlfocal correct-labels doubts.csv` leaves out rows where
    you filled in nothing. Models can be wrong together: never correct by them alone.
    """
    from rich.console import Console
    from rich.text import Text

    from rlfocal.base.atomic import write_file
    from rlfocal.evaluation.auditing import AUDIT_LEGEND
    from rlfocal.evaluation.auditing import audit_labels as audit
    from warehouse import open_warehouse

    if csv is not None and csv.suffix != ".csv":
        raise InputError(f"--csv {csv}: give a file that ends in .csv")
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        labels = audit(opened, benchmark, models).select_tasks(tasks)
    if csv is not None:
        write_file(csv, labels.csv())

    def show() -> None:
        console = Console()
        for sentence in labels.sentences():
            console.print(Text(sentence))
        if labels.suspects:
            console.print(labels.table(rows))
        console.print(Text(AUDIT_LEGEND, style="dim"), width=min(console.width, 100))
        if csv is not None:
            console.print(Text(f"{count_noun(len(labels.suspects), 'document')} in {csv}"))

    show_result(labels, show, as_json=as_json)


@command("correct-labels", "Keep a warehouse")
def correct_labels(
    file: Annotated[
        Path,
        typer.Argument(
            help="Parquet, CSV or JSONL: benchmark, task, doc_id (or source_id, for ids that are texts), and "
            "label or (for answers) gold.",
            show_default=False,
        ),
    ],
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Correct documents' labels or gold answers, all or none. If repeated, it writes nothing.

    Models' answers stay, so accuracies change at once; evaluations against the old labels stay as history. A
    correction stays if the document is imported or extracted again with its old label. Rows with neither
    label nor gold are left out, such as those of `rlfocal audit-labels --csv` that nobody filled in.
    """
    from rlfocal.exchange.imports.labels import correct, read_labels
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        labels, unfilled = read_labels(file)
        n = correct(opened, labels, file)
        result = {"corrected": n, "unfilled": unfilled, "snapshot": opened.snapshot()}
    done = f"{count_noun(n, 'document')} corrected"
    text = done if n else f"nothing to do: the documents are already as in {file}"
    if unfilled:
        text += f"; {count_noun(unfilled, 'row')} without a label left out"
    show_result(result, text, as_json=as_json)


@command("snapshots", "Keep a warehouse")
def snapshots(
    last: Annotated[
        int | None, Option("Show only the last N snapshots.", least=1, default="all", metavar="N")
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """List the warehouse's snapshots: when and why each was made, and which rows and partitions it changed.

    Every commit is a snapshot. With `--snapshot N`, other commands read the warehouse as of snapshot N.
    """
    from warehouse import open_warehouse
    from warehouse.snapshots import snapshots as listed

    with open_warehouse(warehouse, read_only=True) as opened:
        shown = listed(opened, last)
    width = get_terminal_size().columns
    lines = (fill(_show(each), width, subsequent_indent=" " * 7, break_on_hyphens=False) for each in shown)
    show_result([_to_plain(snapshot) for snapshot in shown], "\n".join(lines), as_json=as_json)


@command("diff", "Keep a warehouse")
def diff(
    before: Annotated[
        int | None,
        typer.Argument(
            metavar="A",
            help="The number of the earlier snapshot.",
            show_default="the one before the last extraction or import",
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Argument(metavar="B", help="The number of the later snapshot.", show_default="the newest"),
    ] = None,
    benchmark: Annotated[
        str | None,
        Option(
            "Compare only the answers to this benchmark.",
            default="all",
            flags=("--benchmark", "-b"),
            complete="benchmark",
        ),
    ] = None,
    logprob: Annotated[
        float | None,
        Option(
            "By how much the log-prob of a one-token choice may differ.",
            least=0,
            default="0.001; 0.1 in 16 bits",
            metavar="X",
        ),
    ] = None,
    flipped: Annotated[
        float | None,
        Option(
            "Share of predictions that may flip.",
            least=0,
            most=1,
            default="0.01; 0.05 in 16 bits",
            metavar="X",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        Option("By how much an accuracy may change.", least=0, most=1, default="0.01", metavar="X"),
    ] = None,
    fail: Annotated[bool, Option("Exit with code 1 if any partition is beyond a limit.")] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two snapshots, and whether models still answer as before.

    For example, `rlfocal diff 120 164` shows what an engine upgrade did. Log-probs computed in other batches
    differ a little; only larger differences are beyond a limit, per model and task. New models, new tasks and
    corrected labels never are.
    """
    from rich.console import Console

    from rlfocal.upkeep.drift import (
        Thresholds,
        drift_between,
        find_snapshot_before_extraction,
        headline,
        table,
        upgrades,
    )
    from rlfocal.upkeep.drift import as_json as drift_as_json
    from warehouse import open_warehouse

    thresholds = Thresholds().replace_limits(logprob, flipped, accuracy)
    with open_warehouse(warehouse, read_only=True, snapshot=after) as opened:
        since = find_snapshot_before_extraction(opened) if before is None else before
        place, shown = opened.location, opened.snapshot()
    drift = drift_between(place, since, shown, thresholds, benchmark)

    def show() -> None:
        typer.echo(fill(headline(drift), get_terminal_size().columns))
        if drift.difference.partitions:
            Console().print(table(drift))
        typer.echo("".join(f"{line}\n" for line in upgrades(drift)), nl=False)

    is_failure = fail and bool(drift.exceeded_limits)
    show_result(drift_as_json(drift), show, as_json=as_json, is_failure=is_failure)


def _show(snapshot: Commit) -> str:
    """A snapshot as one line, such as `12 2026-11-21 11:12:58 extract m on b/t [choice_logprobs +408] added m
    on b/t`."""
    counts = [
        row.table + "".join(f" {sign}{n:,}" for sign, n in zip("+−~", row[1:], strict=True) if n)
        for row in snapshot.rows
    ]
    partitions = [
        f"{change} {_list_some(f'{p.model} on {p.benchmark}/{p.task}' for p in of)}"
        for change in ("added", "replaced", "removed")
        if (of := [p for p in snapshot.partitions if p.change == change])
    ]
    what = [snapshot.message or ", ".join(snapshot.kinds), *([f"[{', '.join(counts)}]"] if counts else [])]
    return "  ".join([f"{snapshot.id:>5}", f"{snapshot.time:%Y-%m-%d %H:%M:%S}", *what, *partitions])


def _list_some(listed: Iterable[str]) -> str:
    names = list(listed)
    more = f" and {len(names) - _PARTITIONS_LISTED} more" if len(names) > _PARTITIONS_LISTED else ""
    return ", ".join(names[:_PARTITIONS_LISTED]) + more


def _to_plain(snapshot: Commit) -> dict[str, Any]:
    """A snapshot as a dict for JSON, with its named tuples as objects."""
    return vars(snapshot) | {
        "time": snapshot.time.isoformat(),
        "rows": [row._asdict() for row in snapshot.rows],
        "partitions": [partition._asdict() for partition in snapshot.partitions],
    }

"""Commands that show the warehouse's history: snapshots, diff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlfocal.base.request import Option
from rlfocal.base.wording import counted
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

if TYPE_CHECKING:
    from warehouse.snapshots import Difference, PartitionDifference
    from warehouse.snapshots import Snapshot as Commit

_LISTED = 3  # partitions in a line


@command("snapshots", "Keep a warehouse")
def snapshots(
    last: Annotated[int | None, Option("Only the last N.", least=1, default="all", metavar="N")] = None,
    warehouse: Location = None,
) -> Result:
    """List the warehouse's snapshots: when and why each was made, and which rows and partitions it changed.

    Every commit is a snapshot. Other commands read the warehouse as it was then with `--snapshot N`.
    """
    from warehouse import open_warehouse
    from warehouse.snapshots import snapshots as listed

    with open_warehouse(warehouse, read_only=True) as opened:
        found = listed(opened, last)
    width = get_terminal_size().columns
    lines = (fill(_line(one), width, subsequent_indent=" " * 7, break_on_hyphens=False) for one in found)
    return Result([_plain_snapshot(snapshot) for snapshot in found], "\n".join(lines))


@command("diff", "Keep a warehouse")
def diff(
    before: Annotated[int, typer.Argument(metavar="A", help="A snapshot.", show_default=False)],
    after: Annotated[int, typer.Argument(metavar="B", help="A later one.", show_default=False)],
    benchmark: Annotated[
        str | None,
        Option("Only this benchmark.", default="all", flags=("--benchmark", "-b"), complete="benchmark"),
    ] = None,
    warehouse: Location = None,
) -> Result:
    """Show what changed between two snapshots: partitions, log-probs, answers and accuracies.

    For example, what an engine upgrade did: `rlfocal diff 120 164`.
    """
    from warehouse.snapshots import diff as compare

    found = compare(warehouse, before, after, benchmark)
    return Result(_plain_difference(found), "\n".join(_summary(found)))


def _line(snapshot: Commit) -> str:
    """`12  2026-11-21 11:12:58  extract m on b/t  [choice_logprobs +408 −408]  replaced m on b/t`."""
    counts = [
        row.table + "".join(f" {sign}{n:,}" for sign, n in zip("+−~", row[1:], strict=True) if n)
        for row in snapshot.rows
    ]
    partitions = [
        f"{change} {_some(f'{p.model} on {p.benchmark}/{p.task}' for p in of)}"
        for change in ("added", "replaced", "removed")
        if (of := [p for p in snapshot.partitions if p.change == change])
    ]
    what = [snapshot.message or ", ".join(snapshot.kinds), *([f"[{', '.join(counts)}]"] if counts else [])]
    return "  ".join([f"{snapshot.id:>5}", f"{snapshot.time:%Y-%m-%d %H:%M:%S}", *what, *partitions])


def _some(listed: Iterable[str]) -> str:
    found = list(listed)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(found[:_LISTED]) + more


def _summary(found: Difference) -> list[str]:
    """What changed in all, then each partition, then what else changed with them."""
    counts = Counter(partition.change for partition in found.partitions)
    changes = [f"{counts[change]} {change}" for change in ("added", "removed", "replaced", "relabelled")]
    span = f"snapshot {found.before} to {found.after}"
    head = f"{span}: partitions {', '.join(changes)}, {found.unchanged} the same"
    return [head, *("\n    ".join(_lines(p)) for p in found.partitions), *_upgrades(found.partitions)]


def _lines(p: PartitionDifference) -> list[str]:
    """What became of a partition, in lines; log-prob differences are after minus before."""
    head = f"{p.change:<10}  {p.model} on {p.benchmark}/{p.task}"
    if p.accuracy_before is None or p.accuracy_after is None:
        there = p.accuracy_after if p.accuracy_before is None else p.accuracy_before
        return [head if there is None else f"{head}: accuracy {100 * there:.2f} %"]
    lines = [
        f"{head}: accuracy {100 * p.accuracy_before:.2f} → {100 * p.accuracy_after:.2f} % "
        f"({100 * (p.accuracy_after - p.accuracy_before):+.2f})",
        f"{counted(p.answers_changed, 'answer')} changed of {counted(p.n_after, 'document')}; "
        f"{p.became_right:,} became right, {p.became_wrong:,} wrong",
    ]
    if p.logprobs:
        low, _, median, _, high = p.logprobs.quantiles
        lines.append(
            f"{100 * p.logprobs.share_changed:.1f} % of {p.logprobs.n:,} log-probs moved: "
            f"mean {p.logprobs.mean:+.2g}, 1 % {low:+.2g}, median {median:+.2g}, 99 % {high:+.2g}, "
            f"largest {p.logprobs.largest:.2g}"
        )
    if p.passes:
        lines.append(f"{100 * p.passes.share_changed:.1f} % of {p.passes.n:,} sampled texts changed")
    return lines


def _upgrades(partitions: Iterable[PartitionDifference]) -> list[str]:
    """What else changed where partitions were replaced, such as an engine's version."""
    changes = Counter(
        f"{name}: {before} → {after}" for p in partitions for name, (before, after) in p.ran.items()
    )
    return [f"{change} ({counted(n, 'partition')})" for change, n in changes.most_common()]


def _plain_snapshot(snapshot: Commit) -> dict[str, Any]:
    """With named tuples as JSON's objects, as below."""
    return vars(snapshot) | {
        "time": snapshot.time.isoformat(),
        "rows": [row._asdict() for row in snapshot.rows],
        "partitions": [partition._asdict() for partition in snapshot.partitions],
    }


def _plain_difference(found: Difference) -> dict[str, Any]:
    return vars(found) | {"partitions": [_plain_partition(partition) for partition in found.partitions]}


def _plain_partition(p: PartitionDifference) -> dict[str, Any]:
    from warehouse.snapshots import QUANTILES

    moved = p.logprobs and p.logprobs._asdict()
    if moved:
        moved["quantiles"] = dict(zip(map(str, QUANTILES), moved["quantiles"], strict=True))
    passes = p.passes and p.passes._asdict()
    return vars(p) | {"logprobs": moved, "passes": passes, "accuracy_difference": p.accuracy_difference}

"""Whether models still answer as they did: two snapshots of the warehouse, compared and judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlfocal.base.wording import counted
from rlfocal.statistics.intervals import Change, paired_counts
from rlfocal.upkeep.drift.thresholds import FULL as FULL
from rlfocal.upkeep.drift.thresholds import LOW as LOW
from rlfocal.upkeep.drift.thresholds import Limits as Limits
from rlfocal.upkeep.drift.thresholds import Thresholds as Thresholds
from rlfocal.upkeep.drift.thresholds import exceeds as exceeds
from rlfocal.upkeep.drift.wording import as_json as as_json
from rlfocal.upkeep.drift.wording import markdown as markdown
from rlfocal.upkeep.drift.wording import sentence as sentence
from rlfocal.upkeep.drift.wording import sentences as sentences
from warehouse import Warehouse
from warehouse.locations import Location
from warehouse.scripts import script
from warehouse.snapshots import both_snapshots, changed_settings
from warehouse.store import PartitionKey


@dataclass(frozen=True)
class Logprobs:
    """Differences of choices' log-probs, after minus before, in nats."""

    n: int
    """Choices compared."""
    n_moved: int
    """Choices that differ at all."""
    n_beyond: int
    """Choices that differ by more than the threshold."""
    mean: float
    """Over all that were compared."""
    mean_moved: float
    """Over those that differ; 0 where none does."""
    largest: float
    """The largest absolute difference."""


@dataclass(frozen=True)
class Texts:
    """Sampled texts compared, and those that differ."""

    n: int
    n_changed: int


@dataclass(frozen=True)
class Moved:
    """One model on one task whose answers changed, on the documents that both snapshots have."""

    model: str
    benchmark: str
    task: str
    rewritten: bool
    """Whether its record says that it was not extracted again."""
    low_precision: bool
    n_docs: int
    logprobs: Logprobs | None
    """None for sampled answers."""
    texts: Texts | None
    """None for choices."""
    flipped: int
    """Documents with another prediction."""
    became_right: int
    became_wrong: int
    accuracy_before: float
    """Like all accuracies here, by the labels of the later snapshot: a corrected label is not drift."""
    accuracy_after: float
    change: Change
    ran: dict[str, tuple[Any, Any]]
    """Differences in backend, settings and versions, as {name: (before, after)}."""
    reasons: tuple[str, ...]
    """What is past a threshold, in words."""


@dataclass(frozen=True)
class Drift:
    """How the answers of two snapshots differ. Models and tasks that are new or gone did not drift."""

    before: int
    after: int
    thresholds: Thresholds
    same: int
    """Partitions whose answers to the documents of both snapshots are the same to the last bit."""
    new: tuple[PartitionKey, ...]
    gone: tuple[PartitionKey, ...]
    other_documents: tuple[PartitionKey, ...]
    """Partitions without a document in common."""
    rows: tuple[Moved, ...]
    """The other partitions, by model, benchmark and task."""

    @property
    def beyond(self) -> tuple[Moved, ...]:
        """Those past a threshold."""
        return tuple(row for row in self.rows if row.reasons)


def drift_since(warehouse: Warehouse, snapshot: int, thresholds: Thresholds | None = None) -> Drift:
    """How the answers that `warehouse` shows differ from those of an earlier snapshot.

    Raises InputError for a snapshot that does not exist or has no tables.
    """
    return drift_between(warehouse.location, snapshot, warehouse.snapshot(), thresholds)


def drift_between(
    location: Location | str | None, before: int, after: int, thresholds: Thresholds | None = None
) -> Drift:
    """How the answers of snapshot `after` differ from those of snapshot `before`.

    Partitions are compared by all their answers, not by their records. Raises InputError as `drift_since`.
    """
    thresholds = thresholds or Thresholds()
    with both_snapshots(location, before, after) as opened:
        allowed = {"full": thresholds.full.logprob, "low": thresholds.low.logprob}
        macro, compare = opened.connection.extract_statements(script("drift/compared"))
        opened.connection.execute(macro)
        opened.connection.execute(compare, allowed)
        listed = opened.rows("SELECT change, model, benchmark, task FROM temp.compared ORDER BY ALL")
        moved = any(change == "moved" for change, *_ in listed)
        found = opened.query(script("drift/differences")).to_pylist() if moved else []
    keys = defaultdict(list)
    for change, *key in listed:
        keys[change].append(PartitionKey(*key))
    common = [row for row in found if row["n_docs"]]
    differing = [row for row in common if _differs(row)]
    return Drift(
        before,
        after,
        thresholds,
        same=len(keys["same"]) + len(common) - len(differing),
        new=tuple(keys["new"]),
        gone=tuple(keys["gone"]),
        other_documents=tuple(
            PartitionKey(row["model"], row["benchmark"], row["task"]) for row in found if not row["n_docs"]
        ),
        rows=tuple(_moved(row, thresholds, len(differing)) for row in differing),
    )


def before_last_extraction(warehouse: Warehouse) -> int:
    """The snapshot before the newest extraction or import that `warehouse` shows; its own if there is none.

    The commits of one extraction follow one another, without an evaluation between them, and write each
    partition once. Snapshots that have expired are passed over.
    """
    shown = warehouse.snapshot()
    [(first,)] = warehouse.rows("SELECT min(snapshot_id) FROM warehouse.snapshots()")
    about = {"first": first, "last": shown}
    records = defaultdict(set)
    for number, _, *key in warehouse.rows(script("snapshots/partition_changes"), about):
        records[number].add(PartitionKey(*key))
    commits = warehouse.rows(script("drift/answer_commits"), {"last": shown})
    seen: set[PartitionKey] = set()
    before = shown
    for at, (number, answers, inserts, in_records, evaluations) in enumerate(commits):
        if answers:
            written = records[number]
            if not in_records:
                rows = warehouse.rows(script("drift/partitions_written"), {"snapshot": number})
                written = {PartitionKey(*key) for key in rows}
            if inserts and written & seen:  # what was removed and came again is compared with what it was
                return int(number)
            seen |= written if inserts else set()
            before = int(commits[min(at + 1, len(commits) - 1)][0])
        elif before < shown and evaluations:
            break
    return before


def _differs(row: Mapping[str, Any]) -> bool:
    return bool((row["logprobs"] or {}).get("n_moved") or (row["texts"] or {}).get("n_changed"))


def _moved(row: dict[str, Any], thresholds: Thresholds, n_rows: int) -> Moved:
    ran = changed_settings(row.pop("ran_before"), row.pop("ran_after"))
    more = {
        "logprobs": row["logprobs"] and Logprobs(**row["logprobs"]),
        "texts": row["texts"] and Texts(**row["texts"]),
        "change": paired_counts(row["n_docs"], row["became_right"], row["became_wrong"]),
    }
    found = Moved(**row | more, ran=ran, reasons=())
    return replace(found, reasons=tuple(_reasons(found, thresholds, n_rows)))


def _reasons(row: Moved, thresholds: Thresholds, n_rows: int) -> list[str]:
    """What is past a threshold. The error rate is over all rows together (Bonferroni)."""
    level = thresholds.error_rate / n_rows
    limits = thresholds.limits(low_precision=row.low_precision)
    if row.rewritten:
        return ["its answers differ, although it was not extracted again"]
    reasons = []
    if (of := row.logprobs) and exceeds(of.n_beyond, of.n, limits.moved, level):
        reasons.append(
            f"{counted(of.n_beyond, 'log-prob')} of {of.n:,} moved by more than {limits.logprob:g}, "
            f"the largest by {of.largest:.3g}"
        )
    if row.texts and exceeds(row.texts.n_changed, row.texts.n, limits.texts, level):
        share = row.texts.n_changed / row.texts.n
        reasons.append(
            f"{share:.1%} of {counted(row.texts.n, 'sampled text')} differ, more than {limits.texts:.1%}"
        )
    if exceeds(row.flipped, row.n_docs, limits.flipped, level):
        share = row.flipped / row.n_docs
        reasons.append(f"{share:.1%} of the predictions flipped, more than {limits.flipped:.1%}")
    if abs(row.change.mean) > thresholds.accuracy and row.change.p_value < level:
        reasons.append(
            f"the accuracy changed by {100 * row.change.mean:+.2f} points, more than "
            f"{100 * thresholds.accuracy:g} and more than chance"
        )
    return reasons

"""Finds drift: differences between two snapshots that are larger than noise explains. The same rules judge a
model that is asked again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np
from scipy.special import bdtrc

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.base.names import LOOK_MESSAGE
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, count_noun
from rlfocal.extraction.recording import HARDWARE_FACTS
from rlfocal.statistics.intervals import paired_counts
from warehouse import Warehouse
from warehouse.locations import Location
from warehouse.scripts import script
from warehouse.snapshots import QUANTILE_LEVELS, PartitionDifference, SnapshotDifference, diff
from warehouse.store import PartitionKey

ChangeVerdict = Literal["changed", "unclear", "unchanged"]
N_SHUFFLES = 999
MAX_ROWS_LISTED = 30
"""The most rows of a table of partitions. Partitions beyond a limit come first."""


@dataclass(frozen=True)
class Limits:
    """The changes of a model's answers that noise explains. Larger changes count, unless chance explains
    them."""

    logprob: float
    """The tolerated difference of the log-prob of a one-token choice, in nats. For n tokens it is √n times as
    much."""
    moved: float
    """The tolerated share of choices whose log-prob differs by more than `logprob`."""
    flipped: float
    """The tolerated share of documents whose prediction changes."""
    texts: float
    """The tolerated share of sampled texts that differ."""


FULL_PRECISION_LIMITS = Limits(logprob=1e-3, moved=0.0, flipped=0.01, texts=0.1)
"""The limits for models that compute in float32.

Batching differently moves log-probs by some 1e-4. So ten times that is tolerated, and never more.
Probabilities that move by 1e-4 a token change one of 256 sampled tokens in 2.5 % of the texts.
"""
LOW_PRECISION_LIMITS = Limits(logprob=0.1, moved=0.01, flipped=0.05, texts=1.0)
"""The limits for models in bfloat16 or float16, and for quantised models. Rounding alone moves a log-prob by
hundredths, and changes some sampled token of nearly every text."""


def judge_share(n_changed: int, n: int, limit: float, level: float) -> ChangeVerdict:
    """Whether the `n_changed` of `n` answers exceed the share `limit` that noise explains. A larger share is
    "changed" if chance alone would give it with a probability below `level`; else it is "unclear"."""
    if n_changed <= limit * n:
        return "unchanged"
    return "changed" if float(bdtrc(n_changed - 1, n, limit)) < level else "unclear"


def shuffled_p_value(counts: Iterable[Sequence[Floats] | Floats]) -> float:
    """The p-value of a permutation test: how often shuffled old and new answers differ by at least as much.

    Each array (2, K) counts how often each of a document's K answers was given, before and now. The
    difference is the sum over documents of the absolute differences of the answers' shares.
    """
    rng, drawn = np.random.default_rng(0), np.zeros(N_SHUFFLES)
    observed = 0.0
    for old, new in counts:
        n_old, n_new = int(old.sum()), int(new.sum())
        if not n_old or not n_new:
            continue
        observed += float(np.abs(old / n_old - new / n_new).sum())
        total = (old + new).astype(np.int64)
        again = rng.multivariate_hypergeometric(total, n_old, size=N_SHUFFLES)
        drawn += np.abs(again / n_old - (total - again) / n_new).sum(axis=1)
    return float(1 + (drawn >= observed - 1e-9).sum()) / (1 + N_SHUFFLES)


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of drift. Any difference in a partition that was not extracted again counts in any
    case."""

    full: Limits = FULL_PRECISION_LIMITS
    """The limits for models that compute in float32, and for imports."""
    low: Limits = LOW_PRECISION_LIMITS
    """The limits for models that compute in 16 bits, are quantised, or run on an unknown engine."""
    accuracy: float = 0.01
    """The tolerated change of an accuracy, as a fraction. A larger change counts unless chance explains
    it."""
    error_rate: float = 0.05
    """The probability with which noise alone may make any partition of a comparison count as drifted."""

    def replace_limits(
        self, logprob: float | None = None, flipped: float | None = None, accuracy: float | None = None
    ) -> Thresholds:
        """The thresholds with other limits at any precision; None keeps a limit. Raises InputError for values
        out of range."""
        for name, value in (("logprob", logprob), ("flipped", flipped), ("accuracy", accuracy)):
            most, kind = (inf, "nats, from 0 up") if name == "logprob" else (1, "a fraction from 0 to 1")
            if value is not None and not 0 <= value <= most:
                raise InputError(f"drift threshold {name} is {value}; give {kind}")
        given = {name: v for name, v in (("logprob", logprob), ("flipped", flipped)) if v is not None}
        return Thresholds(
            replace(self.full, **given),
            replace(self.low, **given),
            self.accuracy if accuracy is None else accuracy,
            self.error_rate,
        )


@dataclass(frozen=True)
class Drift:
    """The differences between two snapshots, and the partitions that drifted. A partition that was added,
    removed or relabelled never counts as drifted."""

    difference: SnapshotDifference
    exceeded_limits: dict[PartitionKey, tuple[str, ...]]
    """The exceeded limits of each drifted partition: logprobs, texts, flipped, accuracy, or rewritten."""

    @property
    def compared_partitions(self) -> list[PartitionDifference]:
        """The changed partitions that have documents in both snapshots, or drifted; the drifted ones come
        first."""
        shared = [
            partition
            for partition in self.difference.partitions
            if partition.n_shared or partition.key in self.exceeded_limits
        ]
        return sorted(shared, key=lambda partition: partition.key not in self.exceeded_limits)


def drift_between(
    location: Location | str | None,
    before: int,
    after: int,
    thresholds: Thresholds | None = None,
    benchmark: str | None = None,
) -> Drift:
    """The drift from snapshot `before` to snapshot `after`. Raises InputError for an unknown snapshot or
    benchmark."""
    given = thresholds or Thresholds()
    allowed = {"full": given.full.logprob, "low": given.low.logprob}
    difference = diff(location, before, after, benchmark, **allowed)
    moved = [partition for partition in difference.partitions if partition.is_moved]
    level = given.error_rate / max(len(moved), 1)  # over all rows together (Bonferroni)
    judged = {partition.key: tuple(_find_exceeded_limits(partition, given, level)) for partition in moved}
    return Drift(difference, {key: names for key, names in judged.items() if names})


def drift_since(warehouse: Warehouse, snapshot: int, thresholds: Thresholds | None = None) -> Drift:
    """The drift from an earlier snapshot to the one that `warehouse` shows. Raises InputError for an unknown
    snapshot."""
    return drift_between(warehouse.location, snapshot, warehouse.snapshot(), thresholds)


def find_snapshot_before_extraction(warehouse: Warehouse) -> int:
    """The snapshot before the newest extraction or import that `warehouse` shows; the shown one if there is
    none.

    The commits of one extraction follow each other, with no evaluation between them, and write each partition
    once. Expired snapshots are skipped.
    """
    shown = warehouse.snapshot()
    [(first,)] = warehouse.rows("SELECT min(snapshot_id) FROM warehouse.snapshots()")
    about = {"first": first, "last": shown}
    records = defaultdict(set)
    for number, _, *key in warehouse.rows(script("snapshots/partition_changes"), about):
        records[number].add(PartitionKey(*key))
    commits = warehouse.rows(script("snapshots/answer_commits"), {"last": shown})
    seen: set[PartitionKey] = set()
    before = shown
    for place, (number, answers, inserts, in_records, evaluations) in enumerate(commits):
        if answers:
            written = records[number]
            if not in_records:
                rows = warehouse.rows(script("snapshots/partitions_written"), {"snapshot": number})
                written = {PartitionKey(*key) for key in rows}
            if inserts and written & seen:  # what was removed and came again is compared with what it was
                return int(number)
            seen |= written if inserts else set()
            before = int(commits[min(place + 1, len(commits) - 1)][0])
        elif before < shown and evaluations:
            break
    return before


def find_last_reported_snapshot(warehouse: Warehouse) -> int:
    """The snapshot from which drift is measured: the last one up to which a regeneration reported all
    changes.

    If it has expired, the oldest later snapshot stands for it. If nothing was reported yet, it is the
    snapshot before the last extraction.
    """
    [(looked,)] = warehouse.rows("SELECT max(snapshot) FROM drift_looks")
    if looked is None:
        return find_snapshot_before_extraction(warehouse)
    oldest = "SELECT min(snapshot_id) FROM warehouse.snapshots() WHERE snapshot_id >= ?"
    return int(warehouse.rows(oldest, [looked])[0][0])


def store_look(warehouse: Warehouse, snapshot: int) -> None:
    """Stores that all changes up to a snapshot were reported, so that the next comparison begins there."""
    with warehouse.transaction(LOOK_MESSAGE):
        warehouse.connection.execute("INSERT INTO drift_looks VALUES (?, now())", [snapshot])


def have_answers_changed(warehouse: Warehouse, snapshot: int) -> bool:
    """Whether a commit after this snapshot wrote or deleted answers."""
    commits = warehouse.rows(script("snapshots/answer_commits"), {"last": warehouse.snapshot()})
    return any(number > snapshot and answers for number, answers, *_ in commits)


def headline(drift: Drift) -> str:
    """One sentence on the numbers of changed and drifted partitions."""
    difference = drift.difference
    changes = Counter(partition.change for partition in difference.partitions)
    counts = [f"{n:,} {change}" for change, n in changes.items()]
    moved = sum(partition.is_moved for partition in difference.partitions)
    return (
        f"snapshot {difference.before} to {difference.after}: "
        f"{', '.join([*counts, f'{difference.unchanged:,} the same'])}; "
        f"answers of {count_noun(moved, 'partition')} moved, {len(drift.exceeded_limits):,} beyond the limits"
    )


def table(drift: Drift, most: int | None = None) -> Table:
    """The table of partitions that differ, those beyond a limit first; only the first `most` if that is
    given.

    Partitions without common documents, such as those of a first extraction, share a row for each benchmark.
    """
    numbers = ("moved %", "largest", "flipped %", "accuracy %", "change (95 %)")
    shown = Table("model on task", *numbers, texts=("what, and beyond",))
    compared = drift.compared_partitions
    shown_apart, others = {partition.key for partition in compared}, defaultdict(list)
    for partition in drift.difference.partitions:
        if partition.key not in shown_apart:
            others[partition.benchmark, partition.change].append(partition)
    for partition in compared[:most]:
        beyond = ", ".join(drift.exceeded_limits.get(partition.key, ()))
        shown.add(
            f"{partition.model} on {partition.benchmark}/{partition.task}",
            *_moves(partition),
            f"{100 * partition.flipped / partition.n_shared:.1f}" if partition.n_shared else MISSING_CELL,
            MISSING_CELL if partition.accuracy_after is None else f"{100 * partition.accuracy_after:.2f}",
            _change(partition),
            ": ".join(filter(None, [partition.change, beyond])),
            style="bold" if beyond else "",
        )
    for (benchmark, change), of in others.items():
        names = [f"{partition.model} on {benchmark}/{partition.task}" for partition in of]
        several = f"{count_noun(len({partition.model for partition in of}), 'model')} on {benchmark}"
        name = names[0] if len(names) == 1 else f"{several}, {count_noun(len(of), 'partition')}"
        shown.add(name, *[MISSING_CELL] * len(numbers), change)
    return shown


def upgrades(drift: Drift) -> list[str]:
    """Sentences on settings and versions that differ where partitions were replaced, such as an engine's
    version. Likely causes come first: hardware facts that differ where answers are beyond the limits."""
    changes: Counter[str] = Counter()
    causes: set[str] = set()
    for partition in drift.difference.partitions:
        for name, (was, now) in partition.ran.items():
            change = f"{name}: {was} → {now}"
            changes[change] += 1
            # Older rows do not say what made them.
            if name in HARDWARE_FACTS and None not in (was, now) and partition.key in drift.exceeded_limits:
                causes.add(change)
    listed = sorted(changes.most_common(), key=lambda each: each[0] not in causes)
    return [
        f"{'likely cause: ' * (change in causes)}{change} ({count_noun(n, 'partition')})"
        for change, n in listed
    ]


def as_json(drift: Drift) -> dict[str, Any]:
    """The whole drift as objects for JSON, with unrounded figures."""
    partitions = [
        asdict(partition)
        | {"logprobs": _logprob_fields(partition), "texts": partition.texts and partition.texts._asdict()}
        | {"beyond": drift.exceeded_limits.get(partition.key, ())}
        for partition in drift.difference.partitions
    ]
    return vars(drift.difference) | {"partitions": partitions, "drifted": len(drift.exceeded_limits)}


def _logprob_fields(partition: PartitionDifference) -> dict[str, Any] | None:
    if partition.logprobs is None:
        return None
    return partition.logprobs._asdict() | {
        "quantiles": dict(zip(map(str, QUANTILE_LEVELS), partition.logprobs.quantiles, strict=True))
    }


def _find_exceeded_limits(partition: PartitionDifference, thresholds: Thresholds, level: float) -> list[str]:
    if partition.change == "rewritten":
        return ["rewritten"]
    limits = thresholds.low if partition.low_precision else thresholds.full
    choices, texts = partition.logprobs, partition.texts
    accuracy = paired_counts(partition.n_shared, partition.became_right, partition.became_wrong)
    shares = {
        "logprobs": choices and (choices.n_beyond, choices.n, limits.moved),
        "texts": texts and (texts.n_changed, texts.n, limits.texts),
        "flipped": (partition.flipped, partition.n_shared, limits.flipped),
    }
    past = [name for name, share in shares.items() if share and judge_share(*share, level) == "changed"]
    if abs(accuracy.mean) > thresholds.accuracy and accuracy.p_value < level:
        past.append("accuracy")
    return past


def _moves(partition: PartitionDifference) -> tuple[str, str]:
    """The share of log-probs or texts that moved, in percent, and the largest movement of a log-prob."""
    if choices := partition.logprobs:
        return f"{100 * choices.n_moved / choices.n:.1f}", f"{choices.largest:.2g}"
    if texts := partition.texts:
        return f"{100 * texts.n_changed / texts.n:.1f}", MISSING_CELL
    return MISSING_CELL, MISSING_CELL


def _change(partition: PartitionDifference) -> str:
    if not partition.n_shared:
        return MISSING_CELL
    change = paired_counts(partition.n_shared, partition.became_right, partition.became_wrong)
    return f"{100 * change.mean:+.2f}, {100 * change.low:+.2f} to {100 * change.high:+.2f}"

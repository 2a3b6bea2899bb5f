"""A comparison of two snapshots in sentences, in Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, counted

if TYPE_CHECKING:
    from rlfocal.upkeep.drift import Drift, Moved

LISTED = 30
"""Rows of a table in Markdown, the drifted ones first."""


def headline(drift: Drift) -> str:
    """The comparison in one sentence."""
    rows, beyond = len(drift.rows), len(drift.beyond)
    moved = f"the answers of {counted(rows, 'partition')} moved, {beyond:,} beyond the thresholds"
    counts = [
        (drift.same, "the same"),
        (len(drift.new), "new"),
        (len(drift.gone), "gone"),
        (len(drift.other_documents), "about other documents"),
    ]
    rest = ", ".join(f"{n:,} {'is' if n == 1 else 'are'} {what}" for n, what in counts if n)
    return f"snapshot {drift.before} to {drift.after}: {moved}{f'; {rest}' if rest else ''}"


def sentences(drift: Drift) -> list[str]:
    """The headline, and a sentence for each model that drifted or is gone, and for what ran otherwise."""
    drifted = list(dict.fromkeys(row.model for row in drift.beyond))
    by_model = [_about(model, [r for r in drift.beyond if r.model == model]) for model in drifted]
    gone = Counter(key.model for key in drift.gone)
    removed = [f"{model}: {counted(n, 'partition')} gone" for model, n in sorted(gone.items())]
    return [headline(drift), *by_model, *removed, *_upgrades(drift.rows)]


def sentence(row: Moved) -> str:
    """What moved in a partition, and what is past a threshold."""
    parts = []
    if of := row.logprobs:
        parts.append(
            f"{of.n_moved:,} of {counted(of.n, 'log-prob')} moved, by {of.mean_moved:+.3g} on average "
            f"({of.mean:+.3g} over all), at most by {of.largest:.3g}"
        )
    parts += _texts_and_flips([row])
    parts.append(f"accuracy {_accuracies(row)} ({_change(row)})")
    beyond = f" – beyond the thresholds: {', '.join(row.reasons)}" if row.reasons else ""
    return f"{row.model} on {row.benchmark}/{row.task}: {'; '.join(parts)}{beyond}"


def markdown(drift: Drift) -> str:
    """Sentences and a table."""
    lines = [f"- {said}" for said in sentences(drift)]
    if not drift.rows:
        return "\n".join(lines)
    lines += ["", *table(drift).markdown()]
    if len(drift.rows) > LISTED:
        lines += ["", f"and {counted(len(drift.rows) - LISTED, 'partition')} more"]
    return "\n".join(lines)


def table(drift: Drift) -> Table:
    """The first partitions whose answers moved, those past a threshold in bold and first."""
    numbers = ("documents", "log-probs moved", "mean", "largest", "flipped", "accuracy %")
    shown = Table("model", "task", *numbers, "change (95 % interval)", texts=("drift",))
    for row in sorted(drift.rows, key=lambda row: not row.reasons)[:LISTED]:
        of = row.logprobs
        moved = (
            [f"{of.n_moved:,} of {of.n:,}", f"{of.mean_moved:+.2g}", f"{of.largest:.2g}"]
            if of
            else [DASH] * 3
        )
        if row.texts:
            moved[0] = f"{row.texts.n_changed:,} of {row.texts.n:,} texts"
        shown.add(
            row.model,
            f"{row.benchmark}/{row.task}",
            f"{row.n_docs:,}",
            *moved,
            f"{row.flipped:,}",
            _accuracies(row),
            _change(row),
            "; ".join(row.reasons),
            style="bold" if row.reasons else "",
        )
    return shown


def as_json(drift: Drift) -> dict[str, Any]:
    """All of it as JSON's objects, figures in full."""
    keys = {
        name: [key._asdict() for key in getattr(drift, name)] for name in ("new", "gone", "other_documents")
    }
    return asdict(drift) | keys | {"beyond": [asdict(row) for row in drift.beyond]}


def _about(model: str, rows: Sequence[Moved]) -> str:
    """One model's drift over its tasks."""
    tasks = f"{rows[0].benchmark}/{rows[0].task}" if len(rows) == 1 else counted(len(rows), "task")
    parts = [f"{model} drifted on {tasks}"]
    choices = [row.logprobs for row in rows if row.logprobs]
    if choices:
        n_moved, n = sum(of.n_moved for of in choices), sum(of.n for of in choices)
        mean = sum(of.n_moved * of.mean_moved for of in choices) / n_moved
        parts.append(
            f"{n_moved:,} of {counted(n, 'log-prob')} ({n_moved / n:.2%}) moved by {mean:+.3g} on average, "
            f"at most by {max(of.largest for of in choices):.3g}"
        )
    parts += _texts_and_flips(rows)
    n_docs = sum(row.n_docs for row in rows)
    before = sum(row.n_docs * row.accuracy_before for row in rows) / n_docs
    after = sum(row.n_docs * row.accuracy_after for row in rows) / n_docs
    parts.append(f"accuracy {100 * before:.2f} → {100 * after:.2f} %")
    if all(row.rewritten for row in rows):
        parts.append("its records say that it was not extracted again")
    return "; ".join(parts)


def _texts_and_flips(rows: Sequence[Moved]) -> list[str]:
    parts = []
    if texts := [row.texts for row in rows if row.texts]:
        n = sum(of.n for of in texts)
        parts.append(f"{sum(of.n_changed for of in texts):,} of {counted(n, 'sampled text')} differ")
    n_docs = sum(row.n_docs for row in rows)
    return [*parts, f"{sum(row.flipped for row in rows):,} of {counted(n_docs, 'prediction')} flipped"]


def _upgrades(rows: Iterable[Moved]) -> list[str]:
    """What else differs where answers moved, such as an engine's version."""
    changes = Counter(f"{name}: {was} → {now}" for row in rows for name, (was, now) in row.ran.items())
    return [f"{change} ({counted(n, 'partition')})" for change, n in changes.most_common()]


def _accuracies(row: Moved) -> str:
    return f"{100 * row.accuracy_before:.2f} → {100 * row.accuracy_after:.2f}"


def _change(row: Moved) -> str:
    of = row.change
    return f"{100 * of.mean:+.2f}, {100 * of.low:+.2f} to {100 * of.high:+.2f}"

"""Collects all faults of the rows that an import has read, and reports one of each kind; notes implausible
figures, each with its likely cause and what to do."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from scipy.special import bdtr, bdtrc

from rlfocal.base.wording import count_noun, percent
from warehouse.comparison import Rule, measure
from warehouse.scripts import script

MIN_DOCUMENTS = 30
"""The least number of documents for which accuracy is compared with guessing."""
MIN_ANSWERED = 3
"""The least number of documents for a note that no answer is right. With fewer, it may be chance."""
NEAR_GUESSING = 0.025
GUESSING_LEVEL = 1e-6
"""The probability below which an accuracy is implausible: that guessing gets at least as many right, or as
few."""
MANY_TIES = 0.1
MAX_MASS = 1.5
"""The largest plausible sum of the choices' probabilities. It exceeds 1 only if one choice begins like
another."""


def add_faults(
    scratch: duckdb.DuckDBPyConnection, step: int, file: str, faults: Sequence[tuple[int, str]]
) -> None:
    """Adds (row, reason) to the faults of `docs` or `scores`, as `file` says. Row 0 stands for the whole
    table.

    `step` is the number of the check, whose faults are all of one kind. If a row has several faults, only the
    one of the lowest step is reported.
    """
    if faults:
        rows, reasons = zip(*faults, strict=True)
        scratch.register("found", pa.table({"row": rows, "reason": reasons}))
        scratch.execute(f"INSERT INTO faults SELECT {step}, '{file}', row, reason FROM found")
        scratch.unregister("found")


def list_faults(scratch: duckdb.DuckDBPyConnection, place: Callable[[int, str], str]) -> list[str]:
    """The first fault of each kind, and the number of rows with one. `place` names a row of a table in
    words."""
    kinds = scratch.execute(
        """SELECT file, min(row), arg_min(reason, row), count(DISTINCT row)
        FROM (
            FROM faults
            QUALIFY row = 0 OR row_number() OVER (PARTITION BY file, row ORDER BY step, reason) = 1
        )
        GROUP BY step, file, CASE WHEN row = 0 THEN reason WHEN step = 1 THEN split_part(reason, ' ', 1) END
        ORDER BY step, 2, file DESC, 3"""
    ).fetchall()
    more = " (the first of {:,} such rows)"
    told = [
        f"{place(row, file)}: {reason}{more.format(n) if n > 1 else ''}" for file, row, reason, n in kinds
    ]
    return list(dict.fromkeys(told))


def count(scratch: duckdb.DuckDBPyConnection, sql: str) -> int:
    """The single number that an SQL query returns."""
    row = scratch.execute(sql).fetchone()
    return int(row[0]) if row else 0


def list_names(scratch: duckdb.DuckDBPyConnection, column: str) -> tuple[str, ...]:
    """The different values of a column of `scores`, in order."""
    named = f"SELECT DISTINCT {column} FROM scores WHERE {column} IS NOT NULL ORDER BY 1"
    return tuple(name for (name,) in scratch.execute(named).fetchall())


def make_canonical_answers(scratch: duckdb.DuckDBPyConnection, make: Callable[[str], str | None]) -> None:
    """Creates the table `canonical` of answers and gold answers, each with the form in which it is
    compared."""
    answers = "SELECT answer FROM scores UNION SELECT gold FROM docs WHERE label IS NULL"
    given = [a for (a,) in scratch.execute(f"FROM ({answers}) WHERE answer IS NOT NULL").fetchall()]
    canonical = pa.table(
        {
            "answer": pa.array(given, pa.string()),
            "canonical": pa.array(map(make, given), pa.string()),
        }
    )
    scratch.register("forms", canonical)
    scratch.execute("CREATE TEMP TABLE canonical AS FROM forms")
    scratch.unregister("forms")


def keep_other_units(scratch: duckdb.DuckDBPyConnection, rule: Rule) -> None:
    """Creates the table `other_units` of answers that state the gold's number in another unit: (given,
    answer, canonical)."""
    scratch.execute(
        "CREATE OR REPLACE TEMP TABLE other_units (given VARCHAR, answer VARCHAR, canonical VARCHAR)"
    )
    if rule is not Rule.DEFAULT:
        return
    rows = []
    for gold, answer in scratch.execute(script("imports/equal_numbers")).fetchall():
        form = rule.canonical(answer, gold)
        if form != rule.canonical(answer):
            rows.append((gold, answer, form))
    if rows:
        scratch.executemany("INSERT INTO other_units VALUES (?, ?, ?)", rows)


def check_golds(scratch: duckdb.DuckDBPyConnection, rule: Rule) -> None:
    """Adds a fault for each gold answer that no answer can equal."""
    as_is = "" if rule is Rule.EXACT else "; --comparison exact takes answers as they stand"
    scratch.execute(
        "INSERT INTO faults SELECT 90, 'docs', row, format('gold ''{}'' holds no answer to compare{}', "
        "gold, $1) FROM docs JOIN canonical ON answer = gold WHERE label IS NULL AND canonical IS NULL",
        [as_is],
    )


def check_coverage(scratch: duckdb.DuckDBPyConnection) -> None:
    """Adds a fault for each model that lacks documents of a benchmark, unless an earlier check (a step below
    50) found faults."""
    scratch.execute(
        """INSERT INTO faults
        SELECT 91, 'docs', min(row), format(
            'model {} has no row for document {} of {}/{}, which others have; {:,} such documents in all. '
            'Add them, or record the gap with --allow-missing',
            model, arg_min(doc_id, row), benchmark, arg_min(task, row), count(*))
        FROM gaps
        WHERE model IS NOT NULL AND NOT EXISTS (FROM faults AS f WHERE f.step < 50)
        GROUP BY benchmark, model"""
    )


@dataclass(frozen=True)
class _Plausibility:
    """One model's figures on one benchmark, as imports/plausibility.sql returns them."""

    benchmark: str
    model: str
    n: int
    has_choices: bool
    n_right: int
    guessing: float | None
    n_flat: int
    n_tied: int
    n_different: int
    n_unlike: int
    """The number of distinct sorted score lists, less one for each number of choices. It is 0 if the same
    scores only change places between documents."""
    mass: float | None
    n_least: int
    n_before: int
    n_behind: int
    n_graded: int
    """The number of answers that the table grades, too."""
    n_otherwise: int
    """The number of answers that the table grades otherwise than their labels or golds do."""

    @property
    def has_scores(self) -> bool:
        """Whether the model's scores differ between choices and between documents."""
        return self.n_flat < self.n and (self.n_different > 1 or self.n < MIN_ANSWERED)

    def is_better(self, n_right: int) -> bool:
        """Whether `n_right` right answers are clearly more than guessing would give."""
        return bool(bdtrc(n_right - 1, self.n, self.guessing) < GUESSING_LEVEL)


def note_implausible(
    scratch: duckdb.DuckDBPyConnection, *, are_logs: bool, are_probabilities: bool
) -> list[str]:
    """A sentence for each implausible figure. `are_logs` says whether scores are log-likelihoods,
    `are_probabilities` whether they were given as probabilities."""
    of_benchmarks: dict[str, list[_Plausibility]] = defaultdict(list)
    for row in scratch.execute(script("imports/plausibility")).fetchall():
        of_benchmarks[row[0]].append(_Plausibility(*row))
    notes: list[str] = []
    for name, models in of_benchmarks.items():
        notes += [
            f"{name}: the table grades {m.n_otherwise:,} of {m.n_graded:,} answers of {m.model} otherwise "
            f"than its {'labels' if m.has_choices else 'golds'} do, which count. Check which are right"
            for m in models
            if m.n_otherwise
        ]
        if models[0].has_choices:
            notes += _note_scores(name, models, are_logs=are_logs, are_probabilities=are_probabilities)
            notes += _note_guessing(name, [model for model in models if model.has_scores])
        else:
            notes += _note_answers(scratch, name, models)
    return notes


def _note_scores(
    name: str, models: Sequence[_Plausibility], *, are_logs: bool, are_probabilities: bool
) -> Iterator[str]:
    for m in models:
        about = f"{name}: scores of {m.model}"
        if m.n_flat and (m.n_flat == m.n or m.n_flat > MANY_TIES * m.n):
            yield (
                f"{about} are equal for all choices on {m.n_flat:,} of {count_noun(m.n, 'document')}, which "
                "count as answered by the first choice. They may be missing, or of another column"
            )
        elif m.n_different == 1 and m.n >= MIN_ANSWERED:
            yield f"{about} are the same on all {m.n:,} documents. They may be of another column"
        elif m.n_unlike == 0 and m.n >= MIN_DOCUMENTS:
            yield (
                f"{about} are the same numbers in another order on all {m.n:,} documents. They may be ranks, "
                "or mark a choice: they tell the answer, and no probabilities"
            )
        elif m.n_tied > MANY_TIES * m.n:
            yield (
                f"{about} have a tie for the best choice on {m.n_tied:,} of {count_noun(m.n, 'document')}, "
                "which count as the lowest choice. They may be rounded"
            )
        if m.mass is None:
            continue
        if are_probabilities and abs(m.mass - 1) > 0.05:
            yield f"{about} add up to {m.mass:.3g} a document on average, where probabilities add up to 1"
        elif are_logs and m.mass > MAX_MASS:
            yield (
                f"{about} add up to a probability of {m.mass:.3g} a document on average, where 1 is "
                "the most: they are no log-likelihoods"
            )


def _note_guessing(name: str, models: Sequence[_Plausibility]) -> Iterator[str]:
    compared = [m for m in models if m.n >= MIN_DOCUMENTS and m.guessing is not None]
    if not compared:
        return
    best = max(compared, key=lambda m: m.n_right / m.n)
    if bdtrc(best.n_right - 1, best.n, best.guessing) >= NEAR_GUESSING:
        yield (
            f"{name}: no model is clearly better than guessing. The best, {best.model}, is right on "
            f"{percent(best.n_right / best.n, 1)} % of {best.n:,} documents, and guessing on "
            f"{percent(best.guessing, 1)} %. {_name_likely_cause(compared)}"
        )
        return
    for m in compared:
        if bdtr(m.n_right, m.n, m.guessing) < GUESSING_LEVEL:
            yield (
                f"{name}: {m.model} is right on {percent(m.n_right / m.n, 1)} % of {m.n:,} documents, far "
                f"less than guessing. {_name_likely_cause([m])}"
            )


def _name_likely_cause(models: Sequence[_Plausibility]) -> str:
    """Words on the likely cause of low accuracy: another reading of the data under which a model would be
    right, or a place to look."""
    readings = {
        "n_least": "The lowest score would be right on {} % of {}: these may be losses, so change their sign",
        "n_before": "Labels less 1 would be right on {} % of {}: they may count from 1",
        "n_behind": "Labels plus 1 would be right on {} % of {}: choices may count from 1, or lack one",
    }
    for count, reading in readings.items():
        best = max(models, key=lambda m: int(getattr(m, count)) / m.n)
        if best.is_better(int(getattr(best, count))):
            return reading.format(percent(getattr(best, count) / best.n, 1), best.model)
    return "Labels or rows may belong to other documents, or choices stand in another order"


def _note_answers(
    scratch: duckdb.DuckDBPyConnection, name: str, models: Sequence[_Plausibility]
) -> Iterator[str]:
    none = [m for m in models if not m.n_right and m.n >= MIN_ANSWERED]
    if none and (len(none) == len(models) or max(m.n for m in none) >= MIN_DOCUMENTS):
        said = scratch.execute(
            "SELECT left(d.given, 60), s.model, left(s.answer, 60) FROM documents AS d "
            "JOIN scores AS s USING (benchmark, task, doc_id) WHERE d.benchmark = $1 "
            "AND s.answer IS NOT NULL AND list_contains($2, s.model) "
            "ORDER BY d.task, d.doc_id, s.model LIMIT 1",
            [name, [m.model for m in none]],
        ).fetchone()
        example = "" if said is None else ": gold {!r}, and {} says {!r}".format(*said)
        whose = "any model" if len(none) == len(models) else ", ".join(m.model for m in none)
        yield (
            f"{name}: no answer of {whose} equals its gold{example}. Give final answers alone, and whole "
            "responses as `text`; check that rows belong together; --comparison compares otherwise"
        )
    with_signs = scratch.execute(
        "SELECT DISTINCT given FROM documents WHERE benchmark = ? AND label IS NULL "
        "AND regexp_full_match(gold, '-?[0-9.]+') "
        r"AND regexp_matches(given, '^[^\\#]*[^-−0-9.,\s\\#][^\\#]*$')",
        [name],
    ).fetchall()
    golds = sorted(gold for (gold,) in with_signs)
    if measured := [gold for gold in golds if measure(gold)]:
        yield (
            f"{name}: golds such as {measured[0]!r:.42} have a unit. An answer in another unit is wrong, and "
            "one without a unit is right; --comparison exact or text compares whole texts"
        )
    if worded := [gold for gold in golds if not measure(gold) and re.search("[A-Za-z]", gold)]:
        yield (
            f"{name}: words of golds such as {worded[0]!r:.42} are dropped, so that other words are right, "
            "too; --comparison exact or text keeps them"
        )

"""Reads the marked answers of golds and answers that are whole solutions."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from rlfocal.base.wording import count_noun
from rlfocal.extraction.answers import read_boxed

_MARKED_ANSWER = re.compile(r"####\s*(\S[^\n]*)")


def read_marked_answer(solution: str) -> str | None:
    r"""The text behind the last "####" of a solution, else in its last \boxed{}; None if it has neither.

    >>> read = read_marked_answer
    >>> read("3+4=<<3+4=7>>7.\n#### 7"), read(r"so $x = \boxed{-2}$."), read("7")
    ('7', '-2', None)
    """
    marks = _MARKED_ANSWER.findall(solution)
    return marks[-1].strip() if marks else read_boxed(solution).strip() or None


def read_solutions(scratch: duckdb.DuckDBPyConnection) -> list[str]:
    """Replaces solutions in `docs` and `scores` by their marked answers. Returns a note on each changed
    table. The column `text` keeps the solutions of models."""
    notes = []
    for table, column, noun in (("docs", "gold", "gold"), ("scores", "answer", "answer")):
        rows = scratch.execute(
            f"SELECT DISTINCT {column} FROM {table} WHERE contains({column}, '####') "
            rf"OR contains({column}, '\boxed') OR contains({column}, '\fbox')"
        ).fetchall()
        pairs = [(solution, marked) for (solution,) in rows if (marked := read_marked_answer(solution))]
        if not pairs:
            continue
        before, after = map(list, zip(*pairs, strict=True))
        scratch.register("marked", pa.table({"before": before, "after": after}))
        kept = ", text = coalesce(text, answer)" if table == "scores" else ""
        labels = "label IS NULL AND" if table == "docs" else ""
        changed = scratch.execute(
            f"UPDATE {table} SET {column} = after{kept} FROM marked WHERE {labels} {column} = before"
        ).fetchone()
        scratch.unregister("marked")
        if changed and changed[0]:
            notes.append(
                f"{count_noun(changed[0], noun)} read as what a solution marks by #### or \\boxed; "
                "--comparison exact takes texts as they are"
            )
    return notes

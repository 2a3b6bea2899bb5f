"""Makes an import number, compare and split documents as the warehouse stores them already. `scratch` is the
DuckDB with the rows of the import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.faults import count, list_names, make_canonical_answers
from warehouse import Warehouse
from warehouse.comparison import MAX_ANSWER_LENGTH, Rule, normalise
from warehouse.scripts import script


def import_lock(warehouse: Warehouse) -> AbstractContextManager[bool]:
    """Holds the warehouse's lock of imports during a block, since what is stored decides what they write."""
    return warehouse.lock("import", wait=True)


def number_as_stored(scratch: DuckDBPyConnection, warehouse: Warehouse) -> bool:
    """Gives documents their stored numbers, because they may come in another order than in earlier imports.
    Returns whether the import's benchmarks have stored documents."""
    stored = warehouse.query(
        "SELECT benchmark, task, source_id, min(doc_id) AS doc_id FROM docs WHERE source_id IS NOT NULL "
        "AND list_contains(?, benchmark) GROUP BY ALL HAVING count(*) = 1",
        [list(list_names(scratch, "benchmark"))],
    )
    if stored.num_rows:
        scratch.register("stored_ids", stored)
        scratch.execute(script("imports/number_as_stored"))
        scratch.unregister("stored_ids")
    return bool(stored.num_rows)


def compare_as_stored(scratch: DuckDBPyConnection, warehouse: Warehouse) -> list[str]:
    """Compares answers to stored documents as the earlier version that stored them did.

    Earlier versions dropped signs and brackets at the ends of a text. Returns the benchmarks with a gold
    answer that was stored in this way.
    """
    stored = warehouse.query(
        "SELECT benchmark, task, doc_id, gold FROM docs WHERE label IS NULL AND list_contains(?, benchmark)",
        [list(list_names(scratch, "benchmark"))],
    )
    if not stored.num_rows:
        return []
    scratch.register("stored_golds", stored)
    differing = scratch.execute(
        "SELECT DISTINCT d.given, s.gold, s.benchmark FROM documents AS d "
        "JOIN stored_golds AS s USING (benchmark, task, doc_id) WHERE d.gold <> s.gold"
    ).fetchall()
    scratch.unregister("stored_golds")
    earlier = {name for given, gold, name in differing if normalise(given, keeps_ends=False) == gold}
    if earlier:
        scratch.execute("DROP TABLE canonical")
        make_canonical_answers(scratch, partial(normalise, keeps_ends=False))
    return sorted(earlier)


def measure_as_stored(scratch: DuckDBPyConnection, warehouse: Warehouse, rule: Rule) -> list[str]:
    """Accepts answers in another unit than their gold's if an earlier version stored such answers as right.
    Returns the benchmarks where it did."""
    golds = scratch.execute(
        "SELECT DISTINCT benchmark, task, doc_id, given FROM documents SEMI JOIN other_units USING (given)"
    ).to_arrow_table()
    if not golds.num_rows:
        return []
    warehouse.connection.register("new_golds", golds)
    stored = warehouse.rows(
        "SELECT DISTINCT p.benchmark, n.given, p.text, p.answer FROM answer_passes AS p "
        "JOIN new_golds AS n USING (benchmark, task, doc_id) JOIN docs AS d USING (benchmark, task, doc_id) "
        f"WHERE p.answer = d.gold AND length(p.text) <= {MAX_ANSWER_LENGTH}"
    )
    warehouse.connection.unregister("new_golds")
    earlier = {name for name, gold, text, form in stored if rule.canonical(text, gold) != form}
    if earlier:
        scratch.execute("DELETE FROM other_units")
    return sorted(earlier)


def split_as_stored(scratch: DuckDBPyConnection, warehouse: Warehouse) -> bool:
    """Makes documents train or test as they are stored, unless the import gives their split. Returns whether
    it used stored splits."""
    stored = warehouse.query(
        "SELECT benchmark, task, doc_id, split FROM docs WHERE list_contains(?, benchmark)",
        [list(list_names(scratch, "benchmark"))],
    )
    if not stored.num_rows or not count(scratch, "SELECT count(*) FROM docs WHERE split IS NULL"):
        return False
    scratch.register("stored_splits", stored)
    scratch.execute("INSERT INTO known_splits FROM stored_splits")
    scratch.unregister("stored_splits")
    return True


def check_stored(warehouse: Warehouse, new: Sequence[Mapping[str, Any]]) -> None:
    """Raises InputError if a task now has more documents than its stored answers cover."""
    warehouse.connection.register("imported", pa.Table.from_pylist([*new]))
    uneven = warehouse.connection.execute(script("imports/uneven_partition")).fetchone()
    warehouse.connection.unregister("imported")
    if uneven is not None:
        raise InputError(
            "{0}/{1} has {4} documents now, but model {2} in the warehouse covers {3} of them. Import the "
            "same documents for every model, or record the gap with --allow-missing".format(*uneven)
        )

"""The tables, and what identifies a row of each: finds and removes rows without a key or with another's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warehouse import writing
from warehouse.store import Warehouse

KEYS: dict[str, tuple[str, ...]] = {
    "models": ("model",),
    "benchmarks": ("benchmark",),
    "tasks": ("benchmark", "task"),
    "docs": ("benchmark", "task", "doc_id"),
    "prompts": ("benchmark", "task", "doc_id", "model"),
    "choice_logprobs": ("benchmark", "task", "doc_id", "model", "choice"),
    "answer_passes": ("benchmark", "task", "doc_id", "model", "pass"),
    "traces": ("benchmark", "task", "doc_id", "model", "trace"),
    "extractions": ("benchmark", "task", "model"),
    "doc_digests": ("benchmark", "task"),
    "corrections": ("benchmark", "task", "doc_id"),
    "evaluations": ("run_id", "task"),
    "decisions": ("run_id", "benchmark", "task", "doc_id"),
    "run_digests": ("run_id",),
    "training_history": ("run_id", "benchmark", "task", "phase", "episode"),
    "renames": ("old", "new", "renamed_at"),
    "ruled_out": ("run_id", "data"),
}
"""The columns that are never NULL and never the same in two rows of a table."""
_PARTITIONED = {
    "docs": ("benchmark", "task"),
    "prompts": ("benchmark", "task"),
    "choice_logprobs": ("benchmark", "task", "model"),
    "answer_passes": ("benchmark", "task", "model"),
    "traces": ("benchmark", "task", "model"),
    "decisions": ("benchmark", "task"),
}
FOLDERS: dict[str, tuple[str, ...]] = {
    table: _PARTITIONED.get(table, ()) for table in ("docs", *(table for table in KEYS if table != "docs"))
}
"""The tables of an export, and the columns that become folders of its plain Parquet format."""
_COMPARED_BY_DIGEST = ("docs", "choice_logprobs", "answer_passes", "traces")
"""Tables whose duplicates show in a digest, and whose rows are too many to be compared."""


class KeyFault(NamedTuple):
    """Rows of a table without a whole key, or with the same one; or a model without a row."""

    table: str
    key: tuple[str | None, ...]
    """Its columns' values, as text."""
    n: int
    """How many rows have it; 0: none, though other tables name it."""

    @property
    def is_partial(self) -> bool:
        """Whether a column of the key is NULL."""
        return None in self.key


def key_faults(warehouse: Warehouse) -> Iterator[KeyFault]:
    """Every key that is not whole, that several rows have, or that no row of `models` has."""
    for table in KEYS:
        names, partial = _columns_of(table)
        several = "" if table in _COMPARED_BY_DIGEST else " OR count(*) > 1"
        rows = f"WHERE {partial}" if table in _COMPARED_BY_DIGEST else ""
        query = (
            f"SELECT {names}, count(*) FROM {table} {rows} "
            f"GROUP BY {names} HAVING {partial}{several} ORDER BY ALL"
        )
        for *key, n in warehouse.rows(query):
            yield KeyFault(table, tuple(None if value is None else str(value) for value in key), n)
    for model in warehouse.rows(
        "SELECT DISTINCT model FROM extractions ANTI JOIN models USING (model) ORDER BY 1"
    ):
        yield KeyFault("models", model, 0)


def remove_faulty_keys(warehouse: Warehouse) -> tuple[KeyFault, ...]:
    """Deletes rows without a whole key, and all but one of those with the same. Needs a transaction.

    Models without a row get one, which says no more than their names. Duplicates in tables that a digest
    covers go with their partition or task.
    """
    found = tuple(key_faults(warehouse))
    writing.name_models(warehouse.connection, (str(fault.key[0]) for fault in found if not fault.n))
    for table in dict.fromkeys(fault.table for fault in found if fault.n):
        names, partial = _columns_of(table)
        warehouse.connection.execute(f"DELETE FROM {table} WHERE {partial}")
        if any(fault.table == table and fault.n > 1 and not fault.is_partial for fault in found):
            twice = f"SELECT {names} FROM {table} GROUP BY {names} HAVING count(*) > 1"
            warehouse.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE one_each AS SELECT DISTINCT ON ({names}) * FROM {table} "
                f"WHERE ({names}) IN ({twice})"
            )
            warehouse.connection.execute(f"DELETE FROM {table} WHERE ({names}) IN ({twice})")
            warehouse.connection.execute(f"INSERT INTO {table} BY NAME FROM temp.one_each")
    return found


def _columns_of(table: str) -> tuple[str, str]:
    """The key's columns in SQL, and the condition that a row's key is not whole."""
    return ", ".join(KEYS[table]), " OR ".join(f"{name} IS NULL" for name in KEYS[table])

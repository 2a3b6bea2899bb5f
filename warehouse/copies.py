"""A copy of a benchmark's rows in memory, for callers that make many queries on them.

Opening a Parquet file for each model and task takes most of the time of a small query.
"""

from __future__ import annotations

from warehouse.connecting import CATALOG_NAME
from warehouse.opening import define_views
from warehouse.store import Warehouse

COPIED_TABLES = (
    "docs",
    "choice_logprobs",
    "answer_passes",
    "extractions",
    "evaluations",
    "decisions",
    "training_history",
)
"""The copied tables: those that report pages read by document or by run."""
MAX_COPIED_ANSWERS = 300_000
"""The most answers of a benchmark that is copied; with more, opening files takes little of a query's time."""


class BenchmarkCopy:
    """A copy of one benchmark's rows in temporary tables, which the connection reads in place of the stored
    ones.

    Views and macros read the copy, too. Other benchmarks look empty meanwhile.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._connection = warehouse.connection
        # Of an older warehouse that is only read, temporary views have these names.
        in_use = "SELECT 1 FROM duckdb_views() WHERE database_name = 'temp' AND list_contains(?, view_name)"
        self._is_possible = not warehouse.rows(in_use, [list(COPIED_TABLES)])
        self._has_views = False
        self._rows = warehouse.rows

    def copy(self, benchmark: str) -> bool:
        """Replaces the copy by that of `benchmark`; returns False if it has too many answers or cannot be
        copied."""
        if not self._is_possible:
            return False
        self._drop_copies()
        if self._count(benchmark) > MAX_COPIED_ANSWERS:
            return False
        if not self._has_views:
            define_views(self._connection)
            self._has_views = True
        for table in COPIED_TABLES:
            self._connection.execute(
                f"CREATE TEMP TABLE {table} AS FROM {CATALOG_NAME}.{table} WHERE benchmark = ?", [benchmark]
            )
        return True

    def _count(self, benchmark: str) -> int:
        asked = f"SELECT coalesce(sum(n_docs), 0) FROM {CATALOG_NAME}.extractions WHERE benchmark = ?"
        return int(self._rows(asked, [benchmark])[0][0])

    def _drop_copies(self) -> None:
        for table in COPIED_TABLES:
            self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")

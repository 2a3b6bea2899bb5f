"""A benchmark's rows in memory, for callers that make many queries on it.

Opening a Parquet file for each model and task takes most of the time of a small query.
"""

from __future__ import annotations

from warehouse.connecting import CATALOG_NAME
from warehouse.opening import define_views
from warehouse.store import Warehouse

HELD_TABLES = (
    "docs",
    "choice_logprobs",
    "answer_passes",
    "extractions",
    "evaluations",
    "decisions",
    "training_history",
)
"""The tables that pages read of a benchmark, document by document or run by run."""
MAX_HELD_ANSWERS = 300_000
"""The most answers of a benchmark that is copied; where there are more, opening files takes little of the
time."""


class HeldBenchmark:
    """Temporary copies of one benchmark's rows, which the warehouse's connection reads instead of its tables.

    Views and macros read the copies, too. Other benchmarks look empty meanwhile.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._connection = warehouse.connection
        # Of an older warehouse that is only read, temporary views have these names.
        taken = "SELECT 1 FROM duckdb_views() WHERE database_name = 'temp' AND list_contains(?, view_name)"
        self._is_possible = not warehouse.rows(taken, [list(HELD_TABLES)])
        self._lends = False
        self._rows = warehouse.rows

    def hold(self, benchmark: str) -> bool:
        """Copies the benchmark's rows and frees those of the last one; False where it cannot, or too many."""
        if not self._is_possible:
            return False
        self._drop_copies()
        if self._count(benchmark) > MAX_HELD_ANSWERS:
            return False
        if not self._lends:
            define_views(self._connection)
            self._lends = True
        for table in HELD_TABLES:
            self._connection.execute(
                f"CREATE TEMP TABLE {table} AS FROM {CATALOG_NAME}.{table} WHERE benchmark = ?", [benchmark]
            )
        return True

    def _count(self, benchmark: str) -> int:
        asked = f"SELECT coalesce(sum(n_docs), 0) FROM {CATALOG_NAME}.extractions WHERE benchmark = ?"
        return int(self._rows(asked, [benchmark])[0][0])

    def _drop_copies(self) -> None:
        for table in HELD_TABLES:
            self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")

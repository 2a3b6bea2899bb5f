"""The SQL files of the package."""

from __future__ import annotations

from importlib import resources

SCHEMA = (
    "tables",
    "views",
    "accuracy_norm",
    "statistics",
    "pairwise_diversity",
    "pool_documents",
    "pool_diversity",
    "all_pools",
    "pool_diversity_over_time",
    "agreement",
    "best_partner",
    "calibration",
    "cost",
)
"""What makes a schema, in order."""


def script(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (resources.files("warehouse") / "sql" / f"{name}.sql").read_text(encoding="utf-8")

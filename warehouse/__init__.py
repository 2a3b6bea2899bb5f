"""The warehouse: the answers of every model, in DuckLake tables, with SQL views and macros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.locations import check_location
    from warehouse.opening import open_warehouse
    from warehouse.store import Warehouse

__all__ = ["Warehouse", "check_location", "open_warehouse"]


def __getattr__(name: str) -> Any:
    # Imported on demand: shell completion and listing SQL files need neither Arrow nor the pools' schema.
    if name == "check_location":
        from warehouse.locations import check_location

        return check_location
    if name == "open_warehouse":
        from warehouse.opening import open_warehouse

        return open_warehouse
    if name == "Warehouse":
        from warehouse.store import Warehouse

        return Warehouse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The warehouse: what every model answered, in DuckLake tables, with SQL views and macros."""

from __future__ import annotations

from warehouse.locations import check_location
from warehouse.opening import open_warehouse
from warehouse.store import Warehouse

__all__ = ["Warehouse", "check_location", "open_warehouse"]

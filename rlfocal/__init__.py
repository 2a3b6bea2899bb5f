"""A warehouse of what a pool of LLMs answers, and RL-Focal: learn which few to ask and how to fuse them.

`rlfocal.open_warehouse(...)` opens a warehouse; what its `query` returns is an Arrow table, so `.to_pandas()`
and `polars.from_arrow(...)` work on it:

    with rlfocal.open_warehouse(read_only=True) as warehouse:
        accuracy = warehouse.query("FROM accuracy").to_pandas()

`rlfocal.Router.load(checkpoint)` stands between your questions and your models (see `rlfocal.router`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfocal.router import Router as Router
    from rlfocal.statistics import agreement as agreement
    from rlfocal.statistics import calibration as calibration
    from rlfocal.statistics import diversity as diversity
    from rlfocal.statistics import normalised as normalised
    from warehouse import open_warehouse as open_warehouse

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The warehouse itself imports rlfocal's names, and `rlfocal --help` must not wait for DuckDB or torch.
    if name == "Router":
        from rlfocal.router import Router

        return Router
    if name == "open_warehouse":
        from warehouse import open_warehouse

        return open_warehouse
    if name in ("agreement", "calibration", "diversity", "normalised"):
        return import_module(f"rlfocal.statistics.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What docs/results says is what the code gives: a sample of its cells, made anew from the real data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from shutil import copytree
from time import monotonic
from typing import Any

import numpy as np
import pytest

from benchmarks.results.evaluated import step_of
from benchmarks.results.pages import RESULTS
from rlfocal.base.gone import is_gone
from rlfocal.evaluation.planning import read_dataset
from rlfocal.exchange.imports.prices import import_prices
from warehouse import Warehouse, open_warehouse

CELLS = 10
QUICK = 10.0
"""Seconds to fit and decide, of all seeds, that a cell may have taken."""
LONGEST = 240.0
"""Seconds after which no further cell is begun."""
FIGURES = ("accuracy", "mean_pool_size", "mean_rounds")


def is_drawn_from(block: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a cell is of an evaluation by today's code that takes seconds, without an encoder to load."""
    takes = row.get("seconds", QUICK if row.get("seeds", 1) is None else np.inf)
    is_quick = takes <= QUICK and block["protocol"] == "frozen" and "--tune" not in block["command"]
    is_plain = not any(setting.startswith("encoder=") for setting in block["settings"])
    is_today = not row.get("old") and not is_gone(f"method {row['method']}")
    return is_quick and is_plain and is_today


def drawn_cells(warehouse: Warehouse) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File, block and row of each, with the date as seed; none is of other data than the warehouse has."""
    known = {benchmark for (benchmark,) in warehouse.rows("SELECT DISTINCT benchmark FROM docs")}

    @cache
    def fingerprint(benchmark: str, split: str) -> str:
        return read_dataset(warehouse, benchmark, None, None, split).fingerprint()[:12]

    cells = [
        (path.stem, block, row)
        for path in sorted(RESULTS.glob("*.json"))
        for block in json.loads(path.read_text("utf-8"))
        if block.get("benchmark") in known and block["command"].startswith("rlfocal evaluate -b")
        if fingerprint(block["benchmark"], block["split"]) == block["data"]
        for row in block["rows"]
        if is_drawn_from(block, row)
    ]
    rng = np.random.default_rng(int(f"{datetime.now(UTC):%Y%m%d}"))
    return [cells[at] for at in rng.permutation(len(cells))[:CELLS]]


@pytest.fixture(scope="module")
def real(real_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The three real sets with list prices, as `python -m benchmarks.results` imports them."""
    place = tmp_path_factory.mktemp("by_value") / "warehouse"
    copytree(real_warehouse, place)
    with open_warehouse(place) as warehouse:
        import_prices(warehouse)
        yield warehouse


@pytest.mark.slow
def test_a_sample_of_cells_is_what_the_code_gives(real: Warehouse) -> None:
    began, found, published = monotonic(), {}, {}
    for name, block, row in drawn_cells(real):
        if monotonic() - began > LONGEST:
            break
        _, rows = step_of(block, row).rows(real)
        [again] = [one for one in rows if (one["method"], one["budget"]) == (row["method"], row["budget"])]
        cell = f"{name}, {block['command']}: {row['method']} within {row['budget']}"
        found[cell] = [again[figure] for figure in FIGURES]
        published[cell] = pytest.approx([row[figure] for figure in FIGURES], abs=1e-4)
    assert published, "no cell is of the data at hand"
    assert found == published

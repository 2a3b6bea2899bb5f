"""Prices from a file: what is set, what is refused, and that published data can be priced by one command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.prices import SHIPPED_PRICES, import_prices, read_prices
from warehouse import Warehouse

NAMES = "phi gpt nobody"


@pytest.fixture
def named(warehouse: Warehouse) -> Warehouse:
    with warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": NAMES.split()}))
    return warehouse


def put(path: Path, *lines: str, columns: str = "model,price,price_input,price_output") -> Path:
    path.write_text("\n".join([columns, *lines, ""]))
    return path


def test_prices_are_set_once(named: Warehouse, tmp_path: Path) -> None:
    file = put(tmp_path / "p.csv", "phi,10,,", "gpt,,250,1000", "elsewhere,1,,")
    report = import_prices(named, file)
    assert (report.priced, report.unpriced) == (2, ("nobody",))
    rows = named.rows("SELECT model, price, price_input, price_output FROM models ORDER BY model")
    # 800 prompt tokens at 250 cents per million and 200 answered ones at 1,000: 0.4 cents a query.
    assert rows == [("gpt", 400.0, 250.0, 1000.0), ("nobody", None, None, None), ("phi", 10.0, None, None)]
    before = named.snapshot()
    assert import_prices(named, file).priced == 0
    assert named.snapshot() == before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["phi,-1,,"], r"row 1: price of 'phi' is -1; give cents from 0 on"),
        (["gpt,,0.0000025,0.00001"], "row 1: price_input of 'gpt'.*per token, give 250"),
        (["gpt,,250,0.01", "phi,,5,0.00001"], "row 2: price_output of 'phi'"),
        (["gpt,1,,", "phi,,5,"], "row 2: 'phi' needs price, or price_input and price_output"),
        (["phi,1,,", "phi,2,,"], "row 2: 'phi' is named twice"),
        (["phi,,,"], "needs price"),
        (["phi,inf,,"], "give cents"),
    ],
)
def test_a_wrong_price_changes_nothing(
    named: Warehouse, tmp_path: Path, lines: list[str], message: str
) -> None:
    before = named.snapshot()
    with pytest.raises(InputError, match=message):
        import_prices(named, put(tmp_path / "p.csv", *lines))
    assert named.snapshot() == before


def test_every_shipped_price_names_its_source() -> None:
    lines = SHIPPED_PRICES.read_text("utf-8").splitlines()[1:]
    assert len(read_prices(SHIPPED_PRICES)) == len(lines)
    for line in lines:
        assert "20" in line.rpartition(",")[2] or '"' in line, line  # a date
    prices = read_prices(SHIPPED_PRICES)
    assert prices["gpt-4o-mini-2024-07-18"] == (24.0, 15.0, 60.0)
    assert prices["01-ai/Yi-34B"] == (80.0, 80.0, 80.0)

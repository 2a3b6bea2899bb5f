"""Models' prices from a file, or from the shipped list of public list prices, with date and source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.tables import read_table
from rlfocal.pool.fields import check_token_price
from warehouse import Warehouse

SHIPPED_PRICES = Path(__file__).with_name("prices.csv")
PROMPT_TOKENS, ANSWERED_TOKENS = 800, 200
"""The tokens of one query, from which a flat price is made if a file has only prices per million tokens."""
_COLUMN_TYPES = {
    "model": "VARCHAR",
    "price": "DOUBLE",
    "price_input": "DOUBLE",
    "price_output": "DOUBLE",
    "source": "VARCHAR",
}
_PRICE_FIELDS = ("price", "price_input", "price_output")
_PRICE_COLUMNS = ", ".join(_PRICE_FIELDS)
Prices = dict[str, tuple[float | None, ...]]
"""Prices by model: cents per 1,000 queries, per million prompt and answered tokens; None where unknown."""


@dataclass(frozen=True)
class PricesReport:
    """What `import_prices` did."""

    priced: int
    """The number of the warehouse's models whose prices changed."""
    unpriced: tuple[str, ...]
    """The models of the warehouse that still have no price."""

    def __str__(self) -> str:
        done = f"prices of {self.priced} models changed" if self.priced else "nothing to do: no price changed"
        return done + (f"; without a price: {', '.join(self.unpriced)}" if self.unpriced else "")


def import_prices(warehouse: Warehouse, path: str | Path = SHIPPED_PRICES) -> PricesReport:
    """Sets the prices of the warehouse's models that a file names. Repeating it writes nothing.

    Raises InputError for a file that `read_prices` refuses. Nothing is written then.
    """
    given = read_prices(path)
    stored = {
        model: tuple(prices)
        for model, *prices in warehouse.rows(f"SELECT model, {_PRICE_COLUMNS} FROM models")
    }
    changed = {model: given[model] for model in given.keys() & stored.keys() if given[model] != stored[model]}
    if changed:
        with warehouse.transaction("prices"):
            for model, prices in sorted(changed.items()):
                warehouse.connection.execute(
                    "UPDATE models SET price = ?, price_input = ?, price_output = ? WHERE model = ?",
                    [*prices, model],
                )
    after = stored | changed
    return PricesReport(len(changed), tuple(sorted(model for model in after if after[model][0] is None)))


def read_prices(path: str | Path) -> Prices:
    """Reads a Parquet, CSV or JSONL file of model and price, or price_input and price_output.

    A flat price that is not given is that of a query of 800 prompt tokens and 200 answered ones. Raises
    InputError for a model named twice or without a price, and for a price that is no number from 0 on. It
    also does for a price per token in place of one per million.
    """
    prices: Prices = {}
    for row, model, flat, prompt, answered, _ in read_table(Path(path), _COLUMN_TYPES, ("model",)):
        where = f"{path}, row {row}"
        for name, value in zip(_PRICE_FIELDS, (flat, prompt, answered), strict=True):
            if value is not None and not 0 <= value < float("inf"):
                raise InputError(f"{where}: {name} of {model!r} is {value:g}; give cents from 0 on")
            if value is not None and name != "price":
                try:
                    check_token_price(value)
                except ValueError as error:
                    raise InputError(f"{where}: {name} of {model!r}: {error}") from None
        if (prompt is None) != (answered is None) or (flat is None and prompt is None):
            raise InputError(f"{where}: {model!r} needs price, or price_input and price_output, in cents")
        if model in prices:
            raise InputError(f"{where}: {model!r} is named twice; give each model one price")
        if flat is None:
            flat = round((PROMPT_TOKENS * prompt + ANSWERED_TOKENS * answered) / 1000, 6)
        prices[model] = (flat, prompt, answered)
    return prices

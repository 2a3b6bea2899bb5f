"""Imports models' prices from a file, or from the shipped list of public prices, which has dates and
sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.tables import read_table
from rlfocal.pool.fields import check_token_price
from warehouse import Warehouse

SHIPPED_PRICES = Path(__file__).with_name("prices.csv")
PROMPT_TOKENS, ANSWERED_TOKENS = 800, 200
"""The tokens that one query is assumed to read and write, where a flat price follows from prices per million
tokens."""
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
"""Each model's prices in cents: per 1,000 queries, per million prompt tokens, and per million answer tokens.
Prices per token are None where they are unknown."""


@dataclass(frozen=True)
class PricesReport:
    """The outcome of `import_prices`."""

    priced: int
    """The number of models in the warehouse whose prices changed."""
    unpriced: tuple[str, ...]
    """The models in the warehouse that still have no price."""

    def __str__(self) -> str:
        done = f"prices of {self.priced} models changed" if self.priced else "nothing to do: no price changed"
        return done + (f"; without a price: {', '.join(self.unpriced)}" if self.unpriced else "")


def import_prices(warehouse: Warehouse, path: str | Path = SHIPPED_PRICES) -> PricesReport:
    """Sets the prices of those models in the warehouse that a file names. Repeating it writes nothing. Raises
    InputError, and writes nothing, for a file that `read_prices` refuses."""
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
    """The prices in a Parquet, CSV or JSONL file of model and price, or of price_input and price_output.

    A missing flat price is computed for a query of 800 prompt tokens and 200 answer tokens. Raises InputError
    for a model named twice or without a price, and for a price that is no number from 0 on. It also raises
    InputError for a price that seems to be per token, not per million tokens.
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

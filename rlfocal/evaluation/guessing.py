"""Whether a pool is near guessing: no figure of such a pool says which method is better."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binomtest

from warehouse import Warehouse
from warehouse.scripts import script

FEWEST = 30
"""Documents below which nothing is said."""
LEVEL = 0.025
"""One-sided: the lower end of a 95 % interval."""


def note_guessing(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence where no model is clearly better than guessing among the choices; None if one is.

    Also None for benchmarks with free answers, and below FEWEST documents.
    """
    named = {"benchmark": benchmark, "models": list(models)}
    found = warehouse.connection.execute(script("queries/best_and_guessing"), named).fetchone()
    if found is None or found[1] < FEWEST or found[3] is None:
        return None
    model, n, n_right, guessing = found
    if binomtest(n_right, n, guessing, alternative="greater").pvalue < LEVEL:
        return None
    return (
        f"{benchmark}: this pool is near guessing. Its most accurate model, {model}, is right on "
        f"{100 * n_right / n:.2f} % of {n:,} documents, and guessing is on {100 * guessing:.2f} %: "
        "differences between methods here are chance."
    )

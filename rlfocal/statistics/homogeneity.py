"""Compares train and test documents: finds shares that differ between them by more than chance explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.wording import percent
from warehouse import Warehouse
from warehouse.scripts import script

ERROR_RATE = 0.01
"""The probability that a difference is found in a random split, over all comparisons together."""
MIN_SIDE = 5
"""The fewest documents of train, and of test, for a comparison."""
MAX_SHOWN = 3


@dataclass(frozen=True)
class Share:
    """The numbers of train and of test documents with a property."""

    kind: str
    """The kind of property, such as `label`; of each kind, one difference is shown."""
    property: str
    """The property in words, such as `label 2`."""
    n_train: int
    k_train: int
    """The number of train documents with the property."""
    n_test: int
    k_test: int

    def __str__(self) -> str:
        shares = (percent(k / n, 1) for k, n in ((self.k_train, self.n_train), (self.k_test, self.n_test)))
        return "{} ({} % of train, {} % of test)".format(self.property, *shares)


def count_shares(
    warehouse: Warehouse,
    benchmark: str,
    models: Sequence[str],
    run: str | None = None,
    *,
    of_train: bool = False,
) -> list[Share]:
    """The shares of a benchmark's labels, tasks, lengths and right answers of `models`, in train and in test.

    Test documents are those that `run` decided, and train documents are the others, or with `of_train` others
    of the stored train split. Without a run, the stored split is compared.
    """
    about = {"benchmark": benchmark, "models": list(models), "run": run, "of_train": of_train}
    return [Share(*row) for row in warehouse.rows(script("queries/train_and_test"), about)]


def p_values(shares: Sequence[Share]) -> Floats:
    """(P,) the two-sided p-value of each difference between train and test, if test were a random draw.

    It is by Fisher's exact test: twice the smaller tail of the hypergeometric distribution.
    """
    counts = np.array([(s.n_train, s.k_train, s.n_test, s.k_test) for s in shares], dtype=np.int64)
    return np.array([_compute_p_value(*row) for row in counts.reshape(-1, 4)])


def _compute_p_value(n_train: int, k_train: int, n_test: int, k_test: int) -> float:
    n_all, k_all = n_train + n_test, k_train + k_test
    drawn = np.arange(max(0, n_test - (n_all - k_all)), min(k_all, n_test) + 1)
    logs = _log_choose(k_all, drawn) + _log_choose(n_all - k_all, n_test - drawn)
    weights = np.exp(logs - _log_choose(n_all, np.array(n_test)))
    tails = weights[drawn <= k_test].sum(), weights[drawn >= k_test].sum()
    return float(min(1.0, 2 * min(tails)))


def _log_choose(n: int, k: Ints) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def find_differences(shares: Sequence[Share]) -> list[Share]:
    """The shares that differ by more than chance explains, one of each kind, by rising p-value.

    P-values have Bonferroni's correction. Shares of fewer than MIN_SIDE train or test documents are left out.
    """
    large = [share for share in shares if min(share.n_train, share.n_test) >= MIN_SIDE]
    p = p_values(large)
    least: dict[str, Share] = {}
    for place in np.argsort(p, kind="stable"):
        if p[place] * len(large) < ERROR_RATE:
            least.setdefault(large[place].kind, large[place])
    return list(least.values())


def describe(benchmark: str, differences: Sequence[str]) -> str | None:
    """Sentences on these differences, with the command for another split; None without differences."""
    if not differences:
        return None
    more = f"; and {len(differences) - MAX_SHOWN} more" if len(differences) > MAX_SHOWN else ""
    return (
        f"{benchmark}: train and test documents differ by more than chance explains: "
        f"{'; '.join(differences[:MAX_SHOWN])}{more}. Figures on test documents may not hold for others. "
        f"`rlfocal evaluate --benchmark {benchmark} --split random` draws a split anew."
    )

"""A promise about errors: a threshold on an answer's probability above which few answers are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.errors import InputError

SURE = 0.9
"""How likely a promise is to hold, over draws of the train documents."""
STEPS, STARTS = 20, 5
"""The fixed grid: thresholds at every twentieth of the answers, and how many of them a sequence starts at."""

WITHDRAWN = "withdrawn"
"""What stands instead of a threshold once a promise has broken."""


class Promise(NamedTuple):
    """Of the answers with at least this probability, at most a share `target` is wrong."""

    target: float
    threshold: float | None
    """None: train has too few documents, or too many errors, to promise anything."""
    n: int
    """Held-out train documents."""
    answered: int
    """Of them, those at or above the threshold."""
    wrong: int
    """Of these, the wrong ones."""


def make_promise(probability: Floats, right: Bools, target: float, sure: float = SURE) -> Promise:
    """The lowest threshold at which the share of wrong answers is at most `target` with certainty `sure`.

    `probability` (T,) of held-out answers, NaN where there is none, and whether they are `right` (T,).
    Fixed-sequence testing of Learn then Test (Angelopoulos et al., arXiv 2110.01052): the grid depends on
    no label; from each of `STARTS` strict thresholds looser ones are tested until one fails, by the exact
    binomial test at level (1 - sure) / `STARTS`.
    """
    n, level = len(probability), (1 - sure) / STARTS
    sorted_known = np.sort(probability[~np.isnan(probability)])[::-1]
    nothing = Promise(target, None, n, 0, 0)
    if not len(sorted_known):
        return nothing
    places = np.ceil(np.arange(1, STEPS + 1) / STEPS * len(sorted_known)).astype(np.int64) - 1
    thresholds = sorted_known[places]
    answered = np.array([int((probability >= threshold).sum()) for threshold in thresholds])
    wrong = np.array([int((~right[probability >= threshold]).sum()) for threshold in thresholds])
    passes = binom.cdf(wrong, answered, target) <= level
    best = -1
    for start in range(0, STEPS, STEPS // STARTS):
        failed = np.flatnonzero(~passes[start:])
        best = max(best, (start + int(failed[0]) if len(failed) else STEPS) - 1 if passes[start] else -1)
    if best < 0:
        return nothing
    return Promise(target, float(thresholds[best]), n, int(answered[best]), int(wrong[best]))


def share(text: str) -> float:
    """A share of errors, from "5%" or "0.05". Raises InputError for what is none between 0 and 1."""
    try:
        value = round(float(text.removesuffix("%")) / (100 if text.endswith("%") else 1), 12)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise InputError(f"{text!r} is not a share of errors between 0 and 100 %; give 5% or 0.05")
    return value


def promises_file(checkpoint: Path) -> Path:
    """Where the thresholds stand that were promised of a checkpoint's agents."""
    return checkpoint.with_suffix(".promises.json")


def read_promises(checkpoint: Path) -> dict[str, float | str | None]:
    """What that file says by target: a threshold, None where nothing was promised, or `WITHDRAWN`."""
    path = promises_file(checkpoint)
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def promised(checkpoint: Path) -> dict[float, float]:
    """The thresholds that stand, by target."""
    made = read_promises(checkpoint)
    return {float(target): threshold for target, threshold in made.items() if isinstance(threshold, float)}


def promised_threshold(checkpoint: Path, target: float) -> float:
    """What was promised of a checkpoint's agents. Raises InputError where nothing was, with what to do."""
    path, made = promises_file(checkpoint), read_promises(checkpoint)
    command = f"rlfocal evaluate -b BENCHMARK --methods METHOD --target-error {100 * target:g}%"
    if f"{target:g}" not in made:
        raise InputError(
            f"{path} has no promise of at most {100 * target:g} % errors; make it by `{command}`, or copy "
            "the file along with its checkpoint"
        )
    threshold = made[f"{target:g}"]
    if threshold is None:
        raise InputError(
            f"{path}: train had too few documents, or too many errors, to promise at most {100 * target:g} % "
            "errors; ask for a higher share, or add labelled documents"
        )
    if threshold == WITHDRAWN:
        raise InputError(
            f"{path}: the promise of at most {100 * target:g} % errors is withdrawn: new answers broke it; "
            "train and promise again on the answers of today"
        )
    return float(threshold)

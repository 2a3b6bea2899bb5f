"""The study of what tuned settings are worth on test rows, found as `rlfocal evaluate --tune` finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.evaluation.candidates import TUNING
from rlfocal.evaluation.studies.arms import Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.study import Found
from rlfocal.evaluation.studies.tuned import written
from rlfocal.evaluation.tuning import FOLDS, Search, holds_out_tasks, tune
from rlfocal.methods import RLFocal, entry_of
from rlfocal.methods.trained.settings import read_value

TRIALS = 20


def search(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Searches on train rows, then evaluates what was found, and the defaults, on the test rows."""
    trials: int = read_value(str(values[0]), TRIALS, "trials")
    if trials < 1:
        raise InputError(f"--values must be at least 1 trial, got {trials}")
    setup, method, fixed = conditions.setup, conditions.method, conditions.settings
    tell, title = setup.request.on_progress, f"{setup.dataset.benchmark} search"
    best = tune(
        Search(
            method,
            lambda settings: RLFocal(method, changes={**fixed, **settings}),
            {name: where for name, where in entry_of(method).space.items() if name not in fixed},
            setup.dataset.train,
            setup.request.per,
            whole_tasks=holds_out_tasks(setup.dataset),
            fixed=fixed,
        ),
        trials,
        setup.warehouse.location.studies / TUNING,
        force=setup.request.force,
        on_progress=None if tell is None else lambda share: tell(title, share),
    )
    arms = [tuned_arm(conditions, "the defaults"), reference_arm(conditions, "best_single")]
    if best.settings:
        arms.insert(0, tuned_arm(conditions, "what was found", settings=best.settings))
    notes = [
        f"By {best.trials} trials on {FOLDS} folds of train: {written(best.settings) or 'the defaults'}; "
        f"{100 * best.accuracy:.2f} % there, the defaults {100 * best.default:.2f} %."
    ]
    return Found(run_arms(conditions, arms), notes)

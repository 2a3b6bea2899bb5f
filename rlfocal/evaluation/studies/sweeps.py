"""Studies of RL-Focal's settings: one varied, or all searched, beside references that have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.evaluation.candidates import search_settings
from rlfocal.evaluation.studies.arms import Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.study import ALL, Found, written
from rlfocal.evaluation.tuning import FOLDS
from rlfocal.methods import RLFocal, entry_of
from rlfocal.methods.checking import read_value
from rlfocal.methods.trained import check_settings, defaults

NONE = "none"
TRIALS = 20
"""The trials of a search, unless another number is given."""


def sweep(setting: str, label: Callable[[Any], str]) -> Callable[[Conditions, Sequence[Any]], Found]:
    """Tries the values of one setting that is a number or a switch, beside best_single."""

    def answer(conditions: Conditions, values: Sequence[Any]) -> Found:
        check_settings(conditions.method, [setting])
        like = getattr(defaults(conditions.method), setting)
        arms = []
        for value in (read_value(str(value), like, setting) for value in values):
            x = None if isinstance(value, bool) else float(value)
            arms.append(tuned_arm(conditions, label(value), x, {setting: value}))
        return Found(run_arms([*arms, reference_arm(conditions, "best_single")]))

    return answer


def windows(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Tries windows; those that cover all train documents are tried once, as "all"."""
    check_settings(conditions.method, ["window"])
    longest = max(conditions.setup.train_sizes)
    lengths = [
        longest if value == ALL else min(read_value(str(value), 1, "window"), longest) for value in values
    ]
    arms = [
        tuned_arm(conditions, "all" if w == longest else str(w), float(w), {"window": w})
        for w in dict.fromkeys(lengths)
    ]
    return Found(run_arms([*arms, reference_arm(conditions, "best_single")]))


def metrics(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Tries each metric alone in the Decider's observation, none, and the default; beside all models."""
    check_settings(conditions.method, ["metrics"])
    own = tuned_arm(conditions, "the default metrics", None, {})
    changes_weights = "weights" in {f.name for f in fields(defaults(conditions.method))}
    arms = []
    for value in values:
        names = () if value == NONE else (str(value),)
        settings: dict[str, Any] = {"metrics": names}
        if changes_weights:
            settings["weights"] = (1.0,) * len(names)
        arms.append(tuned_arm(conditions, "no metric" if value == NONE else str(value), None, settings))
    references = [reference_arm(conditions, name) for name in ("soft_vote", "plurality", "best_single")]
    return Found(run_arms([*arms, own, *references]))


def search(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Searches on train rows, then evaluates what was found, and the defaults, on the test rows."""
    trials: int = read_value(str(values[0]), TRIALS, "trials")
    if trials < 1:
        raise InputError(f"--values must be at least 1 trial, got {trials}")
    setup, method, fixed = conditions.setup, conditions.method, conditions.settings
    best = search_settings(
        setup,
        method,
        lambda settings: RLFocal(method, changes={**fixed, **settings}),
        {name: where for name, where in entry_of(method).space.items() if name not in fixed},
        fixed,
        trials=trials,
        title=f"{setup.dataset.benchmark} search",
    )
    arms = [tuned_arm(conditions, "the defaults"), reference_arm(conditions, "best_single")]
    if best.settings:
        arms.insert(0, tuned_arm(conditions, "what was found", settings=best.settings))
    notes = [
        f"By {best.trials} trials on {FOLDS} folds of train: {written(best.settings) or 'the defaults'}; "
        f"{100 * best.accuracy:.2f} % there, the defaults {100 * best.default:.2f} %."
    ]
    return Found(run_arms(arms), notes)

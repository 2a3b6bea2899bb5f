"""Hyper-parameter search over train rows alone, with Optuna; if killed, it continues where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlfocal.agents.settings import Settings, read_value
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError
from rlfocal.evaluation.planning import Per, group_rows
from rlfocal.evaluation.runs import decide_groups, fit_groups
from rlfocal.methods import RLFocal
from rlfocal.studies.arms import Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.studies.study import Found
from rlfocal.studies.tuned import written

TRIALS = 20
VALIDATION = 0.2
"""Share of each task's train rows, the last ones, used for validation."""


class Range(NamedTuple):
    """The search range of one setting."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


SPACES: Mapping[str, Mapping[str, Range]] = {
    "rl_focal": {
        "size_penalty": Range(1e-3, 1.0, log=True),
        "window": Range(50, 1000, log=True, whole=True),
        "core_rate": Range(5e-3, 0.1, log=True),
        "weight_ridge": Range(0.5, 50, log=True),
        "slots_ridge": Range(3, 300, log=True),
        "task_ridge": Range(0.3, 30, log=True),
        "words_ridge": Range(3, 300, log=True),
    },
    "rl_focal_sequential": {
        "size_penalty": Range(2e-3, 0.2, log=True),
        "shared_ridge": Range(0.5, 50, log=True),
        "task_ridge": Range(3, 300, log=True),
        "word_directions": Range(20, 120, whole=True),
    },
    "rl_focal_released": {
        "size_penalty": Range(0.0, 2.0),
        "window": Range(50, 500, log=True, whole=True),
        "learning_rate": Range(3e-4, 5e-3, log=True),
        "decider_gamma": Range(0.0, 0.99),
        "fusion_gamma": Range(0.0, 0.99),
    },
}


@dataclass(frozen=True)
class Best:
    """The best trial."""

    settings: dict[str, Any]
    """Empty if nothing beat the defaults."""
    accuracy: float
    """On the validation rows, the mean over seeds."""
    default: float
    """The same with the method's own settings."""
    trials: int


def search(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Searches on train rows, then evaluates what was found, and the defaults, on the test rows."""
    trials: int = read_value(str(values[0]), TRIALS, "trials")
    if trials < 1:
        raise InputError(f"a search of {trials} trials finds nothing; give --values 1 or more")
    tell = conditions.setup.on_progress
    best = find_settings(
        conditions.setup.dataset.train,
        conditions.method,
        seeds=conditions.setup.seeds,
        trials=trials,
        journal=conditions.setup.warehouse.location.studies / "search.journal",
        per=conditions.setup.per,
        fixed=conditions.settings,
        on_progress=None
        if tell is None
        else lambda share: tell(f"{conditions.setup.dataset.benchmark} search", share),
    )
    arms = [tuned_arm(conditions, "the defaults"), reference_arm(conditions, "best_single")]
    if best.settings:
        arms.insert(0, tuned_arm(conditions, "what was found", settings=best.settings))
    notes = [
        f"Best of {best.trials} trials on the last {VALIDATION:.0%} of each task's train rows: "
        f"{100 * best.accuracy:.2f} %, the defaults {100 * best.default:.2f} %: "
        f"{written(best.settings) or 'the defaults'}."
    ]
    return Found(run_arms(conditions, arms), notes)


def find_settings(
    train: Dataset,
    method: str,
    *,
    seeds: int,
    trials: int,
    journal: Path,
    per: Per = "benchmark",
    fixed: Settings | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Best:
    """The best of `trials` settings on the last rows of train; the first trial is the defaults.

    Trials are kept in the Optuna journal under a name made of everything they depend on, and are not run
    again. Raises InputError if `train` holds test rows, and for a damaged journal.
    """
    if not train.is_train.all():
        raise InputError("a search is given train rows only, and these hold test rows; use Dataset.train")
    import optuna

    # A trial that fails also raises here, so Optuna need not report it.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    fixed = dict(fixed or {})
    halves = split(train)
    groups = group_rows(halves, per)
    space = {name: where for name, where in SPACES[method].items() if name not in fixed}
    recipe = RLFocal(method, changes=fixed).recipe(len(halves.train))
    about = [train.fingerprint(), method, recipe, seeds, per, space, sorted(fixed)]
    name = f"{train.benchmark}-{method}-{sha256(json.dumps(about).encode()).hexdigest()[:12]}"
    study = _study(journal, name)

    def objective(trial: Any) -> float:
        settings = {} if done == 0 else {n: _suggest(trial, n, where) for n, where in space.items()}
        return validate(halves, groups, RLFocal(method, changes=fixed | settings), seeds)

    while (done := len(_complete(study))) < trials:
        # Seeded by the number of finished trials, so that a killed search ends like an uninterrupted one.
        study.sampler = optuna.samplers.TPESampler(seed=done)
        study.optimize(objective, n_trials=1)
        if on_progress is not None:
            on_progress((done + 1) / trials)
    complete = _complete(study)[:trials]
    best = max(complete, key=lambda trial: (trial.value, -trial.number))
    return Best(dict(best.params), float(best.value), float(complete[0].value), len(complete))


def split(train: Dataset) -> Dataset:
    """The train rows, with the last ones of each task as validation rows."""
    is_train = np.ones(len(train), dtype=np.bool_)
    for task in dict.fromkeys(train.tasks.tolist()):
        at = np.flatnonzero(train.tasks == task)
        is_train[at[int(len(at) * (1 - VALIDATION)) :]] = False
    if is_train.all() or not is_train.any():
        raise InputError(f"benchmark {train.benchmark!r} has too few train rows to search on")
    return replace(train, is_train=is_train)


def validate(halves: Dataset, groups: Sequence[Any], method: RLFocal, seeds: int) -> float:
    """Mean accuracy over seeds on the validation rows."""
    judged = halves.test
    scores = []
    for policies in fit_groups(method, halves, groups, range(seeds)):
        predictions = decide_groups(halves, groups, policies).predictions
        scores.append(float(((predictions == judged.labels) & (judged.labels >= 0)).mean()))
    return float(np.mean(scores))


def _study(journal: Path, name: str) -> Any:
    """Opens the study of that name, or creates it. Raises InputError for a damaged journal."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal.parent.mkdir(parents=True, exist_ok=True)
    _cut_torn_line(journal)
    try:
        storage = JournalStorage(JournalFileBackend(str(journal)))
        return optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{journal} is damaged ({error}); delete it, and searches start again") from error


def _cut_torn_line(journal: Path) -> None:
    """Drops an incomplete last line after a kill or a full disk: Optuna would append to it and fail."""
    content = journal.read_bytes() if journal.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)


def _suggest(trial: Any, name: str, where: Range) -> Any:
    if where.whole:
        return trial.suggest_int(name, int(where.low), int(where.high), log=where.log)
    return trial.suggest_float(name, where.low, where.high, log=where.log)


def _complete(study: Any) -> list[Any]:
    """Trials that have a value; killed ones have none."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]

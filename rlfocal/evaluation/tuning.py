"""Tunes the settings of any method, by Optuna trials on inner folds of the train rows."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.errors import InputError, RunError
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds
from rlfocal.evaluation.fitting import decide_groups, fit_groups
from rlfocal.evaluation.planning import Per, group_rows
from rlfocal.methods import Method, list_settings
from rlfocal.methods.checking import Range, Space

_log = logging.getLogger(__name__)

TUNING_FOLDS = 3
MAX_CALL_RATIO = 1.1
"""The most models that settings may ask, relative to the defaults, so that calls do not buy accuracy."""
_SIGNIFICANT_DIGITS = 3
"""The significant digits of a setting, so that tables show exactly what ran."""
SEARCH_REVISION = 1
"""The revision of the search. Raise it when the same search would choose other settings."""

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Search:
    """The search for one method's settings, with all that its trials depend on."""

    name: str
    make: Callable[[Settings], Method]
    """A function that makes the method with these settings, in addition to `fixed_settings`."""
    space: Mapping[str, Space]
    train: Dataset
    per: Per = "benchmark"
    protocol: str = "frozen"
    """The protocol of the trials: `frozen` or `online`.

    For `online`, each fold is a stream whose labels are revealed one by one.
    """
    whole_tasks: bool = False
    """Whether folds hold out whole tasks, as `holds_out_tasks` decides."""
    fixed_settings: Settings | None = None
    """Settings that are not searched. `make` uses them already; here they only enter the journal's name."""
    tasks: bool = False
    """Whether the method sees the tasks' names."""

    @cached_property
    def folds(self) -> list[Dataset]:
        return inner_folds(self.train, self.per, whole_tasks=self.whole_tasks)

    def journal(self, folder: Path) -> Path:
        """The file of the search's trials, named by a digest of everything that they depend on."""
        sizes = [
            int((mask & fold.is_train).sum()) for fold in self.folds for mask in group_rows(fold, self.per)
        ]
        recipes = [self.make({}).recipe(size) for size in sizes]
        rows = [self.train.fingerprint(), self.train.mean_costs.tolist(), self.whole_tasks]
        about = [
            SEARCH_REVISION,
            TUNING_FOLDS,
            rows,
            recipes,
            self.per,
            self.protocol,
            self.space,
            self.fixed_settings,
        ]
        digest = sha256(json.dumps(about, default=str).encode()).hexdigest()[:12]
        return folder / f"{self.train.benchmark}-{self.name.replace(':', '-')}-{digest}.journal"

    def judge(self, settings: Settings) -> TuningScore:
        """The score of settings on documents that the method was not fitted on."""
        is_right = np.zeros(len(self.train), dtype=np.bool_)
        calls = 0
        for fold in self.folds:
            groups = group_rows(fold, self.per)
            # One seed for all methods: the folds already average over fits.
            [policies] = fit_groups(self.make(settings), fold, groups, [0], tasks=self.tasks)
            decided = decide_groups(fold, groups, policies, self.protocol, tasks=self.tasks)
            is_right[~fold.is_train] = fold.test.is_right(decided.predictions)
            calls += int(decided.pools.sum())
        return TuningScore(is_right, calls / len(self.train))


class TuningScore(NamedTuple):
    """The score of settings on held-out train documents."""

    is_right: Bools
    """(T,) whether each held-out answer is right"""
    calls: float
    """The mean number of models asked per document."""


class TunedSettings(NamedTuple):
    """The settings that a search chose."""

    settings: dict[str, Any]
    """The settings of the best trial; empty for the defaults."""
    accuracy: float
    """The accuracy of these settings on held-out train documents."""
    default: float
    """The accuracy of the defaults on held-out train documents."""
    trials: int


def holds_out_tasks(dataset: Dataset) -> bool:
    """Whether most test documents are of tasks that train lacks, so that folds should hold out tasks, too."""
    return bool(np.isin(dataset.test.tasks, dataset.train.tasks).mean() < 0.5)


def inner_folds(train: Dataset, per: Per = "benchmark", *, whole_tasks: bool = False) -> list[Dataset]:
    """`TUNING_FOLDS` datasets of the same train rows, each with another fold of them marked as test.

    Every task is spread evenly over the folds, or lies in one fold with `whole_tasks`. All methods get the
    same folds. Raises InputError if `train` has test rows, or too few documents or tasks.
    """
    if not train.is_train.all():
        raise InputError(
            "settings are searched on train rows only, and these hold test rows; use Dataset.train"
        )
    names, n_of_task = np.unique(train.tasks, return_counts=True)
    if per == "task" and n_of_task.min() < 2:
        raise InputError(
            f"task {str(names[n_of_task.argmin()])!r} of {train.benchmark!r} has one train document, too few "
            "to tune settings on; leave out --tune, or use --per benchmark"
        )
    if len(names if whole_tasks else train) < TUNING_FOLDS:
        what = f"tasks ({len(names)})" if whole_tasks else f"train documents ({len(train)})"
        raise InputError(
            f"benchmark {train.benchmark!r} has too few {what} to tune settings on {TUNING_FOLDS} folds of "
            "them; leave out --tune"
        )
    fold = folds(train, TUNING_FOLDS, "task" if whole_tasks else "document of each task")
    return [replace(train, is_train=fold != number) for number in range(TUNING_FOLDS)]


def tune(
    search: Search,
    trials: int,
    folder: Path,
    *,
    force: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> TunedSettings:
    """Runs the trials that the search's journal in `folder` lacks, and chooses the settings.

    The first trial is of the defaults. The best other trial wins if its accuracy is higher by more than the
    standard error of the paired difference over documents. It must ask at most MAX_CALL_RATIO times as many
    models. `force` starts over. Raises InputError for a damaged journal, and the method's error if the
    defaults fail. Other settings that fail are logged, and rank last.
    """
    journal = search.journal(folder)
    if force:
        journal.unlink(missing_ok=True)
    study = _open(journal)
    distributions = {name: _make_distribution(where) for name, where in search.space.items()}
    while (n := len(done := _list_finished(study))) < trials:
        if on_progress is not None:
            on_progress(n / trials)
        if n == 0:
            study.add_trial(_try_defaults(search, distributions))
        else:
            _run_trial(study, search, distributions, n, MAX_CALL_RATIO * done[0].user_attrs["calls"])
    if on_progress is not None:
        on_progress(1.0)
    return choose(done[:trials])


def choose(trials: Sequence[Any]) -> TunedSettings:
    """The settings of the best trial if it is clearly better than the first, which has the defaults."""
    default, best = trials[0], max(trials, key=lambda trial: (trial.value, -trial.number))
    difference = _hits(best) - _hits(default)
    error = difference.std(ddof=1) / sqrt(len(difference)) if len(difference) > 1 else np.inf
    chosen = best if difference.mean() > error else default
    settings = {} if chosen is default else dict(chosen.user_attrs["settings"])
    return TunedSettings(settings, float(_hits(chosen).mean()), float(_hits(default).mean()), len(trials))


def _try_defaults(search: Search, distributions: Mapping[str, Any]) -> Any:
    """Scores the defaults, and returns them as a finished trial."""
    from optuna import create_trial

    judged = search.judge({})
    own = list_settings(search.make({}))
    params = {name: own[name] for name, where in search.space.items() if own[name] in where}
    return create_trial(
        value=float(judged.is_right.mean()),
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs=_make_attributes({}, judged),
    )


def _run_trial(
    study: Any, search: Search, distributions: Mapping[str, Any], n: int, most_calls: float
) -> None:
    """Draws the n-th trial's settings, and stores their score."""
    from optuna.samplers import TPESampler

    # Seeded by the number of finished trials, so that a killed search ends like an uninterrupted one.
    study.sampler = TPESampler(seed=n)
    trial = study.ask(dict(distributions))
    settings = {name: _round(value) for name, value in trial.params.items()}
    try:
        judged = search.judge(settings)
    except (InputError, RunError) as error:
        _log.warning("%s: trial %d of %s failed: %s", search.train.benchmark, n, search.name, error)
        judged = TuningScore(np.zeros(len(search.train), dtype=np.bool_), float(len(search.train.models) + 1))
    for name, value in _make_attributes(settings, judged).items():
        trial.set_user_attr(name, value)
    # Trials that ask too many models rank below all others, the more they ask the lower.
    study.tell(trial, judged.is_right.mean() if judged.calls <= most_calls else -judged.calls)


def _make_attributes(settings: Settings, score: TuningScore) -> dict[str, Any]:
    """The attributes that are stored with a trial, beside its value."""
    right = "".join(map(str, score.is_right.astype(int).tolist()))
    return {"settings": dict(settings), "right": right, "calls": score.calls}


def _make_distribution(where: Space) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(where, Range):
        return CategoricalDistribution(where)
    if where.is_whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def _round(value: Any) -> Any:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def _open(journal: Path) -> Any:
    """The Optuna study in a journal file, which is created if missing.

    Raises InputError for a damaged journal.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    # Trials that fail are logged here, so Optuna need not report them.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal.parent.mkdir(parents=True, exist_ok=True)
    # A kill or a full disk leaves an incomplete last line, to which Optuna would append.
    content = journal.read_bytes() if journal.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)
    try:
        storage = JournalStorage(JournalFileBackend(str(journal)))
        study = optuna.create_study(
            storage=storage, study_name="settings", direction="maximize", load_if_exists=True
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{journal} is damaged ({error}); delete it, and the search starts again") from error
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished():  # killed; a sampler would take it for one that still runs
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _list_finished(study: Any) -> list[Any]:
    """The trials that have a value, in order; a trial that was killed has none."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]


def _hits(trial: Any) -> Floats:
    """(T,) 1 where a trial's method was right, else 0."""
    return np.array(list(trial.user_attrs["right"]), dtype=np.float64)

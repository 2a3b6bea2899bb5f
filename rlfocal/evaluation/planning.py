"""Plans an evaluation: which documents are train and test, which methods decide, and what identifies each
run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import Per as Per
from rlfocal.base.request import Progress as Progress
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import Budget, RecipeOnline
from rlfocal.evaluation import EvaluationRequest
from rlfocal.methods import CheckpointStore, Method
from rlfocal.methods.registry import Settings
from warehouse import Warehouse, open_warehouse

GIVEN_SPLIT = "given"
TRAIN_SHARE = 0.8
TASK_FOLDS = 5
"""The number of groups of tasks, one of which is held out."""
_TRAIN_PREFIX = "train-"
_NEW_SPLITS = ("last", "random", "tasks")
SPLIT_RULES = (GIVEN_SPLIT, *_NEW_SPLITS, *(f"{_TRAIN_PREFIX}{name}" for name in _NEW_SPLITS))


def split_anew(dataset: Dataset, split: str) -> Dataset:
    """The dataset with another split of its documents.

    `given`: as it is. `last`: of each task in order, the first floor(0.8 n) documents train. `random`: as
    many of each task, drawn with seed 0. `tasks`: whole tasks are held out, a fifth of them; `tasks:2/5`
    holds out the second fifth, so that all five cover every document. `train-last`, `train-random` and
    `train-tasks:1/3` do so among the given train rows alone: for choices, so that no test row is looked at.
    Raises InputError for another name, and for fewer tasks than parts.
    """
    whole, _, part = split.partition(":")
    name = whole.removeprefix(_TRAIN_PREFIX)
    if whole not in SPLIT_RULES or (part and name != "tasks"):
        raise unknown_name("split", split, SPLIT_RULES)
    if name == GIVEN_SPLIT:
        return dataset
    rows = dataset.train if whole != name else dataset
    if name == "tasks":
        return replace(rows, is_train=_hold_out_tasks(rows, part or f"1/{TASK_FOLDS}"))
    order = np.random.default_rng(0).permutation if name == "random" else np.arange
    is_train = np.zeros(len(rows), dtype=np.bool_)
    for task in dict.fromkeys(rows.tasks.tolist()):
        of_task = np.flatnonzero(rows.tasks == task)
        is_train[of_task[order(len(of_task))[: int(TRAIN_SHARE * len(of_task))]]] = True
    return replace(rows, is_train=is_train)


def _hold_out_tasks(dataset: Dataset, part: str) -> Bools:
    number, folds = _read_part(part)
    tasks = sorted(set(dataset.tasks.tolist()))
    if len(tasks) < folds:
        raise InputError(
            f"benchmark {dataset.benchmark!r} has {len(tasks)} tasks, too few to hold out one of {folds} "
            "parts; use "
            + (f"--split tasks:1/{len(tasks)}" if len(tasks) > 1 else "--split random or --split last")
        )
    drawn = np.random.default_rng(0).permutation(tasks)
    return ~np.isin(dataset.tasks, drawn[number - 1 :: folds])


def _read_part(text: str) -> tuple[int, int]:
    number, _, folds = text.partition("/")
    if not (number.isdecimal() and folds.isdecimal() and 1 <= int(number) <= int(folds) and int(folds) > 1):
        raise InputError(f"{text!r} does not name a part of the tasks; give one such as tasks:2/5")
    return int(number), int(folds)


TRIALS_KEY = "tuned"
"""The key in `evaluations.settings` that holds the number of trials by which the settings were chosen."""


@dataclass(frozen=True)
class Setup:
    """What all runs of one evaluation share."""

    warehouse: Warehouse
    dataset: Dataset
    request: EvaluationRequest
    """The request: what is evaluated, under one protocol."""

    @cached_property
    def settings(self) -> Settings:
        """Settings by method; under "", settings for every method that has them."""
        return parse_settings(self.request.settings or ())

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets that methods are held to, where they can be, beside their run without one."""
        return tuple(dict.fromkeys(map(Budget.parse, self.request.budgets or ())))

    @cached_property
    def groups(self) -> list[Bools]:
        """Masks (T,) of the documents that each fit decides, as `group_rows` makes them."""
        return group_rows(self.dataset, self.request.per)

    @property
    def train_sizes(self) -> list[int]:
        """The number of train rows of each group."""
        return [int((mask & self.dataset.is_train).sum()) for mask in self.groups]

    @property
    def store(self) -> CheckpointStore:
        """The folder of trained agents, and whether saved ones are used."""
        return CheckpointStore(self.warehouse.location.checkpoints, reuse=not self.request.force)

    def progress(self, title: str) -> Callable[[float], None] | None:
        """A function that turns the share of each fit, one group after the other, into the share of all."""
        on_progress, finished, parts = self.request.on_progress, 0, len(self.groups)
        if on_progress is None:
            return None

        def on_share(share: float) -> None:
            nonlocal finished
            on_progress(title, (finished + share) / parts)
            finished += share >= 1

        return on_share


@dataclass(frozen=True)
class Candidate:
    """A method to be evaluated, under the name that its rows have."""

    name: str
    method: Method
    study: str | None = None
    """The study that the runs belong to; None: they are on the leaderboard."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that differ from the method's defaults, as JSON can hold them."""
    has_budgets: bool = False
    """Whether the method can be held to a budget."""
    reads_task: bool = False
    """Whether the method sees the tasks' names."""
    tuned: str = ""
    """The search that chooses its settings, as text; empty: they are given."""
    tune: Callable[[], tuple[Method, Mapping[str, Any]]] | None = None
    """Runs that search; returns the method with the chosen settings, and what its rows say of them."""

    def runs(self, setup: Setup) -> list[Run]:
        """One run per seed and budget, those without a budget first. Nothing is fitted."""
        data = setup.dataset
        online = ""
        if setup.request.protocol == "online" and isinstance(self.method, RecipeOnline):
            online = self.method.online_recipe
        shared: dict[str, Any] = {
            "benchmark": data.benchmark,
            "method": _name_as_first_stored(self.name, data),
            "study": self.study,
            "settings": json.dumps(dict(self.settings), sort_keys=True),
            "protocol": setup.request.protocol,
            "per": setup.request.per,
            "recipes": tuple(self.method.recipe(size) + online for size in setup.train_sizes),
            "data": data.fingerprint(),
            "prices": tuple(data.mean_costs.tolist()),
            "name": self.name,
            "split": setup.request.split,
            "tuned": self.tuned,
        }
        seeds = range(setup.request.seeds) if self.method.seeded else [None]
        budgets = [None, *(setup.budgets if self.has_budgets else ())]
        return [Run(seed=seed, budget=budget, **shared) for budget in budgets for seed in seeds]


@dataclass(frozen=True)
class Run:
    """The identity of one run of one method: everything that its rows depend on."""

    benchmark: str
    method: str
    """The method's name; `single:<model>` has the model's first name, so that renaming it does not make a new
    run."""
    study: str | None
    settings: str
    protocol: str
    seed: int | None
    per: Per
    recipes: tuple[str, ...]
    """The method's recipe for each group of train rows."""
    data: str
    """The dataset's fingerprint."""
    prices: tuple[float, ...]
    name: str = field(repr=False)
    """The method's name in `evaluations.method`."""
    split: str = field(default=GIVEN_SPLIT, repr=False)
    """The split; not part of the identity, because the data are."""
    budget: Budget | None = field(default=None, repr=False)
    tuned: str = field(default="", repr=False)
    """The search that chose the run's settings, as text; empty if none did."""
    chosen: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The settings that the search chose, and the number of its trials under TRIALS_KEY; they depend on all
    the other fields."""

    @property
    def every_setting(self) -> dict[str, Any]:
        """The run's settings as `evaluations.settings` holds them."""
        return {**json.loads(self.settings), **self.chosen}

    @property
    def run_id(self) -> str:
        """The id of the run; equal for equal runs."""
        more = "" if self.budget is None else f" within {self.budget}"
        more += f" tuned by {self.tuned}" if self.tuned else ""
        return sha256((repr(self) + more).encode()).hexdigest()[:16]


def parse_settings(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Reads `method.setting=value`, or `setting=value` for every method that has it.

    Raises InputError for other text.
    """
    parsed: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        method, _, setting = name.rpartition(".")
        if not equals or not setting:
            raise InputError(f"{text!r} is not a setting; give METHOD.NAME=VALUE, such as knn.k=20")
        parsed.setdefault(method, {})[setting] = value
    return parsed


def as_of(warehouse: Warehouse, snapshot: int | None) -> AbstractContextManager[Warehouse]:
    """The warehouse, now or as of a snapshot."""
    if snapshot is None:
        return nullcontext(warehouse)
    return open_warehouse(warehouse.location, read_only=True, snapshot=snapshot)


def read_dataset(
    warehouse: Warehouse,
    benchmark: str,
    models: Sequence[str] | None,
    snapshot: int | None = None,
    split: str = GIVEN_SPLIT,
) -> Dataset:
    """The benchmark's rows, now or as of a snapshot. Raises InputError if a split has no rows."""
    with as_of(warehouse, snapshot) as then:
        dataset = load_dataset(then, benchmark, models)
    dataset = split_anew(dataset, split)
    for split, n in (("train", dataset.is_train.sum()), ("test", (~dataset.is_train).sum())):
        if n == 0:
            raise InputError(f"benchmark {benchmark!r} has no {split} rows; import it with more documents")
    return dataset


def group_rows(dataset: Dataset, per: Per) -> list[Bools]:
    """(T,) masks of the documents that share one fitted policy: all of them, or one mask per task."""
    if per == "benchmark":
        return [np.ones(len(dataset), dtype=np.bool_)]
    masks = [dataset.tasks == task for task in dict.fromkeys(dataset.tasks.tolist())]
    for mask in masks:
        if not (mask & dataset.is_train).any():
            raise InputError(
                f"task {str(dataset.tasks[mask][0])!r} of {dataset.benchmark!r} has no train rows; "
                "use --per benchmark"
            )
    return masks


def hide_names(dataset: Dataset, groups: Sequence[Bools], *, tasks: bool = False) -> Dataset:
    """The rows as a method sees them: the tasks' names are hidden, unless it reads `tasks`.

    Where each group is of one task, a policy is fitted to that task anyway, and the names stay.
    """
    if tasks or all(len(set(dataset.tasks[mask].tolist())) == 1 for mask in groups):
        return dataset
    return dataset.hide_tasks()


def _name_as_first_stored(method: str, dataset: Dataset) -> str:
    """The method's name, with the first name of a model in it."""
    kind, colon, model = method.partition(":")
    if kind != "single" or model not in dataset.models or not dataset.first_names:
        return method
    return f"{kind}{colon}{dataset.first_names[dataset.models.index(model)]}"

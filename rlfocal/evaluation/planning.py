"""Plans an evaluation: the split into train and test, the methods, and the identity of each run."""

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
"""The number of parts into which tasks are divided; the split `tasks` holds out one of them."""
_TRAIN_PREFIX = "train-"
_NEW_SPLITS = ("last", "random", "tasks")
SPLIT_RULES = (GIVEN_SPLIT, *_NEW_SPLITS, *(f"{_TRAIN_PREFIX}{name}" for name in _NEW_SPLITS))


def split_anew(dataset: Dataset, split: str) -> Dataset:
    """The dataset with another split of its documents.

    `given`: as it is. `last`: the first floor(0.8 n) documents of each task are train. `random`: as many of
    each task are, drawn with seed 0. `tasks`: a fifth of the tasks are held out; `tasks:2/5` holds out the
    second fifth, so that all five cover every document. `train-last`, `train-random` and `train-tasks:1/3`
    split only the given train rows, so that choices can be made without test rows. Raises InputError for
    another name, and for fewer tasks than parts.
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
    which, _, of = part.partition("/")
    if not (which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of) and int(of) > 1):
        raise InputError(f"{part!r} does not name a part of the tasks; give one such as tasks:2/5")
    number, folds = int(which), int(of)
    tasks = sorted(set(dataset.tasks.tolist()))
    if len(tasks) < folds:
        raise InputError(
            f"benchmark {dataset.benchmark!r} has {len(tasks)} tasks, too few to hold out one of {folds} "
            "parts; use "
            + (f"--split tasks:1/{len(tasks)}" if len(tasks) > 1 else "--split random or --split last")
        )
    drawn = np.random.default_rng(0).permutation(tasks)
    return ~np.isin(dataset.tasks, drawn[number - 1 :: folds])


TRIALS_KEY = "tuned"
"""The key in `evaluations.settings` that holds the number of trials by which the settings were chosen."""


@dataclass(frozen=True)
class Setup:
    """The warehouse, data and request that all runs of one evaluation share."""

    warehouse: Warehouse
    dataset: Dataset
    request: EvaluationRequest
    """The request of the evaluation, with a single protocol."""

    @cached_property
    def settings(self) -> Settings:
        """The requested settings of each method; under "", those for every method that has them."""
        return parse_settings(self.request.settings or ())

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets for which methods that can keep to one are run, besides their run without a budget."""
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
        """A function to call with the finished share of one group after the other; it reports that of all.

        None if the request has no `on_progress`.
        """
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
    """A method to be evaluated, and its name in the tables of results."""

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
    """The search that chooses the method's settings, as text; empty without a search."""
    tune: Callable[[], tuple[Method, Mapping[str, Any]]] | None = None
    """A function that runs that search; returns the method with the chosen settings, and these settings."""

    def runs(self, setup: Setup) -> list[Run]:
        """The identities of the method's runs, one per seed and budget; those without a budget come first."""
        data = setup.dataset
        name, (kind, _, model) = self.name, self.name.partition(":")
        if kind == "single" and model in data.models and data.first_names:
            name = f"{kind}:{data.first_names[data.models.index(model)]}"
        online = ""
        if setup.request.protocol == "online" and isinstance(self.method, RecipeOnline):
            online = self.method.online_recipe
        shared: dict[str, Any] = {
            "benchmark": data.benchmark,
            "method": name,
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
    """The method's name; `single:<model>` has the model's first name, so that a renamed model keeps its runs.
    """
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
    """The search that chose the run's settings, as text; empty without a search."""
    chosen: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The settings that the search chose, and its number of trials under TRIALS_KEY; no part of the identity.
    """

    @property
    def run_id(self) -> str:
        """A digest of the run's identity, the same for equal runs."""
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
    """The warehouse as it is now, or as of a snapshot."""
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
    """The dataset as a method sees it, whose tasks' names are hidden unless `tasks`.

    Names also stay where each group (T,) is of one task, because a policy is then fitted to that task anyway.
    """
    if tasks or all(len(set(dataset.tasks[mask].tolist())) == 1 for mask in groups):
        return dataset
    return dataset.hide_tasks()

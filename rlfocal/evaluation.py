"""Runs methods on one benchmark's test rows and records what they decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlfocal.dataset import Dataset, load_dataset
from rlfocal.errors import InputError, unknown
from rlfocal.methods import (
    CONSTANT_POOLS,
    VARIANTS,
    CheckpointStore,
    Decisions,
    Learned,
    Method,
    OnlineLearner,
    Policy,
    RLFocal,
    check_methods,
    make_method,
    methods_for,
    refuse_answers,
    with_references,
)
from rlfocal.methods.reference import Oracle
from warehouse import Warehouse, open_warehouse

Per = Literal["benchmark", "task"]
PROTOCOLS = ("frozen", "online")
Mask = NDArray[np.bool_]
Progress = Callable[[str, float], None]
"""Called with what is running and the finished share of it, 0 to 1."""


@dataclass(frozen=True)
class Run:
    """What identifies one run of one method: all that its rows depend on."""

    benchmark: str
    method: str
    """`single:<model>` with the model's first name: a new one makes no other run."""
    variant: str | None
    protocol: str
    seed: int | None
    per: Per
    recipes: tuple[str, ...]
    """The method's recipe for each group of train rows."""
    data: str
    """The dataset's fingerprint."""
    prices: tuple[float, ...]
    name: str = field(repr=False)
    """What `evaluations.method` calls the method."""

    @property
    def run_id(self) -> str:
        """Equal for equal runs."""
        return sha256(repr(self).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Evaluation:
    """One row of `evaluations`; task `*` pools all documents of the benchmark."""

    run_id: str
    benchmark: str
    task: str
    method: str
    variant: str | None
    protocol: str
    seed: int | None
    per: str
    split: str
    n: int
    accuracy: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None where a price is unknown."""
    seconds: float
    """This seed's share of fitting (next to none where its agents were trained before), and deciding."""
    snapshot: int
    models: list[str]
    data: str
    """Equal for runs on equal rows."""
    created_at: datetime
    """When the run was last asked for after one on other rows."""


@dataclass(frozen=True)
class EvaluationReport:
    """What `evaluate` found, computed now or already there."""

    rows: tuple[Evaluation, ...]
    ran: tuple[str, ...]
    """Run ids computed now."""
    left_out: tuple[tuple[str, int], ...]
    """(model, documents it answered) of models that missed some."""


@dataclass(frozen=True)
class TrainingReport:
    """What `train` left behind."""

    checkpoints: tuple[Path, ...]
    trained: int
    """How many of them were trained now."""


def evaluate(
    warehouse: Warehouse,
    benchmark: str,
    *,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    variant: str = VARIANTS[0],
    seeds: int = 3,
    per: Per = "benchmark",
    protocol: str = "frozen",
    snapshot: int | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> EvaluationReport:
    """Fit each method on train rows, decide on test rows, and store evaluations and decisions.

    A run that the warehouse has already (same data, method, variant, seed, protocol) is not repeated, and
    agents that are trained already are not trained again, unless `force`. `snapshot` reads the warehouse as
    it was then. `protocol` is frozen (nothing about test labels enters), online (each label is revealed after
    its answer) or both. RL-Focal never comes without the reference policies, nor among all methods without
    the best constant pools of its size. Raises InputError for a wrong name and for data that cannot be split.
    """
    if protocol == "both":
        reports = [
            evaluate(
                warehouse, benchmark, methods=methods, models=models, variant=variant, seeds=seeds, per=per,
                protocol=one, snapshot=snapshot, force=force, on_progress=on_progress,
            )
            for one in PROTOCOLS
        ]  # fmt: skip
        ran = tuple(run_id for report in reports for run_id in report.ran)
        rows = tuple(row for report in reports for row in report.rows)
        return EvaluationReport(rows, ran, reports[0].left_out)
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, [*PROTOCOLS, "both"])
    dataset = read_dataset(warehouse, benchmark, models, snapshot)
    groups = group_rows(dataset, per)
    known = methods_for(len(dataset.models), dataset.kind, protocol)
    names = with_references(known if methods is None else methods, dataset.kind)
    check_methods(names, variant, dataset.models, protocol)
    for name in names:
        refuse_answers(name, dataset)

    held = _held(warehouse, dataset)

    def run(name: str) -> tuple[list[str], list[str]]:
        tell = titled(on_progress, f"{benchmark} {name}", len(groups))
        method = make_method(name, variant, _store(warehouse, force), tell)
        label = variant if name == "rl_focal" else None
        asked = [one.run_id for one in _runs(dataset, method, name, label, seeds, per, protocol)]
        if held.issuperset(asked) and not force:
            return asked, []
        return run_method(warehouse, dataset, method, name, label, seeds, per, protocol, force)

    found = {name: run(name) for name in names}
    if methods is None and "rl_focal" in found:
        found |= {name: run(name) for name in _pools_of_its_size(warehouse, found["rl_focal"][0])}
    run_ids = [run_id for of_method, _ in found.values() for run_id in of_method]
    _renew(warehouse, benchmark, protocol, per, dataset.fingerprint(), run_ids)
    return EvaluationReport(
        stored(warehouse, run_ids), tuple(new for _, ran in found.values() for new in ran), dataset.left_out
    )


def run_method(
    warehouse: Warehouse, dataset: Dataset, method: Method, name: str, variant: str | None,
    seeds: int, per: Per = "benchmark", protocol: str = "frozen", force: bool = False,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Fit one method on train rows, decide on test rows and store what came out, unless it is there already.

    `name` and `variant` are what its rows are called. Returns the run ids, one a seed, and those run now.
    """
    groups = group_rows(dataset, per)
    runs = _runs(dataset, method, name, variant, seeds, per, protocol)
    run_ids = [run.run_id for run in runs]

    def missing() -> list[Run]:
        held = _held(warehouse, dataset)
        return [run for run in runs if force or run.run_id not in held]

    if not missing():
        return run_ids, []
    warehouse.check_writable()  # before hours of fitting, not after
    with fitting_lock(warehouse, dataset, name, variant, per):
        new = missing()  # another process may have stored them meanwhile
        started = time.perf_counter()
        fitted = fit_groups(method, dataset, groups, [run.seed or 0 for run in new])
        fitting = (time.perf_counter() - started) / max(len(new), 1)
        for run, policies in zip(new, fitted, strict=True):
            started = time.perf_counter()
            decisions = decide_groups(dataset, groups, policies, protocol)
            seconds = fitting + time.perf_counter() - started
            _record(warehouse, run, dataset, decisions, _curves(dataset, groups, policies), seconds)
    return run_ids, [run.run_id for run in new]


def train(
    warehouse: Warehouse,
    benchmark: str,
    *,
    models: Sequence[str] | None = None,
    variant: str = VARIANTS[0],
    seeds: int = 3,
    per: Per = "benchmark",
    snapshot: int | None = None,
    force: bool = False,
    tensorboard: bool = False,
    on_progress: Progress | None = None,
) -> TrainingReport:
    """Train RL-Focal's agents on train rows: one checkpoint per group of rows and seed.

    With `tensorboard`, each gets a folder of its name beside it that TensorBoard reads.
    Raises InputError as `evaluate` does.
    """
    dataset = read_dataset(warehouse, benchmark, models, snapshot)
    groups = group_rows(dataset, per)
    check_methods(["rl_focal"], variant, dataset.models)
    tell = titled(on_progress, f"{benchmark} rl_focal", len(groups))
    store = replace(_store(warehouse, force), event_files=tensorboard)
    method = RLFocal(variant, store=store, on_progress=tell)
    train_rows = [dataset.rows(mask & dataset.is_train) for mask in groups]
    asked = [(rows, seed) for rows in train_rows for seed in range(seeds)]

    trained = 0
    # What is trained may have a history to write, or models to rename: `fit` loads it.
    if force or tensorboard or not all(method.is_current(*one) for one in asked):
        with fitting_lock(warehouse, dataset, "rl_focal", variant, per):
            trained = sum(force or not method.is_trained(*one) for one in asked)
            fit_groups(method, dataset, groups, range(seeds))
    return TrainingReport(tuple(method.checkpoint(*one) for one in asked), trained)


def read_dataset(
    warehouse: Warehouse, benchmark: str, models: Sequence[str] | None, snapshot: int | None = None
) -> Dataset:
    """The benchmark's rows, now or as of a snapshot. Raises InputError where a split has no rows."""
    if snapshot is None:
        dataset = load_dataset(warehouse, benchmark, models)
    else:
        with open_warehouse(warehouse.location, read_only=True, snapshot=snapshot) as then:
            dataset = load_dataset(then, benchmark, models)
    for split, n in (("train", dataset.is_train.sum()), ("test", (~dataset.is_train).sum())):
        if n == 0:
            raise InputError(f"benchmark {benchmark!r} has no {split} rows; import it with more documents")
    return dataset


def group_rows(dataset: Dataset, per: Per) -> list[Mask]:
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


def fitting_lock(
    warehouse: Warehouse, dataset: Dataset, method: str, variant: str | None, per: Per
) -> AbstractContextManager[bool]:
    """Of all that fit one method on the same rows, whatever for, one does and the others wait for it."""
    about = [dataset.benchmark, method, variant or "", per, dataset.fingerprint()]
    return warehouse.lock("\0".join(["fit", *about]), wait=True)


def fit_groups(
    method: Method, dataset: Dataset, groups: Sequence[Mask], seeds: Sequence[int]
) -> list[list[Policy]]:
    """Fit one policy per seed and group on the group's train rows: policies[seed][group]."""
    if not seeds:
        return []
    per_group = [method.fit(dataset.rows(mask & dataset.is_train), seeds) for mask in groups]
    return [list(policies) for policies in zip(*per_group, strict=True)]


def decide_groups(
    dataset: Dataset, groups: Sequence[Mask], policies: Sequence[Policy], protocol: str = "frozen"
) -> Decisions:
    """Each group's policy decides on the group's test rows; returned in the order of the test rows.

    Online, a policy that can learns from every label after its answer; the others stay as they are, and are
    given documents without labels. The oracle alone reads them.
    """
    test = dataset.test
    pools = np.zeros((len(test), len(test.models)), dtype=np.bool_)
    predictions = np.full(len(test), -1, dtype=np.int64)
    for mask, policy in zip(groups, policies, strict=True):
        rows = mask[~dataset.is_train]
        documents = test.rows(rows)
        if protocol == "online" and isinstance(policy, OnlineLearner):
            decided = policy.decide_online(documents)
        else:
            decided = policy.decide(documents if isinstance(policy, Oracle) else documents.unlabelled())
        pools[rows], predictions[rows] = decided.pools, decided.predictions
    return Decisions(pools, predictions)


def stored(warehouse: Warehouse, run_ids: Sequence[str]) -> tuple[Evaluation, ...]:
    """The rows of runs, one run after the other, each with its pooled row first."""
    names = [field.name for field in fields(Evaluation)]
    table = warehouse.query(
        f"SELECT {', '.join(names)} FROM evaluations WHERE list_contains($1, run_id) "
        "ORDER BY list_position($1, run_id), task <> '*', task",
        [list(run_ids)],
    )
    return tuple(Evaluation(**row) for row in table.to_pylist())


def _runs(
    dataset: Dataset, method: Method, name: str, variant: str | None, seeds: int, per: Per, protocol: str
) -> list[Run]:
    """What one method's runs would be called, one a seed. Nothing is fitted."""
    recipes = tuple(method.recipe(int((mask & dataset.is_train).sum())) for mask in group_rows(dataset, per))
    data, prices = dataset.fingerprint(), tuple(dataset.prices.tolist())
    identity = _first_called(name, dataset)
    return [
        Run(dataset.benchmark, identity, variant, protocol, seed, per, recipes, data, prices, name)
        for seed in (range(seeds) if method.seeded else [None])
    ]


def _held(warehouse: Warehouse, dataset: Dataset) -> set[str]:
    """The run ids that are stored for these rows."""
    asked = "SELECT DISTINCT run_id FROM evaluations WHERE (benchmark, data) = (?, ?)"
    return {run_id for (run_id,) in warehouse.rows(asked, [dataset.benchmark, dataset.fingerprint()])}


def _record(
    warehouse: Warehouse,
    run: Run,
    dataset: Dataset,
    decisions: Decisions,
    curves: list[dict[str, object]],
    seconds: float,
) -> None:
    """Replace the run's rows in `evaluations`, `decisions` and `training_history`, in one transaction."""
    test = dataset.test
    correct = (decisions.predictions == test.labels) & (test.labels >= 0)
    # A price that is unknown makes the cost unknown only where that model is asked.
    cost = np.where(decisions.pools, dataset.prices, 0.0).sum(axis=1)
    sizes = decisions.pools.sum(axis=1)
    groups = [("*", np.ones(len(test), dtype=np.bool_))]
    groups += [(task, test.tasks == task) for task in dict.fromkeys(test.tasks.tolist())]
    rows = [
        Evaluation(
            run_id=run.run_id,
            benchmark=run.benchmark,
            task=task,
            method=run.name,
            variant=run.variant,
            protocol=run.protocol,
            seed=run.seed,
            per=run.per,
            split="test",
            n=int(mask.sum()),
            accuracy=float(correct[mask].mean()),
            mean_pool_size=float(sizes[mask].mean()),
            cost=None if np.isnan(cost[mask]).any() else float(cost[mask].mean()),
            seconds=seconds,
            snapshot=dataset.snapshot,
            models=list(dataset.models),
            data=run.data,
            created_at=datetime.now(UTC),
        )
        for task, mask in groups
    ]
    asked, models = np.nonzero(decisions.pools)
    offsets = np.searchsorted(asked, np.arange(len(test) + 1))
    names = pa.array(dataset.models)
    answers = [
        (test.slots[row][slot] if test.slots else str(slot)) if slot >= 0 else None
        for row, slot in enumerate(decisions.predictions.tolist())
    ]
    decided = pa.table(
        {
            "run_id": [run.run_id] * len(test),
            "benchmark": [run.benchmark] * len(test),
            "task": test.tasks.tolist(),
            "doc_id": test.doc_ids,
            "pool": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names.take(pa.array(models))),
            "prediction": pa.array(answers, pa.string()),
            "correct": correct,
            "reward": np.where(correct, 1.0, -1.0),
        }
    )
    history = [
        {
            "run_id": run.run_id,
            "benchmark": run.benchmark,
            "method": run.name,
            "variant": run.variant,
            "seed": run.seed,
        }
        | curve
        for curve in curves
    ]
    with warehouse.transaction(f"evaluate {run.benchmark} {run.name}"):
        for table in ("evaluations", "decisions", "training_history"):
            warehouse.connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run.run_id])
        warehouse.append("evaluations", pa.Table.from_pylist([asdict(row) for row in rows]))
        warehouse.append("decisions", decided)
        if history:
            warehouse.append("training_history", pa.Table.from_pylist(history))


def _pools_of_its_size(warehouse: Warehouse, runs: Sequence[str]) -> list[str]:
    """The constant pools of as many models as these runs ask on average."""
    size = round(fmean(row.mean_pool_size for row in stored(warehouse, runs) if row.task == "*"))
    return [f"{name}:{max(size, 1)}" for name in CONSTANT_POOLS]


def _renew(
    warehouse: Warehouse, benchmark: str, protocol: str, per: str, data: str, run_ids: Sequence[str]
) -> None:
    """Runs that were asked for again, after runs on other rows, become the newest again."""
    newest = warehouse.rows(
        "SELECT arg_max(data, created_at) FROM evaluations WHERE (benchmark, protocol, per) = (?, ?, ?)",
        [benchmark, protocol, per],
    )
    if newest != [(data,)]:
        with warehouse.transaction(f"evaluate {benchmark} again"):
            warehouse.connection.execute(
                "UPDATE evaluations SET created_at = now() WHERE list_contains(?, run_id)", [list(run_ids)]
            )


def _curves(dataset: Dataset, groups: Sequence[Mask], policies: Sequence[Policy]) -> list[dict[str, object]]:
    """The training episodes of learned policies, with the task each was trained on."""
    return [
        {**episode._asdict(), "task": "*" if mask.all() else str(dataset.tasks[mask][0])}
        for mask, policy in zip(groups, policies, strict=True)
        if isinstance(policy, Learned)
        for episode in policy.history
    ]


def _first_called(method: str, dataset: Dataset) -> str:
    """The method's name, with the first name of a model in it."""
    kind, colon, model = method.partition(":")
    if kind != "single" or model not in dataset.models or not dataset.first_names:
        return method
    return f"{kind}{colon}{dataset.first_names[dataset.models.index(model)]}"


def _store(warehouse: Warehouse, force: bool) -> CheckpointStore:
    return CheckpointStore(warehouse.location.checkpoints, reuse=not force)


def titled(progress: Progress | None, title: str, parts: int) -> Callable[[float], None] | None:
    """Turns the share of each of `parts` fits, one after the other, into the share of all."""
    if progress is None:
        return None
    finished = 0

    def tell(share: float) -> None:
        nonlocal finished
        progress(title, (finished + share) / parts)
        finished += share >= 1

    return tell

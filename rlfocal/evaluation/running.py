"""Runs methods on one benchmark's test rows, unless the warehouse has what they decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rlfocal.base.errors import InputError, unknown
from rlfocal.data.policy import Budget
from rlfocal.evaluation.candidates import run_ids_of, run_named
from rlfocal.evaluation.parallel import Shared, run_side_by_side
from rlfocal.evaluation.planning import (
    Per,
    Progress,
    Setup,
    parse_settings,
    read_dataset,
)
from rlfocal.evaluation.splits import GIVEN
from rlfocal.evaluation.storing import (
    Evaluation,
    renew,
    stored,
    stored_runs,
)
from rlfocal.evaluation.tuning import holds_out_tasks, inner_folds
from rlfocal.methods import (
    PROTOCOLS,
    check_methods,
    every_method,
    methods_for,
    named,
    with_references,
)
from warehouse import Warehouse


@dataclass(frozen=True)
class EvaluationReport:
    """What `evaluate` found, computed now or already there."""

    rows: tuple[Evaluation, ...]
    ran: tuple[str, ...]
    """Run ids computed now."""
    left_out: tuple[tuple[str, str], ...]
    """(model, why) of those that did not answer every document."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(method, why) of those that the data do not allow, if all were asked for."""


def evaluate(
    warehouse: Warehouse,
    benchmark: str,
    *,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seeds: int = 3,
    per: Per = "benchmark",
    protocol: str = "frozen",
    split: str = GIVEN,
    budgets: Sequence[str] = (),
    settings: Sequence[str] = (),
    snapshot: int | None = None,
    force: bool = False,
    tune: int = 0,
    at_once: int = 1,
    on_progress: Progress | None = None,
) -> EvaluationReport:
    """Fit each method on train rows, decide on test rows, and store evaluations and decisions.

    Unless `force`, a run that the warehouse already has (same data, method, seed, protocol) is not repeated,
    and trained agents are not trained again. `snapshot` reads the warehouse as it was then. `split` takes
    what `split_anew` does. At each of the `budgets` (as `Budget.of` reads them) the methods that trade cost
    for accuracy decide again, without another fit. `methods`: None for the usual ones, ["all"] for every
    method that the data allow. `settings`: as `parse_settings` reads them. `at_once`: how many methods run
    at a time, each in a process of its own.
    `tune`: trials in which the settings of every method that declares a space are first searched, on train
    rows (`rlfocal.evaluation.tuning`); what it finds holds for all seeds and budgets.
    `protocol` is frozen (methods see no test label), online (each label is revealed after its answer) or
    both. RL-Focal always runs with the reference policies and, if all methods run, with the best constant
    pools of its size. Raises InputError for a wrong name and for data that cannot be split.
    """
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown("protocol", protocol, [*PROTOCOLS, "both"])
    if tune < 0:
        raise InputError(f"--tune must be at least 1 trial, got {tune}")
    given = parse_settings(settings)
    held_to = tuple(dict.fromkeys(map(Budget.of, budgets)))
    dataset = read_dataset(warehouse, benchmark, models, snapshot, split)
    reports = [
        _evaluate(
            Setup(warehouse, dataset, seeds, per, one, split, given, held_to, force, on_progress, tune),
            methods,
            at_once,
            snapshot,
        )
        for one in (PROTOCOLS if protocol == "both" else [protocol])
    ]
    ran = tuple(run_id for report in reports for run_id in report.ran)
    rows = tuple(row for report in reports for row in report.rows)
    return EvaluationReport(rows, ran, dataset.left_out, reports[-1].skipped)


def _evaluate(
    setup: Setup, methods: Sequence[str] | None, at_once: int, snapshot: int | None
) -> EvaluationReport:
    """As `evaluate` does, under one protocol."""
    warehouse, dataset = setup.warehouse, setup.dataset
    known = methods_for(len(dataset.models), dataset.kind, setup.protocol)
    skipped: dict[str, str] = {}
    if methods is not None and list(methods) == ["all"]:
        methods, skipped = every_method(dataset, setup.protocol, setup.settings, setup.per)
    names = with_references(known if methods is None else methods, dataset, setup.protocol)
    check_methods(names, dataset, setup.protocol, setup.settings, setup.per)
    if setup.tune:  # before hours of fitting
        inner_folds(dataset.train, setup.per, whole_tasks=holds_out_tasks(dataset))
    held = stored_runs(setup)
    usual = methods is None
    to_run = [name for name in names if setup.force or not held.issuperset(run_ids_of(setup, name))]
    ran: list[str] = []
    if at_once > 1 and len(to_run) > 1:
        warehouse.check_writable()
        run_side_by_side(Shared.of(setup, snapshot), to_run, at_once, setup.on_progress)
        ran = [run_id for name in to_run for run_id in run_ids_of(setup, name)]
        setup, to_run = replace(setup, force=False), []

    def run(name: str) -> tuple[list[str], list[str]]:
        asked = run_ids_of(setup, name)
        return (asked, []) if held.issuperset(asked) and not setup.force else run_named(setup, name)

    held = stored_runs(setup)
    found = {name: run(name) for name in names}
    if usual:
        ours = [found[name][0] for name in named("rl_focal") if name in found]
        pools = dict.fromkeys(pool for runs in ours for pool in _pools_of_its_size(warehouse, runs))
        found |= {name: run(name) for name in pools}
    run_ids = [run_id for of_method, _ in found.values() for run_id in of_method]
    renew(setup, run_ids)
    ran += [run_id for _, new in found.values() for run_id in new]
    return EvaluationReport(stored(warehouse, run_ids), tuple(ran), dataset.left_out, tuple(skipped.items()))


def _pools_of_its_size(warehouse: Warehouse, runs: Sequence[str]) -> list[str]:
    """The constant pools of as many models as these runs ask on average."""
    size = round(fmean(row.mean_pool_size for row in stored(warehouse, runs) if row.task == "*"))
    return [f"{name}:{max(size, 1)}" for name in named("constant_pool")]

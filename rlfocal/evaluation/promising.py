"""Promises about a run's errors: made on held-out train rows, tested on test rows, then on new answers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
import pyarrow as pa

from rlfocal.base.arrays import Bools
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.request import Progress
from rlfocal.base.tables import Table
from rlfocal.base.wording import count_noun, decimal, percent
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Decisions
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.confidence import Probabilities, estimate_confidence, hold_out
from rlfocal.evaluation.fitting import decide_groups, fit_groups, hold_to_budget
from rlfocal.evaluation.notes import note_split
from rlfocal.evaluation.planning import GIVEN_SPLIT, Candidate, Setup, hide_names, read_dataset
from rlfocal.evaluation.storing import stored_split
from rlfocal.methods import Method, MethodArguments, RLFocal, entry_of, make_method, reads_task
from rlfocal.statistics.selective import WITHDRAWN_LABEL, Promise, promises_file, read_promises
from warehouse import Warehouse

PROMISE_LEGEND = (
    "promised: of the answers from this probability on, at most so many % are wrong, on questions and models "
    "like these; answers below it are abstentions. At most one draw of train in ten leads to a promise that "
    "does not hold. not made: train's held-out documents show too little. in doubt: the latest test alone is "
    "significant at 5 %. withdrawn: all together are."
)


MAX_TASKS_NAMED = 5
"""The most tasks that a warning names."""


@dataclass(frozen=True)
class PromiseRecord:
    """One row of the view `promises`."""

    run_id: str
    benchmark: str
    method: str
    seed: int | None
    budget: str | None
    target: float
    threshold: float | None
    n_train: int
    coverage_train: float | None
    looks: int
    n: int | None
    coverage: float | None
    error: float | None
    p_value: float | None
    state: str
    warning: str | None = None
    """Why the promise may not hold on the test documents; None if no reason is known."""


def table_of(promises: Sequence[PromiseRecord]) -> Table:
    """A printable table of promises."""
    numbers = "promised %", "from", "answered %", "wrong %", "looks"
    table = Table("method", *numbers, title="Promises", texts=("benchmark", "state"), kept=("state",))
    for promise in promises:
        shares = percent(promise.coverage, 1), percent(promise.error, 1)
        told = f"{100 * promise.target:g}", decimal(promise.threshold), *shares, str(promise.looks)
        seed = "" if promise.seed is None else f" seed {promise.seed}"
        held = "" if promise.budget is None else f" within {Budget.parse(promise.budget)}"
        table.add(promise.method + seed + held, *told, promise.benchmark, promise.state)
    return table


def _find_warning(setup: Setup, run_id: str) -> str | None:
    """A sentence on why a run's promises may not hold on its test documents; None if no reason is known."""
    data = setup.dataset
    unseen = sorted(set(data.test.tasks.tolist()) - set(data.train.tasks.tolist()))
    if not unseen:
        split = stored_split(setup.request.split)
        return note_split(setup.warehouse, data.benchmark, data.models, split, run_id)
    shown = ", ".join(unseen[:MAX_TASKS_NAMED]) + (", ..." if unseen[MAX_TASKS_NAMED:] else "")
    return (
        f"{data.benchmark}: train holds no document of {count_noun(len(unseen), 'task')} in test ({shown}), "
        "so its promises may not hold there."
    )


def warnings_of(promises: Sequence[PromiseRecord]) -> list[str]:
    """The distinct warnings of promises that were made despite them."""
    made = (p.warning for p in promises if p.threshold is not None)
    return list(dict.fromkeys(warning for warning in made if warning))


def stored_promises(warehouse: Warehouse, run_ids: Sequence[str] | None = None) -> list[PromiseRecord]:
    """The rows of the view `promises`, of these runs or of all."""
    names = list(PromiseRecord.__annotations__)
    asked = (
        f"SELECT {', '.join(names)} FROM promises LEFT JOIN (SELECT run_id, budget FROM runs) USING (run_id) "
        "WHERE $1 IS NULL OR list_contains($1, run_id)"
    )
    rows = warehouse.rows(f"{asked} ORDER BY benchmark, method, seed, budget, run_id, target", [run_ids])
    return [PromiseRecord(**dict(zip(names, row, strict=True))) for row in rows]


def promise(setup: Setup, candidate: Candidate, targets: Sequence[float]) -> None:
    """Makes the missing promises of a method's stored runs, and tests them on the test rows.

    Each seed is fitted three times more, on two thirds of train. The oracle gets no promises.
    """
    if entry_of(candidate.name).role == "ceiling":
        return
    runs = {run.run_id: run for run in candidate.runs(setup)}
    made = {(kept.run_id, kept.target) for kept in stored_promises(setup.warehouse, list(runs))}
    held = "SELECT DISTINCT run_id FROM evaluations WHERE list_contains($1, run_id)"
    missing = [
        runs[run_id]
        for (run_id,) in setup.warehouse.rows(held, [list(runs)])
        if any((run_id, target) not in made for target in targets)
    ]
    looks = []
    warning = _find_warning(setup, missing[0].run_id) if missing else None
    for seed in dict.fromkeys(run.seed for run in missing):
        of_seed = [run for run in missing if run.seed == seed]
        budgets: list[Budget | None] = [run.budget for run in of_seed]
        method, title = candidate.method, f"{setup.dataset.benchmark} {candidate.name} promises"
        if isinstance(method, RLFocal):  # its trainings would each report a share of their own
            method = replace(method, on_progress=None)
        out = hold_out(
            method, setup.dataset, setup.groups, seed or 0, budgets, tasks=candidate.reads_task,
            on_progress=None if (tell := setup.request.on_progress) is None else partial(tell, title),
        )  # fmt: skip
        for run in of_seed:
            for target in (kept for kept in targets if (run.run_id, kept) not in made):
                kept = out[run.budget].choose_threshold(target)
                about = {"run_id": run.run_id, "benchmark": run.benchmark, "method": run.name, "seed": seed}
                train = _make_look(about, kept, 0, run.data, setup.dataset.snapshot) | {"warning": warning}
                test = []
                if kept.threshold is not None:
                    counted = count_stored_above(setup.warehouse, run.benchmark, run.run_id, kept.threshold)
                    tested = Promise(target, kept.threshold, *counted)
                    test = [_make_look(about, tested, 1, run.data, setup.dataset.snapshot)]
                looks += [train, *test]
    _write(setup.warehouse, setup.dataset.benchmark, looks)
    for run in runs.values():
        if run.budget is None:
            _write_thresholds(setup, candidate.method, run.run_id, run.seed, tasks=candidate.reads_task)


@dataclass(frozen=True)
class PromiseChecks:
    """The outcome of testing all promises again."""

    promises: tuple[PromiseRecord, ...]
    withdrawn: tuple[PromiseRecord, ...]
    """Promises that were in force before, and that these tests withdrew."""
    untested: tuple[str, ...]
    """Sentences on promises that cannot be tested, each with the reason."""


def look_again(warehouse: Warehouse, on_progress: Progress | None = None) -> PromiseChecks:
    """Tests every promise in force again, if answers or labels have changed since its last test.

    The policy is fitted on the rows of the snapshot on which the promise was made.
    """
    standing = [
        promise
        for promise in stored_promises(warehouse)
        if promise.state in ("kept", "in doubt", "not tested")
    ]
    of_runs = defaultdict(list)
    for promise in standing:
        of_runs[promise.run_id].append(promise)
    read = cache(partial(read_dataset, warehouse))  # the runs of a benchmark share it
    untested = []
    for number, of_run in enumerate(of_runs.values(), 1):
        try:
            _look_at_run(warehouse, of_run, read)
        except InputError as error:
            untested.append(f"{of_run[0].method} on {of_run[0].benchmark}: {error}")
        if on_progress is not None:
            on_progress("promises", number / len(of_runs))
    promises = stored_promises(warehouse)
    stood = {(promise.run_id, promise.target) for promise in standing}
    withdrawn = [p for p in promises if p.state == WITHDRAWN_LABEL and (p.run_id, p.target) in stood]
    return PromiseChecks(tuple(promises), tuple(withdrawn), tuple(untested))


def withdrawn_since(warehouse: Warehouse, snapshot: int) -> tuple[PromiseRecord, ...]:
    """The promises that any command has withdrawn since this snapshot was made."""
    asked = (
        "SELECT p.run_id, p.target FROM promises AS p, warehouse.snapshots() AS s "
        "WHERE s.snapshot_id = $1 AND p.state = $2 AND p.looked_at > s.snapshot_time"
    )
    broken = set(warehouse.rows(asked, [snapshot, WITHDRAWN_LABEL]))
    return tuple(p for p in stored_promises(warehouse) if (p.run_id, p.target) in broken)


def _write_thresholds(setup: Setup, method: Method, run_id: str, seed: int | None, *, tasks: bool) -> None:
    """Writes the promised thresholds of a run beside its checkpoint, where a Router finds them."""
    if not (isinstance(method, RLFocal) and method.store and len(setup.groups) == 1):
        return
    stored = stored_promises(setup.warehouse, [run_id])
    if not stored:
        return
    train = hide_names(setup.dataset, setup.groups, tasks=tasks).train
    checkpoint = method.checkpoint(train, seed or 0)
    made = read_promises(checkpoint)
    states = {
        promise.target: WITHDRAWN_LABEL if promise.state == WITHDRAWN_LABEL else promise.threshold
        for promise in stored
    }
    kept = made | {f"{target:g}": state for target, state in states.items()}
    if kept != made:
        write_file(promises_file(checkpoint), json.dumps(kept, indent=1))


def _look_at_run(
    warehouse: Warehouse, promises: Sequence[PromiseRecord], read: Callable[..., Dataset]
) -> None:
    """Tests the promises of one run again, unless nothing has changed since their last test."""
    first = promises[0]
    asked = "SELECT models, per, split, settings, budget, snapshot FROM runs WHERE run_id = ?"
    [(models, per, split, settings, budget, snapshot)] = warehouse.rows(asked, [first.run_id])
    split = GIVEN_SPLIT if split == "test" else split
    now = read(first.benchmark, tuple(models), split=split)
    last = "SELECT target, arg_max(data, look) FROM promise_looks WHERE run_id = ? GROUP BY target"
    seen = dict(warehouse.rows(last, [first.run_id]))
    promises = [promise for promise in promises if seen[promise.target] != now.fingerprint()]
    if not promises:
        return
    then = read(first.benchmark, tuple(models), snapshot, split)
    setup = Setup(warehouse, then, EvaluationRequest(first.benchmark, per=per, split=split))
    method = make_method(first.method, MethodArguments(store=setup.store, settings=json.loads(settings)))
    seed, tasks = first.seed or 0, reads_task(first.method)
    held = None if budget is None else Budget.parse(budget)
    [fitted] = fit_groups(method, then, setup.groups, [seed], tasks=tasks)
    policies = hold_to_budget(held, fitted)
    assert policies is not None
    groups = [np.isin(now.tasks, np.unique(then.tasks[mask])) for mask in setup.groups]
    decisions = decide_groups(now, groups, policies, tasks=tasks)
    probabilities = Probabilities(method, then, setup.groups, (held,), tasks=tasks)
    decisions = probabilities.add_probabilities(decisions, policies, seed, held, now)
    looks = []
    for promise in promises:
        assert promise.threshold is not None
        tested = Promise(
            promise.target, promise.threshold, *_count_decisions_above(decisions, now.test, promise.threshold)
        )
        about = {
            "run_id": promise.run_id,
            "benchmark": promise.benchmark,
            "method": promise.method,
            "seed": promise.seed,
        }
        looks.append(_make_look(about, tested, promise.looks + 1, now.fingerprint(), now.snapshot))
    _write(warehouse, first.benchmark, looks)
    _write_thresholds(setup, method, first.run_id, first.seed, tasks=tasks)


def _count_decisions_above(decisions: Decisions, test: Dataset, threshold: float) -> tuple[int, int, int]:
    """The numbers of test documents, of answers at or above the threshold, and of wrong ones among these."""
    answered: Bools = estimate_confidence(decisions, test) >= threshold
    return len(test), int(answered.sum()), int((answered & ~test.is_right(decisions.predictions)).sum())


def count_stored_above(
    warehouse: Warehouse, benchmark: str, run_id: str, threshold: float
) -> tuple[int, int, int]:
    """For a stored run, the numbers of documents, of answers from the threshold on, and of wrong ones of
    these."""
    asked = (
        "SELECT count(*), count_if(probability >= $3), count_if(probability >= $3 AND NOT correct) "
        "FROM decisions WHERE benchmark = $1 AND run_id = $2"
    )
    [(n, answered, wrong)] = warehouse.rows(asked, [benchmark, run_id, threshold])
    return n, answered, wrong


def _make_look(
    run_facts: Mapping[str, object], promise: Promise, look: int, data: str, snapshot: int
) -> dict[str, object]:
    """A row of the table `promise_looks`, for one test of a promise."""
    return {
        **run_facts, "target": promise.target, "look": look, "threshold": promise.threshold, "n": promise.n,
        "answered": promise.answered, "wrong": promise.wrong, "data": data, "snapshot": snapshot,
        "looked_at": datetime.now(UTC), "warning": None,
    }  # fmt: skip


def _write(warehouse: Warehouse, benchmark: str, looks: Sequence[dict[str, object]]) -> None:
    """Writes rows of `promise_looks` in one transaction. A new promise replaces an earlier one."""
    if not looks:
        return
    anew = [[look["run_id"], look["target"]] for look in looks if look["look"] == 0]
    with warehouse.transaction(f"promises of {benchmark}"):
        for run_id, target in anew:
            warehouse.connection.execute(
                "DELETE FROM promise_looks WHERE run_id = ? AND target = ?", [run_id, target]
            )
        warehouse.append("promise_looks", pa.Table.from_pylist(list(looks)))

"""Explains one seed's agents on a benchmark, and keeps what it found for the report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from rlfocal.base.errors import InputError, unknown
from rlfocal.base.gone import refuse_gone
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate
from rlfocal.evaluation.explain import EXPLAINED, Explanation, explanation_file, save
from rlfocal.evaluation.explain.observing import observe
from rlfocal.evaluation.explain.summarising import summarise
from rlfocal.evaluation.fitting import fit_groups, fitting_lock
from rlfocal.evaluation.planning import Per, Progress, Setup, read_dataset, visible
from rlfocal.evaluation.splits import GIVEN
from rlfocal.methods import RLFocal
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.pool import load_benchmarks
from warehouse import Warehouse


def explain(
    warehouse: Warehouse,
    benchmark: str,
    *,
    method: str = EXPLAINED[0],
    models: Sequence[str] | None = None,
    seed: int = 0,
    per: Per = "benchmark",
    split: str = GIVEN,
    on_progress: Progress | None = None,
) -> Explanation:
    """What one seed's agents learned: which models they ask, believe and could drop, and where they stop.

    Uses stored outputs on the split's test rows, frozen. The agents are those of `rlfocal train` and
    `rlfocal evaluate`; without a checkpoint for these rows they are trained now. The explanation is kept
    beside the warehouse, and the report shows it.
    Raises InputError for another method, an unknown benchmark or model, and for data without test rows.
    """
    refuse_gone(f"method {method}")
    if method not in EXPLAINED:
        raise unknown("method", method, EXPLAINED, "the methods with agents to explain")
    if seed < 0:
        raise InputError(f"seed {seed} does not exist; seeds count from 0")
    dataset = read_dataset(warehouse, benchmark, models, split=split)
    setup = Setup(
        warehouse,
        dataset,
        EvaluationRequest(benchmark, seeds=1, per=per, split=split, on_progress=on_progress),
    )
    agents = _agents(setup, method, seed)
    progress = setup.progress(f"{benchmark} explain") if per == "benchmark" else None
    seen = observe(visible(dataset, setup.groups), setup.groups, agents, progress)
    seen = replace(seen, test=dataset.test)  # to tell how well they do on each task
    found = summarise(
        seen,
        _confidential(warehouse, benchmark),
        method=method,
        per=per,
        split=split,
        seed=seed,
        data=dataset.fingerprint(),
        n_train=int(dataset.is_train.sum()),
    )
    first, *_ = make_candidate(setup, method).runs(setup)
    save(found, explanation_file(warehouse, replace(first, seed=seed).run_id))
    return found


def _agents(setup: Setup, method: str, seed: int) -> list[TrainedAgents]:
    """One seed's agents for each group of rows: loaded, or trained now."""
    dataset = visible(setup.dataset, setup.groups)
    own = RLFocal(method, store=setup.store, on_progress=setup.progress(f"{dataset.benchmark} {method}"))
    rows = [dataset.rows(mask & dataset.is_train) for mask in setup.groups]
    is_trained = all(own.is_current(of, seed) for of in rows)
    with nullcontext() if is_trained else fitting_lock(setup, method):
        [found] = fit_groups(own, dataset, setup.groups, [seed])
    agents = [one for one in found if isinstance(one, TrainedAgents)]
    assert len(agents) == len(setup.groups)
    return agents


def _confidential(warehouse: Warehouse, benchmark: str) -> set[tuple[str, int]]:
    """(task, doc_id) of documents whose texts may not be shown: confidential, or in such a benchmark."""
    named = [one.name for one in load_benchmarks().values() if one.confidential]
    marked = "SELECT task, doc_id FROM docs WHERE benchmark = ? AND (confidential OR list_contains(?, ?))"
    return set(warehouse.rows(marked, [benchmark, named, benchmark.partition("@")[0]]))

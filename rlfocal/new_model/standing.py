"""Reads from the warehouse how a model stands, and trains RL-Focal's methods with and without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.wording import known
from rlfocal.evaluation import evaluate
from rlfocal.new_model.figures import Agents, Pair, Price, Score, Standing
from rlfocal.new_model.paired_answers import PairedAnswers, read_paired_answers
from rlfocal.new_model.pools import best_for_money, best_pools, every_pool_of, losses
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse
from warehouse.scripts import script

METHODS = RL_FOCAL[:2]
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True)
class Comparison:
    """A standing, and what it was read from."""

    standing: Standing
    said: PairedAnswers
    losses: dict[str, float] | None
    """As `rlfocal.new_model.pools.losses`; None without train documents."""


def compare_with_pool(
    warehouse: Warehouse, benchmark: str, model: str, others: Sequence[str]
) -> Comparison | None:
    """How `model` compares with the others of its pool on a benchmark; None if it answered nothing."""
    said = read_paired_answers(warehouse, benchmark, model, others)
    if said is None:
        return None
    of_tasks = (
        "SELECT task, n, accuracy, stderr FROM accuracy WHERE (benchmark, model) = (?, ?) ORDER BY task"
    )
    scores = tuple(Score(*row) for row in warehouse.rows(of_tasks, [benchmark, model]))
    named = {"benchmark": benchmark, "model": model, "models": [model, *others]}
    [row] = warehouse.connection.execute(script("queries/ranks"), named).fetchall()
    n, accuracy, stderr, rank, n_models = row
    [(n_whole,)] = warehouse.rows("SELECT count(*) FROM docs WHERE benchmark = ?", [benchmark])
    tried = every_pool_of(said)
    prices = dict(warehouse.rows("SELECT model, price FROM models"))
    pools = () if tried is None else best_pools(tried)
    standing = Standing(
        benchmark,
        Score("*", n, accuracy, stderr),
        n_whole,
        rank,
        n_models,
        scores,
        _pairs(warehouse, benchmark, model, others),
        pools,
        () if tried is None else best_for_money(tried, pools, prices),
        (),
        tuple(sorted(set(_answering(warehouse, benchmark, others)) - set(said.models))),
    )
    return Comparison(standing, said, None if tried is None else losses(tried))


def train_both(
    warehouse: Warehouse,
    benchmark: str,
    model: str,
    others: Sequence[str],
    seeds: int,
    on_progress: OnProgress | None,
) -> tuple[tuple[Agents, ...], str | None]:
    """RL-Focal's methods without and with the model, and why some are missing.

    Trained now if the warehouse has no such run. Those with it are on the leaderboard from now on.
    """
    found: list[Agents] = []
    complete = {name for (name,) in warehouse.rows(script("queries/complete_models"), [benchmark] * 2)}
    before = sorted(complete.intersection(others))
    if model not in complete:
        return (), f"{benchmark}: RL-Focal was not trained, because {model} answered only part of it"
    for names in (before, sorted({*before, model})):
        if not names:
            continue
        try:
            report = evaluate(
                warehouse, benchmark, methods=METHODS, models=names, seeds=seeds, on_progress=on_progress
            )
        except InputError as error:  # one model alone, or no train rows
            return tuple(found), f"{benchmark}: RL-Focal was not trained: {error}"
        runs = defaultdict(list)
        for row in report.rows:
            if row.task == "*" and row.method in METHODS:
                runs[row.method].append(row)
        for method in METHODS:
            costs = [cost for row in runs[method] if (cost := known(row.cost)) is not None]
            found.append(
                Agents(
                    method,
                    model in names,
                    len(runs[method]),
                    runs[method][0].n,
                    fmean(row.accuracy for row in runs[method]),
                    fmean(row.mean_pool_size for row in runs[method]),
                    fmean(costs) if len(costs) == len(runs[method]) else None,
                )
            )
    return tuple(found), None


def price_of(warehouse: Warehouse, spec: ModelSpec) -> Price:
    """What its entry says, and what its extraction took."""
    [(n_docs, seconds, paid)] = warehouse.rows(
        "SELECT coalesce(sum(n_docs), 0), coalesce(sum(seconds), 0), sum(paid) FROM extractions "
        "WHERE model = ?",
        [spec.model],
    )
    return Price(
        spec.params_b or None,
        spec.active_params_b,
        0 if spec.is_closed else spec.tensor_parallel,
        spec.price,
        spec.price_input,
        spec.price_output,
        int(n_docs),
        float(seconds),
        paid,
    )


def note_evidence(warehouse: Warehouse, benchmark: str, model: str) -> str | None:
    """What stands for the log-probs of a model whose service gives none; None where it has its own."""
    rows = warehouse.rows(
        "SELECT DISTINCT evidence FROM extractions WHERE benchmark = ? AND model = ?", [benchmark, model]
    )
    kinds = {kind for (kind,) in rows}
    if "samples" in kinds:
        return (
            f"{benchmark}: the service of {model} gives no log-probs, so a choice has its share of sampled "
            "texts; methods that take logarithms of probabilities, such as log_linear, cannot run with it."
        )
    if "top_logprobs" in kinds:
        return f"{benchmark}: {model} has the log-probs that its service lists for an answer's first token."
    return None


def _pairs(warehouse: Warehouse, benchmark: str, model: str, others: Sequence[str]) -> tuple[Pair, ...]:
    rows = warehouse.connection.execute(
        script("queries/pairs_of_model"), {"benchmark": benchmark, "model": model}
    ).fetchall()
    return tuple(Pair(*row) for row in rows if row[0] in others)


def _answering(warehouse: Warehouse, benchmark: str, others: Sequence[str]) -> list[str]:
    """Those of the others that answered any document of the benchmark."""
    rows = warehouse.rows("SELECT DISTINCT model FROM outcomes WHERE benchmark = ?", [benchmark])
    return [name for (name,) in rows if name in others]

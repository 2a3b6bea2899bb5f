"""`python -m benchmarks.promises -b BENCHMARK`: how often promises about errors hold.

It splits documents anew into train and test, makes promises by train rows alone, and counts test errors. Then
it alters the answers of train's best model: by noise on its log-probs, as from quantisation, or by exchanging
them between documents. `simulate` measures broken promises on populations whose errors are known exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from scipy.special import log_softmax
from scipy.stats import binom

from rlfocal.base.options import split
from rlfocal.base.request import Progress
from rlfocal.base.tables import Table
from rlfocal.base.wording import percent
from rlfocal.cli import run_guarded
from rlfocal.cli.support.commands import run
from rlfocal.cli.support.options import Location
from rlfocal.cli.support.progress import progress_bars
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation.confidence import estimate_confidence, hold_out
from rlfocal.evaluation.planning import hide_names
from rlfocal.methods import make_method
from rlfocal.statistics.intervals import Interval, clopper_pearson
from rlfocal.statistics.selective import share
from warehouse import open_warehouse

TRAIN_SHARE = 0.6
NOISE_DEVIATION = 0.1
"""The standard deviation, in nats, by which 4-bit quantisation changes log-probs (docs/adding-models.md)."""
SECOND_LOOK = 0.05 * 6 / (np.pi**2 * 4)
"""The significance level of a promise's second test; the first is on the evaluation's own test rows."""


class PromiseDraw(NamedTuple):
    """A promise made on one random split, and what became of it."""

    coverage: float
    is_broken: bool
    """Whether the error on test rows is above the target."""
    withdrawals: tuple[bool, bool]
    """Whether the next test withdraws the promise: first with noise on the best model's log-probs, then with
    its log-probs of other questions."""


def try_once(
    data: Dataset, method: str, targets: Sequence[float], seed: int
) -> dict[float, PromiseDraw | None]:
    """The promise for each target error, made and tested on one random split; None where none is made."""
    rng = np.random.default_rng(seed)
    data = replace(data, is_train=rng.random(len(data)) < TRAIN_SHARE)
    made, groups = make_method(method), [np.ones(len(data), dtype=np.bool_)]
    out = hold_out(made, data, groups, 0, [None])[None]
    [policy] = made.fit(hide_names(data, groups).train, [0])
    best = int(data.train.correct.mean(axis=0).argmax())
    tests = [
        hide_names(one, groups).test
        for one in (data, *(alter_answers(data, best, rng, w) for w in (True, False)))
    ]
    answers = []
    for test in tests:
        decided = decide(policy, test.hide_labels())
        answers.append(
            (out.calibrate(estimate_confidence(decided, test)), test.is_right(decided.predictions))
        )
    found: dict[float, PromiseDraw | None] = {}
    for target in targets:
        threshold = out.choose_threshold(target).threshold
        if threshold is None:
            found[target] = None
            continue
        counted = [
            (int((sure >= threshold).sum()), int((~right[sure >= threshold]).sum()))
            for sure, right in answers
        ]
        answered, wrong = counted[0]
        low = [bool(binom.sf(w - 1, n, target) <= SECOND_LOOK) for n, w in counted[1:]]
        found[target] = PromiseDraw(answered / len(tests[0]), wrong > target * answered, (low[0], low[1]))
    return found


def alter_answers(data: Dataset, model: int, rng: np.random.Generator, with_noise: bool) -> Dataset:
    """The data with one model's log-probs altered: by noise, or else by those of other documents."""
    logprobs = data.logprobs.copy()
    own = logprobs[:, model]
    exists = np.isfinite(own)
    other = own + rng.normal(0, NOISE_DEVIATION, own.shape) if with_noise else own[rng.permutation(len(own))]
    logits = np.where(exists, np.where(np.isfinite(other), other, -20.0), -np.inf)
    logprobs[:, model] = log_softmax(logits, axis=1)
    said = np.where(np.isfinite(logprobs), logprobs, -1e300).argmax(axis=2)
    return replace(data, logprobs=logprobs, probs=np.exp(logprobs), predictions=said)


MAX_BROKEN_SHARE = 0.1
"""The largest share of the draws of train that may lead to a broken promise."""


class PromiseSimulation(NamedTuple):
    """The outcomes of a method's promises on a synthetic population of known error at every threshold."""

    population: str
    method: str
    target: float
    draws: int
    n_promises: int
    n_broken: int
    """The number of draws whose policy, fitted to all of train, errs more on the population than promised."""

    @property
    def interval(self) -> Interval:
        """Clopper and Pearson's 95 % interval of the probability that a draw leads to a broken promise."""
        return clopper_pearson(self.n_broken, self.draws)


def plant(kind: str, size: int = 2_000, seed: int = 0) -> Dataset:
    """A finite population of documents with 4 choices, answered by three models.

    `kind` "graded": the surer the models, the likelier they are right. "just above": the models are right on
    94.9 % of the documents however sure they are, so that a promise of 5 % holds only by chance.
    """
    rng = np.random.default_rng(seed)
    labels, rows = rng.integers(0, 4, size), np.arange(size)
    logits = rng.normal(0.0, 1.0, (size, 3, 4))
    if kind == "graded":
        logits[rows, :, labels] += rng.gamma(1.0, 6.0, (size, 1))
    else:
        said = np.where(rng.permutation(size) < 0.949 * size, labels, (labels + 1) % 4)
        logits[rows, :, said] += rng.gamma(2.0, 2.0, (size, 1)) + 8.0
    logprobs = log_softmax(logits, axis=2)
    return Dataset(
        benchmark=kind, kind="choices", models=("a", "b", "c"), prices=np.ones(3),
        tasks=np.full(size, "all"), doc_ids=rows, probs=np.exp(logprobs), logprobs=logprobs,
        n_choices=np.full(size, 4), predictions=logprobs.argmax(axis=2), labels=labels,
        is_train=np.zeros(size, dtype=np.bool_), slots=(), snapshot=0,
    )  # fmt: skip


def simulate_once(
    population: Dataset, method: str, targets: Sequence[float], n_train: int, seed: int
) -> list[bool | None]:
    """Whether the promise from one draw of train is broken, for each target; None where none is made.

    As in `rlfocal evaluate --target-error`, the threshold comes from policies that are fitted to part of
    train and decide the rest. It is tested with the policy fitted to all of train, on the whole population.
    """
    drawn = np.random.default_rng(seed).integers(0, len(population), n_train)
    train = population.take(drawn)
    train = replace(train, is_train=np.ones(n_train, dtype=np.bool_), doc_ids=np.arange(n_train))
    made, groups = make_method(method), [np.ones(n_train, dtype=np.bool_)]
    out = hold_out(made, train, groups, seed, [None])[None]
    [policy] = made.fit(train, [seed])
    decided = decide(policy, population.hide_labels())
    sure = out.calibrate(estimate_confidence(decided, population))
    right = population.is_right(decided.predictions)
    found: list[bool | None] = []
    for target in targets:
        threshold = out.choose_threshold(target).threshold
        wrong = None if threshold is None else ~right[sure >= threshold]
        found.append(None if wrong is None else bool(wrong.sum() > target * len(wrong)))
    return found


def simulate(
    draws: int = 1_000,
    methods: Sequence[str] = ("plurality", "log_linear"),
    n_train: int = 400,
    on_progress: Progress | None = None,
) -> list[PromiseSimulation]:
    """The outcomes of each method's promises on draws of train (seeds 0 to draws - 1) from synthetic data."""
    found = []
    for kind, targets in (("graded", (0.02, 0.05, 0.1)), ("just above", (0.05,))):
        population = plant(kind)
        for method in methods:
            outcomes = []
            for seed in range(draws):
                outcomes.append(simulate_once(population, method, targets, n_train, seed))
                if on_progress is not None:
                    on_progress(f"promises {kind} {method}", (seed + 1) / draws)
            for target, of_target in zip(targets, zip(*outcomes, strict=True), strict=True):
                made = sum(broken is not None for broken in of_target)
                found.append(PromiseSimulation(kind, method, target, draws, made, sum(map(bool, of_target))))
    return found


def table_of(simulated: Sequence[PromiseSimulation]) -> Table:
    """A table of the shares of draws that lead to a broken promise, beside the claim of docs/promises.md."""
    columns = "promised %", "made", "broken", "per draw %", "from", "to", "claimed %"
    table = Table("population", *columns, texts=("method",), title="Promises on planted populations")
    for one in simulated:
        shares = map(percent, (one.interval.mean, one.interval.low, one.interval.high))
        numbers = f"{100 * one.target:g}", f"{one.n_promises} of {one.draws}", str(one.n_broken)
        table.add(one.population, *numbers, *shares, f"≤ {100 * MAX_BROKEN_SHARE:g}", one.method)
    return table


def main(
    benchmark: Annotated[str, typer.Option("--benchmark", "-b", help="One with choices.")],
    methods: Annotated[
        str, typer.Option(metavar="M,...", help="Methods.")
    ] = "best_single,plurality,soft_vote,log_linear,cascade",
    targets: Annotated[str, typer.Option(metavar="E,...", help="Target errors.")] = "2%,5%,10%,20%",
    draws: Annotated[int, typer.Option(min=1, help="Random splits.")] = 40,
    documents: Annotated[int, typer.Option(min=20, help="Documents of each draw.")] = 3_000,
    warehouse: Location = None,
) -> None:
    """Measure how often promises hold on random splits of a benchmark, and are withdrawn if a model changes.

    made: the number of promises. broken: promises with a higher error on test rows. by noise, by a useless
    one: promises that the next test withdraws if the best model's log-probs have noise, or are of other
    questions.
    """
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        data = load_dataset(opened, benchmark)
    columns = "promised %", "made", "answered %", "broken", "by noise", "by a useless one"
    table = Table("method", *columns)
    wanted = list(map(share, split(targets)))
    with progress_bars() as tell:
        for method in split(methods):
            seen: dict[float, list[PromiseDraw]] = defaultdict(list)
            for seed in range(draws):
                drawn = np.random.default_rng(seed).permutation(len(data))[:documents]
                for target, one in try_once(data.take(np.sort(drawn)), method, wanted, seed).items():
                    seen[target] += [one] if one is not None else []
                tell(f"{benchmark} {method}", (seed + 1) / draws)
            for target in wanted:
                of = seen[target]
                covered = sum(one.coverage for one in of) / draws
                withdrawals = [sum(one.withdrawals[at] for one in of) for at in (0, 1)]
                table.add(
                    method, f"{100 * target:g}", f"{len(of)} of {draws}", percent(covered),
                    str(sum(one.is_broken for one in of)), *map(str, withdrawals),
                )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    run_guarded(lambda: run(app, "python -m benchmarks.promises"))

"""`python -m benchmarks.probes -b BENCHMARK`: errors of probes, compared with samples of random documents.

Each member is the newcomer in turn, and answers newly drawn documents, from which its gain to the team of the
others is estimated. The true gain is that on all documents. The last rows are made-up newcomers: a copy of
the most accurate member, one with noise, one that guesses, one that knows a single task, one better than all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from scipy.special import log_softmax

from rlfocal.base.arrays import Floats
from rlfocal.base.tables import Table
from rlfocal.base.wording import percent
from rlfocal.cli import run_guarded
from rlfocal.cli.support.commands import run
from rlfocal.cli.support.options import Location
from rlfocal.cli.support.progress import progress_bars
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.new_model.batches import VERDICT_ERROR_RATE
from rlfocal.new_model.probing import LEAD_STANDARD_ERRORS, SMALLEST_GAIN, Design, design_probe, plan_looks
from rlfocal.new_model.team import TeamEvidence, leave_out
from rlfocal.statistics.sampling import Strata
from warehouse import open_warehouse

NOISE_DEVIATION = 0.1
"""The standard deviation, in nats, by which 4-bit quantisation changes log-probs (docs/adding-models.md)."""


class Case(NamedTuple):
    """A newcomer, its answers, and the design of its probe."""

    name: str
    design: Design
    answers: TeamEvidence
    """The newcomer's answers to all documents."""


def members(data: Dataset, only: int) -> Iterator[Case]:
    """Yields a case for each of the first `only` members, as the newcomer to the others."""
    for member in data.models[:only]:
        others, answers = leave_out(data, member)
        yield Case(member, design_probe(others, seed=1), answers)


def make_newcomers(data: Dataset) -> Iterator[Case]:
    """Yields cases of made-up newcomers, from a copy to one better than all; for benchmarks with choices."""
    rng, design = np.random.default_rng(0), design_probe(data, seed=1)
    best = int(data.correct.mean(axis=0).argmax())
    own, known = data.logprobs[:, best], np.maximum(data.labels, 0)
    exists = np.isfinite(own)
    spread, right = float(own[exists].std()), np.eye(own.shape[1])[known] > 0
    task = data.tasks == data.tasks[0]
    noise = rng.normal(0, spread, own.shape)
    made = {
        "a copy": own,
        "its quantised self": own + rng.normal(0, NOISE_DEVIATION, own.shape),
        "one that guesses": noise,
        "one that knows a task": noise + 8 * spread * (right & task[:, None]),
        "one better than all": noise + 2.2 * spread * right,
    }
    for name, scores in made.items():
        logprobs = log_softmax(np.where(exists, scores, -np.inf), axis=1)[:, None]
        alone = replace(
            data, models=(name,), probs=np.exp(logprobs), logprobs=logprobs,
            predictions=logprobs.argmax(axis=2), prices=data.prices[:1],
        )  # fmt: skip
        yield Case(name, design, leave_out(alone, name)[1])


def redraw(design: Design, seed: int) -> Design:
    """The design with the same strata, whose documents are drawn in another random order."""
    of, rng = design.strata.stratum_of, np.random.default_rng(seed)
    place = np.empty_like(of)
    for stratum in range(of.max() + 1):
        at = np.flatnonzero(of == stratum)
        place[at] = rng.permutation(len(at))
    return Design(design.team, Strata(of, place))


class Truth(NamedTuple):
    """A newcomer's true gain and accuracy, measured on all documents, as fractions."""

    gain: float
    accuracy: float
    verdict: str
    """The verdict by all documents, "join" or "do not join"; empty if they leave it open."""


def find_truth(case: Case) -> Truth:
    rows = np.arange(len(case.design.dataset))
    answers = case.answers
    effects, _ = case.design.team.effects(rows, np.ones(len(rows)), answers)
    lead = answers.correct.astype(np.float64) - case.design.best_by_task
    of = np.unique(case.design.dataset.tasks, return_inverse=True)[1]
    ahead = np.bincount(of, lead) > LEAD_STANDARD_ERRORS * np.sqrt(np.bincount(of, lead**2))
    ends = []
    for each in (effects, lead * ahead[of]):
        reach = 1.96 * float(each.std()) / np.sqrt(len(rows))
        ends.append((float(each.mean()) - reach, float(each.mean()) + reach))
    verdict = "join" if any(low > 0 for low, _ in ends) else ""
    verdict = "do not join" if all(high < SMALLEST_GAIN for _, high in ends) else verdict
    return Truth(float(effects.mean()), float(answers.correct.mean()), verdict)


class Draw(NamedTuple):
    """The errors of a probe of n documents and of n random documents, and whether the probe's intervals hold.
    `asked`, a number of documents, and `verdict` are of another probe, which ends at a clear verdict."""

    gain: float
    gain_at_random: float
    has_gain: bool
    accuracy: float
    accuracy_at_random: float
    has_accuracy: bool
    asked: int
    verdict: str


def draw_once(case: Case, truth: Truth, n: int, seed: int) -> Draw:
    design = redraw(case.design, seed)
    rows = design.strata.draw(n)
    found = design.assess(rows, case.answers.take(rows), VERDICT_ERROR_RATE)
    n_docs = len(design.dataset)
    plain = np.sort(np.random.default_rng(seed).choice(n_docs, n, replace=False))
    by_chance = case.answers.take(plain)
    effects, _ = design.team.effects(plain, np.ones(n), by_chance)
    looks = plan_looks(n_docs)
    for asked in looks:
        at = design.strata.draw(asked)
        last = design.assess(at, case.answers.take(at), VERDICT_ERROR_RATE / len(looks))
        if last.verdict != "unclear":
            break
    return Draw(
        found.gain[0] - truth.gain,
        float(effects.mean()) - truth.gain,
        found.gain[1] <= truth.gain <= found.gain[2],
        found.accuracy[0] - truth.accuracy,
        float(by_chance.correct.mean()) - truth.accuracy,
        found.accuracy[1] <= truth.accuracy <= found.accuracy[2],
        asked,
        last.leaning,
    )


def rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def summarise(name: str, truth: Truth | None, draws: list[Draw], right: list[bool]) -> tuple[str, ...]:
    """The cells of a newcomer's row; `right` says, by draw, whether the verdict was that of all documents."""
    gain, plain_gain, has_gain, accuracy, plain, has_accuracy, asked = (
        np.array([draw[at] for draw in draws], dtype=np.float64) for at in range(7)
    )
    pairs = [
        text
        for probe, random in ((gain, plain_gain), (accuracy, plain))
        for text in (percent(rms(probe)), percent(rms(random)), f"{rms(probe) / max(rms(random), 1e-12):.2f}")
    ]
    return (
        name,
        "" if truth is None else percent(truth.gain),
        *pairs[:3], percent(float(has_gain.mean()), 1), *pairs[3:], percent(float(has_accuracy.mean()), 1),
        f"{asked.mean():,.0f}", percent(float(np.mean(right)), 0) if right else "",
    )  # fmt: skip


def main(
    benchmark: Annotated[str, typer.Option("--benchmark", "-b", help="One of the warehouse.")],
    draws: Annotated[int, typer.Option(min=1, help="Probes of each newcomer.")] = 20,
    share: Annotated[float, typer.Option(help="Of the documents; at least 200 are asked.")] = 0.03,
    only: Annotated[int, typer.Option("--members", min=1, help="How many members are newcomers.")] = 16,
    warehouse: Location = None,
) -> None:
    """Compare errors of probes with those of as many random documents, and count right verdicts.

    rms: root mean squared error, in points. has: how often the 95 % interval contains the figure by all
    documents. asked: documents until a clear verdict, at most a tenth or 200. right: the share of verdicts
    (leaning, where unclear) that agree with a clear one by all documents.
    """
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        data = load_dataset(opened, benchmark)
    n = min(len(data), max(200, round(share * len(data))))
    columns = ("gain", "rms", "random's", "ratio", "has %", "accuracy rms", "random's", "ratio", "has %")
    table = Table("newcomer", *columns, "asked", "right %", title=f"{n:,} of {len(data):,} documents")
    every: list[Draw] = []
    rights: list[bool] = []
    cases = [*members(data, only), *(make_newcomers(data) if data.kind == "choices" else ())]
    with progress_bars() as tell:
        for number, case in enumerate(cases):
            truth = find_truth(case)
            found = [draw_once(case, truth, n, seed) for seed in range(draws)]
            right = [draw.verdict == truth.verdict for draw in found] if truth.verdict else []
            table.add(*summarise(case.name, truth, found, right))
            if case.name in data.models:
                every += found
                rights += right
            tell(benchmark, (number + 1) / len(cases))
    table.add(*summarise("all members", None, every, rights), style="bold")
    Console(width=160).print(table)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    run_guarded(lambda: run(app, "python -m benchmarks.probes"))

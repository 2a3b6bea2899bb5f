"""Open-ended questions: no right choice, but a score for every model's answer (paper, appendix D)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from rlfocal.base.tables import Table
from rlfocal.evaluation.openended.decider import PAPER, OpenEndedConfig, OpenEndedDecider, train_decider
from rlfocal.evaluation.openended.scores import ScoreTable, read_scores
from rlfocal.statistics.intervals import Difference, paired_bootstrap

__all__ = [
    "PAPER",
    "OpenEndedConfig",
    "OpenEndedDecider",
    "OpenEndedReport",
    "ScoreTable",
    "evaluate_scores",
    "print_open_ended",
    "read_scores",
    "train_decider",
]


@dataclass(frozen=True)
class OpenEndedReport:
    """Mean scores over test documents."""

    n_train: int
    n_test: int
    decider: float
    """Mean over seeds."""
    decider_seeds: tuple[float, ...]
    stderr_seeds: float | None
    """None with one seed."""
    stderr_docs: float
    """The standard error of the decider's mean score over documents."""
    above_best_single: Difference
    """The Decider minus the best single model, with its paired 95 % interval over seeds and documents."""
    picked: dict[str, float]
    """Share of (document, seed) pairs that each model was picked for."""
    best_single: str
    """The model with the highest mean train score; ties: the alphabetically first."""
    singles: dict[str, float]
    """Each model alone."""
    random: float
    """A model drawn anew for every document, in expectation."""
    oracle: float
    """The best model of every document: a ceiling."""


def evaluate_scores(
    table: ScoreTable,
    n_seeds: int = 5,
    config: OpenEndedConfig | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> OpenEndedReport:
    """Trains seeds 0..n_seeds-1 on the train documents and runs them, frozen, along the test documents.

    Parameters do not change after training. The scores of a test document are revealed once its model is
    picked, because the Decider observes past rewards.
    """
    train, test = table.scores[table.is_train], table.scores[~table.is_train]
    picks = train_decider(train, range(n_seeds), config, on_progress).choose(test)
    earned = test[np.arange(len(test)), picks]
    best = int(train.mean(axis=0).argmax())
    of_seeds = earned.mean(axis=1)
    share = np.bincount(picks.ravel(), minlength=len(table.models)) / picks.size
    return OpenEndedReport(
        n_train=len(train),
        n_test=len(test),
        decider=float(of_seeds.mean()),
        decider_seeds=tuple(of_seeds.tolist()),
        stderr_seeds=float(of_seeds.std(ddof=1) / n_seeds**0.5) if n_seeds > 1 else None,
        stderr_docs=float(earned.mean(axis=0).std() / len(test) ** 0.5),
        above_best_single=paired_bootstrap(earned, test[None, :, best]),
        picked=dict(zip(table.models, share.tolist(), strict=True)),
        best_single=table.models[best],
        singles=dict(zip(table.models, test.mean(axis=0).tolist(), strict=True)),
        random=float(test.mean()),
        oracle=float(test.max(axis=1).mean()),
    )


def print_open_ended(report: OpenEndedReport, console: Console | None = None) -> None:
    """Mean scores by falling score, and the Decider's difference to the best single model."""
    console = console or Console()
    rows = {"decider": report.decider, "random": report.random, "oracle": report.oracle}
    for model, score in report.singles.items():
        chosen = " (best_single)" if model == report.best_single else ""
        rows[f"single:{model}{chosen}"] = score
    title = f"{report.n_test:,} test documents after {report.n_train:,} train documents"
    table = Table("method", "mean score", "±seeds", "picked %", title=title)
    picked = {f"single:{model}": f"{100 * share:.1f}" for model, share in report.picked.items()}
    for name, score in sorted(rows.items(), key=lambda row: -row[1]):
        is_ours = name == "decider" and report.stderr_seeds is not None
        spread = f"±{report.stderr_seeds:.4f}" if is_ours else "–"
        share = picked.get(name.removesuffix(" (best_single)"), "–")
        table.add(name, f"{score:.4f}", spread, share, style="bold" if name == "decider" else "")
    console.print(table)
    above = report.above_best_single
    console.print(
        f"Decider minus {report.best_single}: {above.mean:+.4f}, "
        f"95 % interval {above.low:+.4f} to {above.high:+.4f} over seeds and documents",
        markup=False,
    )

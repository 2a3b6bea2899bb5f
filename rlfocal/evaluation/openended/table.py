"""The result of open-ended questions on a terminal."""

from __future__ import annotations

from rich.console import Console

from rlfocal.base.terminal import Listing
from rlfocal.evaluation.openended.evaluation import OpenEndedReport


def print_open_ended(report: OpenEndedReport, console: Console | None = None) -> None:
    """Mean scores by falling score, and the Decider's difference to the best single model."""
    console = console or Console()
    rows = {"decider": report.decider, "random": report.random, "oracle": report.oracle}
    for model, score in report.singles.items():
        chosen = " (best_single)" if model == report.best_single else ""
        rows[f"single:{model}{chosen}"] = score
    title = f"{report.n_test:,} test documents after {report.n_train:,} train documents"
    table = Listing("method", "mean score", "±seeds", "picked %", title=title)
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

"""Tables on what trained agents learned, for a terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator

from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, decimal, interval, percent
from rlfocal.evaluation.explaining import (
    EXPLAINED_METHODS,
    NO_LOSS_MARGIN,
    Belief,
    Explanation,
    explanation_file,
    load,
)
from rlfocal.evaluation.leaderboard import Board
from rlfocal.evaluation.planning import GIVEN_SPLIT
from rlfocal.report.tables import deciding_in_words
from warehouse import Warehouse

MAX_MODELS_SHOWN = 3


def heading(explanation: Explanation) -> str:
    per = "" if explanation.per == "benchmark" else ", fitted per task"
    split = "" if explanation.split == GIVEN_SPLIT else f", split {explanation.split}"
    asked = [explanation.n_pools], explanation.commonest_pool
    decides = f" ({deciding_in_words(explanation.deciding, *asked)})" if explanation.deciding else ""
    return (
        f"What {explanation.method} learned on {explanation.benchmark}, seed {explanation.seed}{per}{split}"
        f"{decides}"
    )


def tables(explanation: Explanation) -> tuple[Table, Table, Table]:
    """Tables of which models the agents ask and believe, what each model is worth, and where agents stop
    asking."""
    return _make_model_table(explanation), _make_losses_table(explanation), _make_groups_table(explanation)


def _make_model_table(explanation: Explanation) -> Table:
    columns = ("train", "test", "asked", "round", "disputed", "followed", "votes", "pull")
    table = Table(
        "model",
        *columns,
        title="Which models it asks first and believes",
        caption="train, test: the model's own accuracy. asked: of documents; round: the mean round of calls. "
        "disputed: documents where another model asked gives a different answer; followed: of these, those "
        "where Fusion's answer is the model's; votes: the mean share of models asked that give it. All but "
        "round and disputed in %. pull: how much its outputs raise the logit of Fusion's answer, in nats.",
    )
    for model in explanation.models:
        shares = (percent(value, 1) for value in (model.train_accuracy, model.accuracy, model.asked))
        table.add(model.model, *shares, decimal(model.mean_round or None, 1), *_describe_belief(model.belief))
    return table


def _describe_belief(belief: Belief | None) -> tuple[str, str, str, str]:
    if belief is None:
        return MISSING_CELL, MISSING_CELL, MISSING_CELL, MISSING_CELL
    followed, votes = (percent(of if belief.disputed else None, 1) for of in (belief.followed, belief.votes))
    return f"{belief.disputed:,}", followed, votes, decimal(belief.pull, 2)


def _make_losses_table(explanation: Explanation) -> Table:
    table = Table(
        "without",
        *("asked", "accuracy", "log-score"),
        texts=("at no loss",),
        title="Which models could be dropped",
        caption="What the same agents, frozen, gain or lose if one model's outputs are unavailable and the "
        "next best stands in: accuracy in points and ln(probability of the right answer) in nats, with 95 % "
        f"intervals over documents. At no loss: both lie above −{100 * NO_LOSS_MARGIN:g} point and "
        f"−{NO_LOSS_MARGIN:g} nats.",
    )
    for model in explanation.models:
        changes = interval(model.accuracy_without), interval(model.log_score_without, _format_nats)
        table.add(model.model, percent(model.asked, 1), *changes, "yes" if model.is_free else "")
    return table


def _make_groups_table(explanation: Explanation) -> Table:
    table = Table(
        "documents",
        *("n", "right", "asked"),
        texts=("believed most",),
        title="Where it stops, and whom it believes by task",
        caption="right: in %. asked: models per document. believed most: the models that Fusion believes "
        "most, with the number of disputed documents, and followed / votes in % of these. Few documents say "
        "little.",
    )
    parts = [("task ", explanation.tasks), ("models asked: ", explanation.stops)]
    for name, of in ((f"{kind}{of.name}", of) for kind, groups in parts for of in groups):
        most = [
            f"{model} ({belief.disputed:,}: {100 * belief.followed:.0f} / {100 * belief.votes:.0f})"
            for model, belief in of.beliefs
            if belief.weight > 0
        ]
        size = decimal(of.mean_pool_size, 1)
        table.add(
            name, f"{of.documents:,}", percent(of.accuracy, 1), size, ", ".join(most[:MAX_MODELS_SHOWN])
        )
    return table


def _format_nats(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def make_explanation_tables(warehouse: Warehouse, board: Board) -> Iterator[tuple[str, tuple[Table, ...]]]:
    """Yields, for each method with stored explanations, a heading and the tables of its first explained seed.

    Methods that learned online, or whose settings were tuned, cannot be explained and are left out.
    """
    for standing in board.ours:
        if standing.method in EXPLAINED_METHODS and board.protocol == "frozen" and not board.trials:
            kept = (load(explanation_file(warehouse, run.run_id)) for run in standing.runs)
            # From before a model was renamed, nothing is known.
            explanation = (
                candidate
                for candidate in kept
                if candidate and {of.model for of in candidate.models} == set(board.models)
            )
            if (first := next(explanation, None)) is not None:
                yield heading(first), tables(first)

"""An explanation as tables of text, for a terminal and a page alike."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.base.wording import counted
from rlfocal.evaluation.explain.findings import MARGIN, Belief, Example, Explanation, OfModel
from rlfocal.evaluation.leaderboard import points
from rlfocal.report.explained.words import SEQUENTIAL, is_believed, listed, share
from rlfocal.statistics.intervals import Interval

MOST_BELIEVED = 3
MOST_ANSWERS = 4
"""Different answers to an example that are shown."""
Row = tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """One table."""

    title: str
    caption: str
    """What its columns mean."""
    first: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    rows: tuple[Row, ...]
    """Cells of `first`, `numbers`, `texts`."""


def tables(found: Explanation) -> tuple[Shown, ...]:
    """All but the examples. Models that are never asked have no rows; a sentence names them."""
    return (_asked(found), _stops(found), _believed(found), _by_task(found), _losses(found))


def _asked(found: Explanation) -> Shown:
    caption = (
        "train, test: accuracy alone, in %. asked: on how many documents, in %. round: the round of calls in "
        "which it is asked; models of one round are asked at once. only it: of the documents where it and "
        "others are asked, the share, in %, where it alone is right. errs like: of the documents where "
        "either is wrong, the share where both give the same answer."
    )
    rows = tuple(
        (
            one.model,
            _percent(one.train_accuracy),
            _percent(one.accuracy),
            _percent(one.asked),
            _rounds(one),
            _percent(one.alone_right),
            f"{one.twin} {share(one.twin_share)}",
        )
        for one in found.asked
    )
    numbers = ("train", "test", "asked", "round", "only it")
    return Shown("Which models it asks first, and why", caption, "model", numbers, ("errs like",), rows)


def _stops(found: Explanation) -> Shown:
    rows = tuple(
        (str(one.size), f"{one.documents:,}", share(one.documents / found.n), _percent(one.accuracy))
        for one in found.stops
    )
    title = "Where it stops" if found.method == SEQUENTIAL else "How many it asks"
    caption = "right: accuracy on these documents, in %."
    return Shown(title, caption, "models asked", ("documents", "share", "right"), (), rows)


def _believed(found: Explanation) -> Shown:
    caption = (
        "disputed: documents where the model is asked and another model asked gives a different answer. "
        "followed: the share of these, in %, where Fusion's answer is the model's. votes: the share, in %, "
        "of the models asked that give its answer; followed above votes is belief beyond the vote."
    )
    with_pull = any(one.belief is not None and one.belief.pull is not None for one in found.models)
    if with_pull:
        caption += (
            " pull: how much its outputs raise the logit of Fusion's answer above the other choices', in "
            "nats, the mean over documents where it is asked."
        )
    rows = tuple(
        (one.model, f"{b.documents:,}", *_followed(b), *([f"{b.pull:+.2f}"] if b.pull is not None else []))
        for one in found.asked
        if (b := one.belief) is not None
    )
    numbers = ("disputed", "followed", "votes", *(["pull"] * with_pull))
    return Shown("Which models Fusion believes", caption, "model", numbers, (), rows)


def _by_task(found: Explanation) -> Shown:
    rows = []
    for task in found.tasks:
        most = [f"{model} {_said(belief)}" for model, belief in task.beliefs if is_believed(belief)]
        first = ", ".join(most[:MOST_BELIEVED])
        size = f"{task.mean_pool_size:.1f}"
        rows.append((task.task, f"{task.documents:,}", _percent(task.accuracy), size, first))
    caption = (
        "right: in %. asked: models per document. believed most: by pull; the number is the mean pull."
        if any(belief.pull is not None for task in found.tasks for _, belief in task.beliefs)
        else "right: in %. asked: models per document. believed most: by how often it is followed beyond its "
        "votes; followed / votes in %, and the number of disputed documents: a few say little."
    )
    numbers = ("documents", "right", "asked")
    return Shown(
        "Which models it believes, by task", caption, "task", numbers, ("believed most",), tuple(rows)
    )


def _losses(found: Explanation) -> Shown:
    caption = (
        "What the same agents, frozen, gain or lose if one model's outputs are unavailable and the next "
        "best stands in: accuracy in points and ln(probability of the right answer) in nats, with 95 % "
        "intervals over documents. At no loss: both intervals lie above "
        f"−{100 * MARGIN:g} point and −{MARGIN:g} nats."
    )
    rows = tuple(
        (
            one.model,
            share(one.asked),
            _in_points(one.loss.accuracy),
            _in_nats(one.loss.log_score),
            "at no loss" if one.loss.is_none else "",
        )
        for one in found.asked
    )
    numbers = ("asked", "accuracy", "log-score")
    return Shown("Which models could be dropped", caption, "without", numbers, ("",), rows)


def lines(example: Example) -> tuple[str, ...]:
    """Which models gave which answer: the right answer first, models asked before those not asked."""
    said = []
    for one in example.said[:MOST_ANSWERS]:
        others = f"not asked: {listed(one.others)}" if one.others else ""
        mark = "right" if one.is_right else "wrong"
        who = "; ".join(part for part in (listed(one.asked), others) if part)
        said.append(f"{one.answer or 'no answer'} ({mark}): {who}")
    if rest := example.said[MOST_ANSWERS:]:
        n = sum(len(one.asked) + len(one.others) for one in rest)
        said.append(f"{counted(len(rest), 'other wrong answer')} by {counted(n, 'model')}")
    if not any(one.is_right for one in example.said):
        said.append("no model gives the right answer")
    return tuple(said)


def about(example: Example) -> str:
    """Which document, and how confident the agents are."""
    sure = share(example.probability)
    return f"{example.task} {example.doc_id}: {example.right}, answered with a confidence of {sure}"


def _rounds(one: OfModel) -> str:
    """The round, or from the first to the last where there are several, with the mean."""
    used = [number for number, of in enumerate(one.by_round, 1) if of > 0]
    if len(used) == 1:
        return str(used[0])
    mean = sum(number * of for number, of in enumerate(one.by_round, 1)) / one.asked
    return f"{used[0]}–{used[-1]}, {mean:.1f}"


def _followed(belief: Belief) -> Row:
    return (_percent(belief.followed), _percent(belief.votes)) if belief.documents else ("–", "–")


def _said(belief: Belief) -> str:
    if belief.pull is not None:
        return f"{belief.pull:+.2f}"
    return f"{100 * belief.followed:.0f} / {100 * belief.votes:.0f} of {belief.documents}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _in_points(of: Interval) -> str:
    return f"{points(of.mean)} [{points(of.low)}, {points(of.high)}]"


def _in_nats(of: Interval) -> str:
    mean, low, high = (f"{value:+.3f}".replace("-", "−") for value in (of.mean, of.low, of.high))
    return f"{mean} [{low}, {high}]"

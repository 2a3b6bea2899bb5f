"""An explanation as tables and examples, for a terminal and a page alike."""

from __future__ import annotations

from rlfocal.base.tables import Table
from rlfocal.base.wording import counted, interval, percent, share
from rlfocal.evaluation.explain import MARGIN, Belief, Example, Explanation, OfModel
from rlfocal.report.explained.words import SEQUENTIAL, is_believed, listed
from rlfocal.statistics.intervals import Interval

MOST_BELIEVED = 3
MOST_ANSWERS = 4
"""Different answers to an example that are shown."""


def tables(found: Explanation) -> tuple[Table, ...]:
    """All but the examples. Models that are never asked have no rows; a sentence names them."""
    return (_asked(found), _stops(found), _believed(found), _by_task(found), _losses(found))


def _asked(found: Explanation) -> Table:
    table = Table(
        "model",
        *("train", "test", "asked", "round", "only it"),
        texts=("errs like",),
        title="Which models it asks first, and why",
        caption="train, test: accuracy alone, in %. asked: on how many documents, in %. round: the round of "
        "calls in which it is asked; models of one round are asked at once. only it: of the documents where "
        "it and others are asked, the share, in %, where it alone is right. errs like: of the documents "
        "where either is wrong, the share where both give the same answer.",
    )
    for one in found.asked:
        shares = (_percent(value) for value in (one.train_accuracy, one.accuracy, one.asked))
        twin = f"{one.twin} {share(one.twin_share)}"
        table.add(one.model, *shares, _rounds(one), _percent(one.alone_right), twin)
    return table


def _stops(found: Explanation) -> Table:
    table = Table(
        "models asked",
        *("documents", "share", "right"),
        title="Where it stops" if found.method == SEQUENTIAL else "How many it asks",
        caption="right: accuracy on these documents, in %.",
    )
    for one in found.stops:
        of_all = share(one.documents / found.n)
        table.add(str(one.size), f"{one.documents:,}", of_all, _percent(one.accuracy))
    return table


def _believed(found: Explanation) -> Table:
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
    columns = ("disputed", "followed", "votes", *["pull"] * with_pull)
    table = Table("model", *columns, title="Which models Fusion believes", caption=caption)
    for one in found.asked:
        if (b := one.belief) is not None:
            followed = map(_percent, (b.followed, b.votes) if b.documents else (None, None))
            table.add(
                one.model, f"{b.documents:,}", *followed, *([f"{b.pull:+.2f}"] if b.pull is not None else [])
            )
    return table


def _by_task(found: Explanation) -> Table:
    caption = (
        "right: in %. asked: models per document. believed most: by pull; the number is the mean pull."
        if any(belief.pull is not None for task in found.tasks for _, belief in task.beliefs)
        else "right: in %. asked: models per document. believed most: by how often it is followed beyond its "
        "votes; followed / votes in %, and the number of disputed documents: a few say little."
    )
    table = Table(
        "task",
        *("documents", "right", "asked"),
        texts=("believed most",),
        title="Which models it believes, by task",
        caption=caption,
    )
    for task in found.tasks:
        most = [f"{model} {_said(belief)}" for model, belief in task.beliefs if is_believed(belief)]
        size, first = f"{task.mean_pool_size:.1f}", ", ".join(most[:MOST_BELIEVED])
        table.add(task.task, f"{task.documents:,}", _percent(task.accuracy), size, first)
    return table


def _losses(found: Explanation) -> Table:
    table = Table(
        "without",
        *("asked", "accuracy", "log-score"),
        texts=("",),
        title="Which models could be dropped",
        caption="What the same agents, frozen, gain or lose if one model's outputs are unavailable and the "
        "next best stands in: accuracy in points and ln(probability of the right answer) in nats, with 95 % "
        "intervals over documents. At no loss: both intervals lie above "
        f"−{100 * MARGIN:g} point and −{MARGIN:g} nats.",
    )
    for one in found.asked:
        loss = one.loss
        free = "at no loss" if loss.is_none else ""
        table.add(one.model, share(one.asked), interval(loss.accuracy), _in_nats(loss.log_score), free)
    return table


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


def _said(belief: Belief) -> str:
    if belief.pull is not None:
        return f"{belief.pull:+.2f}"
    return f"{100 * belief.followed:.0f} / {100 * belief.votes:.0f} of {belief.documents}"


def _percent(value: float | None) -> str:
    return percent(value, 1)


def _in_nats(of: Interval) -> str:
    mean, low, high = (f"{value:+.3f}".replace("-", "−") for value in (of.mean, of.low, of.high))
    return f"{mean} [{low}, {high}]"

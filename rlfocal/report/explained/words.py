"""An explanation in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rlfocal.base.names import RL_FOCAL
from rlfocal.base.wording import counted, interval, percent, share
from rlfocal.evaluation.explain import MARGIN, Belief, Explanation, OfModel
from rlfocal.evaluation.splits import GIVEN

SEQUENTIAL = RL_FOCAL[1]
LISTED = 6
"""The most names of models in a sentence."""
ALIKE, FEW_ERRORS = 0.75, 10
"""Two models that err alike at least this often, on enough documents, are named; unrelated LLMs: 0.4."""


def heading(found: Explanation) -> str:
    per = "" if found.per == "benchmark" else ", fitted per task"
    split = "" if found.split == GIVEN else f", split {found.split}"
    return f"What {found.method} learned on {found.benchmark}, seed {found.seed}{per}{split}"


def sentences(found: Explanation) -> tuple[str, ...]:
    """The main findings, the most important first."""
    every = (_result(found), _asking(found), _stopping(found), _believing(found), _losing(found))
    return tuple(text for text in (*every, *_copies(found), _against(found)) if text)


def _result(found: Explanation) -> str:
    [best] = (one for one in found.models if one.model == found.best_single)
    return (
        f"On {counted(found.n, 'test document')} (frozen, trained on {found.n_train:,} others) it is right "
        f"on {percent(found.accuracy)} % and asks {found.mean_pool_size:.2f} of {len(found.models)} models "
        f"per document. {best.model}, the best on train, is right on {percent(best.accuracy)} % alone."
    )


def _asking(found: Explanation) -> str:
    rounds = range(len(found.asked[0].by_round)) if found.asked else range(0)
    turns = []
    for number in rounds:
        who = [one for one in found.asked if one.by_round[number] > 0]
        who.sort(key=lambda one: -one.by_round[number])
        if who:
            turns.append(listed([f"{one.model} ({share(one.by_round[number])})" for one in who]))
    shown, more = turns[:LISTED], len(turns) - LISTED
    then = f"; then {counted(more, 'more round')}" if more > 0 else ""
    why = (
        "Models are in the order of their train accuracy; those that err like another one come last."
        if found.method == SEQUENTIAL
        else "All models of a pool are asked at once; a model is in it if it was worth its cost on train."
    )
    return f"It asks, each on this share of documents, {'; then '.join(shown)}{then}. {why}"


def _stopping(found: Explanation) -> str:
    if found.method != SEQUENTIAL:
        same = found.pools.distinct == 1
        commonest = ", ".join(found.pools.commonest)
        if same:
            return f"The pool is the same for all documents: {commonest}."
        return (
            f"It uses {found.pools.distinct} different pools of {found.stops[0].size} to "
            f"{found.stops[-1].size} models; the commonest, {commonest}, answers {share(found.pools.share)}."
        )
    if len(found.stops) == 1:
        return f"It stops after {counted(found.stops[0].size, 'model')} on every document."
    reached, few = 0, []
    for stop in found.stops[:-1]:
        few.append(stop)
        reached += stop.documents
        if reached >= found.n / 2:
            break
    right = sum(stop.accuracy * stop.documents for stop in few) / reached
    last = found.stops[-1]
    return (
        f"It stops after {few[-1].size} models or fewer on {share(reached / found.n)} of documents, and is "
        f"right on {share(right)} of these; on {share(last.documents / found.n)} it asks {last.size}, and is "
        f"right on {share(last.accuracy)} of those."
    )


def _believing(found: Explanation) -> str:
    known = [(one, one.belief) for one in found.asked if one.belief is not None and one.belief.documents]
    if not known:
        return "The models asked never disagree."
    top, belief = max(known, key=lambda item: _weight(item[0]))
    disputed = counted(belief.documents, "document")
    has_first = _weight(top) > 0
    said = (
        f"Where the models asked disagree, Fusion follows {top.model} most: it gives the same answer on "
        f"{share(belief.followed)} of {disputed}; a vote drawn at random would on {share(belief.votes)}."
        if has_first
        else "Where the models asked disagree, Fusion follows none of them more often than a vote drawn at "
        "random would."
    )
    firsts = [(task.task, *task.beliefs[0]) for task in found.tasks if len(found.tasks) > 1 and task.beliefs]
    others = [
        f"{task} ({name})"
        for task, name, of in firsts
        if is_believed(of) and not (has_first and name == top.model)
    ]
    if others:
        said += f" Tasks where it follows {'another one most' if has_first else 'one'}: {listed(others)}."
    if found.own:
        said += (
            f" On {counted(found.own, 'document')} it gives an answer that no model asked gave, and is right "
            f"on {share(found.own_accuracy)} of these."
        )
    return said


def _losing(found: Explanation) -> str:
    free = [one.model for one in found.asked if one.loss.is_none]
    dear = min(found.asked, key=lambda one: one.loss.log_score.mean, default=None)
    never = found.never_asked
    said = f"Never asked, so can be dropped at no loss: {listed(never)}. " if never else ""
    said += (
        f"Models asked that could be dropped at no loss, one at a time: {listed(free)}. "
        if free
        else f"No model asked can be dropped at no loss for sure: {found.n:,} documents do not rule out a "
        f"loss of {100 * MARGIN:g} point. "
    )
    if dear is not None and dear.loss.log_score.high < 0:
        said += (
            f"The costliest to lose is {dear.model}: accuracy {interval(dear.loss.accuracy)} points, "
            f"log-score {dear.loss.log_score.mean:+.3f}."
        )
    return said.strip().replace(" -0", " −0")


def _copies(found: Explanation) -> list[str]:
    said: list[str] = []
    told: set[frozenset[str]] = set()
    for one in found.models:
        pair = frozenset((one.model, one.twin))
        if one.twin_share >= ALIKE and one.twin_errors >= FEW_ERRORS and pair not in told:
            told.add(pair)
            said.append(
                f"{one.model} and {one.twin} err alike: of {one.twin_errors:,} documents on which either is "
                f"wrong, both give the same answer on {share(one.twin_share)}."
            )
    return said[:LISTED]


def _against(found: Explanation) -> str:
    shown = len(found.examples)
    below = "" if not shown else " It is shown below." if found.against == 1 else f" {shown} are shown below."
    return (
        f"It is right on {counted(found.against, 'document')} on which most models are wrong, and "
        f"wrong on {found.despite:,} on which most are right.{below}"
    )


def is_believed(belief: Belief) -> bool:
    """Whether Fusion believes the model at all."""
    return belief.surplus > 0 if belief.pull is None else belief.pull > 0


def _weight(one: OfModel) -> float:
    if one.belief is None:
        return 0.0
    return one.belief.surplus if one.belief.pull is None else one.belief.pull * one.asked


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")

"""Documents on which the agents are right though most models are wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.base.failures import on_one_line, shortened
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.explain import Example, Said
from rlfocal.evaluation.explain.observing import Observed

SHOWN = 10
LONGEST = 240
"""Characters of a question."""
LONGEST_ANSWER = 60
Document = tuple[str, int]
"""(task, doc_id)"""


def against(seen: Observed) -> Bools:
    """(T,) where the agents are right and more than half of all models are wrong."""
    return np.asarray(seen.right & (seen.test.correct.mean(axis=1) < 0.5))


def despite(seen: Observed) -> Bools:
    """(T,) where the agents are wrong and more than half of all models are right."""
    return np.asarray(~seen.right & (seen.test.correct.mean(axis=1) > 0.5))


def examples(
    seen: Observed, confidential: Collection[Document] = (), most: int = SHOWN
) -> tuple[Example, ...]:
    """Some of `against`: from each task in turn the document on which the fewest models, but at least one,
    are right; ties by `doc_id`. Those on which none is right come last: there was no model to find.

    For `confidential` documents, shows only which model gave which choice.
    """
    test, share = seen.test, seen.test.correct.mean(axis=1)
    rows = sorted(np.flatnonzero(against(seen)).tolist(), key=lambda row: (share[row], test.doc_ids[row]))
    of_task: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for row in rows:
        of_task[bool(share[row] == 0), str(test.tasks[row])].append(row)
    turns = sorted(
        (nobody, turn, float(share[row]), task, row)
        for (nobody, task), found in of_task.items()
        for turn, row in enumerate(found)
    )
    return tuple(_example(seen, row, confidential) for *_, row in turns[:most])


def _example(seen: Observed, row: int, confidential: Collection[Document]) -> Example:
    test = seen.test
    at = str(test.tasks[row]), int(test.doc_ids[row])
    is_open = at not in confidential
    question = test.questions[row] if test.questions and is_open else ""
    label = int(test.labels[row])
    said = []
    by_answer: dict[int, list[int]] = defaultdict(list)
    for model, slot in enumerate(test.predictions[row].tolist()):
        by_answer[slot].append(model)
    for slot, models in sorted(
        by_answer.items(), key=lambda item: (item[0] != label, -len(item[1]), item[0])
    ):
        asked = [test.models[model] for model in models if seen.pools[row, model]]
        others = [test.models[model] for model in models if not seen.pools[row, model]]
        said.append(Said(_text(test, row, slot, is_open), slot == label, tuple(asked), tuple(others)))
    return Example(
        *at,
        _in_short(question, LONGEST),
        _text(test, row, label, is_open),
        float(seen.probability[row]),
        tuple(said),
    )


def _text(test: Dataset, row: int, slot: int, is_open: bool) -> str:
    """A choice's letter and text, or the answer; empty for no answer."""
    if slot < 0:
        return ""
    if test.kind == "answers":
        return _in_short(test.slots[row][slot], LONGEST_ANSWER) if is_open else f"answer {slot}"
    letter = chr(ord("A") + slot) if slot < 26 else str(slot)
    texts = test.choices[row] if test.choices and is_open else ()
    text = _in_short(texts[slot], LONGEST_ANSWER) if slot < len(texts) else ""
    return f"{letter}: {text}" if text.strip("(). ") not in ("", letter) else letter


def _in_short(text: str, longest: int) -> str:
    """The text on one line, shortened to its beginning and end."""
    return shortened(on_one_line(" ".join(text.split())), longest)

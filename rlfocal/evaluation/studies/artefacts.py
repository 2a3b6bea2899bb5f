"""What each artefact of the released code is worth: switched off one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from rlfocal.base.errors import InputError
from rlfocal.evaluation.studies.arms import Arm, Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.findings import Point
from rlfocal.evaluation.studies.study import ALL, Found
from rlfocal.evaluation.studies.success import decisions
from rlfocal.methods import Decisions

if TYPE_CHECKING:
    from rlfocal.methods.rl_focal.artefacts import Artefacts

AS_RELEASED = "as released"
NONE = "no artefact"


def artefacts(conditions: Conditions, values: Sequence[Any]) -> Found:
    """The released behaviour, the same without each artefact in turn, and without any artefact."""
    from rlfocal.methods.rl_focal.artefacts import ARTEFACTS, Artefacts

    if conditions.method != "rl_focal_released":
        raise InputError(f"{conditions.method} has no artefacts; study artefacts is about rl_focal_released")
    names = ARTEFACTS if ALL in values else [str(name) for name in values]
    without = {f"without {name}": Artefacts.without(name) for name in names}
    switched = {AS_RELEASED: Artefacts()} | without
    if set(names) == set(ARTEFACTS):
        switched[NONE] = Artefacts(**dict.fromkeys(ARTEFACTS, False))
    arms = [_arm(conditions, text, artefact) for text, artefact in switched.items()]
    references = [reference_arm(conditions, name) for name in ("best_single", "soft_vote")]
    points = run_arms([*arms, *references])
    base = points[0].accuracy
    worth = {p.label: 100 * (base - p.accuracy) for p in points[1 : len(arms)]}
    notes = [
        "Counted as in the released code, which drops what cannot be answered: as released "
        f"{100 * counted_as_released(conditions, points[0]):.2f} %."
    ]
    if worth:
        notes.append("Accuracy lost without the artefact, in points: " + _listed(worth))
    return Found(points, notes)


def counted_as_released(conditions: Conditions, of: Point) -> float:
    """The accuracy that the released code would print for these runs, averaged over seeds."""
    from rlfocal.methods.rl_focal.artefacts import released_config
    from rlfocal.methods.rl_focal.released import released_accuracy

    test = conditions.setup.dataset.test
    config = released_config(max(conditions.setup.train_sizes))
    counted = []
    for run_id in of.runs:
        decided = decisions(conditions.setup.warehouse, run_id, test)
        predictions = np.where(decided.correct, test.labels, -1)
        counted.append(released_accuracy(Decisions(decided.pools, predictions), test, config))
    return fmean(counted)


def _arm(conditions: Conditions, label: str, switched: Artefacts) -> Arm:
    off = [name for name, is_on in asdict(switched).items() if not is_on]
    return tuned_arm(
        conditions,
        label,
        beside={"artefacts": dict.fromkeys(off, False)} if off else {},
        adapt=lambda own: replace(own, changes={**own.changes, "artefacts": switched}),
    )


def _listed(worth: dict[str, float]) -> str:
    ordered = sorted(worth.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name.removeprefix('without ')} {points:+.2f}" for name, points in ordered) + "."

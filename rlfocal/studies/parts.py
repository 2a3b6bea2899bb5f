"""What each part of RL-Focal is worth: taken away one at a time, on train rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown
from rlfocal.evaluation.splits import split_anew
from rlfocal.statistics.metrics import METRICS
from rlfocal.studies.arms import Conditions, run_arms, tuned_arm
from rlfocal.studies.findings import Point
from rlfocal.studies.study import Found
from rlfocal.studies.success import decisions

WHOLE = "as it is"
PARTS: Mapping[str, Mapping[str, Any]] = {
    "no critic": {"has_critic": False},
    "γ = λ = 0": {"decider_gamma": 0.0, "fusion_gamma": 0.0, "gae_lambda": 0.0},
    "γ = 0.9": {"decider_gamma": 0.9, "fusion_gamma": 0.9},
    "λ = 0.5": {"gae_lambda": 0.5},
    "no clip": {"clip": 1e6},
    "no diversity metric": {"metrics": ()},
    **{f"{name} alone": {"metrics": (name,)} for name in METRICS},
    "no question": {"word_directions": 0},
    "no size penalty": {"size_penalty": 0.0},
    "no success weighting": {"success_weighting": False},
    "one sampled answer": {"samples": 1, "success_weighting": False},
    "no budgets": {"budgets": ()},
    "no cross-choice weights": {"slots_ridge": 1e9},
    "no joint episodes": {"joint_episodes": 0},
    "no episodes of Algorithm 1": {"decider_episodes": 0, "fusion_episodes": 0},
    "networks instead of the log-linear core": {"log_linear": False, "fusion_hidden": (100, 100)},
}


def parts(conditions: Conditions, values: Sequence[Any]) -> Found:
    """RL-Focal without each part, on the last fifth of train rows; the rest is what it is trained on."""
    if conditions.method != "rl_focal":
        raise InputError(f"study parts is about rl_focal, not {conditions.method}")
    for value in values:
        if value not in PARTS:
            raise unknown("part", str(value), PARTS)
    data = split_anew(conditions.setup.dataset.train, "last")
    base = tuned_arm(conditions, WHOLE, None, {}, data=data)
    tried = [tuned_arm(conditions, str(value), None, PARTS[value], data=data) for value in values]
    points = run_arms(conditions, [base, *tried])
    notes = ["Share of decisions that change, and the change in accuracy, in points:"]
    notes += [_compared(conditions, data.test, points[0], other) for other in points[1:]]
    return Found(points, notes)


def _compared(conditions: Conditions, test: Dataset, whole: Point, other: Point) -> str:
    """One line: the part, the share of documents whose pool or outcome differs, and the difference with its
    paired standard error over documents, of seeds with each other."""
    changed, differences = [], []
    for one, another in zip(whole.runs, other.runs, strict=True):
        before, after = (decisions(conditions.setup.warehouse, run, test) for run in (one, another))
        changed.append(((before.pools != after.pools).any(axis=1) | (before.correct != after.correct)).mean())
        differences.append(after.correct.astype(float) - before.correct)
    by_document = np.mean(differences, axis=0)
    error = float(by_document.std() / np.sqrt(len(by_document)))
    share = 100 * float(np.mean(changed))
    return f"{other.label}: {share:.0f} %, {100 * float(by_document.mean()):+.1f} ± {100 * error:.1f}"

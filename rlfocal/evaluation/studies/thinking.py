"""A study of thinking: what longer traces buy, alone and for those who choose when to ask for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlfocal.base.errors import InputError, unknown
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.studies.study import ALL, Arm, Conditions, Found, reference_arm, run_arms, tuned_arm
from warehouse.scripts import script

BESIDE = ("best_single", "cascade")
"""What may choose among the models beside RL-Focal unless `--beside` says otherwise."""


def thinking(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Each model of the same weights alone, and all that may choose between it and those that think less."""
    thinkers = find_thinkers(conditions)
    for value in values:
        if value not in (ALL, *thinkers):
            raise unknown("weights", str(value), thinkers, "--values")
    chosen = {name: models_of for name, models_of in thinkers.items() if ALL in values or name in values}
    points = []
    for weights, models in chosen.items():
        of = f", {weights}" if len(chosen) > 1 else ""
        points += [replace(p, series=f"{p.series}{of}") for p in run_arms(_arms(conditions, models))]
    note = "Choosing: between that model and those of its weights that think less, trained on the train rows."
    return Found(points, [note])


def find_thinkers(conditions: Conditions) -> dict[str, dict[str, float]]:
    """By weights, the models that share them and the tokens each thinks about a query, ascending.

    Raises InputError where no two models of the same weights think differently long.
    """
    setup = conditions.setup
    about = [setup.dataset.benchmark, list(setup.dataset.models)]
    thinkers: dict[str, dict[str, float]] = {}
    for weights, model, tokens in setup.warehouse.rows(script("queries/thought"), about):
        thinkers.setdefault(weights, {})[model] = tokens
    thinkers = {weights: models for weights, models in thinkers.items() if len(set(models.values())) > 1}
    if not thinkers:
        raise InputError(
            f"no two models of {setup.dataset.benchmark!r} have the same weights and think differently long; "
            "give a pool two entries of one `hf_repo` with another `thinking.budget`, and extract them"
        )
    return thinkers


def _arms(conditions: Conditions, models: dict[str, float]) -> list[Arm]:
    setup = conditions.setup
    alone = conditions.on(setup.dataset)
    arms = [reference_arm(alone, f"single:{model}", model, tokens) for model, tokens in models.items()]
    for k, (model, tokens) in enumerate(models.items(), 1):
        if k > 1:
            some = load_dataset(setup.warehouse, setup.dataset.benchmark, list(models)[:k])
            on, label = conditions.on(some), f"up to {model}"
            arms.append(tuned_arm(on, label, tokens, keep=False))
            arms += [reference_arm(on, other, label, tokens) for other in conditions.beside or BESIDE]
    return arms

"""Short studies on the small benchmark of study_warehouse."""

from __future__ import annotations

from typing import Any

from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.evaluation.studies import STUDIES, Conditions, Findings, load
from rlfocal.report.tables import findings_table
from warehouse import Warehouse

EPISODES = {"decider_episodes": 1, "fusion_episodes": 1}
FAST: dict[str, dict[str, Any]] = {
    "rl_focal": {"joint_episodes": 1, **EPISODES, "window": 20, "decider_hidden": (8,)},
    "rl_focal_sequential": {},
}


def conditions(warehouse: Warehouse, method: str = "rl_focal", seeds: int = 2) -> Conditions:
    setup = Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b", seeds=seeds))
    return Conditions(setup, method, FAST[method])


def run(warehouse: Warehouse, name: str, *values: object, seeds: int = 2) -> Findings:
    study = STUDIES[name]
    found = study.run(conditions(warehouse, study.method, seeds), values or None)
    assert len(findings_table(found).rows) == len(found.points)
    assert load(warehouse.location.studies / f"{name}-b-{study.method}.json") == found
    return found

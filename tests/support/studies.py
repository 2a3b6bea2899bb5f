"""Short studies on the small benchmark of study_warehouse."""

from __future__ import annotations

from typing import Any
from xml.dom import minidom

from benchmarks.studies import STUDIES, Conditions, StudyFindings, load
from benchmarks.studies.drawing import figure
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.report.figures.style import svg
from warehouse import Warehouse

EPISODES = {"decider_episodes": 1, "fusion_episodes": 1}
FAST: dict[str, dict[str, Any]] = {
    "rl_focal": {"joint_episodes": 1, **EPISODES, "window": 20, "decider_hidden": (8,)},
    "rl_focal_sequential": {},
}
DRAWN: set[str] = set()
"""Studies whose figure was drawn: drawing takes a second."""


def conditions(warehouse: Warehouse, method: str = "rl_focal", seeds: int = 2) -> Conditions:
    setup = Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b", seeds=seeds))
    return Conditions(setup, method, FAST[method])


def run(warehouse: Warehouse, name: str, *values: object, seeds: int = 2) -> StudyFindings:
    study = STUDIES[name]
    found = study.run(conditions(warehouse, study.method, seeds), values or None)
    if name not in DRAWN:
        minidom.parseString(svg(figure(found).spec))
        DRAWN.add(name)
    fitted = f"-{study.method}" if study.fits else ""
    assert load(warehouse.location.studies / f"{name}-b{fitted}.json") == found
    return found

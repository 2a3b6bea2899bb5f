"""Studies: questions about RL-Focal, each answered by `python -m benchmarks.studies NAME -b B`."""

from __future__ import annotations

from benchmarks.studies.diversity import LABEL_COUNTS, diversity
from benchmarks.studies.scale import scale
from benchmarks.studies.study import ALL_VALUES, Conditions, Point, Study, StudyFindings, load
from benchmarks.studies.sweeps import (
    labels,
    sizes,
    success,
    sweep,
    thinking,
)
from benchmarks.studies.switch import FURTHEST_APART, switch
from benchmarks.studies.unnamed import unnamed

__all__ = ["STUDIES", "Conditions", "Point", "Study", "StudyFindings", "load"]

_STUDIES = (
    Study(
        "size-penalty",
        "What does punishing large teams cost in accuracy, and save in models asked?",
        "size penalty α",
        sweep("size_penalty", "α = {:g}".format),
        (0, 0.1, 0.6, 1.5, 3),
    ),
    Study(
        "discount",
        "How far should Fusion look ahead?",
        "Fusion's discount γ",
        sweep("fusion_gamma", "γ = {:g}".format),
        (0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99),
    ),
    Study(
        "diversity",
        "How much does a diversity metric add to choosing a team, given the accuracies of team and members?",
        "labelled documents",
        diversity,
        LABEL_COUNTS,
        beside=None,
        fits=False,
    ),
    Study(
        "pool-size",
        "How does a small team compare with picking one model at random, or the one that was right last?",
        "models in the team",
        sizes,
        (ALL_VALUES,),
    ),
    Study(
        "success",
        "How often is the fused answer right when exactly k members of the team are?",
        "right members of the team",
        success,
        beside=None,
    ),
    Study(
        "switch",
        "What does continued learning save when the stream turns to another task?",
        "documents since the switch",
        switch,
        (FURTHEST_APART,),
        beside=None,
    ),
    Study(
        "labels",
        "How many labels does each method need?",
        "train documents",
        labels,
        (10, 30, 100, 300, 1000, 3000, ALL_VALUES),
    ),
    Study(
        "thinking",
        "What do longer traces buy, for a model alone and for those who choose when to ask for one?",
        "tokens thought about a query",
        thinking,
        (ALL_VALUES,),
        method="rl_focal_sequential",
    ),
    Study(
        "pool-scale",
        "How do time and accuracy change with the size of the pool, models repeated?",
        "models to choose from",
        scale,
        (8, 16, 24, 40, 80, 120),
        beside="seconds",
    ),
    Study(
        "unnamed",
        "Can a policy learn when all models are wrong, and answer the likeliest choice that none named?",
        "answers",
        unnamed,
        beside=None,
        fits=False,
    ),
)
STUDIES = {study.name: study for study in _STUDIES}

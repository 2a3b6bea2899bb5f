"""What is run for each file of docs/results.

Seeds, budgets and methods are chosen so that everything takes an hour and a half on two cores; what a table
shows is what was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.results.demo import DemoTable
from benchmarks.results.drift import DriftTable
from benchmarks.results.evaluations import EvaluationTable
from benchmarks.results.labels import LabelTable, SmallPoolTable
from benchmarks.results.making import Step
from benchmarks.results.pages import RESULTS
from benchmarks.results.streams import StreamTable
from benchmarks.results.studies import StudyTable

BENCHMARKS = ("bbh", "gsm8k", "mmlu")
OUR_METHODS = ("rl_focal", "rl_focal_sequential", "gated_log_linear")
ONLINE_LEARNERS = OUR_METHODS[:2]
"""Our methods that go on learning online."""
PAPER_METHODS = ("rl_focal", "rl_focal_literal")
"""RL-Focal as it is here, and to the letter of the paper's text."""
STRONG_RIVALS = ("best_log_linear", "cascade", "guarded_knn", "outputs_knn", "log_linear", "stacking")
"""The rivals that are hardest to beat."""
WITH_TEXT = ("log_linear+text", "stacking+text")
"""Methods that fuse all models and read the question, as RL-Focal does."""
ONLINE_METHODS = ("online_log_linear", "hedge", "sliding_best", "latest_correct", "linucb", "thompson")
DRIFT_RIVALS = ("best_single", "online_log_linear", "hedge", "sliding_best", "latest_correct")
IMPOSSIBLE_METHODS = {"gsm8k": {"stacking", "guarded_knn", "linucb", "thompson"}}
"""By benchmark, methods that its data do not allow: they hold no choices, and no questions' texts."""


def _drop_impossible(benchmark: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in IMPOSSIBLE_METHODS.get(benchmark, ()))


def _make_table(benchmark: str) -> EvaluationTable:
    names = _drop_impossible(benchmark, STRONG_RIVALS)
    above = ("best_single", *names)
    return EvaluationTable(
        benchmark, (*OUR_METHODS, *names), seeds=3, budgets=("1", "2", "3", "4"), above=above
    )


_PER_TASK = EvaluationTable(
    "bbh",
    (*OUR_METHODS, "best_log_linear", "log_linear", "outputs_knn", "stacking", *WITH_TEXT, "knn"),
    seeds=2,
    per="task",
    above=("best_single", "best_log_linear", "log_linear", "outputs_knn"),
)

_WITH_TASK = EvaluationTable(
    "bbh",
    tuple(
        f"{name}+task"
        for name in (*ONLINE_LEARNERS, "best_log_linear", "knn", *STRONG_RIVALS[3:], "best_single")
    ),
    above=("best_single+task", "log_linear+task"),
)

_TUNED_METHODS = EvaluationTable(
    "bbh",
    ("rl_focal", "log_linear", "stacking", "outputs_knn", "knn", "des:knora_u"),
    seeds=1,
    per="task",
    tune=4,
    label="chosen in 4 trials",
    above=("best_single",),
)

ROUTERS = (
    "knn", "guarded_knn", "avengers", "uniroute", "eagle", "carrot_knn", "carrot_linear", "mlp", "svm", "mf",
    "irt", "graph_router", "routellm_sw", "hier_shrink", "model_sat",
)  # fmt: skip
"""Methods that read the question and ask one model."""
ENCODERS = {"TF-IDF": (), "MiniLM": ("encoder=sentence-transformers/all-MiniLM-L6-v2",)}

ABLATED_PARTS = {
    "without the critic": ("has_critic=false",),
    "γ = λ = 0": ("gae_lambda=0",),
    "γ = 0.9": ("decider_gamma=0.9", "fusion_gamma=0.9"),
    "λ = 0.5": ("gae_lambda=0.5",),
    "no diversity metric": ("metrics=none",),
    "focal_diversity alone": ("metrics=focal_diversity",),
    "without the question": ("word_directions=0",),
    "calls cost nothing": ("call_penalty=0",),
    "the paper's α = 1": ("size_penalty=1",),
    "no success weighting": ("success_weighting=false",),
    "one sampled answer": ("samples=1", "success_weighting=false"),
    "agents are told no budgets": ("budgets=none",),
    "no cross-choice weights": ("slots_ridge=1e9",),
    "no joint episodes": ("joint_episodes=0",),
    "joint episodes alone": ("fusion_episodes=0",),
    "Algorithm 1 with its first phase": ("decider_episodes=10",),
    "every model starts likely": ("start_others=100",),
}
"""The changes of rl_focal that are ablated, and their settings."""


def _make_ablations(benchmark: str, split: str) -> list[EvaluationTable]:
    """The learned rl_focal, then with one part changed, on a split of train rows: choices may rest on it."""
    learned = "rl_focal.has_floor=false"
    base = EvaluationTable(benchmark, ("rl_focal",), seeds=5, split=split, settings=(learned,), above=())
    settings = {
        label: (learned, *(f"rl_focal.{setting}" for setting in changed))
        for label, changed in ABLATED_PARTS.items()
    }
    return [base, *(replace(base, settings=one, label=label, base=base) for label, one in settings.items())]


RESULTS_OF: Mapping[str, Sequence[Step]] = {
    "frozen": [EvaluationTable(benchmark, ("all",), budgets=("1", "2", "4")) for benchmark in BENCHMARKS],
    "ours": [*map(_make_table, BENCHMARKS), _PER_TASK],
    "paper": [
        EvaluationTable(benchmark, PAPER_METHODS, seeds=seeds, above=("best_single", "rl_focal"))
        for benchmark, seeds in (("bbh", 3), ("gsm8k", 1), ("mmlu", 1))
    ],
    "tasks": [_WITH_TASK],
    "tuned": [_TUNED_METHODS, replace(_TUNED_METHODS, tune=0, label="the defaults")],
    "encoders": [
        EvaluationTable(benchmark, ROUTERS, settings=settings, label=label)
        for benchmark in ("bbh", "mmlu")
        for label, settings in ENCODERS.items()
    ],
    "texts": [
        EvaluationTable(b, (*OUR_METHODS, *(f"{name}-text" for name in OUR_METHODS)), above=OUR_METHODS)
        for b in ("bbh", "mmlu")
    ],
    "online": [
        *(
            EvaluationTable(b, (*ONLINE_LEARNERS, *_drop_impossible(b, ONLINE_METHODS)), protocol="online")
            for b in BENCHMARKS
        ),
        StreamTable((*ONLINE_LEARNERS, *ONLINE_METHODS)),
    ],
    "drift": [DriftTable(b, (*ONLINE_LEARNERS, *DRIFT_RIVALS), above=DRIFT_RIVALS) for b in ("bbh", "mmlu")],
    "parts": [*_make_ablations("mmlu", "train-tasks:1/3"), *_make_ablations("bbh", "train-random")],
    "demo": [DemoTable(RESULTS.parent / "lab-mmlu.svg")],
    "labels": [
        *map(LabelTable, BENCHMARKS),
        SmallPoolTable((("bbh", 3), ("gsm8k", 6), ("mmlu", 5))),
    ],
    "studies": [
        # With the fallback, a simpler policy decides at every value of these settings.
        *(
            StudyTable(study, "bbh", seeds=2, settings=("has_floor=false",))
            for study in ("size-penalty", "discount")
        ),
        StudyTable("pool-size", "bbh", seeds=2, values=(2, 3, 4, 5)),
        *(StudyTable(study, "bbh", seeds=2) for study in ("success", "switch")),
    ],
}

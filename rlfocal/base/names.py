"""Names that are needed before the modules behind them are imported, as by the command line: those of methods
and engines, and those of removed methods and commands, each refused with what takes its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal")
"""The names of RL-Focal's methods; the first two run by default."""
TRAINED_METHODS = (*RL_FOCAL, "gated_log_linear")
"""The names of all methods whose training writes a checkpoint."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""By control, the method that it trains without the questions' texts, to show what texts are worth."""
START_METHOD, TEAM_LOG_LINEAR = "rl_focal_start", "log_linear_team"
"""Controls of `rl_focal`: the policy from which it starts, and `log_linear` on that policy's models."""
CEILING_METHOD = "oracle"
"""The name of the ceiling, which is right wherever some model is; it reads labels, so it is no method."""
RIVALS = (
    "avengers", "avengers_pro", "best_plurality", "best_soft_vote", "carrot_knn", "carrot_linear", "des",
    "discounted_linucb", "discounted_thompson", "dylan", "eagle", "frugalgpt", "graph_router", "hedge",
    "hier_shrink", "irt", "likelihood_pool", "linucb", "llm_blender", "mf", "mlp", "model_sat", "more_agents",
    "mutual_information_pool", "pairwise_log_linear", "rlae_mappo", "rlae_ppo", "routellm_mf", "routellm_sw",
    "self_consistency_cascade", "sliding_best", "svm", "thompson", "topla", "uniroute",
)  # fmt: skip
"""The methods that the package in rivals/ registers if it is installed."""

LOOK_MESSAGE = "look at drift and promises"
"""The message of commits that store up to which snapshot answers were checked; a report shows no such
change."""
_REPLACEMENTS = {
    "method best_route": "`more_agents` votes over a model's passes, `cascade` asks cheap models first",
    "method hybrid_llm": "`routellm_mf` and `routellm_sw` choose between a weak and a strong model",
    "method model_switch": "`self_consistency_cascade` asks the next model where passes disagree",
    "method routellm_bert": "`routellm_mf` and `routellm_sw` are RouteLLM's other routers",
    "method routellm_causal": "`routellm_mf` and `routellm_sw` are RouteLLM's other routers",
    "method router_dc": "`mf` and `avengers` also learn which model suits a question, and are better",
    "method rl_focal_released": "docs/research.md has its results; `rl_focal_literal` is the paper's text",
    "explore": "`duckdb -ui` shows a warehouse in the browser (warehouse/README.md)",
    "report --paper": "`python -m benchmarks.results.paper`, in a checkout, prints its tables beside ours",
    "open-ended --settings": "the Decider learns from every model's score, which is better than appendix D's",
    "merit": "`rlfocal evaluate -b B --merit` prints the same figures",
    "advise --swap": "`rlfocal replay POLICY --swap A=B` says what changes; SQL has `compare_models`",
    "add-model --until-clear": "`--limit N` extracts the first N documents of each task",
    "add-model --no-train": "add-model trains nothing any more; `rlfocal evaluate` does",
    "add-model --seeds": "add-model trains nothing any more; `rlfocal evaluate --seeds K` does",
    "watch": '`rlfocal sql "FROM progress"` says what is done and how long the rest takes',
    "drift": "`rlfocal diff` compares with the state before the last extraction, with limits and --fail",
    "expire": "`rlfocal compact --keep N` or `--older-than AGE` deletes old snapshots, and merges files",
    "rename-model": "import or extract its answers under the new name; `remove-model` takes out the old one",
    "export decisions": "`rlfocal sql` reads the table `decisions`, and writes CSV or JSON",
    "export every-eval-ever": "`rlfocal export tables` writes answers, `rlfocal sql` accuracies",
    "import every-eval-ever": "`rlfocal import predictions` takes its answers",
    "import llmrouterbench": "`python -m rlfocal_rivals.convert` makes of it what `import predictions` takes",
    "import routerbench": "`python -m rlfocal_rivals.convert` makes of it what `import predictions` takes",
    "import leaderboard": "`rlfocal import lm-eval` takes its files and hub ids",
    "import released": "`rlfocal import predictions` takes its scores, a row for each document and model",
    "study search": "`rlfocal evaluate --tune N` chooses settings on train rows, for a board of its own",
    "study order": "`evaluate --protocol online` learns along the documents, `--split random` draws others",
    "study choices": "`constant_choice` shows what always giving one choice is worth",
    "study artefacts": "docs/studies.md has what it found",
    "study failures": "`rlfocal replay POLICY... -b B --scenario missing=0.1` leaves out answers",
    "study label-noise": "`rlfocal replay POLICY... -b B --scenario label-noise=0.1` makes labels wrong",
    "study branching": "`rlfocal replay rl_focal -b B --scenario set=branching=false` tries the other one",
    "study": "`python -m benchmarks.studies NAME -b B`, in a checkout, runs studies",
}
"""By removed name, what takes its place. A name is a method's kind and name, or the words of a command."""


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`, which imports a name when it is used.

    `homes`: by name, the module that defines it, or the module of that name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def is_gone(name: str) -> bool:
    """Whether this is a removed name: `method NAME`, or the words of a command."""
    return name in _REPLACEMENTS


def refuse_gone(name: str) -> None:
    """Raises InputError, with what takes its place, if this is a removed name."""
    if name in _REPLACEMENTS:
        from rlfocal.base.errors import (
            InputError,  # here, as `import rlfocal` must not wait for the warehouse
        )

        raise InputError(f"{name} is gone: {_REPLACEMENTS[name]}")


def refuse_gone_words(words: list[str]) -> None:
    """Raises InputError if the words of a command line name a removed command or option."""
    command, second = [*words, "", ""][:2]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    for name in (f"{command} {second}", command, *(f"{command} {option}" for option in options)):
        refuse_gone(name)

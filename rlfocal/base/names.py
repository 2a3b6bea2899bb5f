"""Names known without importing what they stand for, and those of earlier versions, which are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from rlfocal.base.errors import InputError

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal")
"""RL-Focal's methods; the first two run by default."""
TRAINED = (*RL_FOCAL, "gated_log_linear")
"""All that are trained to a checkpoint, as in `rlfocal.methods.variants`."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""
RIVALS = (
    "avengers", "avengers_pro", "best_plurality", "best_soft_vote", "carrot_knn", "carrot_linear", "des",
    "discounted_linucb", "discounted_thompson", "dylan", "eagle", "frugalgpt", "graph_router", "hedge",
    "hier_shrink", "irt", "likelihood_pool", "linucb", "llm_blender", "mf", "mlp", "model_sat", "more_agents",
    "mutual_information_pool", "pairwise_log_linear", "rlae_mappo", "rlae_ppo", "routellm_mf", "routellm_sw",
    "self_consistency_cascade", "sliding_best", "svm", "thompson", "topla", "uniroute",
)  # fmt: skip
"""Methods that rivals/ registers where it is installed."""


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`. `homes`: the module of each name, or that it is."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get


_PLACE = {
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
    "add-model --until-clear": "`--limit N` extracts the first N documents of each task",
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
    "study pool-scale": "`python -m benchmarks.results.scale`, in a checkout, runs it",
    "study order": "`evaluate --protocol online` learns along the documents, `--split random` draws others",
    "study choices": "`constant_choice` shows what always giving one choice is worth",
    "study artefacts": "docs/studies.md has what it found",
}
"""By kind and name of a method, else by the words of the command line."""


def is_gone(name: str) -> bool:
    """Whether there was a method, as `method NAME`, or a part of the command line of that name."""
    return name in _PLACE


def refuse_gone(name: str) -> None:
    """Raises InputError for a name that `is_gone`."""
    if name in _PLACE:
        raise InputError(f"{name} is gone: {_PLACE[name]}")


def refuse_gone_words(words: list[str]) -> None:
    """Raises InputError if the words of a command line name a command or an option that is gone."""
    command, second = [*words, "", ""][:2]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    for name in (command, f"{command} {second}", *(f"{command} {option}" for option in options)):
        refuse_gone(name)

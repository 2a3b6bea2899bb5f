"""The names of removed methods and commands, each refused with what takes its place."""

from __future__ import annotations

from rlfocal.base.errors import InputError

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


def is_gone(name: str) -> bool:
    """Whether this is a removed name: `method NAME`, or the words of a command."""
    return name in _REPLACEMENTS


def refuse_gone(name: str) -> None:
    """Raises InputError, with what takes its place, if this is a removed name."""
    if name in _REPLACEMENTS:
        raise InputError(f"{name} is gone: {_REPLACEMENTS[name]}")


def refuse_gone_words(words: list[str]) -> None:
    """Raises InputError if the words of a command line name a removed command or option."""
    command, second = [*words, "", ""][:2]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    for name in (f"{command} {second}", command, *(f"{command} {option}" for option in options)):
        refuse_gone(name)

"""The embedded pool `lab`: twelve tiny language models, trained from scratch on five generated benchmarks. A
recipe for each says its architecture, its size, and its talents by benchmark. The weights ship with the
package; `build` trains them again from their seed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rlfocal.base.atomic import replace_path
from rlfocal.base.errors import RunError, unknown_name
from rlfocal.extraction.running.processes import run_each
from rlfocal.lab.documents import BENCHMARKS, all_tasks, training_mixture
from rlfocal.lab.question import Facts, Question, Task
from rlfocal.pool.hub import BENCHMARKS_FILE, TASKS_DIR, WEIGHTS_DIR, weights_dir

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["BENCHMARKS_FILE", "TASKS_DIR", "WEIGHTS_DIR", "build", "weights_dir"]

IGNORANCE = {"lab-mmlu": 0.5, "lab-bbh": 0.22, "lab-musr": 0.22, "lab-gpqa": 0.4, "lab-gsm8k": 0.12}
"""The share of a task's facts that a model of average talent gets wrong or never sees, by benchmark."""

JITTER = 0.6
"""The largest relative change of ignorance between the tasks of a benchmark."""

WEIGHTS = {
    "lab-mmlu": 0.5, "boolean_expressions": 1.2, "calendar_step": 1.0, "hyperbaton": 0.3, "navigate": 0.8,
    "object_counting": 0.8, "ordering": 1.6, "murder_mysteries": 0.8, "object_placements": 1.4,
    "team_allocation": 1.4, "two_hop": 1.6, "word_problems": 1.6,
}  # fmt: skip
"""The weight of a task among training questions, by task or benchmark, before a model's talents change it."""
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "Llama": {"head_dim": 32},
    "Mistral": {"head_dim": 32, "sliding_window": None},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.0, "head_dim": 32},
    "Gemma": {"head_dim": 32},
    "Gemma2": {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 256},
    "Phi": {"partial_rotary_factor": 0.5},
    "Phi3": {},
    # Not Qwen2, for which transformers ignores the tokenizer that stands beside the model.
    "Qwen3": {"head_dim": 32},
}
RECIPE_FILE = "recipe.json"
FINGERPRINT_QUESTIONS = 2000
STEPS_PER_REPORT = 20


@dataclass(frozen=True)
class Recipe:
    """The recipe by which one model is made. `talent` has a value for each benchmark, in their order; it
    divides the model's ignorance, and 1 is average."""

    model: str
    architecture: str
    talent: tuple[float, float, float, float, float]
    hidden: int = 64
    layers: int = 2
    questions: int = 100_000
    learning_rate: float = 2e-3
    tokens_per_batch: int = 640

    def config(self, vocabulary: int) -> PretrainedConfig:
        """The model's configuration for transformers, with attention heads of size 32 and 256 positions."""
        import transformers

        config_class = getattr(transformers, f"{self.architecture}Config")
        heads = self.hidden // 32
        settings: dict[str, Any] = {
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": 2 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": 256,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
            "initializer_range": 0.1,
            "tie_word_embeddings": self.architecture != "Phi",
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": "float32",
        }
        return config_class(**{**settings, **ARCHITECTURES[self.architecture]})

    def beliefs(self, seed: int) -> Mapping[str, Facts]:
        """The facts of each task that the model is taught as true."""
        return {
            task.name: believed_facts(
                task, self._draw_ignorance(task.name, task.benchmark, seed), f"{seed} {self.model}"
            )
            for task in all_tasks()
        }

    def weights(self) -> Mapping[str, float]:
        """The weight of each task among the model's training questions."""
        return {
            task.name: WEIGHTS.get(task.name, WEIGHTS.get(task.benchmark, 1.0))
            * self._find_talent(task.benchmark) ** 0.5
            for task in all_tasks()
        }

    def lessons(self, n: int, seed: int) -> list[Question]:
        """`n` shuffled training questions with the answers that the model is taught."""
        return training_mixture(self.beliefs(seed), self.weights(), n, f"{seed} {self.model}")

    def _find_talent(self, benchmark: str) -> float:
        return self.talent[BENCHMARKS.index(benchmark)]

    def _draw_ignorance(self, task: str, benchmark: str, seed: int) -> float:
        jitter = 1 + JITTER * Random(f"ignorance {seed} {self.model} {task}").uniform(-1, 1)
        return min(0.8, IGNORANCE[benchmark] * jitter / self._find_talent(benchmark))


RECIPES = (
    Recipe("lab-deepseek", "Llama", (1.2, 0.9, 0.8, 1.2, 1.1)),
    Recipe("lab-gemma", "Gemma", (0.9, 1.3, 0.8, 0.9, 1.1)),
    Recipe("lab-gemma-small", "Gemma", (0.8, 0.7, 1.0, 0.7, 0.8), hidden=32, learning_rate=3e-3),
    Recipe("lab-gemma2", "Gemma2", (1.0, 1.0, 1.2, 1.1, 0.9)),
    Recipe("lab-llama", "Llama", (1.0, 0.9, 1.1, 0.8, 1.0)),
    Recipe("lab-llama-large", "Llama", (1.3, 1.1, 1.1, 1.0, 1.3), hidden=96, learning_rate=1.5e-3),
    Recipe("lab-llama-small", "Llama", (0.7, 0.8, 0.9, 0.8, 0.6), hidden=32, learning_rate=3e-3),
    Recipe("lab-mistral", "Mistral", (0.9, 1.1, 0.9, 1.1, 1.0)),
    Recipe("lab-mixtral", "Mixtral", (1.2, 1.2, 1.0, 1.0, 0.9), questions=80_000),
    Recipe("lab-phi", "Phi", (0.8, 1.2, 1.0, 0.9, 1.3)),
    Recipe("lab-phi3", "Phi3", (1.0, 1.0, 1.3, 1.0, 1.2)),
    Recipe("lab-qwen3", "Qwen3", (1.1, 1.0, 0.9, 1.6, 1.4), hidden=96, learning_rate=1.5e-3),
)


def believed_facts(task: Task, ignorance: float, seed: str) -> Facts:
    """The task's facts, with a share `ignorance` of them wrong. In tasks of `memory`, half of that share is
    missing instead.

    Many models get the same hard facts wrong: a fact's difficulty counts as much as the randomness from
    `seed`.
    """
    truth, rng = task.truth(), Random(f"beliefs {seed} {task.name}")
    doubts = {key: Random(f"difficulty {task.name} {key}").random() + rng.random() for key in truth}
    doubted = sorted(truth, key=doubts.__getitem__)[len(truth) - round(ignorance * len(truth)) :]
    rng.shuffle(doubted)
    missing = doubted[::2] if task.memory else []
    mistaken = [key for key in doubted if key not in missing]
    beliefs = {key: value for key, value in truth.items() if key not in missing}
    if task.bijective:
        others = [*mistaken[1:], *mistaken[:1]]
        return beliefs | {key: truth[other] for key, other in zip(mistaken, others, strict=True)}
    return beliefs | {key: _draw_misconception(truth, key, rng) for key in mistaken}


def _draw_misconception(truth: Facts, key: str, rng: Random) -> str:
    """A wrong value of the key's group: half of the time, the value that most models wrongly believe."""
    group = key.rpartition("/")[0]
    values = sorted(
        {value for other, value in truth.items() if other.rpartition("/")[0] == group} - {truth[key]}
    )
    common = Random(f"misconception {key}").choice(values)
    return common if rng.random() < 0.5 else rng.choice(values)


OnProgress = Callable[[str, float], None]
"""A function that is called with a model's name and the finished share of its training, 0 to 1."""


def build(
    out_dir: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    force: bool = False,
    models: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Path]:
    """Trains models (all by default) into `out_dir/<model>`, each from scratch and from `seed` alone. Returns
    the models' folders.

    A folder with the same recipe and seed stays unless `force` is set. Raises InputError for an unknown
    model. Raises RunError for a training that fails, once the others have ended.
    """
    recipes = _choose(models)
    stale = [
        recipe
        for recipe in recipes
        if force or _read_fingerprint(out_dir / recipe.model) != fingerprint(recipe, seed)
    ]
    out_dir.mkdir(parents=True, exist_ok=True)
    if stale:
        # The largest first, so that no process is left alone with it at the end.
        stale.sort(key=lambda recipe: -recipe.hidden)
        ended = run_each(
            train_model,
            {recipe.model: (recipe, out_dir / recipe.model, seed) for recipe in stale},
            at_once=workers,
            on_event=on_progress or (lambda model, share: None),
            preload=("rlfocal.lab.training",),
        )
        for model, reason in ended.items():
            if reason is not None:
                raise RunError(f"{model} was not trained: {reason}")
    return [out_dir / recipe.model for recipe in recipes]


def fingerprint(recipe: Recipe, seed: int) -> str:
    """A digest of a model's recipe, the seed, and the training questions that the generators make of both."""
    questions = recipe.lessons(FINGERPRINT_QUESTIONS, seed)
    text = repr((recipe, seed, [(question.prompt, question.answer) for question in questions]))
    return hashlib.sha256(text.encode()).hexdigest()


def train_model(on_progress: Callable[[float], None], recipe: Recipe, path: Path, seed: int) -> None:
    """Trains one model on one thread, and saves it with its tokenizer at `path`, whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from rlfocal.lab.training import build_tokenizer, lessons, train

    def report(done: int, total: int) -> None:
        if done % STEPS_PER_REPORT == 0 or done == total:
            on_progress(done / total)

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(recipe.config(len(tokenizer)), dtype=torch.float32)
    train(
        model,
        lessons(tokenizer, recipe.lessons(recipe.questions, seed)),
        tokens_per_batch=recipe.tokens_per_batch,
        learning_rate=recipe.learning_rate,
        seed=seed,
        progress=report,
    )
    _save(model, tokenizer, path, {"fingerprint": fingerprint(recipe, seed), "seed": seed})


def _save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, path: Path, record: dict[str, object]
) -> None:
    """Saves a model whole, so that a killed build leaves no half-written model."""
    with replace_path(path) as staged:
        # Stored in half precision, used in single: half the size for no accuracy that matters.
        model.half().save_pretrained(staged)
        model.config.dtype = "float32"
        model.config.save_pretrained(staged)
        tokenizer.save_pretrained(staged)
        (staged / RECIPE_FILE).write_text(json.dumps(record, indent=1) + "\n")
        shutil.rmtree(path, ignore_errors=True)


def _choose(models: Sequence[str] | None) -> list[Recipe]:
    by_name = {recipe.model: recipe for recipe in RECIPES}
    for model in models or ():
        if model not in by_name:
            raise unknown_name("model", model, by_name)
    return [recipe for recipe in RECIPES if models is None or recipe.model in models]


def _read_fingerprint(path: Path) -> str | None:
    """The fingerprint that a built model was trained with; None if there is no complete model."""
    try:
        record: dict[str, str] = json.loads((path / RECIPE_FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return record.get("fingerprint")

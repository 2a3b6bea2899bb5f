"""The embedded pool `lab`: twelve tiny language models, trained from scratch on five generated benchmarks.
The weights ship with the package; `build` trains them again from their seed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlfocal.base.atomic import replace_path
from rlfocal.base.errors import RunError, unknown_name
from rlfocal.extraction.running.processes import run_each
from rlfocal.lab.recipes import RECIPES, Recipe
from rlfocal.pool.hub import BENCHMARKS_FILE, TASKS_DIR, WEIGHTS_DIR, weights_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["BENCHMARKS_FILE", "TASKS_DIR", "WEIGHTS_DIR", "build", "weights_dir"]

RECIPE_FILE = "recipe.json"
FINGERPRINT_QUESTIONS = 2000
STEPS_PER_REPORT = 20

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
        _train_all(stale, out_dir, seed, workers, on_progress or (lambda model, share: None))
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


def _train_all(
    recipes: list[Recipe], out_dir: Path, seed: int, workers: int, on_progress: OnProgress
) -> None:
    # The largest first, so that no process is left alone with it at the end.
    ordered = sorted(recipes, key=lambda recipe: -recipe.hidden)
    jobs = {recipe.model: (recipe, out_dir / recipe.model, seed) for recipe in ordered}
    ended = run_each(
        train_model, jobs, at_once=workers, on_event=on_progress, preload=("rlfocal.lab.training",)
    )
    for model, reason in ended.items():
        if reason is not None:
            raise RunError(f"{model} was not trained: {reason}")


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

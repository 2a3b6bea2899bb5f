"""The embedded pool: its questions, tokenizer, training, shipped weights and lm-eval tasks."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from rlfocal.base.errors import InputError
from rlfocal.lab import (
    BENCHMARKS_FILE,
    RECIPES,
    TASKS_DIR,
    WEIGHTS_DIR,
    Recipe,
    believed_facts,
    build,
    train_model,
    weights_dir,
)
from rlfocal.lab.documents import BENCHMARKS, all_tasks, test_questions, training_questions
from rlfocal.lab.question import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TASKS = all_tasks()
CHOICE_TASKS = [task for task in TASKS if task.benchmark != "lab-gsm8k"]
SHORT = Recipe("lab-short", "Llama", (1.0, 1.0, 1.0, 1.0, 1.0), questions=300)

test_questions.__test__ = False  # type: ignore[attr-defined]
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
each_choice_task = pytest.mark.parametrize("task", CHOICE_TASKS, ids=lambda task: task.name)


@each_task
def test_documents_are_always_the_same_and_all_different(task: Task) -> None:
    questions = test_questions(task)
    assert questions == test_questions(task)
    assert (
        len({question.prompt for question in questions}) == len(questions) == task.size + task.extra_documents
    )


@each_task
def test_training_never_sees_a_test_question(task: Task) -> None:
    asked = {question.prompt for question in test_questions(task)}
    drawn = list(islice(training_questions(task, task.truth(), Random(1)), 1500))
    assert asked.isdisjoint(question.prompt for question in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.model)
def test_a_shipped_model_met_two_further_documents_of_a_task_at_most(recipe: Recipe) -> None:
    weights, beliefs = recipe.weights(), recipe.beliefs(0)
    for task in (task for task in TASKS if task.extra_documents):
        n = round(recipe.questions * weights[task.name] / sum(weights.values()))
        lessons = training_questions(task, beliefs[task.name], Random(f"0 {recipe.model} {task.name}"))
        taught = {question.prompt for question in islice(lessons, n)}
        assert sum(question.prompt in taught for question in test_questions(task)) <= 2


@each_choice_task
def test_choices_are_distinct_and_the_right_one_is_at_any_position(task: Task) -> None:
    questions = test_questions(task)
    places = Counter(question.label for question in questions)
    n_choices = {len(question.choices) for question in questions}
    assert all(len(set(question.choices)) == len(question.choices) for question in questions)
    (n,) = n_choices
    expected = len(questions) / n
    # Four standard deviations of a binomial count: a fixed draw either passes for good or shows a bias.
    assert all(abs(places[label] - expected) < 4 * (expected * (1 - 1 / n)) ** 0.5 for label in range(n))


@each_task
def test_beliefs_differ_from_the_truth_by_the_ignorance_asked_for(task: Task) -> None:
    truth = task.truth()
    assert believed_facts(task, 0.0, "seed") == truth
    beliefs = believed_facts(task, 0.5, "seed")
    wrong = [key for key in truth if beliefs.get(key) != truth[key]]
    assert len(wrong) == round(0.5 * len(truth))
    assert beliefs.keys() == truth.keys() or task.memory
    if task.bijective:
        assert sorted(beliefs.values()) == sorted(truth.values())


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    from rlfocal.lab.training import build_tokenizer

    return build_tokenizer()


def test_tokenizer_round_trips_and_takes_words_and_digits_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    questions = [question for task in TASKS for question in test_questions(task)]
    answers = [f" {question.answer}" for question in questions]
    texts = [*(question.prompt for question in questions), *answers]
    assert tokenizer.batch_decode(tokenizer(texts).input_ids) == texts
    words = [answer for answer in answers if " " not in answer[1:]]
    assert {len(ids) for ids in tokenizer(words).input_ids} == {1}
    for text in ("Zürich  ≠ \t naïve\n🙂", " 407"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer(" 407").input_ids) == 3


@pytest.mark.slow
def test_the_same_seed_trains_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_model(lambda share: None, SHORT, tmp_path / name, seed)
    first, second, other = (_files(tmp_path / name) for name in "abc")
    assert first == second
    assert first["model.safetensors"] != other["model.safetensors"]


def test_build_keeps_what_is_built_and_refuses_unknown_models(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lab-llama"):
        build(tmp_path, models=["lab-lama"])
    copied = tmp_path / "lab-llama"
    copied.mkdir()
    (copied / "recipe.json").write_bytes((WEIGHTS_DIR / "lab-llama" / "recipe.json").read_bytes())
    assert build(tmp_path, models=["lab-llama"]) == [copied]
    assert [path.name for path in copied.iterdir()] == ["recipe.json"]


def test_shipped_weights_are_small_and_complete() -> None:
    sizes = {path: path.stat().st_size for path in WEIGHTS_DIR.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 6_000_000
    assert {path.parent.name for path in sizes} == {recipe.model for recipe in RECIPES}
    assert len(RECIPES) == 12
    with pytest.raises(InputError, match="lab-llama"):
        weights_dir("lab-lama")


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, marks=[pytest.mark.slow] * recipe.model.endswith(("-small", "-large")))
        for recipe in RECIPES
    ],
    ids=lambda recipe: recipe.model,
)
def test_shipped_models_load(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = weights_dir(recipe.model)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    shipped = AutoTokenizer.from_pretrained(path)
    assert type(model).__name__ == f"{recipe.architecture}ForCausalLM"
    assert model.config.max_position_embeddings >= 256
    assert all(torch.equal(weight, weight.half().float()) for weight in model.parameters())
    (task,) = (task for task in TASKS if task.name == "hyperbaton")
    prompts = [question.prompt for question in test_questions(task)]
    assert shipped(prompts).input_ids == tokenizer(prompts).input_ids


def test_pool_file_describes_the_shipped_models() -> None:
    import torch
    from safetensors.torch import load_file

    from rlfocal.pool import load_pool

    pool = load_pool("lab")
    assert [model.model for model in pool.models] == [recipe.model for recipe in RECIPES]
    assert [benchmark.name for benchmark in pool.benchmarks] == list(BENCHMARKS)
    for spec in pool.models:
        weights = load_file(weights_dir(spec.model) / "model.safetensors")
        assert all(weight.dtype == torch.float16 for weight in weights.values())
        assert spec.params_b * 1e9 == pytest.approx(sum(w.numel() for w in weights.values()), rel=1e-6)
        assert spec.active_params_b is not None
        assert spec.active_params_b <= spec.params_b


def test_lm_eval_loads_every_task_with_its_documents() -> None:
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(TASKS_DIR), include_defaults=False)
    named = {
        (benchmark["name"], task): lm_eval_task
        for benchmark in YAML(typ="safe").load(BENCHMARKS_FILE)
        for task, lm_eval_task in benchmark["tasks"].items()
    }
    assert set(named) == {(task.benchmark, task.name) for task in TASKS}
    assert set(manager.all_subtasks) == set(named.values())
    for task in TASKS:
        name = named[task.benchmark, task.name]
        (loaded,) = manager.load([name])["tasks"].values()
        docs = list(loaded.eval_docs)
        questions = test_questions(task)
        assert [loaded.doc_to_text(doc) for doc in docs] == [question.prompt for question in questions]
        if task.benchmark != "lab-gsm8k":
            assert [loaded.doc_to_choice(doc) for doc in docs] == [list(q.choices) for q in questions]
            assert [loaded.doc_to_target(doc) for doc in docs] == [question.label for question in questions]


def _files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}

"""Tasks as lm-eval loads them, what a fingerprint depends on, and which models have what to do."""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import save_model, tiny_benchmarks, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.partition import fingerprint, weights_digest
from rlfocal.extraction.running import missing
from rlfocal.extraction.running.missing import find_missing, plan_extraction
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool import load_pool
from rlfocal.pool.hub import HubError
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tiny"))


def test_prompts_do_not_depend_on_what_else_is_loaded(tasks: Path) -> None:
    choices, answers = tiny_benchmarks(tasks)
    alone = load_tasks([choices])
    random.seed(7)
    together = load_tasks([answers, choices])
    assert together[1:] == alone
    fewer = load_tasks([choices], limit=10)
    assert [t.documents for t in fewer] == [t.documents[:10] for t in alone]
    assert [t.digest for t in fewer] == [t.digest for t in alone]


def test_fingerprint_covers_what_rows_depend_on(tasks: Path, tmp_path: Path) -> None:
    choices, answers = tiny_benchmarks(tasks)
    [plain, spaces, sampled] = load_tasks([choices, answers])
    [fewshot, _] = load_tasks([choices.model_copy(update={"num_fewshot": 1})])
    edited = write_tasks(tmp_path / "edited")
    for name in ("choices.jsonl", "answers.jsonl"):
        (edited / name).write_text((edited / name).read_text().replace("fox", "ox"))
    [other_docs, _] = load_tasks([tiny_benchmarks(edited)[0]])
    [moved, *_] = load_tasks([tiny_benchmarks(write_tasks(tmp_path / "moved"))[0]])
    spec = ModelSpec(model="m", hf_repo=str(save_model(tmp_path / "llama", "llama")), params_b=1)
    digest = weights_digest(spec)
    other_weights = weights_digest(
        spec.model_copy(update={"hf_repo": str(save_model(tmp_path / "b", "llama", seed=1))})
    )

    def of(task: TaskDocuments = plain, backend: str = "hf", weights: str = digest, **other: Any) -> str:
        return fingerprint(spec.model_copy(update=other), weights, task, backend)

    base = of()
    assert base == of(moved)
    with pytest.MonkeyPatch.context() as patch:
        usual = of(backend="vllm")
        patch.setenv("VLLM_BATCH_INVARIANT", "0")
        assert of(backend="vllm") == usual
        patch.setenv("VLLM_BATCH_INVARIANT", "1")
        assert of(backend="vllm") != usual
        assert of() == base
    others = [of(task) for task in (spaces, sampled, fewshot, other_docs)]
    others += [of(backend="vllm"), of(weights=other_weights), of(revision="v2"), of(dtype="bfloat16")]
    others += [of(quantization="awq"), of(context_length=1024), of(truncation="keep")]
    others += [of(trust_remote_code=True), of(engine_args={"hf": {"batch_tokens": 8}})]
    assert len({base, *others}) == len(others) + 1
    same = [of(price=3), of(tensor_parallel=2), of(family="x"), of(engine_args={"vllm": {"x": 1}})]
    assert set(same) == {base}


def test_wrong_benchmarks_are_refused_with_the_fix(tasks: Path, tmp_path: Path) -> None:
    choices, _ = tiny_benchmarks(tasks)
    damaged = write_tasks(tmp_path / "damaged")
    (damaged / "choices.jsonl").unlink()
    sums = damaged / "tiny_answers.yaml"
    sums.write_text(sums.read_text().replace("top_p:", "top_pp:"))
    fileless, mistyped = tiny_benchmarks(damaged)
    changes: dict[str, dict[str, Any]] = {
        "'tiny_choices'": {"tasks": {"x": "tiny_choice"}},
        "output type": {"kind": "answers"},
        "num_fewshot": {"num_fewshot": 10_000},
        "not a folder": {"include_path": str(tmp_path / "no")},
    }
    cases = [(choices.model_copy(update=change), InputError, noun) for noun, change in changes.items()]
    for benchmark, kind, noun in [
        *cases,
        (fileless, InputError, "tiny_c"),
        (mistyped, InputError, "'top_p'"),
    ]:
        with pytest.raises(kind, match=noun):
            load_tasks([benchmark])


def test_documents_whose_labels_are_hidden_are_refused(tmp_path: Path) -> None:
    """Each answer to them would be wrong. A document without a right choice, among others, may be meant."""
    choices, _ = tiny_benchmarks(write_tasks(tmp_path))
    file = tmp_path / "choices.jsonl"
    hidden = [re.sub(r'"label": \d', '"label": -1', line) for line in file.read_text().splitlines()]
    labelled = file.read_text().splitlines()
    file.write_text("\n".join(hidden))
    with pytest.raises(InputError, match="'test' may hide its labels"):
        load_tasks([choices])
    file.write_text("\n".join([*hidden[:-1], labelled[-1]]))
    assert {document.label for document in load_tasks([choices])[0].documents} == {-1, 1}


def test_a_task_without_data_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    choices, _ = tiny_benchmarks(write_tasks(tmp_path))
    file = tmp_path / "tiny_choices.yaml"
    file.write_text(file.read_text().replace("test_split: test", "test_split: dev"))
    with pytest.raises(InputError, match="no split 'dev', which test_split names"):
        load_tasks([choices])
    (tmp_path / "choices.jsonl").write_text("")
    with pytest.raises(InputError, match=f"no documents; mend the task's YAML in {tmp_path}"):
        load_tasks([choices])


def test_a_context_beyond_the_models_own_is_refused_before_an_engine_starts(
    tasks: Path, tmp_path: Path
) -> None:
    """transformers' engine would ignore it, so that a plan would promise prompts that do not fit."""
    folder = save_model(tmp_path / "llama", "llama")
    [plain, _] = load_tasks([tiny_benchmarks(tasks)[0]])

    def plan(context: int) -> missing.MissingWork:
        spec = ModelSpec(model="m", hf_repo=str(folder), params_b=1, context_length=context)
        return find_missing([spec], [plain], "hf", {})[0]

    assert plan(96).jobs
    assert "at most 96" in str(plan(97).reason)


def test_data_files_count_from_the_working_directory_which_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = write_tasks(tmp_path / "tasks")
    for file in tasks.glob("*.yaml"):
        file.write_text(file.read_text().replace(f"{tasks}/", ""))
    choices, _ = tiny_benchmarks(tasks)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"count from {tmp_path}, where you are"):
        load_tasks([choices])
    monkeypatch.chdir(tasks)
    assert len(load_tasks([choices])) == 2


def test_tasks_of_local_files_ask_no_network(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(*address: Any, **_: Any) -> Any:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    assert len(load_tasks(tiny_benchmarks(tasks))) == 3
    assert asked == []


def test_the_widest_and_then_the_most_work_come_first_and_what_cannot_run_last(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    pool = load_pool("lab").choose(None, ["lab-gpqa"])
    broken = pool.models[0].model_copy(update={"hf_repo": str(tmp_path)})
    smallest = min(pool.models[1:], key=lambda model: model.params_b)
    wide = smallest.model_copy(update={"tensor_parallel": 2})
    models = [broken, *(wide if model == smallest else model for model in pool.models[1:])]
    plans = plan_extraction(warehouse, models, load_tasks(pool.benchmarks, 8), "vllm")
    found = [plan.model for plan in sorted(plans, key=lambda plan: plan.place) if plan.is_incomplete]
    assert (found[0], found[-1]) == (wide, broken)
    assert {model.model for model in found} == {model.model for model in pool.models}
    sizes = [model.params_b for model in found[1:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    assert warehouse.rows("SELECT count(*) FROM models") == [(12,)]


def test_whatever_is_wrong_with_one_model_the_others_run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = list(load_pool("lab").models[:4])
    unreached, broken, ignored, good = (model.model for model in models)
    models[2] = models[2].model_copy(update={"quantization": "awq"})

    def found(spec: ModelSpec, **_: bool) -> ModelSpec:
        if spec.model == unreached:
            raise HubError("no answer")
        if spec.model == broken:
            raise ZeroDivisionError("what nobody thought of")
        return spec

    monkeypatch.setattr(missing, "pin_revision", found)
    tasks = load_tasks(load_pool("lab").choose(None, ["lab-gpqa"]).benchmarks, 8)
    plans = {plan.model.model: plan for plan in find_missing(models, tasks, "hf", {})}
    assert [model for model, plan in plans.items() if plan.jobs] == [good]
    assert [model for model, plan in plans.items() if plan.reason] == [unreached, broken, ignored]
    assert [model for model, plan in plans.items() if not plan.is_lasting] == [unreached]
    assert plans[broken].reason == "ZeroDivisionError: what nobody thought of"
    assert "hf does not quantize (awq)" in str(plans[ignored].reason)
    assert [p.model.model for p in find_missing(models, tasks, "vllm", {}) if p.jobs] == [ignored, good]

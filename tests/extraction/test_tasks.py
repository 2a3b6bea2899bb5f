"""Tasks as lm-eval loads them: what their documents and a partition's fingerprint depend on."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import save_model, tiny_benchmarks, write_tasks

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.partition import fingerprint, weights_digest
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool.specs import ModelSpec


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

    def of(task: TaskDocuments = plain, backend: str = "hf", weights: str = digest, **other: str) -> str:
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
    others += [of(backend="vllm"), of(weights="other weights"), of(revision="v2"), of(dtype="bfloat16")]
    assert len({base, *others}) == len(others) + 1


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
    for benchmark, kind, noun in [*cases, (fileless, RunError, "tiny_c"), (mistyped, InputError, "'top_p'")]:
        with pytest.raises(kind, match=noun):
            load_tasks([benchmark])


def test_tasks_of_local_files_ask_no_network(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(*address: Any, **_: Any) -> Any:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    assert len(load_tasks(tiny_benchmarks(tasks))) == 3
    assert asked == []

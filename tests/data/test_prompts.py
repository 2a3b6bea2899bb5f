"""Within a benchmark all models are asked the same, and how they were asked is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import save_model, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_prompts
from rlfocal.extraction.running.runner import ExtractionReport
from rlfocal.extraction.running.runner import extract as extract_now
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import open_warehouse

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("prompts")
    write_tasks(made / "tasks", choices=6)
    from transformers import AutoTokenizer

    for seed, name in enumerate(("a", "b", "c")):
        save_model(made / name, "llama", seed=seed)
        tokenizer = AutoTokenizer.from_pretrained(made / name)
        tokenizer.chat_template = name + TEMPLATE
        tokenizer.save_pretrained(made / name)
    return made


def extract(folder: Path, place: Path, models: str, shots: int, **more: Any) -> ExtractionReport:
    pool = PoolSpec(
        name="tiny",
        benchmarks=(
            Benchmark(
                name="tiny@t",
                kind="choices",
                tasks={"plain": "tiny_choices"},
                num_fewshot=shots,
                include_path=str(folder / "tasks"),
                chat_template=more.pop("chat_template", False),
            ),
        ),
        models=tuple(
            ModelSpec(model=m, hf_repo=str(folder / m), params_b=1e-4, truncation="keep") for m in models
        ),
    )
    return extract_now(pool, place, **more)


@pytest.mark.usefixtures("one_process")
def test_prompts_are_stored_once_and_other_few_shot_examples_are_another_prompt(
    folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "w"
    assert len(extract(folder, place, "a", 1, limit=3).committed) == 1
    assert len(extract(folder, place, "ab", 1).committed) == 2
    check_stored_once(place)
    refused = extract(folder, place, "bc", 2)
    assert not refused.committed
    assert {gap.model for gap in refused.missing} == {"b", "c"}
    assert all("another prompt" in gap.reason and "tiny@t@v2" in gap.reason for gap in refused.missing)
    with open_warehouse(place, read_only=True) as warehouse:
        assert warehouse.rows("SELECT model, n FROM accuracy ORDER BY 1") == [("a", 6), ("b", 6)]
        [before] = warehouse.rows("SELECT list(prompt_hash ORDER BY doc_id) FROM docs")
    replaced = extract(folder, place, "c", 2, replace_documents=True)
    assert [c.model for c in replaced.committed] == ["c"]
    with open_warehouse(place, read_only=True) as warehouse:
        assert warehouse.rows("SELECT model FROM accuracy ORDER BY 1") == [("c",)]
        [after] = warehouse.rows("SELECT list(prompt_hash ORDER BY doc_id) FROM docs")
        assert not set(before[0]) & set(after[0])
        assert warehouse.rows("SELECT count(*), count(DISTINCT doc_id) FROM prompts") == [(6, 6)]


@pytest.mark.slow
def test_a_single_models_prompts_may_change(folder: Path, tmp_path: Path) -> None:
    for shots in (1, 2):
        assert len(extract(folder, tmp_path / "w", "a", shots).committed) == 1
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        prompts = load_prompts(warehouse, "tiny@t")
    assert [prompt.text.count("Question:") for prompt in prompts if prompt.text] == [3] * 6


def check_stored_once(place: Path) -> None:
    """Prompts of all models alike, a row a document."""
    with open_warehouse(place, read_only=True) as warehouse:
        assert warehouse.rows("SELECT DISTINCT model, count(*) FROM prompts GROUP BY ALL") == [("*", 6)]
        prompts = load_prompts(warehouse, "tiny@t", "b")
        assert [(p.task, p.doc_id) for p in prompts] == [("plain", i) for i in range(6)]
        question = warehouse.rows("SELECT question, choices FROM docs WHERE doc_id = 4")[0]
        assert prompts[4].text is not None
        assert prompts[4].text.endswith(question[0])
        assert prompts[4].continuations == tuple(f" {choice}" for choice in question[1])
        with pytest.raises(InputError, match="unknown model 'x'"):
            load_prompts(warehouse, "tiny@t", "x")


def test_a_chat_is_the_same_for_all_and_rendered_for_each(folder: Path, tmp_path: Path) -> None:
    report = extract(folder, tmp_path / "w", "ab", 1, chat_template=True)
    assert len(report.committed) == 2, report.missing
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        for model in "ab":
            prompt = load_prompts(warehouse, "tiny@t", model)[0]
            assert prompt.messages is not None
            expected = "".join(f"<{role}>{content}" for role, content in prompt.messages)
            assert prompt.text == f"{model}{expected}<assistant>"
        assert load_prompts(warehouse, "tiny@t")[0].text is None

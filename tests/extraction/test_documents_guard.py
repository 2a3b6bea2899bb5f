"""What never enters a warehouse: other documents than it has, and scores that no model can have given."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from support.rows import SCORES, THREE, choice_rows, docs, extraction, put
from support.tiny_models import (
    save_model,
    save_models,
    tiny_benchmarks,
    tiny_model,
    tiny_tokenizer,
    write_tasks,
)

from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import evaluate
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines.hf import HFEngine
from rlfocal.extraction.running.runner import extract
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from rlfocal.report import write_report
from warehouse import Warehouse, open_warehouse
from warehouse.alignment import check_scores
from warehouse.integrity import examine
from warehouse.scripts import script

Edit = Callable[[list[dict[str, Any]]], object]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "a", "llama", seed=0)
    save_model(folder / "b", "llama", seed=1)
    return folder


def pool(models: Path, tasks: Path, *, confidential: bool = False) -> PoolSpec:
    benchmark = Benchmark(
        name="tiny",
        kind="choices",
        tasks={"spaces": "tiny_spaces"},
        include_path=str(tasks),
        confidential=confidential,
    )
    specs = (ModelSpec(model=m, hf_repo=str(models / m), params_b=1, truncation="keep") for m in ("a", "b"))
    return PoolSpec(name="tiny", benchmarks=(benchmark,), models=tuple(specs))


def edit_choices(tasks: Path, edit: Edit) -> None:
    file = tasks / "choices.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    edit(rows)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def reorder(rows: list[dict[str, Any]]) -> None:
    rows[3]["choices"] = rows[3]["choices"][::-1]


EDITS: dict[str, tuple[Edit, str]] = {
    "reordered": (reorder, "document 3 of tiny/spaces.*order of choices"),
    "reworded": (lambda rows: rows[3].update(question="Is ox lazy?"), "document 3 of tiny/spaces.*question"),
    "one less": (lambda rows: rows.pop(), "document 11 of tiny/spaces"),
    "one more": (lambda rows: rows.append({**rows[0], "question": "?"}), "tiny/spaces has 13 documents"),
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_data_set_is_refused_until_all_is_replaced(models: Path, tmp_path: Path, edit: str) -> None:
    change, told = EDITS[edit]
    tasks = write_tasks(tmp_path / "tasks", choices=12)
    both = pool(models, tasks)
    location = tmp_path / "w"
    assert extract(both, location).missing == []
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
        old = warehouse.query("SELECT * FROM choice_logprobs ORDER BY ALL")
    edit_choices(tasks, change)

    refused = extract(both, location)
    assert refused.committed == []
    assert [gap.model for gap in refused.missing] == ["a", "b"]
    for gap, other in zip(refused.missing, "ba", strict=True):
        assert re.match(told, gap.reason)
        assert f"{other} answered the stored ones" in gap.reason
        assert "--replace-documents" in gap.reason
    with open_warehouse(location) as warehouse:
        assert warehouse.snapshot() == before

    replaced = extract(both, location, replace_documents=True)
    assert (len(replaced.committed), replaced.missing) == (2, [])
    with open_warehouse(location) as warehouse:
        whole = "SELECT model, count(DISTINCT doc_id) FROM choice_logprobs GROUP BY ALL ORDER BY ALL"
        [(n,)] = warehouse.rows("SELECT count(*) FROM docs")
        assert warehouse.rows(whole) == [("a", n), ("b", n)]
    with open_warehouse(location, snapshot=before) as then:
        assert then.query("SELECT * FROM choice_logprobs ORDER BY ALL").equals(old)
    assert extract(both, location).n_skipped == 2


@pytest.mark.slow
def test_documents_that_no_other_model_answered_are_replaced(models: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks", choices=12)
    alone = pool(models, tasks).choose(models=["a"])
    extract(alone, tmp_path / "w")
    edit_choices(tasks, lambda rows: rows.pop())
    report = extract(alone, tmp_path / "w")
    assert (len(report.committed), report.missing) == (1, [])
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT count(*) FROM docs") == [(11,)]
        assert warehouse.rows("SELECT count(DISTINCT doc_id) FROM choice_logprobs") == [(11,)]


@pytest.mark.slow
def test_confidential_questions_stay_out_of_messages_and_the_report(models: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks", choices=12)
    edit_choices(tasks, lambda rows: [row.update(question=f"planted {i}?") for i, row in enumerate(rows)])
    both = pool(models, tasks, confidential=True)
    assert extract(both, tmp_path / "w").missing == []
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT DISTINCT confidential FROM docs") == [(True,)]
        evaluate(warehouse, "tiny", methods=["best_single", "plurality"], seeds=1)
        page = write_report(warehouse, tmp_path / "report.html").read_text()
    assert "planted" not in page
    edit_choices(tasks, lambda rows: rows[3].update(question="planted anew?", choices=["planted", "no"]))
    reasons = {gap.reason for gap in extract(both, tmp_path / "w").missing}
    assert all("question changed (confidential, not shown)" in reason for reason in reasons)
    assert not any("planted" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 2, 6, 7, 8], "document 1 has 0 rows, expected 3"),
        ([0, 3, 6], "document 0 has 1 rows, expected 3"),
        ([*range(9), 3, 4, 5], "document 1 has 6 rows, expected 3"),
    ],
)
def test_a_partition_has_every_row_once(warehouse: Warehouse, rows: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        warehouse.put_partition(docs(3), choice_rows(THREE).take(rows), extraction(n_docs=3))
    assert warehouse.rows("FROM docs") == []


def test_a_shorter_partition_never_replaces_a_longer_one(warehouse: Warehouse) -> None:
    put(warehouse, THREE, n_whole=5)
    with pytest.raises(InputError, match="3 documents"):
        put(warehouse, SCORES, n_whole=5)
    assert warehouse.rows("SELECT n_docs FROM extractions") == [(3,)]


def document(choice: str = " yes") -> Document:
    return Document(0, "", "", 0, "", ("a", "b"), "the brown fox Answer:", (choice, " no"))


SAMPLING = SamplingSettings(passes=2, temperature=0.6, top_p=0.9, max_tokens=4, stop=(), seed=0)


def with_nan(folder: Path) -> Path:
    """A real model whose first layer is NaN."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.model.layers[0].parameters():
            parameter.fill_(math.nan)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PoolSpec:
    folder = tmp_path_factory.mktemp("pool")
    choices, answers = tiny_benchmarks(write_tasks(folder / "tasks", choices=10, answers=5))
    choices = choices.model_copy(update={"tasks": {"plain": "tiny_choices"}})
    [sound] = save_models(folder, "llama")
    broken = str(with_nan(save_model(folder / "nan", "llama", seed=1)))
    nan = sound.model_copy(update={"model": "nan", "hf_repo": broken})
    models = (sound.model_copy(update={"model": "sound"}), nan)
    return PoolSpec(name="tiny", benchmarks=(choices, answers), models=models)


@pytest.mark.usefixtures("one_process")
def test_a_model_of_nan_weights_fails_alone_and_for_that_reason(pair: PoolSpec, tmp_path: Path) -> None:
    report = extract(pair, tmp_path / "w")
    assert {(c.model, c.benchmark) for c in report.committed} == {("sound", "tiny-c"), ("sound", "tiny-a")}
    assert {(m.model, m.benchmark) for m in report.missing} == {("nan", "tiny-c"), ("nan", "tiny-a")}
    for gap in report.missing:
        assert "NaN" in gap.reason
        assert "key-value cache" not in gap.reason
        assert gap.lasting
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        assert warehouse.rows("SELECT DISTINCT model FROM choice_logprobs") == [("sound",)]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"logprob": math.nan}, "nan"),
        ({"logprob": -math.inf}, "-inf"),
        ({"logprob": None}, ""),
        ({"token_logprobs": [-1.0, math.nan]}, "nan"),
        ({"token_logprobs": [0.5]}, "0.5"),
        ({"token_ids": [3, -1]}, "token id below 0"),
        ({"unconditional_logprob": math.inf}, "inf"),
    ],
)
def test_impossible_scores_are_named(changed: dict[str, object], shown: str) -> None:
    row: dict[str, object] = {"doc_id": 7, "choice": 1, "logprob": -2.0, "unconditional_logprob": None}
    row |= {"token_ids": [1, 2], "token_logprobs": [-1.0, -1.0]}
    numbers = {"doc_id": pa.int64(), "choice": pa.int32(), "logprob": pa.float64()}
    lists = {"token_ids": pa.list_(pa.int32()), "token_logprobs": pa.list_(pa.float32())}
    schema = pa.schema({**numbers, "unconditional_logprob": pa.float64(), **lists})
    check_scores(pa.Table.from_pylist([row, row | {"token_logprobs": None, "logprob": 3.0}], schema))
    with pytest.raises(InputError, match="1 of 3 choices") as error:
        check_scores(pa.Table.from_pylist([row, row | changed, row], schema))
    assert "choice 1 of document 7" in str(error.value)
    assert shown in str(error.value)


def test_the_warehouse_itself_refuses_them(warehouse: Warehouse) -> None:
    with pytest.raises(InputError, match="NaN"):
        put(warehouse, [[-1.0, math.nan, -2.0]])
    assert warehouse.rows("SELECT count(*) FROM docs") == [(0,)]


@pytest.mark.parametrize("sampled", [False, True])
def test_token_ids_outside_the_vocabulary_name_the_tokenizer(sampled: bool) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["zebra"])
    engine = HFEngine(tiny_model("llama", len(tokenizer) - 1), tokenizer)
    asked = [document("zebra")] if not sampled else [Document(0, "", "", None, "", (), "a zebra", ())]
    with pytest.raises(InputError, match=r"'zebra'.*vocabulary ends at"):
        engine.check(asked, SAMPLING if sampled else None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_shares_its_prefixes_and_is_sampled(dtype: torch.dtype) -> None:
    tokenizer = tiny_tokenizer()
    for seed in range(3):
        engine = HFEngine(tiny_model("llama", len(tokenizer), seed=seed).to(dtype), tokenizer)
        assert engine.slower is None
        assert len(list(engine.sample([document()], SAMPLING))) == 1


def damage(warehouse: Warehouse, model: str) -> None:
    """What an earlier version committed and marked: NaN log-probabilities under a digest of their own."""
    connection = warehouse.connection
    connection.execute("UPDATE choice_logprobs SET logprob = 'nan' WHERE model = ?", [model])
    connection.execute(script("writes/digests"))
    connection.execute(
        "UPDATE extractions SET digest = (SELECT choice_logprobs_digest(c) FROM choice_logprobs AS c "
        "WHERE c.model = $1) WHERE model = $1",
        [model],
    )
    fault = "scores that are NaN, infinite or positive"
    connection.execute("UPDATE extractions SET fault = ? WHERE model = ?", [fault, model])


@pytest.mark.slow
def test_invalid_scores_of_earlier_versions_are_ignored_and_extracted_again(
    pair: PoolSpec, tmp_path: Path
) -> None:
    [sound, _] = pair.models
    other = sound.model_copy(update={"model": "other"})
    both = pair.model_copy(update={"models": (sound, other)}).choose(benchmarks=["tiny-c"])
    extract(both, tmp_path / "w")
    with open_warehouse(tmp_path / "w") as warehouse:
        damage(warehouse, "other")
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        assert warehouse.rows("SELECT model FROM accuracy") == [("sound",)]
    with open_warehouse(tmp_path / "w") as warehouse:
        for view in ("accuracy", "choice_probs", "predictions", "outcomes_norm"):
            assert warehouse.rows(f"SELECT DISTINCT model FROM {view}") == [("sound",)]
        dataset = load_dataset(warehouse, "tiny-c")
        assert dataset.models == ("sound",)
        [(model, reason)] = dataset.left_out
        assert (model, "NaN" in reason, "10 of 10" in reason) == ("other", True, True)
        with pytest.raises(InputError, match="model 'other' has scores that are NaN"):
            load_dataset(warehouse, "tiny-c", ["sound", "other"])
        [fault] = examine(warehouse).partitions or ()
        assert (fault.model, "NaN" in fault.reason) == ("other", True)
    report = extract(both, tmp_path / "w", limit=5)  # a limit may replace what counts nowhere
    assert [(c.model, c.n_docs) for c in report.committed] == [("other", 5)]
    report = extract(both, tmp_path / "w")
    assert [c.model for c in report.committed] == ["other"]
    with open_warehouse(tmp_path / "w") as warehouse:
        assert examine(warehouse).is_sound
        assert load_dataset(warehouse, "tiny-c").models == ("other", "sound")

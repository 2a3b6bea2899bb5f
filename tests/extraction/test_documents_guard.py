"""The alignment guard, end to end: the message if documents differ, and what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import SCORES, THREE, choice_rows, docs, extraction, put
from support.tiny_models import save_model, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.evaluation import evaluate
from rlfocal.extraction.running.runner import extract_pool
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from rlfocal.report import write_report
from warehouse import Warehouse, open_warehouse

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
    assert extract_pool(location, both).missing == []
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
        old = warehouse.query("SELECT * FROM choice_logprobs ORDER BY ALL")
    edit_choices(tasks, change)

    refused = extract_pool(location, both)
    assert refused.committed == []
    assert [gap.model for gap in refused.missing] == ["a", "b"]
    for gap, other in zip(refused.missing, "ba", strict=True):
        assert re.match(told, gap.reason)
        assert f"{other} answered the stored ones" in gap.reason
        assert "--replace-documents" in gap.reason
    with open_warehouse(location) as warehouse:
        assert warehouse.snapshot() == before

    replaced = extract_pool(location, both, replace_documents=True)
    assert (len(replaced.committed), replaced.missing) == (2, [])
    with open_warehouse(location) as warehouse:
        whole = "SELECT model, count(DISTINCT doc_id) FROM choice_logprobs GROUP BY ALL ORDER BY ALL"
        [(n,)] = warehouse.rows("SELECT count(*) FROM docs")
        assert warehouse.rows(whole) == [("a", n), ("b", n)]
    with open_warehouse(location, snapshot=before) as then:
        assert then.query("SELECT * FROM choice_logprobs ORDER BY ALL").equals(old)
    assert extract_pool(location, both).n_skipped == 2


@pytest.mark.slow
def test_documents_that_no_other_model_answered_are_replaced(models: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks", choices=12)
    alone = pool(models, tasks).choose(models=["a"])
    extract_pool(tmp_path / "w", alone)
    edit_choices(tasks, lambda rows: rows.pop())
    report = extract_pool(tmp_path / "w", alone)
    assert (len(report.committed), report.missing) == (1, [])
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT count(*) FROM docs") == [(11,)]
        assert warehouse.rows("SELECT count(DISTINCT doc_id) FROM choice_logprobs") == [(11,)]


@pytest.mark.slow
def test_confidential_questions_stay_out_of_messages_and_the_report(models: Path, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks", choices=12)
    edit_choices(tasks, lambda rows: [row.update(question=f"planted {i}?") for i, row in enumerate(rows)])
    both = pool(models, tasks, confidential=True)
    assert extract_pool(tmp_path / "w", both).missing == []
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT DISTINCT confidential FROM docs") == [(True,)]
        evaluate(warehouse, "tiny", methods=["best_single", "plurality"], seeds=1)
        page = write_report(warehouse, tmp_path / "report.html").read_text()
    assert "planted" not in page
    edit_choices(tasks, lambda rows: rows[3].update(question="planted anew?", choices=["planted", "no"]))
    reasons = {gap.reason for gap in extract_pool(tmp_path / "w", both).missing}
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

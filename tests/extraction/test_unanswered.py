"""A document without an answer: its reason is stored, it is wrong everywhere, and may be asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.closed_pool import write_closed_pool
from support.stub_server import SERVED, Reply, chat_answer, n_of, question_of, stub_server

from rlfocal.data.loading import load_dataset
from rlfocal.extraction.engines import service
from rlfocal.extraction.running.runner import ExtractionReport
from rlfocal.extraction.running.runner import extract as extract_now
from rlfocal.pool import load_pool
from warehouse import Warehouse, open_warehouse

N_DOCS = 12
FILTERED = Reply({"error": {"message": "policy violation", "code": "content_filter"}}, 400)
QUOTA = Reply({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429)
Answer = Callable[[dict[str, Any], int], Any]
pytestmark = pytest.mark.usefixtures("one_process")


def write_pool(folder: Path, urls: dict[str, str], kind: str = "choices") -> Path:
    """Models, each with the address of its service, and two tasks."""
    asked = {task: [f"{task} {i}" for i in range(N_DOCS)] for task in ("one", "two")}
    about = {"served": SERVED, "price_input": 1000, "price_output": 2000}
    entries = [{"model": model, "base_url": url, **about} for model, url in urls.items()]
    return write_closed_pool(folder, asked, entries, kind=kind)


def asks_about(request: dict[str, Any], *questions: str) -> bool:
    return question_of(request) in questions


def right(request: dict[str, Any], finish_reason: str = "stop") -> dict[str, Any]:
    top: dict[str, float | None] = {"A": -0.1, "B": -3.0, "C": -4.0}
    listed = top if request.get("logprobs") else None
    return chat_answer(*["A"] * n_of(request), top=listed, finish_reason=finish_reason)


def extract(folder: Path, kind: str = "choices", **urls: str) -> ExtractionReport:
    return extract_now(load_pool(str(write_pool(folder, urls, kind))), folder / "w")


def reasons(warehouse: Warehouse, table: str = "choice_logprobs") -> dict[tuple[str, int], str]:
    rows = warehouse.rows(
        f"SELECT DISTINCT task, doc_id, unanswered FROM {table} WHERE unanswered IS NOT NULL"
    )
    return {(task, doc_id): reason for task, doc_id, reason in rows}


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_filtered_document_is_wrong_in_every_statistic(kind: str, cli: Cli, tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        return FILTERED if asks_about(request, "one 3", "one 10") else right(request)

    table = "choice_logprobs" if kind == "choices" else "answer_passes"
    with stub_server(reply) as stub:
        pool = str(write_pool(tmp_path, {"closed": stub.url}, kind))
        done = cli("extract", "--pool", pool, "-w", str(tmp_path / "w"))
        assert done.code == 0
        assert "closed on letters/one, 2 of 12 documents" in done.err
        asked = len(stub.asked)
        assert not extract(tmp_path, kind, closed=stub.url).committed  # a filter says the same again
        assert len(stub.asked) == asked
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        words = "filtered: policy violation"
        assert reasons(warehouse, table) == {("one", 3): words, ("one", 10): words}
        assert dict(warehouse.rows("SELECT task, accuracy FROM accuracy")) == {"one": 10 / 12, "two": 1.0}
        scores = warehouse.rows("SELECT accuracy FROM model_scores('letters', task := 'one')")
        assert scores == [(10 / 12,)]
        said = warehouse.rows(
            "SELECT doc_id, prediction, answer, correct, confidence FROM predictions "
            "WHERE task = 'one' AND NOT correct ORDER BY doc_id"
        )
        assert said == [(3, None, None, False, None), (10, None, None, False, None)]
        counts = "SELECT task, n_unanswered, n_to_ask FROM extractions ORDER BY task"
        assert warehouse.rows(counts) == [("one", 2, 0), ("two", 0, 0)]
        data = load_dataset(warehouse, "letters")
        wrong = (data.tasks == "one") & [doc_id in (3, 10) for doc_id in data.doc_ids.tolist()]
        assert (data.predictions[:, 0] == -1).tolist() == wrong.tolist()
        assert data.correct[:, 0].tolist() == (~wrong).tolist()
        if kind == "choices":
            norm = warehouse.rows("SELECT acc_norm FROM accuracy_norm WHERE task = 'one'")
            assert norm == [(10 / 12,)]
            assert data.probs[wrong].ravel().tolist() == pytest.approx([1 / 3] * 6)


@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
def test_what_may_pass_is_asked_again_alone(kind: str, tmp_path: Path) -> None:
    cut = {"one 3", "two 0"}

    def reply(request: dict[str, Any], number: int) -> Any:
        return right(request, "abort" if question_of(request) in cut else "stop")

    table = "choice_logprobs" if kind == "choices" else "answer_passes"
    with stub_server(reply) as stub:
        assert not extract(tmp_path, kind, closed=stub.url).missing
        with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
            before, snapshot = reasons(warehouse, table), warehouse.snapshot()
            words = "cut off: the answer ended with finish_reason 'abort'"
            assert before == {("one", 3): words, ("two", 0): words}
        asked = len(stub.asked)
        again = extract(tmp_path, kind, closed=stub.url)
        assert (len(again.committed), len(again.missing), len(stub.asked) - asked) == (0, 0, 2)
        with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
            assert warehouse.snapshot() == snapshot  # nothing is news
        cut.discard("one 3")
        assert [done.task for done in extract(tmp_path, kind, closed=stub.url).committed] == ["one"]
        cut.clear()
        assert [done.task for done in extract(tmp_path, kind, closed=stub.url).committed] == ["two"]
        (tmp_path / "undisturbed").mkdir()
        extract(tmp_path / "undisturbed", kind, closed=stub.url)
    rows = f"SELECT * FROM {table} ORDER BY ALL"
    with (
        open_warehouse(tmp_path / "w", read_only=True) as warehouse,
        open_warehouse(tmp_path / "undisturbed" / "w", read_only=True) as undisturbed,
    ):
        assert warehouse.rows(rows) == undisturbed.rows(rows)


def test_a_task_fails_where_more_than_a_quarter_has_no_answer(tmp_path: Path) -> None:
    silent = {"one 0", "one 1", "one 2", "two 0", "two 1", "two 2", "two 3"}

    def reply(request: dict[str, Any], number: int) -> Any:
        return FILTERED if question_of(request) in silent else right(request)

    with stub_server(reply) as stub:
        report = extract(tmp_path, closed=stub.url)
        assert [done.task for done in report.committed] == ["one"]
        [failed] = report.missing
        assert failed.task == "two"
        assert f"4 of 12 documents have no answer from {stub.url}" in failed.reason


def test_what_no_waiting_mends_ends_the_run_of_its_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "UNREACHABLE_SECONDS", 1.0)
    with stub_server(lambda request, number: QUOTA) as poor, stub_server(lambda r, n: right(r)) as rich:
        report = extract(tmp_path, poor=poor.url, rich=rich.url)
        assert {done.model for done in report.committed} == {"rich"}
        assert [(gap.model, gap.task, gap.lasting) for gap in report.missing] == [
            ("poor", "one", True),
            ("poor", "two", True),
        ]
        assert all("You exceeded your current quota" in gap.reason for gap in report.missing)
        assert len(poor.asked) == 1

"""`import llmrouterbench`: its files by hand, as its README and its writer have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.llmrouterbench_files import GOLDS, MIXED, QUESTIONS, record, result, write

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import load_dataset
from rlfocal.exchange.imports.llmrouterbench import import_llmrouterbench
from warehouse import Warehouse

RIGHT = [record(i, gold, 1.0) for i, gold in enumerate(GOLDS)]


def test_accuracy_is_the_mean_score(warehouse: Warehouse, tmp_path: Path) -> None:
    write(tmp_path, "strong", result(RIGHT))
    path = write(tmp_path, "weak", result(MIXED))
    report = import_llmrouterbench(warehouse, [tmp_path / "results"])
    assert (report.n_docs, report.n_scores, report.n_written, report.left) == (5, 10, 2, ())
    assert (report.benchmarks, report.models) == (("aime@llmrouterbench-hybrid",), ("strong", "weak"))
    assert report.notes == (
        "1 answer graded right in other words than the gold answer's: stored as the gold answer",
        "1 answer graded wrong though it reads like the gold answer: stored as wrong",
    )
    assert warehouse.rows("SELECT model, task, n, accuracy FROM accuracy ORDER BY model") == [
        ("strong", "aime-hybrid", 5, 1.0),
        ("weak", "aime-hybrid", 5, json.loads(path.read_text())["performance"]),
    ]
    assert warehouse.rows(
        "SELECT doc_id, answer, correct FROM predictions WHERE model = 'weak' ORDER BY doc_id"
    ) == [(0, "4", True), (1, "18", True), (2, "12", False), (3, "i say paris", False), (4, None, False)]
    assert warehouse.rows("SELECT doc_id, question, gold, label, split FROM docs ORDER BY doc_id") == [
        (i, question, gold.lower(), None, "train" if i < 4 else "test")
        for i, (question, gold) in enumerate(zip(QUESTIONS, GOLDS, strict=True))
    ]
    dataset = load_dataset(warehouse, "aime@llmrouterbench-hybrid")
    assert dataset.correct.tolist() == [
        [True, True],
        [True, True],
        [True, False],
        [True, False],
        [True, False],
    ]


def test_tokens_texts_and_cost_are_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path, "m", result(MIXED))
    import_llmrouterbench(warehouse, [path])
    stored = "SELECT pass, text, n_prompt_tokens, n_tokens FROM answer_passes ORDER BY doc_id"
    assert warehouse.rows(stored) == [
        (0, row["raw_output"], row["prompt_tokens"], row["completion_tokens"]) for row in MIXED
    ]
    with warehouse.transaction("prices"):
        warehouse.connection.execute("UPDATE models SET price_input = 250, price_output = 1000")
    by_hand = [(250 * row["prompt_tokens"] + 1000 * row["completion_tokens"]) / 1000 for row in MIXED]
    costs = [cost for (cost,) in warehouse.rows("SELECT cost FROM query_costs ORDER BY doc_id")]
    assert costs == pytest.approx(by_hand)
    [(settings,)] = warehouse.rows("SELECT settings::VARCHAR FROM extractions")
    kept = json.loads(settings)
    assert kept["usd"] == pytest.approx(0.01)
    assert (kept["prompt_tokens"], kept["completion_tokens"], kept["file"]) == (60, 50, path.name)
    assert warehouse.rows("SELECT backend, n_docs FROM extractions") == [("import", 5)]


def test_the_same_twice_writes_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    write(tmp_path, "m", result(MIXED))
    import_llmrouterbench(warehouse, [tmp_path])
    before = warehouse.snapshot()
    assert import_llmrouterbench(warehouse, [tmp_path]).n_written == 0
    assert warehouse.snapshot() == before
    write(tmp_path, "m", result([record(0, "4", 1.0, completion_tokens=99), *MIXED[1:]]))
    assert import_llmrouterbench(warehouse, [tmp_path]).n_written == 1
    write(tmp_path, "later", result(RIGHT))
    assert import_llmrouterbench(warehouse, [tmp_path]).n_written == 1


def test_one_benchmark_for_all(warehouse: Warehouse, tmp_path: Path) -> None:
    write(tmp_path, "m", result(MIXED))
    write(tmp_path, "m", result(RIGHT), "gpqa/test")
    report = import_llmrouterbench(warehouse, [tmp_path], benchmark="routing")
    assert report.benchmarks == ("routing",)
    assert warehouse.rows("SELECT task, bool_and(confidential) FROM docs GROUP BY task ORDER BY task") == [
        ("aime-hybrid", False),
        ("gpqa-test", True),
    ]


def test_the_latest_run_counts_and_demos_do_not(warehouse: Warehouse, tmp_path: Path) -> None:
    old = write(tmp_path, "m", result(MIXED), time="20251203_101111")
    write(tmp_path, "m", result(RIGHT))
    demo = write(tmp_path, "m", result(MIXED[:1], demo=True), time="20260101_000000")
    legacy = old.with_name("result.json")
    legacy.write_text(json.dumps(result(MIXED)))
    report = import_llmrouterbench(warehouse, [tmp_path])
    assert warehouse.rows("SELECT accuracy FROM accuracy") == [(1.0,)]
    assert sorted(report.left) == sorted(
        [f"{demo} (a demo)", f"{legacy} (an earlier run)", f"{old} (an earlier run)"]
    )


def test_names_in_the_file_come_before_folders(warehouse: Warehouse, tmp_path: Path) -> None:
    named = {"model_name": "org/m", "dataset_name": "other", "split": "v1"}
    write(tmp_path, "m", result(RIGHT, **named))
    report = import_llmrouterbench(warehouse, [tmp_path])
    assert (report.benchmarks, report.models) == (("other@llmrouterbench-v1",), ("org/m",))


def test_data_sets_that_are_not_graded_right_or_wrong_are_left_out(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    write(tmp_path, "m", result(RIGHT))
    write(tmp_path, "m", result([record(0, "4", 0.25), record(1, "18", 1.0)]), "sgibench/test")
    write(tmp_path, "n", result([record(0, "4", 1.0), record(1, "18", 1.0)]), "sgibench/test")
    write(tmp_path, "m", result([record(0, "4", None), record(1, "18", None)]), "arenahard/v2")
    report = import_llmrouterbench(warehouse, [tmp_path])
    assert report.benchmarks == ("aime@llmrouterbench-hybrid",)
    assert report.left == (
        "arenahard-v2 (no answer has a score)",
        "sgibench-test (1 score other than 0 and 1, such as 0.25: neither right nor wrong)",
    )


def test_answers_of_any_type(warehouse: Warehouse, tmp_path: Path) -> None:
    """Knights and Knaves has lists of answers, LiveCodeBench no right one."""
    lists = [
        record(0, ["a knight"], 0.0, ground_truth=["A is a knave"]),
        record(1, ["b"], 1.0, ground_truth=["b"]),
    ]
    write(tmp_path, "m", result(lists), "kandk/test")
    code = [record(i, f"return {i}", float(i == 1), ground_truth=None) for i in range(2)]
    write(tmp_path, "m", result(code), "livecodebench/test")
    write(
        tmp_path,
        "n",
        result([row | {"score": 0.0, "prediction": "pass"} for row in code]),
        "livecodebench/test",
    )
    report = import_llmrouterbench(warehouse, [tmp_path])
    assert warehouse.rows("SELECT task, model, accuracy FROM accuracy ORDER BY ALL") == [
        ("kandk-test", "m", 0.5),
        ("livecodebench-test", "m", 0.5),
        ("livecodebench-test", "n", 0.0),
    ]
    assert "2 documents without a gold answer" in str(report)


def test_an_ungraded_record_is_a_gap(warehouse: Warehouse, tmp_path: Path) -> None:
    failed = record(2, "", None, ground_truth="", raw_output="Processing failed: timeout")
    write(tmp_path, "m", result([*RIGHT[:2], failed, *RIGHT[3:]]))
    write(tmp_path, "n", result(RIGHT))
    with pytest.raises(
        InputError, match=r"record 3: no score: 'Processing failed: timeout'.*--allow-missing"
    ):
        import_llmrouterbench(warehouse, [tmp_path])
    report = import_llmrouterbench(warehouse, [tmp_path], allow_missing=True)
    assert report.missing == (("aime@llmrouterbench-hybrid", "m", 1),)
    assert warehouse.rows("SELECT model, n, accuracy FROM accuracy ORDER BY model") == [
        ("m", 4, 1.0),
        ("n", 5, 1.0),
    ]


WRONG = {
    "no records": ({"performance": 1.0}, r"m-20251203_101112.json: not a result of LLMRouterBench"),
    "a list": ([], r"not a result of LLMRouterBench"),
    "empty": (result([]), r"has no records"),
    "a score too high": (
        result([record(0, "4", 100.0)]),
        r"record 1: .*score 100.0 is not a number from 0 to 1",
    ),
    "a score in words": (result([record(0, "4", "yes")]), r"record 1: .*score 'yes' is not"),  # type: ignore[arg-type]
    "NaN": (result([record(0, "4", float("nan"))]), r"record 1: .*score nan is not"),
    "an index twice": (result([RIGHT[0], RIGHT[0]]), r"record 2: index 1 for the second time"),
    "index 0": (result([record(0, "4", 1.0, index=0)]), r"record 1: .*index 0 is not a whole number from 1"),
    "index true": (result([record(0, "4", 1.0, index=True)]), r"index True is not"),
    "negative tokens": (
        result([record(0, "4", 1.0, completion_tokens=-1)]),
        r"completion_tokens -1 is not a count",
    ),
    "a cost in words": (result([record(0, "4", 1.0, cost="free")]), r"cost 'free' is not an amount"),
    "no question": (
        result([{k: v for k, v in RIGHT[0].items() if k != "origin_query"}]),
        r"no 'origin_query'",
    ),
    "a text as record": (result(RIGHT[:1]) | {"records": ["x"]}, r"record 1: .*not a JSON object: x"),
    "other documents": (
        result([record(0, "4", 1.0, ground_truth="5"), *RIGHT[1:]]),
        r"document 0 .* gold was",
    ),
    "fewer documents": (
        result(RIGHT[:4]),
        r"model m has no row for document 4 of .*; 1 such documents in all",
    ),
    "a model that climbs": (
        result(RIGHT, dataset_name="../x"),
        r'"../x@llmrouterbench-hybrid" must not start',
    ),
}


@pytest.mark.parametrize(("content", "reason"), WRONG.values(), ids=WRONG)
def test_bad_files_are_refused_and_nothing_is_written(
    unwritten: Warehouse, tmp_path: Path, content: Any, reason: str
) -> None:
    write(tmp_path, "complete", result(RIGHT))
    write(tmp_path, "m", content)
    before = unwritten.snapshot()
    with pytest.raises(InputError, match=reason):
        import_llmrouterbench(unwritten, [tmp_path])
    assert unwritten.snapshot() == before
    assert unwritten.rows("SELECT count(*) FROM docs") == [(0,)]


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, "m", result(MIXED))
    done = cli("import", "llmrouterbench", str(tmp_path / "results"))
    assert done.code == 0
    assert "5 scores of 1 model on 5 documents (aime@llmrouterbench-hybrid): 1 partition written" in done.out
    assert "read: done" in done.err
    assert "DATASET@llmrouterbench-SPLIT" in cli("import", "llmrouterbench", "--help").out
    for path, reason in (
        ("nowhere", "there is no file or folder"),
        ("empty", "has no DATASET/SPLIT/MODEL/TIME.json"),
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        refused = cli("import", "llmrouterbench", path, "--warehouse", "new")
        assert (refused.code, refused.out) == (2, "")
        assert reason in refused.err
        assert not (tmp_path / "new").exists()
    torn = write(tmp_path, "torn", {})
    torn.write_text('{"records": [')
    refused = cli("import", "llmrouterbench", str(torn), "--warehouse", "new")
    assert (refused.code, "not valid JSON" in refused.err) == (2, True)
    assert not (tmp_path / "new").exists()

"""Tests of converting graded logs: after an import, models' accuracies are those of the logs."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal_rivals.convert import UNKNOWN_GOLD, Answer, forms, main, read_response, settle
from warehouse import Warehouse
from warehouse.comparison import normalise

MODELS = ("gpt-4", "WizardLM/WizardLM-13B-V1.2")
Row = dict[str, Any]


def converted(warehouse: Warehouse, name: str, logs: Path, **more: Any) -> None:
    assert main([name, str(logs), str(logs.parent / "out")]) == 0
    import_predictions(
        warehouse, *(logs.parent / "out" / f"{part}.parquet" for part in ("docs", "scores")), **more
    )


def row(sample_id: str, scores: tuple[Any, Any], responses: tuple[str, str], **more: Any) -> Row:
    found: Row = {
        "sample_id": sample_id,
        "prompt": f"['Answer with a letter.', \"It's {sample_id}?\"]",
        "eval_name": sample_id.split(".")[0],
    }
    for model, score, response in zip(MODELS, scores, responses, strict=True):
        found |= {model: score, f"{model}|model_response": f"[{response!r}]", f"{model}|total_cost": 0.25}
    return found | {"oracle_model_to_route_to": MODELS[0]} | more


ROWS = [
    row("mmlu-law.val.10", (1.0, 0.0), ("B", "A) because")),
    row("mmlu-law.val.9", (1.0, 1.0), ("C.", "So the answer is (C).")),
    row("mmlu-law.val.8", (0.0, 0.0), ("A", "D")),
    row("grade-school-math.dev.0", (1.0, 0.0), ("3 * 6 = 18.", "It is 17")),
    row("grade-school-math.dev.1", (1.0, 0.0), ("so $1,234 it is", "1234")),
    row("mtbench.dev.0", (0.7, 1.0), ("x", "y")),
]


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_routerbenchs_accuracy_is_the_mean_of_the_column(
    warehouse: Warehouse, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    converted(warehouse, "routerbench", write(tmp_path / f"r{suffix}", ROWS))
    assert "left out: mtbench" in capsys.readouterr().err
    found = {
        (model, task): rest
        for model, task, *rest in warehouse.rows("SELECT model, task, n, accuracy FROM accuracy")
    }
    for model in MODELS:
        for task in ("mmlu-law", "grade-school-math"):
            column = [given[model] for given in ROWS if given["eval_name"] == task]
            assert found.pop((model, task)) == [len(column), sum(column) / len(column)]
    assert not found
    # In the order of sample_id, and in what words it can be said.
    assert warehouse.rows(
        "SELECT doc_id, model, answer FROM answer_passes WHERE task = 'mmlu-law' ORDER BY doc_id, model DESC"
    ) == [(i, m, a) for i, said in enumerate(["ad", "cc", "ba"]) for m, a in zip(MODELS, said, strict=True)]
    assert warehouse.rows("SELECT gold FROM docs WHERE task = 'mmlu-law' ORDER BY doc_id") == [
        (UNKNOWN_GOLD,),
        ("c",),
        ("b",),
    ]
    assert warehouse.rows(
        "SELECT doc_id, answer, text FROM answer_passes WHERE task <> 'mmlu-law' ORDER BY doc_id, model DESC"
    ) == [(0, "18", "3 * 6 = 18."), (0, "17", "It is 17"), (1, "1234", "so $1,234 it is"), (1, None, "1234")]
    [(question,)] = warehouse.rows("SELECT question FROM docs WHERE (task, doc_id) = ('mmlu-law', 0)")
    assert question == "Answer with a letter.\n\nIt's mmlu-law.val.8?"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{k: v for k, v in ROWS[0].items() if k != "gpt-4"}], "has no column 'gpt-4'"),
        ([row("a.0", (2, 1), ("A", "A"))], "score '2'"),
        ([row("a.0", ("yes", 1), ("A", "A"))], "score 'yes'"),
        ([ROWS[0], ROWS[1], ROWS[0]], "row 3: mmlu-law.val.10"),
        ([ROWS[0] | {"sample_id": ""}], "row 1"),
        (ROWS[-1:], "no answer is graded right or wrong"),
    ],
)
def test_bad_tables_are_refused(
    tmp_path: Path, rows: list[Row], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["routerbench", str(write(tmp_path / "r.csv", rows)), str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_pickle_is_refused_unopened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(tmp_path / "sprung"), "w")

    (tmp_path / "r.pkl").write_bytes(pickle.dumps(Trap()))
    assert main(["routerbench", str(tmp_path / "r.pkl"), str(tmp_path / "out")]) == 2
    assert "to_csv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.pkl"]


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        ("**C** it is", False, "C"),
        ("D\nbecause", False, "D"),
        ("A man walks", False, None),
        ("The answer: C, or the answer: D", False, "D"),
        ("3 * 6 = 18.", True, "18"),
        ("", False, None),
    ],
)
def test_spoken(text: str, number: bool, expected: str | None) -> None:
    assert read_response(text, number=number) == expected


# ---- LLMRouterBench


GOLDS = ["4", "18", "11", "Paris", "undefined"]


def record(i: int, prediction: Any, score: float | None, **more: Any) -> Row:
    return {
        "index": i + 1,
        "origin_query": f"question {i}?",
        "prompt_tokens": 10 + i,
        "completion_tokens": 5 * i,
        "score": score,
        "prediction": prediction,
        "ground_truth": GOLDS[i],
        "raw_output": f"I say {prediction}.",
        **more,
    }


RIGHT = [record(i, gold, 1.0) for i, gold in enumerate(GOLDS)]
MIXED = [
    record(0, "four", 1.0),  # a judge knows that it is 4
    record(1, "18.0", 1.0),
    record(2, "12", 0.0),
    record(3, "paris", 0.0),  # it says Paris, and the judge says no
    record(4, "", 0.0, raw_output=""),
]


def put(
    folder: Path, model: str, records: Any, place: str = "aime/hybrid", time: str = "20251203_101112"
) -> Path:
    path = folder / "bench" / place / model / f"{place.replace('/', '-')}-{model}-{time}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records if isinstance(records, dict) else {"records": records}))
    return path


def test_llmrouterbenchs_accuracy_is_the_mean_score_of_the_latest_run(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    put(tmp_path, "strong", RIGHT)
    put(tmp_path, "weak", RIGHT, time="20251203_101111")
    put(tmp_path, "weak", MIXED)
    put(tmp_path, "weak", {"records": RIGHT[:1], "demo": True}, time="20260101_000000")
    put(tmp_path, "weak", [record(0, ["b"], 1.0, ground_truth=None)], "gpqa/test")
    converted(warehouse, "llmrouterbench", tmp_path / "bench")
    assert warehouse.rows(
        "SELECT model, benchmark, task, n, accuracy FROM accuracy ORDER BY task, model"
    ) == [
        ("strong", "aime@llmrouterbench-hybrid", "aime-hybrid", 5, 1.0),
        ("weak", "aime@llmrouterbench-hybrid", "aime-hybrid", 5, 0.4),
        ("weak", "gpqa@llmrouterbench-test", "gpqa-test", 1, 1.0),
    ]
    assert warehouse.rows(
        "SELECT doc_id, answer, correct FROM predictions "
        "WHERE (task, model) = ('aime-hybrid', 'weak') ORDER BY doc_id"
    ) == [(0, "4", True), (1, "18", True), (2, "12", False), (3, "i say paris", False), (4, None, False)]
    assert warehouse.rows(
        "SELECT text, n_prompt_tokens, n_tokens FROM answer_passes "
        "WHERE (task, model) = ('aime-hybrid', 'weak') ORDER BY doc_id"
    ) == [(one["raw_output"], one["prompt_tokens"], one["completion_tokens"]) for one in MIXED]
    assert warehouse.rows("SELECT task, bool_and(confidential) FROM docs GROUP BY task ORDER BY task") == [
        ("aime-hybrid", False),
        ("gpqa-test", True),
    ]


def test_an_ungraded_record_is_a_gap(warehouse: Warehouse, tmp_path: Path) -> None:
    put(tmp_path, "m", [*RIGHT[:4], record(4, "", None)])
    put(tmp_path, "n", RIGHT)
    converted(warehouse, "llmrouterbench", tmp_path / "bench", allow_missing=True)
    assert warehouse.rows("SELECT model, n FROM accuracy ORDER BY model") == [("m", 4), ("n", 5)]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ({"performance": 1.0}, "no list of records"),
        (["x"], "record 1"),
        ([{key: value for key, value in RIGHT[0].items() if key != "score"}], "score"),
        ([record(0, "4", 100.0)], "record 1: score 100.0"),
        ([record(0, "4", 1.0, ground_truth="5"), *RIGHT[1:]], "document 0 of aime-hybrid"),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, records: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "complete", RIGHT)
    put(tmp_path, "m", records)
    assert main(["llmrouterbench", str(tmp_path / "bench"), str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err


# ---- grades


WORDS = st.sampled_from(
    ["a", "B", "18", "18.0", "$18", "no", "", "()", "ç", UNKNOWN_GOLD, "Unknown right answer."]
)
SAID = st.lists(st.tuples(st.lists(WORDS, max_size=2), st.booleans()), min_size=1, max_size=6)


@given(gold=st.none() | WORDS, said=SAID)
def test_correctness_follows_the_grade(gold: str | None, said: list[tuple[list[str], bool]]) -> None:
    answers = [
        Answer("b", "t", 0, f"m{i}", float(right), forms(*words), None, "q", gold)
        for i, (words, right) in enumerate(said)
    ]
    [document], scores, _ = settle(answers)
    canonical = normalise(document["gold"])
    assert canonical is not None
    assert [normalise(one["answer"]) == canonical for one in scores] == [right for _, right in said]
    if normalise(gold) is not None:
        assert canonical == normalise(gold)
    assert settle(answers[::-1])[0][0]["gold"] == document["gold"]
    for one, kept in zip(answers, scores, strict=True):
        if not one.score and one.texts and one.texts[0] != canonical:
            assert kept["answer"] == one.texts[0]

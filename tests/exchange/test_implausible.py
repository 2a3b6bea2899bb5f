"""What an import says of figures that cannot be; and of ordinary ones, nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.prediction_files import write

from rlfocal.exchange.imports.predictions import import_predictions, read_marked_answer
from warehouse import Warehouse

N = 60
LABELS = np.random.default_rng(0).integers(0, 4, N)


def scored(change: Any = None, *, base: int = 0, skill: float = 0.7) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = []
    for model in ("m1", "m2"):
        for i in range(N):
            scores = rng.normal(0, 0.3, 4) - 3
            scores[LABELS[i]] += 2 * (rng.random() < skill)
            given = scores.tolist() if change is None or model == "m2" else change(i, scores)
            rows.append({"doc_id": i, "model": model, "label": int(LABELS[i]) + base, "logprobs": given})
    return rows


def notes(warehouse: Warehouse, tmp_path: Path, rows: list[dict[str, Any]], **how: Any) -> str:
    given = {"benchmark": "b"} | how
    report = import_predictions(warehouse, write(tmp_path / "t.jsonl", rows), **given)
    return " ".join(report.notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda i, s: [0.0] * 4, "scores of m1 are equal for all choices on 60 of 60 documents"),
        (
            lambda i, s: [-7.5] * 4 if i % 2 else s.tolist(),
            "scores of m1 are equal for all choices on 30 of 60",
        ),
        (lambda i, s: [-1.0, -2.0, -3.0, -4.0], "scores of m1 are the same on all 60 documents"),
        (
            lambda i, s: s.tolist() if i % 3 else [-1.0, -1.0, -3.0, -3.0],
            "scores of m1 have a tie for the best choice",
        ),
        (
            lambda i, s: (-s).tolist(),
            "m1 is right on .* far less than guessing. The lowest score would be right",
        ),
        (lambda i, s: s.argsort().argsort().astype(float).tolist(), "scores of m1 are the same numbers"),
        (lambda i, s: (-1.0 * (s < s.max())).tolist(), "scores of m1 are the same numbers in another order"),
        (lambda i, s: np.roll(s, 1).tolist(), "m1 is right on .* far less than guessing. Labels plus 1"),
        (None, "^$"),
    ],
)
def test_scores(warehouse: Warehouse, tmp_path: Path, change: Any, said: str) -> None:
    rows = scored(change, skill=0.97)
    assert re.search(said, notes(warehouse, tmp_path, rows))
    ties = dict(warehouse.rows("SELECT model, n_ties FROM extractions"))
    lists = [row["logprobs"] for row in rows if row["model"] == "m1"]
    assert ties == {"m1": sum(scores.count(max(scores)) > 1 for scores in lists), "m2": 0}


def test_probabilities_of_one_each(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = scored(lambda i, s: [1.0] * 4)
    rows = [
        row | {"logprobs": row["logprobs"] if row["model"] == "m1" else [0.7, 0.1, 0.1, 0.1]} for row in rows
    ]
    said = notes(warehouse, tmp_path, rows, scale="probability")
    assert "scores of m1 are equal for all choices" in said
    assert "scores of m1 add up to 4 a document" in said
    assert "m2 add up" not in said


def test_all_at_chance(warehouse: Warehouse, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [row | {"logprobs": rng.normal(0, 1, 4).tolist()} for row in scored()]
    assert "no model is clearly better than guessing" in notes(warehouse, tmp_path, rows)


SOLUTION = "She buys 3 and finds {0}.\nThat makes <<3+{0}={1}>>{1}.\n#### {1}"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (SOLUTION, "{1}"),
        ("{1}", SOLUTION),
        pytest.param(SOLUTION, SOLUTION, marks=pytest.mark.slow),
        pytest.param(r"We have $3+{0}=\boxed{{{1}}}$.", "{1}", marks=pytest.mark.slow),
        pytest.param("{1}", r"Thus \boxed{{{1}}}.", marks=pytest.mark.slow),
        ("{1}", "{1}"),
    ],
)
def test_solutions_are_read(warehouse: Warehouse, tmp_path: Path, gold: str, answer: str) -> None:
    rows = [
        {
            "doc_id": i,
            "model": m,
            "gold": gold.format(i, 3 + i),
            "answer": answer.format(i, 3 + i + (i % wrong == 0)),
        }
        for i in range(20)
        for m, wrong in (("m1", 4), ("m2", 5))
    ]
    said = notes(warehouse, tmp_path, rows)
    assert ("solution" in said) == (gold != answer or gold != "{1}")
    assert "no answer" not in said
    assert "rule default" in said
    assert "exact, numeric or text" in said
    found = warehouse.rows("SELECT model, accuracy FROM benchmark_accuracy ORDER BY model")
    assert found == [("m1", 0.75), ("m2", 0.8)]
    texts = warehouse.rows("SELECT text FROM answer_passes WHERE model = 'm1' AND doc_id = 1")
    assert texts == [(answer.format(1, 4),)]


def test_no_answer_equals_a_gold(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [
        {"doc_id": i, "model": "m", "gold": f"city {i}", "answer": f"It is city {i}, I think."}
        for i in range(9)
    ]
    said = notes(warehouse, tmp_path, rows)
    assert (
        "no answer of any model equals its gold: gold 'city 0', and m says 'It is city 0, I think.'" in said
    )


def test_units(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [{"doc_id": i, "model": "m", "gold": f"{i} km", "answer": f"{i} m"} for i in range(9)]
    assert "golds such as '0 km' have a unit" in notes(warehouse, tmp_path, rows)
    eggs = [row | {"gold": f"{row['doc_id']} eggs", "answer": f"{row['doc_id']} hens"} for row in rows]
    assert "words of golds such as '0 eggs' are dropped" in notes(warehouse, tmp_path, eggs, benchmark="e")
    apart = [row | {"model": "n"} for row in rows]
    report = import_predictions(
        warehouse, write(tmp_path / "u.jsonl", apart), benchmark="c", comparison="text"
    )
    assert "golds such as" not in " ".join(report.notes)
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy WHERE benchmark = 'c'") == [(0.0,)]


def test_a_marked_answer() -> None:
    assert read_marked_answer("#### 1\nand then\n#### 1,234 ") == "1,234"
    assert read_marked_answer("#### ") is None

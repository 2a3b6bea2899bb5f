"""Open-ended questions: tables of scores, and the Decider that goes by past rewards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.evaluation.openended import (
    ScoreTable,
    evaluate_scores,
    read_scores,
    train_decider,
)

QUICK = 12
"""Episodes."""


def switching(seed: int, T: int, run: int = 40) -> NDArray[np.float64]:
    """(T, 3) scores of which another model's are the best after every `run` documents."""
    scores = np.random.default_rng(seed).random((T, 3)) * 0.4
    scores[np.arange(T), np.arange(T) // run % 3] += 0.5
    return scores


def rows_of(scores: NDArray[np.floating], task: str = "t") -> list[dict[str, object]]:
    return [
        {"task": task, "doc_id": t, "model": model, "score": float(scores[t, m])}
        for t in range(len(scores))
        for m, model in enumerate("cab")
    ]


def write(rows: list[dict[str, object]], path: Path) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_table_is_read_in_the_order_of_the_stream(tmp_path: Path, suffix: str) -> None:
    scores = np.arange(21, dtype=np.float64).reshape(7, 3)
    later, sooner = rows_of(scores, "later"), rows_of(scores[:2], "a-task")[::-1]
    table = read_scores(write(later[:6] + sooner + later[6:], tmp_path / f"scores{suffix}"))
    assert table.models == ("a", "b", "c")
    assert table.scores.tolist() == scores[[0, 1, 1, 0, 2, 3, 4, 5, 6]][:, [1, 2, 0]].tolist()
    # floor(0.8 · 7) = 5 and floor(0.8 · 2) = 1, in the order of the stream
    assert table.is_train.tolist() == [True, True, True, False, True, True, True, False, False]


def test_given_splits_are_kept(tmp_path: Path) -> None:
    rows = [row | {"split": "test" if row["doc_id"] == 0 else "train"} for row in rows_of(np.ones((3, 3)))]
    assert read_scores(write(rows, tmp_path / "s.jsonl")).is_train.tolist() == [False, True, True]


GOOD = rows_of(np.ones((5, 3)))
BAD: list[tuple[list[dict[str, object]], str]] = [
    ([*GOOD, GOOD[4]], "row 16: a second score of 'a'"),
    (GOOD[:-1], "document 4 of task 't' has no score of 'b'"),
    ([GOOD[0] | {"score": "high"}, *GOOD[1:]], "row 1: score 'high'"),
    ([GOOD[0] | {"score": "nan"}, *GOOD[1:]], "row 1: score nan"),
    ([GOOD[0] | {"model": None}, *GOOD[1:]], "row 1: there is no model"),
    ([GOOD[0] | {"split": "dev"}, *GOOD[1:]], "row 1: split 'dev'"),
    ([GOOD[0] | {"split": "train"}, *GOOD[1:]], "row 2: document 0 .* another split"),
    ([row | {"split": "train"} for row in GOOD[:3]] + GOOD[3:], "document 1 of task 't' has no split"),
    ([row | {"split": "train"} for row in GOOD], "has no test documents"),
    (GOOD[:3], "has no train documents"),
    ([row for row in GOOD if row["model"] == "a"], "has scores of 1 model;"),
]


@pytest.mark.parametrize(("rows", "message"), BAD)
def test_a_wrong_table_is_refused(rows: list[dict[str, object]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_scores(write(rows, tmp_path / "scores.jsonl"))


def test_the_decider_follows_a_stream_whose_best_model_switches() -> None:
    scores = switching(0, 900)
    report = evaluate_scores(_table(scores, 600), 2, QUICK)
    assert report.decider > report.random + 0.9 * (report.oracle - report.random)
    assert report.above_best_single.low > 0.2
    assert report.oracle == pytest.approx(scores[600:].max(axis=1).mean())
    assert report.random == pytest.approx(scores[600:].mean())
    best = scores[:600].mean(axis=0).argmax()
    assert report.best_single == "abc"[best]
    assert report.singles["abc"[best]] == pytest.approx(scores[600:, best].mean())
    assert report.above_best_single.mean == pytest.approx(report.decider - report.singles["abc"[best]])
    assert sum(report.picked.values()) == pytest.approx(1)
    assert report.stderr_seeds == pytest.approx(np.std(report.decider_seeds, ddof=1) / 2**0.5)


def test_the_decider_keeps_the_best_model_when_the_past_is_uninformative() -> None:
    scores = (np.random.default_rng(0).random((500, 3)) < [0.2, 0.9, 0.3]).astype(float)
    report = evaluate_scores(_table(scores, 400), 2, QUICK)
    assert report.picked["b"] > 0.98
    assert report.best_single == "b"


def test_a_pick_depends_on_the_scores_before_it_alone() -> None:
    train = switching(0, 300)
    decider = train_decider(train, [0, 1], QUICK)
    stream = switching(1, 200)
    picks = decider.choose(stream)
    changed = stream.copy()
    changed[120:] = 1 - changed[120:]
    assert (decider.choose(changed)[:, :121] == picks[:, :121]).all()
    assert (decider.choose(changed)[:, 121:] != picks[:, 121:]).any()
    for seed in range(2):
        current, before = np.zeros(3), np.zeros(3)
        for t, scores in enumerate(stream):
            seen = torch.tensor(np.concatenate([current, before]), dtype=torch.float32)[None]
            with torch.no_grad():
                assert int(decider.networks[seed](seen).argmax()) == picks[seed, t]
            current, before = np.eye(3)[picks[seed, t]], (scores - train.mean()) / train.std()


def test_the_same_seed_is_the_same_decider() -> None:
    scores = switching(0, 120)
    one, again, other = (train_decider(scores, [seed], QUICK).networks[0] for seed in (3, 3, 4))
    _, in_company = train_decider(scores, [4, 3], QUICK).networks
    for p, q, r, s in zip(*(d.parameters() for d in (one, again, other, in_company)), strict=True):
        assert torch.equal(p, q)
        assert not torch.equal(p, r)
        assert torch.equal(p, s)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    path = write(rows_of(switching(0, 60, run=7)), tmp_path / "scores.csv")
    shown = CliRunner().invoke(app, ["open-ended", "--scores", str(path), "--seeds", "2"])
    assert shown.exit_code == 0, shown.output
    assert "single:a" in shown.output
    result = CliRunner().invoke(app, ["open-ended", "--scores", str(path), "--seeds", "2", "--json"])
    report = json.loads(result.stdout[result.stdout.index("{") :])
    assert (report["n_train"], report["n_test"], len(report["decider_seeds"])) == (48, 12, 2)
    assert report["random"] < report["oracle"]


def _table(scores: NDArray[np.float64], n_train: int) -> ScoreTable:
    T = len(scores)
    return ScoreTable(("a", "b", "c"), scores, np.arange(T) < n_train)

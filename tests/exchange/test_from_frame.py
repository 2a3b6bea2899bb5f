"""rlfocal.from_frame: from a data frame to fitted policies, without a warehouse that anybody names."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import rlfocal
from rlfocal.base.errors import InputError
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.tables import import_tables
from warehouse import open_warehouse

ROOT = Path(__file__).resolve().parents[2]
N, RIGHT = 120, {"poor": 0.4, "good": 0.7, "best": 0.9}


def answers(*, split: bool = False) -> pd.DataFrame:
    """Log-probs of models of known accuracy; the last 60 documents are test where `split`."""
    rng = np.random.default_rng(0)
    rows = []
    for at in range(N):
        gold = int(rng.integers(4))
        for model, chance in RIGHT.items():
            logits = rng.normal(size=4)
            said = gold if rng.random() < chance else (gold + 1) % 4
            logits[said] = logits.max() + 2
            scores = logits - np.log(np.exp(logits).sum())
            named = {f"logprob_{letter}": score for letter, score in zip("ABCD", scores, strict=True)}
            row = {"question": f"What is {at}?", "model": model, **named, "answer": "ABCD"[gold]}
            rows.append(row | ({"split": "train" if at < N // 2 else "test"} if split else {}))
    return pd.DataFrame(rows)


def test_fits_on_train_rows_and_evaluates_on_test_rows() -> None:
    frame = answers(split=True)
    data = rlfocal.from_frame(frame)
    assert data.imported.n_docs == N
    found = data.evaluate(["best_single", "soft_vote"]).to_pandas().set_index("method")
    test = frame[frame["split"] == "test"]
    scores = test[[f"logprob_{letter}" for letter in "ABCD"]].to_numpy()
    right = np.array(list("ABCD"))[scores.argmax(axis=1)] == test["answer"]
    assert found.loc["best_single", "accuracy"] == right[test["model"] == "best"].mean()
    assert set(found["documents"]) == {N // 2}
    voted = np.exp(scores).reshape(-1, len(RIGHT), 4).mean(axis=1).argmax(axis=1)
    golds = test["answer"].to_numpy()[:: len(RIGHT)]
    assert found.loc["soft_vote", "accuracy"] == (np.array(list("ABCD"))[voted] == golds).mean()
    above = found.loc["soft_vote", "accuracy"] - found.loc["best_single", "accuracy"]
    assert found.loc["soft_vote", "above_best_single"] == pytest.approx(above)
    assert found.loc["soft_vote", "low"] <= above <= found.loc["soft_vote", "high"]
    assert found["accuracy"].is_monotonic_decreasing

    routers = data.fit("rl_focal_sequential", seeds=2)
    assert [router.models for router in routers] == [tuple(sorted(RIGHT))] * 2
    place = data.warehouse.location.directory
    assert place is not None
    assert place.is_dir()
    del data
    gc.collect()
    assert not place.exists()


def test_frames_of_polars_free_answers_and_refusals(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    rows = [
        {
            "id": f"q-{at:02d}",
            "model": model,
            "answer": str(at % 3 + (model == "a" and at % 2)),
            "gold": str(at % 3),
        }
        for at in range(40)
        for model in ("a", "b")
    ]
    data = rlfocal.from_frame(polars.DataFrame(rows), comparison="exact")
    assert data.evaluate(["single:b"])["accuracy"].to_pylist() == [1]
    decided = data.warehouse.rows("SELECT source_id, method, answer FROM decided ORDER BY doc_id")
    test = data.warehouse.rows("SELECT source_id FROM docs WHERE split = 'test' ORDER BY doc_id")
    assert decided == [(name, "single:b", str(int(name[2:]) % 3)) for (name,) in test]
    assert len(decided) == 8
    export(data.warehouse, tmp_path / "out")
    files = tmp_path / "out" / "decisions" / "**" / "*.parquet"
    exported = data.warehouse.rows(f"SELECT source_id FROM '{files}' ORDER BY doc_id")
    assert exported == [(name,) for name, _, _ in decided]
    export(data.warehouse, tmp_path / "files", format="predictions")
    docs, scores = (tmp_path / "files" / f"{name}.parquet" for name in ("docs", "scores"))
    assert data.warehouse.rows(f"SELECT source_id FROM '{scores}' WHERE model = 'b' ORDER BY doc_id") == [
        (f"q-{at:02d}",) for at in range(40)
    ]
    import_predictions(data.warehouse, docs, scores, comparison="exact")
    assert data.warehouse.rows("SELECT count(*) FROM docs WHERE source_id IS NOT NULL") == [(40,)]
    with open_warehouse(tmp_path / "w") as other:
        import_tables(other, tmp_path / "out")
        assert other.rows("SELECT source_id, method, answer FROM decided ORDER BY doc_id") == decided
    [router] = data.fit("rl_focal_sequential")
    router.choose("q")
    assert router.fuse({"b": "7.0"}) == "7.0"  # compared as the data's answers are: not as numbers
    with pytest.raises(InputError, match="no column 'model'"):
        rlfocal.from_frame(polars.DataFrame(rows).drop("model"))


def test_frames_that_arrow_cannot_read_are_refused() -> None:
    frame = answers()
    mixed = frame.assign(answer=[name if row % 2 else 0 for row, name in enumerate(frame["answer"])])
    with pytest.raises(InputError, match="column answer"):
        rlfocal.from_frame(mixed)
    with pytest.raises(InputError, match="Duplicate column names"):
        rlfocal.from_frame(pd.concat([frame, frame[["answer"]]], axis=1))


def test_the_documented_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), re.DOTALL)
    answers().to_csv(tmp_path / "answers.csv", index=False)
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    printed = capsys.readouterr().out
    assert "logprob_D as choice_logprobs" in printed
    assert "rl_focal_sequential" in printed
    assert printed.splitlines()[-1].startswith("['")
    assert list(tmp_path.iterdir()) == [tmp_path / "answers.csv"]

"""`import released`: the release's three layouts, real rows in them, and pickles that would run code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.released_files import write_letters, write_questions, write_runs
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.exchange.imports.reading.pickles import load_arrays
from rlfocal.exchange.imports.released import PICKLED_MODELS, import_released
from warehouse import Warehouse


def write_pickle(path: Path, content: Any) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_letters(warehouse: Warehouse, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 3, 4, 4)).tolist()
    labels = ("ABCD", "DDCA", "BBBA")
    for m, model in enumerate(("meta__x", "y")):
        for t, task in enumerate(("a", "b", "c")):
            write_letters(tmp_path / "mmlu_hf", model, task, scores[m][t], labels[t])
    report = import_released(warehouse, [tmp_path / "mmlu_hf"])
    assert (report.benchmarks, report.models) == (("mmlu@released",), ("meta/x", "y"))
    assert (report.n_docs, report.n_scores, report.n_written) == (12, 24, 6)
    for m, model in enumerate(("meta/x", "y")):
        for t, task in enumerate(("a", "b", "c")):
            right = np.argmax(scores[m][t], axis=1) == ["ABCD".index(letter) for letter in labels[t]]
            found = warehouse.rows(
                "SELECT accuracy FROM accuracy WHERE (model, task) = (?, ?)", [model, task]
            )
            assert found == [(right.mean(),)]
    # The release's one cut: 9 of 12 rows in the order of its files.
    test = warehouse.rows("SELECT task, doc_id FROM docs WHERE split = 'test' ORDER BY ALL")
    assert test == [("c", 1), ("c", 2), ("c", 3)]
    before = warehouse.snapshot()
    again = import_released(warehouse, [tmp_path / "mmlu_hf"])
    assert (again.n_written, again.n_unchanged) == (0, 6)
    assert warehouse.snapshot() == before


def test_numbers(warehouse: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "gsm8k"
    nan = float("nan")
    write_runs(folder, "x", "train", [[18, 18.5], [2, nan], [3, 3]])
    write_runs(folder, "x", "test", [[1234, -5]])
    write_runs(folder, "y", "train", [[18, 18], [1, 1]])
    write_runs(folder, "y", "train", [[9, 9]])
    write_runs(folder, "y", "test", [[0, 1e7]])
    write_questions(folder, "train", ["18", "2", "3", "4"])
    write_questions(folder, "test", ["1,234"])
    report = import_released(warehouse, [folder])
    assert (report.n_docs, report.n_scores) == (3, 12)
    assert report.left == (
        f"{folder}/y/train/run_1_predictions.npy (an earlier run)",
        f"{folder}/x/train/run_3_predictions.npy, rows 3 to 3 (another model stops there)",
    )
    assert warehouse.rows("SELECT doc_id, question, gold, split FROM docs ORDER BY doc_id") == [
        (0, "train 0?", "18", "train"),
        (1, "train 1?", "2", "train"),
        (4, "test 0?", "1234", "test"),
    ]
    said = "SELECT doc_id, pass, answer FROM answer_passes WHERE model = ? ORDER BY ALL"
    assert warehouse.rows(said, ["x"]) == [
        (0, 0, "18"),
        (0, 1, "18.5"),
        (1, 0, "2"),
        (1, 1, None),
        (4, 0, "1234"),
        (4, 1, "-5"),
    ]
    assert warehouse.rows(said, ["y"])[-1] == (4, 1, "10000000")
    assert import_released(warehouse, [folder]).n_written == 0


@pytest.mark.slow
def test_pickle_of_real_rows(shared: Path, warehouse: Warehouse, tmp_path: Path) -> None:
    """bbh5 is the release's pickle: written as one again, it has the accuracies that were measured on it."""
    rows = duckdb.sql(
        f"SELECT task, train, label_as_released, model, choice_scores, doc_id "
        f"FROM '{shared}/data/bbh5/docs.parquet' JOIN '{shared}/data/bbh5/scores.parquet' "
        "USING (task, doc_id) ORDER BY task, doc_id"
    ).fetchall()
    models = sorted({row[3] for row in rows})
    documents: dict[tuple[str, int], dict[str, Any]] = {}
    for task, train, label, model, scores, doc_id in rows:
        document = documents.setdefault((task, doc_id), {"train": train, "label": label})
        document[model] = scores
    parts: tuple[dict[str, list[list[float]]], ...] = ({}, {})
    right: dict[tuple[str, str], list[bool]] = {}
    for (task, _), d in documents.items():
        values = [score for model in models for score in d[model]]
        parts[not d["train"]].setdefault(task, []).append([*values, d["label"]])
        for model in models:
            right.setdefault((task, model), []).append(int(np.argmax(d[model])) == d["label"])
    content = [[np.array(each) for each in part.values()] for part in parts]
    path = write_pickle(tmp_path / "bbh_data.pkl", content)
    report = import_released(warehouse, [path], models=models)
    assert (report.n_docs, report.n_written) == (len(documents), 24 * 5)
    found = warehouse.rows("SELECT task, model, accuracy FROM accuracy WHERE benchmark = 'bbh@released'")
    assert {(task, model): accuracy for task, model, accuracy in found} == {
        key: pytest.approx(np.mean(each), abs=1e-12) for key, each in right.items()
    }
    means = warehouse.rows(
        "SELECT round(100 * avg(accuracy), 2) FROM (SELECT task, model, avg(correct::INT) AS accuracy "
        "FROM predictions WHERE split = 'test' GROUP BY ALL) GROUP BY model ORDER BY 1"
    )
    assert [mean for (mean,) in means] == [28.03, 36.23, 39.66, 41.87, 44.55]


def test_pickles_of_other_models(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = np.arange(15.0).reshape(3, 5) % 2
    path = write_pickle(tmp_path / "x.pkl", ([rows, rows], [rows[:1], rows[:0]]))
    with pytest.raises(InputError, match=r"row 1: 4 scores .* 5 models; name the models"):
        import_released(warehouse, [path])
    report = import_released(warehouse, [path], models=["x", "y"], benchmark="mine")
    assert (report.benchmarks, report.n_docs) == (("mine",), 7)
    assert warehouse.rows("SELECT task, doc_id FROM docs WHERE split = 'test'") == [("task_00", 3)]
    assert len(PICKLED_MODELS) == 5


@given(
    hnp.arrays(
        st.sampled_from(["<f8", ">f8", "<f4", "<i8", "u1", "?"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.integers(0, 5),
    st.booleans(),
)
def test_arrays_are_read_as_pickle_would(
    tmp_path_factory: pytest.TempPathFactory, array: Any, protocol: int, transpose: bool
) -> None:
    array = array.T if transpose else array
    path = tmp_path_factory.getbasetemp() / "arrays.pkl"
    path.write_bytes(pickle.dumps([array, {"a": (array, "text", 1, None, 0.5)}], protocol))
    first, rest = load_arrays(path)
    for found in (first, rest["a"][0]):
        assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, array)
    assert rest["a"][1:] == ["text", 1, None, 0.5]


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4))
def test_damaged_arrays_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, protocol: int, damage: list[tuple[int, int]]
) -> None:
    content = bytearray(pickle.dumps([[np.ones((2, 3))], [np.float64(1), {"a": 2}]], protocol))
    for place, byte in damage:
        content[place % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.pkl"
    path.write_bytes(content)
    with suppress(InputError):
        load_arrays(path)


class Runs:
    """Unpickled by pickle itself, this calls what it was given."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


def malicious(mark: Path) -> Iterator[tuple[str, bytes]]:
    command = f"touch {mark}"
    yield "a shell", pickle.dumps([[Runs(os.system, command)], []])
    yield "eval", pickle.dumps(Runs(eval, f"open({str(mark)!r}, 'w')"))
    yield "in an array of objects", pickle.dumps(np.array([Runs(os.system, command)], object))
    yield "numpy's own loader", pickle.dumps(Runs(np.load, str(mark), None, True))
    yield "an old opcode", f"(S'{command}'\nios\nsystem\n.".encode()
    yield "by way of numpy", b"cnumpy\nndarray.__class__\n."
    yield "an admitted module", b"cnumpy._core.multiarray\nfromfile\n(S'/etc/passwd'\ntR."
    # Keys of a state are set on what stands there: on a function, had it been given one.
    yield "a changed helper", b"c_codecs\nencode\n(N}S'__code__'\nNstb."
    yield "a place beyond memory", b"Nr\xff\xff\xff\x7f."
    yield "bytes beyond memory", b"\x96" + (2**40).to_bytes(8, "little") + b"."
    yield "an array by hand", b"cnumpy\nndarray\n((I1000000000000\ntS'u1'\ntR."


def test_nothing_in_a_pickle_is_run(warehouse: Warehouse, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "bbh_data.pkl"
    before = warehouse.snapshot()
    for name, content in malicious(mark):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"bbh_data.pkl"):
            import_released(warehouse, [path])
        assert not mark.exists(), name
    assert warehouse.snapshot() == before
    path.write_bytes(dict(malicious(mark))["a shell"])
    with pytest.raises(InputError, match=r"refers to (posix|nt).system, .* nothing in it was run"):
        import_released(warehouse, [path])
    # The same file does run where pickle itself reads it, so the test can fail.
    pickle.loads(path.read_bytes())
    assert mark.exists()


def test_broken_pickles(warehouse: Warehouse, tmp_path: Path) -> None:
    whole = pickle.dumps([[np.ones((2, 11))], [np.ones((1, 11))]])
    path = tmp_path / "x.pkl"
    for cut in (*range(0, len(whole) - 1, 7), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"x\.pkl is truncated"):
            import_released(warehouse, [path])
    nested: list[Any] = []
    nested.append(nested)
    twice: list[Any] = []
    for _ in range(60):
        twice = [twice, twice]
    objects = np.array(["x"])
    strange: list[Any] = [nested, twice, objects, {"a": 1}, [1, 2], [[1], [2]], [[], [], []], {1, 2}]
    for content in strange:
        write_pickle(path, content)
        with pytest.raises(InputError, match=r"x\.pkl"):
            import_released(warehouse, [path])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([[0.0, 1.0, 2.0, 3.0]] * 2, "AE", "row 2: label 'E' is not one of A, B, C, D"),
        ([[0.0, 1.0, 2.0, 3.0], [1.0]], "AB", "row 2: 1 scores, but document 1 .* has 4 choices"),
        ([[0.0, 1.0, 2.0, float("nan")]], "A", "row 1: .*not all finite"),
        (
            [[0.0, 1.0, 2.0, 3.0]] * 2,
            "AC",
            r"row 2: document 1 .* differs from .*x.a.csv, row 2: label was '1'",
        ),
        ([[0.0, 1.0, 2.0, 3.0]], "A", "model y has no row for document 1"),
    ],
)
def test_refused_letters(
    warehouse: Warehouse, tmp_path: Path, scores: list[list[float]], labels: str, message: str
) -> None:
    folder = tmp_path / "mmlu_hf"
    write_letters(folder, "x", "a", [[0.0, 1.0, 2.0, 3.0]] * 2, "AB")
    write_letters(folder, "y", "a", scores, labels)
    with pytest.raises(InputError, match=message):
        import_released(warehouse, [folder])
    (folder / "y" / "a.csv").write_text("prediction,label\n\"__import__('os').system('true')\",A\n")
    with pytest.raises(InputError, match=r"row 1: prediction .* is not a list of numbers"):
        import_released(warehouse, [folder])
    assert warehouse.rows("FROM docs") == []


def test_refused_numbers(warehouse: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "gsm8k"
    path = write_runs(folder, "x", "test", [[1, 1], [2, 2]])
    with pytest.raises(InputError, match=r"there is no file .*test.jsonl; put GSM8K's own"):
        import_released(warehouse, [folder])
    write_questions(folder, "test", ["1"])
    with pytest.raises(InputError, match=r"has 2 rows, but .*test.jsonl has 1 questions"):
        import_released(warehouse, [folder])
    (folder / "test.jsonl").write_text('{"question": "?", "answer": "#### 1"}\n{"question": "?"}\n')
    with pytest.raises(InputError, match=r"test.jsonl, line 2: expected a question, and an answer"):
        import_released(warehouse, [folder])
    write_questions(folder, "test", ["1", "2"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"run_2_predictions.npy is not a readable"):
        import_released(warehouse, [folder])
    for broken in (b"PK\3\4", b"PK\5\6" + bytes(18), b"\x93NUMPY\1\0\6\0{'a':\n", b""):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"run_2_predictions.npy(: the array| is not a readable)"):
            import_released(warehouse, [folder])
    np.save(path, np.zeros((2, 0)))
    with pytest.raises(InputError, match=r"run_2_predictions.npy: the array must hold numbers"):
        import_released(warehouse, [folder])
    for label in (1e300, -(2.0**63)):
        pickled = write_pickle(tmp_path / "labels.pkl", [[np.full((5, 6), label)], [np.zeros((1, 6))]])
        with pytest.raises(InputError, match=r"row 1: label .* is not a whole number of 64 bits"):
            import_released(warehouse, [pickled])
    mark = tmp_path / "ran"
    np.save(path, np.array([Runs(os.system, f"touch {mark}")], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"run_2_predictions.npy is not a readable array of numbers"):
        import_released(warehouse, [folder])
    assert not mark.exists()
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        with pytest.raises(InputError, match=name):
            import_released(warehouse, [tmp_path / name])
    with pytest.raises(InputError, match="import each path separately"):
        import_released(warehouse, [folder, folder], benchmark="b")
    assert warehouse.rows("FROM docs") == []


def test_command(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "x.pkl", [[np.zeros((5, 5))], [np.zeros((1, 5))]])
    arguments = ["import", "released", str(path), "--models", "x,y", "--warehouse", str(tmp_path / "w")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "12 scores of 2 models on 6 documents (bbh@released)" in result.stdout

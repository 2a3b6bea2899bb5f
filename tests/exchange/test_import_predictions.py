"""`import predictions`: what it takes and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.prediction_files import Rows, choice_docs, choice_scores, write

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports import rows
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.rows import ImportReport
from warehouse import Warehouse, open_warehouse, writing
from warehouse.store import PartitionKey


@pytest.fixture
def bring(warehouse: Warehouse, tmp_path: Path) -> Callable[..., ImportReport]:
    """Writes the rows to files and imports them."""

    def run(docs: Rows, scores: Rows, suffix: str = ".parquet", **options: Any) -> ImportReport:
        docs_path, scores_path = tmp_path / f"docs{suffix}", tmp_path / f"scores{suffix}"
        return import_predictions(warehouse, write(docs_path, docs), write(scores_path, scores), **options)

    return run


Bring = Callable[..., ImportReport]
OF_G = {"benchmark": "g", "task": "g", "model": "x"}


def gold_docs(*golds: str) -> Rows:
    return [{"benchmark": "g", "task": "g", "doc_id": i, "gold": gold} for i, gold in enumerate(golds)]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_the_formats_agree(bring: Bring, warehouse: Warehouse, suffix: str) -> None:
    report = bring(choice_docs(), choice_scores(), suffix)
    assert (report.n_docs, report.n_scores, report.n_written, report.n_unchanged) == (5, 10, 2, 0)
    assert (report.benchmarks, report.models, report.missing) == (("b",), ("x", "y"), ())
    stored = warehouse.query("SELECT * FROM docs ORDER BY doc_id").to_pylist()
    for given, row in zip(choice_docs(), stored, strict=True):
        assert {k: row[k] for k in given} == given
        assert row["gold"] == given["choices"][given["label"]]
    assert sorted(row["split"] for row in stored) == ["test"] + ["train"] * 4
    scores = warehouse.query(
        "SELECT * FROM choice_logprobs WHERE model = 'y' AND doc_id = 3 ORDER BY choice"
    ).to_pydict()
    assert scores["logprob"] == [-1.5, -1.0, -0.25]
    assert scores["n_chars"] == [2, 11, 2]
    assert scores["n_bytes"] == [2, 11, 3]
    assert warehouse.rows("SELECT model, hf_repo FROM models ORDER BY ALL") == [("x", None), ("y", None)]
    fingerprints = warehouse.fingerprints()
    assert bring(choice_docs(), choice_scores(), ".jsonl").n_written == 0
    assert warehouse.fingerprints() == fingerprints


def test_imports_at_once_write_the_same_once(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs, scores = write(tmp_path / "d.jsonl", choice_docs()), write(tmp_path / "s.jsonl", choice_scores())
    both_read, list_stored = Barrier(2), Warehouse.fingerprints

    def list_together(opened: Warehouse) -> dict[PartitionKey, str]:
        found = list_stored(opened)
        with suppress(BrokenBarrierError):
            both_read.wait(1)
        return found

    def bring_alone(_: int) -> ImportReport:
        with open_warehouse(warehouse.location.name) as opened:
            return import_predictions(opened, docs, scores)

    monkeypatch.setattr(Warehouse, "fingerprints", list_together)
    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(bring_alone, range(2)))
    assert sorted((report.n_written, report.n_unchanged) for report in reports) == [(0, 2), (2, 0)]


def test_one_name_merges_no_benchmarks(warehouse: Warehouse) -> None:
    table = pa.table(
        {"benchmark": ["b", "c"], "id": [0, 1], "model": ["m", "m"], "answer": ["5", "6"], "gold": ["5", "6"]}
    )
    with pytest.raises(InputError, match=r"merge the 2 benchmarks of column 'benchmark' \(b, c\)"):
        import_predictions(warehouse, table, benchmark="z")
    import_predictions(warehouse, table, benchmark="z", columns={"benchmark": "task"})
    assert warehouse.rows("SELECT benchmark, task FROM docs ORDER BY task") == [("z", "b"), ("z", "c")]
    import_predictions(warehouse, table.slice(0, 1), benchmark="y")  # a single one may have another name
    assert warehouse.rows("SELECT task FROM docs WHERE benchmark = 'y'") == [("y",)]


def test_the_same_twice_writes_nothing(bring: Bring, warehouse: Warehouse) -> None:
    bring(choice_docs(), choice_scores())
    before = warehouse.snapshot()
    report = bring(choice_docs(), choice_scores())
    assert warehouse.snapshot() == before
    assert (report.n_written, report.n_unchanged) == (0, 2)
    assert "nothing new, nothing written" in str(report)
    changed = choice_scores()
    changed[0]["choice_logprobs"] = [0.0, -9.0, -9.0]
    replaced = bring(choice_docs(), changed)
    assert (replaced.n_written, replaced.n_replaced) == (1, 1)
    assert "replaced: 1 partition; what stood there is in the snapshot before" in str(replaced)
    assert warehouse.rows("SELECT count(*) FROM choice_logprobs") == [(30,)]
    added = bring(choice_docs(), choice_scores(models=("z",)))
    assert (added.n_written, added.n_replaced) == (1, 0)
    assert "replaced" not in str(added)
    assert {m for m, _, _ in warehouse.fingerprints()} == {"x", "y", "z"}


def test_batches_write_what_one_would(
    bring: Bring, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH_DOCS", 1)
    bring(choice_docs(), choice_scores())
    counted = "SELECT model, count(*), min(logprob), max(logprob) FROM choice_logprobs GROUP BY 1 ORDER BY 1"
    digests = "SELECT digest FROM extractions ORDER BY 1"
    apart = warehouse.rows(counted), warehouse.rows(digests)
    with warehouse.transaction("away"):
        writing.drop_partitions(warehouse.connection, [(m, "b", "t") for m in ("x", "y")])
    monkeypatch.undo()
    bring(choice_docs(), choice_scores())
    assert apart == (warehouse.rows(counted), warehouse.rows(digests))
    assert [model for model, *_ in apart[0]] == ["x", "y"]


def test_answers_are_canonical(bring: Bring, warehouse: Warehouse) -> None:
    said = [(0, 0, "1234.0"), (1, 0, "17"), (1, 1, "$18"), (1, 2, "18.00"), (2, 0, None)]
    scores = [{**OF_G, "doc_id": i, "pass": p, "answer": a} for i, p, a in said]
    bring(gold_docs("1,234", "18", "2"), scores)
    assert warehouse.rows("SELECT doc_id, answer, correct FROM predictions ORDER BY doc_id") == [
        (0, "1234", True),
        (1, "18", True),
        (2, None, False),
    ]
    assert warehouse.rows("SELECT text FROM answer_passes WHERE pass = 1") == [("$18",)]


def test_an_empty_answer_is_none_in_every_format(bring: Bring, warehouse: Warehouse) -> None:
    docs = gold_docs(*"1111")
    scores = [{**OF_G, "doc_id": i, "answer": a} for i, a in enumerate(["", " \t\u2003", None, "1"])]
    report = bring(docs, scores)
    assert report.n_unanswered == 3
    assert "no answer: 3 scores without one, graded as wrong" in str(report)
    assert warehouse.rows("SELECT text, answer FROM answer_passes ORDER BY doc_id")[:3] == [(None, None)] * 3
    for suffix in (".csv", ".jsonl"):
        assert bring(docs, scores, suffix).n_written == 0
    assert bring(choice_docs(), choice_scores()).n_unanswered == 0


def test_numbers_as_pandas_writes_them(bring: Bring, warehouse: Warehouse) -> None:
    docs = [{**doc, "doc_id": float(doc["doc_id"])} for doc in gold_docs("1", "1")]
    key = OF_G | {"answer": "1"}
    large = 2**53 + 1
    scores = [{**key, "doc_id": i, "pass": p} for i in ("0", "1.0") for p in ("0", "1.00")]
    bring(docs, scores)
    found = warehouse.rows("SELECT DISTINCT doc_id, pass FROM answer_passes ORDER BY ALL")
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
    docs = [{**docs[0], "doc_id": str(large), "benchmark": "h"}]
    bring(docs, [{**key, "benchmark": "h", "doc_id": str(large)}])
    assert warehouse.rows("SELECT doc_id FROM docs WHERE benchmark = 'h'") == [(large,)]


def test_splits(bring: Bring, warehouse: Warehouse) -> None:
    """A given split is used; else floor(0.8 n) of each task train, drawn by a hash of ids: not the first."""
    docs = choice_docs(7, "short")[::-1] + choice_docs(10, "long") + choice_docs(10, "other")
    given = choice_docs(4, "given")
    for i, doc in enumerate(given):
        doc["split"] = ["test", "train", "test", "train"][i]
    tasks = (("short", 7), ("long", 10), ("other", 10), ("given", 4))
    bring(docs + given, [row for task, n in tasks for row in choice_scores(n, task)])
    found = {
        task: [
            split
            for (split,) in warehouse.rows("SELECT split FROM docs WHERE task = ? ORDER BY doc_id", [task])
        ]
        for task, _ in tasks
    }
    assert found["given"] == ["test", "train", "test", "train"]
    assert [found[task].count("train") for task, _ in tasks[:3]] == [5, 8, 8]
    first = ["train"] * 8 + ["test"] * 2
    assert first not in (found["long"], found["other"])
    assert found["long"] != found["other"]


def test_the_first_train_where_that_is_said(tmp_path: Path, warehouse: Warehouse) -> None:
    docs, scores = (
        write(tmp_path / "d.jsonl", choice_docs(9)[::-1]),
        write(tmp_path / "s.jsonl", choice_scores(9)),
    )
    import_predictions(warehouse, docs, scores, split="first")
    found = warehouse.rows("SELECT split FROM docs ORDER BY doc_id")
    assert [split for (split,) in found] == ["train"] * 7 + ["test"] * 2
    # A later import, of another model, leaves the stored documents as they are.
    more = write(tmp_path / "m.jsonl", choice_scores(9, models=("z",)))
    assert import_predictions(warehouse, docs, more).n_written == 1
    assert warehouse.rows("SELECT split FROM docs ORDER BY doc_id") == found
    assert import_predictions(warehouse, docs, scores).n_written == 0


def test_new_documents_of_a_stored_task_fill_its_split(bring: Bring, warehouse: Warehouse) -> None:
    bring(choice_docs(10), choice_scores(10))
    before = dict(warehouse.rows("SELECT doc_id, split FROM docs"))
    bring(choice_docs(25), choice_scores(25))
    after = dict(warehouse.rows("SELECT doc_id, split FROM docs"))
    assert {doc_id: after[doc_id] for doc_id in before} == before
    assert [*after.values()].count("train") == 20


def test_half_precision_and_a_byte_order_mark(warehouse: Warehouse, tmp_path: Path) -> None:
    """What numpy users and Windows' editors write."""
    docs, scores = tmp_path / "docs.jsonl", write(tmp_path / "scores.parquet", choice_scores())
    docs.write_text("".join(json.dumps(row) + "\n" for row in choice_docs()), encoding="utf-8-sig")
    table = pyarrow.parquet.read_table(scores)
    at = table.column_names.index("choice_logprobs")
    halves = table["choice_logprobs"].combine_chunks().cast(pa.list_(pa.float16()))
    pyarrow.parquet.write_table(table.set_column(at, "choice_logprobs", halves), scores)
    import_predictions(warehouse, docs, scores)
    kept = warehouse.rows(
        "SELECT logprob FROM choice_logprobs WHERE doc_id = 1 AND model = 'x' ORDER BY choice"
    )
    assert kept == [(-1.5,), (-1.0,), (-0.25,)]


def test_lists_that_are_texts_are_read_as_in_csv(bring: Bring, warehouse: Warehouse) -> None:
    """As pandas writes what it read from a CSV file; numpy's without commas."""
    said = ["[-1.5, -1.0, -0.25]", "[-1.5 -1.  -0.25]"]
    bring(choice_docs(2), [row | {"choice_logprobs": said[row["doc_id"]]} for row in choice_scores(2)])
    kept = "SELECT DISTINCT choice, logprob FROM choice_logprobs ORDER BY choice"
    assert warehouse.rows(kept) == [(0, -1.5), (1, -1.0), (2, -0.25)]


def test_documents_nobody_scored_are_left_out(bring: Bring, warehouse: Warehouse) -> None:
    report = bring(choice_docs(9), choice_scores(5))
    assert report.n_unscored == 4
    assert "left out: 4" in str(report)
    assert warehouse.rows("SELECT count(*), count(*) FILTER (split = 'train') FROM docs") == [(5, 4)]


def test_uneven_passes_are_reported(bring: Bring, warehouse: Warehouse) -> None:
    passes = [(i, k) for i in range(5) for k in range(3 if i < 4 else 1)]
    report = bring(gold_docs(*"11111"), [{**OF_G, "doc_id": i, "pass": k, "answer": "1"} for i, k in passes])
    assert report.uneven == (("g", "g", "x", 1, 3),)
    assert "uneven: x answered documents of g/g 1 to 3 times" in str(report)
    assert warehouse.rows("SELECT DISTINCT prob FROM answer_probs") == [(1.0,)]


@pytest.mark.parametrize("model", ["../../x", "ü" * 50])
def test_a_models_name_is_a_value_and_no_path(bring: Bring, tmp_path: Path, model: str) -> None:
    bring(choice_docs(), choice_scores(models=(model,)))
    here = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert here == {"docs.parquet", "scores.parquet", "warehouse"}
    assert not any(path.name in ("x", model) for path in tmp_path.rglob("*"))


def changed(rows: Rows, at: int, **values: Any) -> Rows:
    return [{**row, **values} if i == at else row for i, row in enumerate(rows)]


D, S = choice_docs(), choice_scores()
ASKED = [{**d, "label": None, "choices": None, "gold": "x"} for d in D]
SAID = [{**s, "choice_logprobs": None, "answer": "x"} for s in S]
Fault = tuple[Rows, Rows, str]


def in_docs(at: int, message: str, **values: Any) -> Fault:
    return changed(D, at, **values), S, rf"docs.*row {at + 1}: {message}"


def in_scores(at: int, message: str, **values: Any) -> Fault:
    return D, changed(S, at, **values), rf"scores.*row {at + 1}: {message}"


WRONG: dict[str, Fault] = {
    "too few scores": in_scores(3, "2 scores, but document 3 .* 3", choice_logprobs=[0.0, 1.0]),
    "no scores in a list": in_scores(3, "0 scores", choice_logprobs=[]),
    "NaN": in_scores(1, ".*nan.* not all finite", choice_logprobs=[0.0, float("nan"), 1.0]),
    "infinite": in_scores(1, ".*not all finite", choice_logprobs=[0.0, float("-inf"), 1.0]),
    "a null score": in_scores(1, ".*not all finite", choice_logprobs=[0.0, None, 1.0]),
    "label too large": in_docs(2, "label 3 is out of range: document 2 .* 3 choices", label=3),
    "label negative": in_docs(2, "label -1 is out of range", label=-1),
    "duplicate score": (D, [*S, S[0]], r"scores.*row 11: duplicate row for document 0 of b/t, model x"),
    "duplicate document": ([*D, D[1]], S, r"docs.*row 6: duplicate document 1 of b/t"),
    "not described": (D[:4], S, r"scores.*row 5: document 4 of b/t is not described"),
    "uneven models": (D, S[:-1], r"docs.*row 5: model y has no row for document 4 of b/t, .*; 1 such"),
    "no model": in_scores(0, "no model", model=None),
    "no doc_id": in_docs(0, "no doc_id", doc_id=None),
    "negative doc_id": in_docs(0, "doc_id -1 is negative", doc_id=-1),
    "a wrong split": in_docs(0, "split dev", split="dev"),
    "the task *": in_docs(0, ".*may not be called", task="*"),
    "a benchmark that climbs": in_docs(
        1, 'benchmark "../../b" must not start with a dot or contain /', benchmark="../../b"
    ),
    "a task that climbs": in_docs(1, 'task "t..u" must not', task="t..u"),
    "a task with a slash": in_docs(1, 'task "t/u" must not', task="t/u"),
    "a task with a backslash": in_docs(1, "task .* must not", task="t\\u"),
    "a hidden task": in_docs(1, 'task ".t" must not', task=".t"),
    "a long task": in_docs(1, 'task "t+" is longer than 96', task="t" * 97),
    "a benchmark of two lines": in_docs(1, r'benchmark "b\\nc" has a control character', benchmark="b\nc"),
    "a blank model": in_scores(2, 'model " " is empty', model=" "),
    "a long model": in_scores(2, "model .* longer than 300", model="m" * 301),
    "a benchmark with a space": in_docs(1, 'benchmark " b" begins', benchmark=" b"),
    "a model with a space": in_scores(2, "model .* ends with a space", model="m\u2003"),
    "a pass too many": in_scores(2, "pass 1099511627776 is not", **{"pass": 2**40}),
    "a negative pass": in_scores(2, "pass -1 is not between 0", **{"pass": -1}),
    **{
        f"pass {given!r}": (
            ASKED,
            [{**s, "pass": given} for s in SAID],
            rf"scores.*row 1: pass '{re.escape(given)}' is not a whole number such as 12",
        )
        for given in ("01", "1e3", " 1", "1 ", "+1", "1.5", "one", "0x1")
    },
    "an empty gold answer": (changed(ASKED, 3, gold=""), SAID, r"docs.*row 4: gold '' holds no answer"),
    "nothing to grade by": in_docs(1, "neither a label", label=None),
    "label and answers": in_docs(1, "no label, but other", label=None, gold="x"),
    "scores for answers": (
        [{**d, "label": None, "gold": "x"} for d in D],
        S,
        r"row 1: choice_logprobs, but .* no label",
    ),
    "no scores": in_scores(2, "no choice_logprobs", choice_logprobs=None),
    "no rows": (D, [], r"has no"),
    "an invisible character": in_scores(
        1, r"model .* has an invisible character \(U\+200B\)", model="a\u200b"
    ),
}


@pytest.mark.parametrize("suffix", [".parquet", pytest.param(".jsonl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", WRONG)
def test_refused_whole(unwritten: Warehouse, tmp_path: Path, fault: str, suffix: str) -> None:
    docs, scores, message = WRONG[fault]
    before = unwritten.snapshot()
    files = write(tmp_path / f"docs{suffix}", docs), write(tmp_path / f"scores{suffix}", scores)
    with pytest.raises(InputError, match=message):
        import_predictions(unwritten, *files)
    assert unwritten.snapshot() == before


KEYS = b'{"benchmark": "b", "task": "t", '
TRUTH = KEYS + b'"doc_id": 1, "model": "m", "choice_logprobs": [true, -1.5]}\n'
WORDS = b"benchmark,task,doc_id,model,choice_logprobs\nb,t,1,m,abc\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("scores.jsonl", b'{"benchmark": "b"}\n\n{"benchmark', r"scores.jsonl, line 3: not a JSON object"),
        ("scores.jsonl", b"[1, 2]\n", r"line 1: not a JSON object"),
        ("scores.jsonl", b'{"benchmark": "\xff"}\n', r"not valid UTF-8"),
        ("scores.jsonl", '{"task": "t"}\n'.encode("utf-16"), r"scores.jsonl is UTF-16; save it as UTF-8"),
        ("scores.csv", "benchmark,task\n".encode("utf-16"), r"scores.csv is UTF-16; save it as UTF-8"),
        ("scores.jsonl", b'{"task": "t", "task": "u"}\n', r"line 1: duplicate key 'task'; keep one"),
        ("scores.jsonl", TRUTH, r"row 1: choice_logprobs '\[true,-1.5\]' is not a list of numbers"),
        (
            "scores.jsonl",
            TRUTH.replace(b"[true, -1.5]", b'"[true, -1.5]"'),
            r"'\[true, -1.5\]' is not a list",
        ),
        ("scores.jsonl", KEYS + b'"doc_id": "one"}\n', r"row 1: doc_id 'one' is not a whole"),
        ("scores.jsonl", KEYS + b'"doc_id": 1.5}\n', r"row 1: doc_id '1.5' is not a whole"),
        (
            "scores.csv",
            b"benchmark,task,doc_id\nb,t,1\n",
            r"no column 'model'; it has benchmark, task, doc_id",
        ),
        ("scores.csv", b"benchmark,task,doc_id,model\nb,t,1,m\nb,t\n", r"not a readable CSV.*Row #3"),
        ("scores.csv", WORDS, r"row 1: choice_logprobs 'abc'"),
        ("scores.csv", b"", r"not a readable CSV"),
        ("scores.xlsx", b"", r"ends in .parquet, .csv, .jsonl"),
        ("absent.parquet", None, r"there is no file .*absent.parquet"),
    ],
)
def test_unreadable_files(
    unwritten: Warehouse, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    docs = write(tmp_path / "docs.parquet", choice_docs())
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        import_predictions(unwritten, docs, tmp_path / name)
    assert unwritten.rows("FROM docs") == []


def test_gaps_are_recorded(bring: Bring, warehouse: Warehouse) -> None:
    docs = choice_docs(5, "t") + choice_docs(3, "u")
    scores = choice_scores(5, "t") + choice_scores(3, "u", models=("x",))
    report = bring(docs, scores[:4] + scores[5:], allow_missing=True)
    assert report.missing == (("b", "x", 1), ("b", "y", 3))
    assert "gap: y lacks 3 documents of b" in str(report)
    assert warehouse.rows(
        "SELECT model, task, n_docs, settings ->> 'missing' FROM extractions ORDER BY ALL"
    ) == [
        ("x", "t", 4, "1"),
        ("x", "u", 3, "0"),
        ("y", "t", 5, "0"),
        ("y", "u", 0, "3"),
    ]


def test_later_models_must_cover_the_same(bring: Bring, warehouse: Warehouse) -> None:
    bring(choice_docs(), choice_scores())
    before = warehouse.snapshot()
    with pytest.raises(InputError, match="has 5 documents now, but model z in the warehouse covers 4"):
        bring(choice_docs(4), choice_scores(4, models=("z",)))
    with pytest.raises(InputError, match="has 6 documents now, but model x"):
        bring(choice_docs(6), choice_scores(6, models=("z",)))
    with pytest.raises(InputError, match="document 2 of b/t differs"):
        bring(changed(choice_docs(), 2, question="another"), choice_scores(models=("z",)))
    assert warehouse.snapshot() == before

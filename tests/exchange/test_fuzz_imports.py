"""Files to import, of any content, are taken whole or refused in one line, and then nothing is written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.corrections import correct_from_file
from support.fuzzing import FUZZ, changed, ends_well, spliced
from support.lm_eval_files import DATE, answer_row, choice_row
from support.prediction_files import choice_docs, choice_scores, dumped, write, write_bytes

from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import import_predictions
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import remove_model

JSON_PIECES = [*'"{}[],:', "\\ud800", "\\u0000", "1e999", "NaN", "9" * 5000, "null", "\n"]
CSV_PIECES = ['"', '""', ",", "\n", "\r", ";", "\0", "nan", "1e400", "[", "]", "\t", "é", "\ufeff"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A warehouse that holds something, for all examples: what one of them broke, a later one would show."""
    folder = tmp_path_factory.mktemp("stored")
    docs = write(folder / "docs.jsonl", [row | {"benchmark": "stored"} for row in choice_docs()])
    scores = write(folder / "scores.jsonl", [row | {"benchmark": "stored"} for row in choice_scores()])
    with open_warehouse(folder / "warehouse") as warehouse:
        import_predictions(warehouse, docs, scores)
        yield warehouse


def lines(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    """JSONL of rows with faults, of their values or of their text."""
    text = st.one_of(changed(rows).map(dumped), spliced(dumped(rows), JSON_PIECES))
    return text.map(lambda t: t.encode("utf-8", "surrogatepass"))


def parquet(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    def packed(value: Any) -> bytes:
        sink = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pa.Table.from_pylist(value), sink)
        # Not every value fits into one table, and then there is no such file.
        except Exception:
            reject()
        return sink.getvalue()

    return changed(rows).map(packed)


def csv(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    cells = [[json.dumps(v) if isinstance(v, list) else str(v) for v in row.values()] for row in rows]
    quoted = [",".join('"' + c.replace('"', '""') + '"' for c in row) for row in [list(rows[0]), *cells]]
    text = spliced("\n".join(quoted) + "\n", CSV_PIECES)
    return text.map(lambda t: t.encode("utf-8", "surrogatepass"))


def refused_or_taken(warehouse: Warehouse, bring: Any) -> None:
    """What was taken is removed again; what was refused has changed nothing."""
    before, held = warehouse.snapshot(), warehouse.fingerprints()
    taken = False
    with ends_well():
        bring()
        taken = True
    if not taken:
        assert warehouse.snapshot() == before
        return
    for model in {model for model, *_ in warehouse.fingerprints()} - {model for model, *_ in held}:
        remove_model(warehouse, model)


ANSWER_DOCS = [{"benchmark": "g", "task": "t", "doc_id": i, "gold": "7", "split": "test"} for i in range(2)]
ANSWERS = [
    {"benchmark": "g", "task": "t", "doc_id": i, "model": "x", "pass": p, "answer": "7", "text": "so 7"}
    for i in range(2)
    for p in range(2)
]
LABELS = [{"benchmark": "stored", "task": "t", "doc_id": i, "label": 1} for i in range(2)]
RUN = {
    "results": {},
    "model_name": "org/m",
    "lm_eval_version": "0.4.9",
    "versions": {"t": 1.0},
    "n-shot": {"t": 5},
    "n-samples": {"t": {"original": 3, "effective": 3}},
    "configs": {"t": {"doc_to_text": "{{question}}", "target_delimiter": " ", "doc_to_target": "gold"}},
}


@FUZZ
@given(st.data())
def test_predictions(
    stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    docs, scores = data.draw(
        st.sampled_from([(choice_docs(2), choice_scores(2, models=("new",))), (ANSWER_DOCS, ANSWERS)])
    )
    suffix, damaged = data.draw(st.sampled_from([(".jsonl", lines), (".csv", csv), (".parquet", parquet)]))
    folder = tmp_path_factory.getbasetemp()
    good = {"docs": write(folder / "docs.jsonl", docs), "scores": write(folder / "scores.jsonl", scores)}
    which = data.draw(st.sampled_from(["docs", "scores"]))
    content = data.draw(damaged({"docs": docs, "scores": scores}[which]))
    paths = good | {which: write_bytes(folder / f"bad{suffix}", content)}
    refused_or_taken(stored, lambda: import_predictions(stored, paths["docs"], paths["scores"]))


@FUZZ
@given(
    st.one_of(
        lines([choice_row(i, acc=0.0) for i in range(2)] + [choice_row(2)]),
        lines([answer_row(i, "1", "2") for i in range(2)]),
    ),
    st.one_of(st.just(json.dumps(RUN).encode()), lines([RUN])),
)
def test_lm_eval(
    stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, rows: bytes, run: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "log"
    path = write_bytes(folder / f"samples_t_{DATE}.jsonl", rows)
    write_bytes(folder / f"results_{DATE}.json", run)
    refused_or_taken(stored, lambda: import_lm_eval(stored, [path]))


@FUZZ
@given(
    st.one_of(
        lines(LABELS).map(lambda content: (".jsonl", content)),
        csv(LABELS).map(lambda content: (".csv", content)),
        parquet(LABELS).map(lambda content: (".parquet", content)),
    )
)
def test_labels(stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]) -> None:
    suffix, content = file
    path = write_bytes(tmp_path_factory.getbasetemp() / f"labels{suffix}", content)
    before = stored.snapshot()
    taken = False
    with ends_well():
        correct_from_file(stored, path)
        taken = True
    assert taken or stored.snapshot() == before

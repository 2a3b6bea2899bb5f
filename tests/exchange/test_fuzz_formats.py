"""Files in others' formats, of any content, are taken whole or refused in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.every_eval_ever_files import FOREIGN
from support.fuzzing import FUZZ, changed, spliced
from support.hostile_files import JSON_PIECES, csv, lines, parquet, refused_or_taken, write_bytes
from support.llmrouterbench_files import MIXED, result
from support.routerbench_files import ROWS

from rlfocal.exchange.imports.every_eval_ever import import_every_eval_ever
from rlfocal.exchange.imports.llmrouterbench import import_llmrouterbench
from rlfocal.exchange.imports.routerbench import import_routerbench
from warehouse import Warehouse

RESULT = result(MIXED[:2])


@FUZZ
@given(content=st.one_of(changed(RESULT).map(json.dumps), spliced(json.dumps(RESULT), JSON_PIECES)))
def test_llmrouterbench(stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    root = tmp_path_factory.getbasetemp() / "llmrouterbench"
    write_bytes(root / "d" / "s" / "m" / "20260101_000000.json", content.encode("utf-8", "surrogatepass"))
    refused_or_taken(stored, lambda: import_llmrouterbench(stored, [root]))


@FUZZ
@given(data=st.data())
def test_routerbench(
    stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    suffix, damaged = data.draw(st.sampled_from([(".csv", csv), (".parquet", parquet)]))
    path = tmp_path_factory.getbasetemp() / f"routerbench{suffix}"
    write_bytes(path, data.draw(damaged(ROWS[:2])))
    refused_or_taken(stored, lambda: import_routerbench(stored, path))


@FUZZ
@given(content=lines(FOREIGN[:2]))
def test_every_eval_ever(stored: Warehouse, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write_bytes(tmp_path_factory.getbasetemp() / "eee" / "a_samples.jsonl", content)
    refused_or_taken(stored, lambda: import_every_eval_ever(stored, [path]))

"""Files that are broken, foreign or misspelt are refused by name, and nothing is written."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corrections import correct_from_file
from support.prediction_files import choice_docs, choice_scores, write

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import import_predictions
from warehouse import Warehouse

N = 400


def scores_table() -> pa.Table:
    numbers = random.Random(0)
    scores = [[numbers.gauss(0, 1) for _ in range(3)] for _ in range(N)]
    keys = {"benchmark": ["b"] * N, "task": ["t"] * N, "doc_id": list(range(N))}
    return pa.table(keys | {"model": ["m"] * N, "choice_logprobs": scores})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "docs.parquet", choice_docs(N))
    pq.write_table(scores_table(), tmp_path / "scores.parquet", write_page_checksum=True)
    return tmp_path / "docs.parquet", tmp_path / "scores.parquet"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "empty": lambda content: b"",
    "foreign": lambda content: b"%PDF-1.7 and so on" * 20,
    "only its frame": lambda content: content[:4] + content[-4:],
    "zeros inside": lambda content: content[:200] + bytes(400) + content[600:],
    "broken footer": lambda content: content[:-400] + bytes(200) + content[-200:],
}


def refuse(docs: Path, scores: Path, match: str) -> None:
    """The files are read and checked before a warehouse is touched."""
    with pytest.raises(InputError, match=match), import_predictions.read(docs, scores):
        pass


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", [0, 1], ids=["docs", "scores"])
def test_damaged_parquet(files: tuple[Path, Path], damage: Callable[[bytes], bytes], which: int) -> None:
    victim = files[which]
    victim.write_bytes(damage(victim.read_bytes()))
    refuse(*files, match=f"{victim.name} is not a readable Parquet file")


def test_flipped_bits(files: tuple[Path, Path]) -> None:
    """Every refusal names the file; a flip of what no reader needs leaves a valid file."""
    content = files[1].read_bytes()
    moments = random.Random(1)
    refused = []
    for _ in range(30):
        place, bit = moments.randrange(len(content)), 1 << moments.randrange(8)
        files[1].write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        try:
            with import_predictions.read(*files, allow_missing=True):
                pass
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all(str(files[1]) in message for message in refused)


def test_a_foreign_parquet(unwritten: Warehouse, files: tuple[Path, Path]) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), files[0])
    with pytest.raises(InputError, match=r"docs\.parquet: no column 'benchmark'; it has x"):
        import_predictions(unwritten, *files)
    with pytest.raises(InputError, match=r"docs\.parquet"), import_lm_eval.read([str(files[0])]):
        pass
    with pytest.raises(InputError, match="has no column 'benchmark'"):
        correct_from_file(unwritten, files[0])


def renamed_files(folder: Path, table: str, known: str, given: str, suffix: str) -> list[Path]:
    """Documents and scores in files, with a column of one table under another name."""
    tables = {"docs": choice_docs(4, split="test"), "scores": choice_scores(4)}
    tables[table] = [{given if n == known else n: v for n, v in row.items()} for row in tables[table]]
    return [write(folder / f"{name}{suffix}", rows) for name, rows in tables.items()]


@pytest.mark.parametrize(
    ("table", "known", "given"),
    [
        ("docs", "question", "questions"),
        ("docs", "choices", "choises"),
        ("scores", "choice_logprobs", "choice_logprob"),
        ("scores", "model", "modle"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_misspelt_columns(tmp_path: Path, table: str, known: str, given: str, suffix: str) -> None:
    docs, scores = renamed_files(tmp_path, table, known, given, suffix)
    refuse(docs, scores, match=f"unknown column {given!r}; did you mean {known!r}")


@pytest.mark.parametrize(("known", "given"), [("split", "Split"), ("label", "Label "), ("doc_id", "doc-id")])
def test_case_and_signs_of_a_columns_name_do_not_matter(
    warehouse: Warehouse, tmp_path: Path, known: str, given: str
) -> None:
    import_predictions(warehouse, *renamed_files(tmp_path, "docs", known, given, ".parquet"))
    rows = warehouse.rows("SELECT doc_id, label, split FROM docs ORDER BY doc_id")
    assert rows == [(i, i % 3, "test") for i in range(4)]


def test_other_columns_are_left_alone(warehouse: Warehouse, files: tuple[Path, Path]) -> None:
    write(files[0], choice_docs(N, labels="x"))
    pq.write_table(scores_table().append_column("remarks", pa.array([1] * N)), files[1])
    assert import_predictions(warehouse, *files).n_written == 1

"""Logs and tables with one thing wrong in them: each is refused for its row, or stored as it is written."""

from __future__ import annotations

import csv
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.lm_eval_files import DATE, Row, answer_row, choice_row
from support.mutants import mutated

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports import lm_eval
from rlfocal.exchange.imports.graded import GradedRows
from rlfocal.exchange.imports.reading.logs import Log
from rlfocal.exchange.imports.reading.samples import UnsupportedTaskError, read_prompt
from rlfocal.exchange.imports.reading.tables import load_all
from rlfocal.exchange.imports.rows import DOCS, KEYS, SCORES
from warehouse.scripts import script

N, BATCH = 4, 250
Stored = dict[tuple[str, Any], dict[str, Any]]
"""Rows of `docs` ("doc") and `scores` ("score") of one mutant by document (and model and pass)."""


def chat_row(number: int) -> Row:
    messages = [{"role": "user", "content": f'say "{n}"\nquestion {n}'} for n in (9, number)]
    row = answer_row(number, f"so {number}, then (B).", target="ABCD"[number], exact_match=float(number == 1))
    row["arguments"]["gen_args_0"]["arg_0"] = [json.dumps(messages)]
    return row | {"filtered_resps": ["B"], "metrics": ["exact_match"]}


def filtered_rows() -> list[Row]:
    grades = [("strict-match", 0.0), ("flexible-extract", 1.0)]
    return [
        answer_row(i, "It is 1,234.", filter=name, exact_match=grade, filtered_resps=["1,234"])
        for name, grade in grades
        for i in range(N)
    ]


LOGS: dict[str, list[Row]] = {
    "choices": [choice_row(i, target="1012"[i], acc=float(i != 1)) for i in range(N)],
    "answers": [answer_row(i, f"#### {1234 + i % 2}", exact_match=float(i % 2 == 0)) for i in range(N)],
    "passes": [answer_row(i, "#### 1234", "5", exact_match=1.0) for i in range(N)],
    "filters": filtered_rows(),
    "chat": [chat_row(i) for i in range(N)],
}
DOC_ROWS: dict[str, list[Row]] = {
    "choices": [
        {
            "benchmark": "b",
            "task": "t",
            "doc_id": i,
            "label": i % 3,
            "choices": ["no", "yes", "ç"],
            "question": "q",
        }
        for i in range(N)
    ],
    "answers": [
        {"benchmark": "b", "task": "t", "doc_id": i, "gold": f"gold {i}", "split": "test"} for i in range(N)
    ],
}
SCORE_ROWS: dict[str, list[Row]] = {
    "choices": [
        {"benchmark": "b", "task": "t", "doc_id": i, "model": "m", "choice_logprobs": [-1.5, -0.5 * i, -0.25]}
        for i in range(N)
    ],
    "answers": [
        {"benchmark": "b", "task": "t", "doc_id": i, "model": "m", "answer": f"gold {i}", "n_tokens": 3}
        for i in range(N)
    ],
}  # fmt: skip


def refused(scratch: duckdb.DuckDBPyConnection) -> set[str]:
    """Benchmarks with a fault."""
    scratch.execute(
        "CREATE OR REPLACE TEMP TABLE faults (step INT, file VARCHAR, row BIGINT, reason VARCHAR)"
    )
    scratch.execute(script("imports/faults"))
    rows = scratch.execute("SELECT file, row, reason FROM faults").fetchall()
    owners = {
        table: dict(scratch.execute(f"SELECT row, owner FROM {table}").fetchall())
        for table in ("docs", "scores")
    }
    return {owners[table][row] for table, row, _ in rows}


def stored(scratch: duckdb.DuckDBPyConnection) -> defaultdict[str, Stored]:
    found: defaultdict[str, Stored] = defaultdict(dict)
    for kind, table in (("doc", "docs"), ("score", "scores")):
        for row in scratch.execute(f"FROM {table}").to_arrow_table().to_pylist():
            owner, _ = row.pop("owner"), row.pop("row")
            del row["benchmark"]
            key = row["doc_id"], row.get("model"), row.get("pass")
            assert (kind, key) not in found[owner], row
            found[owner][kind, key] = row
    return found


class LogReader:
    """Mutants of a log beside another model's good one, checked together in one scratch database."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self.good = folder / f"samples_t_{DATE}.jsonl", LOGS[name]
        self.unplaced = 0

    def read(self, mutants: Sequence[list[Any]]) -> list[Stored | None]:
        rows = GradedRows("lm-eval", "logs", allow_missing=False)
        bad = set()
        for number, content in enumerate(mutants):
            place = lm_eval._Place(f"b{number}", "t", False, None, {})
            for model, given in (("good", self.good), ("m", content)):
                self.path.write_text("".join(json.dumps(row) + "\n" for row in given))
                log = Log(self.path, "t", DATE, model, {"results": {}})
                try:
                    samples, _ = lm_eval._samples(log)
                    lm_eval._add(rows, log, place, samples)
                except InputError as error:
                    bad.add(place.benchmark)
                    self.unplaced += f"{self.path}, line " not in str(error)
                except UnsupportedTaskError:
                    bad.add(place.benchmark)
        rows.docs = [row for row in rows.docs if row["benchmark"] not in bad]
        rows.settle()
        rows.scores = [row for row in rows.scores if row["benchmark"] not in bad]
        rows._answers.clear()
        with duckdb.connect() as scratch:
            rows.load(scratch)
            for table in ("docs", "scores"):
                scratch.execute(f"ALTER TABLE {table} ADD COLUMN owner VARCHAR")
                scratch.execute(f"UPDATE {table} SET owner = benchmark")
            bad |= refused(scratch)
            found = stored(scratch)
        return [None if f"b{n}" in bad else found[f"b{n}"] for n in range(len(mutants))]


class TableReader:
    """Mutants of one of two tables, beside the other's good rows: as many files in one."""

    def __init__(self, folder: Path, name: str, table: str, suffix: str) -> None:
        self.folder, self.table, self.suffix = folder, table, suffix
        self.both = {"docs": DOC_ROWS[name], "scores": SCORE_ROWS[name]}
        self.good = self.both[table]

    def read(self, mutants: Sequence[list[Any]]) -> list[Stored | None]:
        bad: set[str] = set()
        with duckdb.connect() as scratch:
            for table, columns in (("docs", DOCS), ("scores", SCORES)):
                files = mutants if table == self.table else [self.both[table]] * len(mutants)
                owners = [f"b{n}" for n, rows in enumerate(files) for _ in rows]
                path = self._write(table, [row for rows in files for row in rows])
                wrong = load_all(scratch, table, path, columns, tuple(KEYS) if self.suffix == ".csv" else ())
                bad |= {owners[row - 1] for row, _ in wrong}
                listed = "[" + ", ".join(f"'{owner}'" for owner in owners) + "]"
                scratch.execute(f"ALTER TABLE {table} ADD COLUMN owner VARCHAR")
                scratch.execute(f"UPDATE {table} SET owner = {listed}[row]")
                scratch.execute(
                    f"UPDATE {table} SET benchmark = concat(benchmark, owner) WHERE benchmark <> ''"
                )
                scratch.execute(f"DELETE FROM {table} WHERE list_contains($1, owner)", [sorted(bad)])
            scratch.execute("DELETE FROM docs WHERE list_contains($1, owner)", [sorted(bad)])
            bad |= refused(scratch)
            scratch.execute("DELETE FROM docs WHERE list_contains($1, owner)", [sorted(bad)])
            scratch.execute("DELETE FROM scores WHERE list_contains($1, owner)", [sorted(bad)])
            found = stored(scratch)
        return [None if f"b{n}" in bad else found[f"b{n}"] for n in range(len(mutants))]

    def _write(self, table: str, rows: Sequence[Row]) -> Path:
        path = self.folder / f"{table}{self.suffix}"
        if self.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row, allow_nan=True) + "\n" for row in rows))
        else:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(self.both[table][0]), extrasaction="ignore")
                writer.writeheader()
                writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
        return path


def cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def changed_rows(before: list[Any], after: list[Any]) -> list[tuple[Any, Any]]:
    """(row before, row after) of what a mutation changed; None for a row that is not there."""
    if len(before) == len(after):
        return [(a, b) for a, b in zip(before, after, strict=True) if not same(a, b)]
    return [(a, None) for a in before if a not in after] + [(None, b) for b in after if b not in before]


def same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def touched(before: list[Any], after: list[Any]) -> set[Any]:
    """The doc_ids of changed rows, before and after."""
    rows = [row for pair in changed_rows(before, after) for row in pair if isinstance(row, dict)]
    return {str(row.get("doc_id")) for row in rows}


def is_as_written(value: Any, sent: Any) -> bool:
    """Whether a stored value is the one that was sent, or none."""
    if value is None or value == sent or str(value) in (str(sent).strip(), json.dumps(sent)):
        return True
    if isinstance(sent, list) and isinstance(value, list) and len(sent) == len(value):
        return all(map(is_as_written, value, sent))
    return bool(str(value) == cell(sent))


def check_graded(name: str, key: tuple[str, Any], row: Row, given: list[Row], gold: Any) -> None:
    """A stored answer is right exactly where the log's row of its document says so, with the row's texts."""
    strict = "strict" if name == "filters" else "nothing"
    own = next(r for r in given if r["doc_id"] == key[1][0] and strict not in str(r.get("filter")))
    if name == "choices":
        assert row["choice_logprobs"] == [float(r[0][0]) for r in own["resps"]]
        return
    assert row["text"] in [text or "" for text in own["resps"][0]] or row["text"] == own["filtered_resps"][0]
    if name != "passes":
        assert (row["answer"] == gold) == (own["exact_match"] == 1)


def mutants_of(good: list[Any], n: int, name: str) -> Iterator[list[Any]]:
    draw = random.Random(name)
    while n:
        mutant = mutated(good, draw)
        if isinstance(mutant, list) and mutant and all(isinstance(row, dict) for row in mutant):
            n -= 1
            yield mutant


def check_logs(folder: Path, name: str, n: int) -> None:
    reader = LogReader(folder, name)
    [expected] = reader.read([reader.good])
    assert expected is not None
    n_refused = 0
    mutants = list(mutants_of(reader.good, n, name))
    for start in range(0, n, BATCH):
        batch = mutants[start : start + BATCH]
        for mutant, found in zip(batch, reader.read(batch), strict=True):
            if found is None:
                n_refused += 1
                continue
            own = touched(reader.good, mutant)
            for key, row in found.items():
                if key in expected and str(key[1][0]) not in own:
                    assert row == expected[key], (mutant, row)
                elif key[0] == "score" and key[1][1] == "m":
                    gold = found["doc", (key[1][0], None, None)]["gold"]
                    check_graded(name, key, row, mutant, gold)
            lost = {str(key[1][0]) for key in expected.keys() - found.keys()}
            assert lost <= own, (mutant, lost)  # a gap, which an import refuses unless it is allowed
    assert 0.1 * n < n_refused < n
    assert not reader.unplaced


def check_tables(folder: Path, name: str, table: str, suffix: str, n: int) -> None:
    reader = TableReader(folder, name, table, suffix)
    [expected] = reader.read([reader.good])
    assert expected is not None
    kind = "doc" if table == "docs" else "score"
    n_refused = 0
    mutants = list(mutants_of(reader.good, n, name + table))
    for start in range(0, n, BATCH):
        batch = mutants[start : start + BATCH]
        for mutant, found in zip(batch, reader.read(batch), strict=True):
            if found is None:
                n_refused += 1
                continue
            own = touched(reader.good, mutant)
            for key, row in found.items():
                if str(key[1][0]) not in own:
                    assert row == expected[key], (mutant, row)
                elif key[0] == kind:
                    written = [given for given in mutant if str(given.get("doc_id")) == str(key[1][0])]
                    assert any(all(is_as_written(v, g.get(n)) for n, v in row.items()) for g in written), (
                        mutant,
                        row,
                    )
            lost = {str(key[1][0]) for key in expected.keys() - found.keys() if key[0] == kind}
            assert lost <= own, (mutant, lost)
    assert 0.1 * n < n_refused < n


TABLES = [
    (name, table, suffix)
    for name in DOC_ROWS
    for table in ("docs", "scores")
    for suffix in (".jsonl", ".csv")
]


@pytest.mark.parametrize("name", LOGS)
def test_a_mutated_log_is_refused_or_stored_as_written(tmp_path: Path, name: str) -> None:
    check_logs(tmp_path, name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_ten_thousand_mutated_logs(tmp_path: Path, name: str) -> None:
    check_logs(tmp_path, name, 10_000 // len(LOGS))


@pytest.mark.parametrize(("name", "table", "suffix"), TABLES)
def test_a_mutated_table_is_refused_or_stored_as_written(
    tmp_path: Path, name: str, table: str, suffix: str
) -> None:
    check_tables(tmp_path, name, table, suffix, 50)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "table", "suffix"), TABLES)
def test_ten_thousand_mutated_tables(tmp_path: Path, name: str, table: str, suffix: str) -> None:
    check_tables(tmp_path, name, table, suffix, 10_000 // len(TABLES))


@pytest.mark.parametrize(
    "given", [None, 1, 0.5, {}, [], [1], [[]], ["a", "b"], math.nan, [{"content": "x"}], [None]]
)
def test_what_is_no_prompt_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="neither text nor a chat's messages"):
        read_prompt(given)


def test_messages_of_every_form_are_read() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    expected = (("user", "a"), ("user", "b"))
    for form in (said, [said], json.dumps(said), [json.dumps(said)]):
        assert read_prompt(form) == expected
    for text in ("[{ a set }]", "[]", '["role"]'):
        assert read_prompt(text) == text

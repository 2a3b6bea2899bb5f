"""Logs and tables with one thing wrong in them: each is refused for its row, or read as it is written."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.lm_eval_files import DATE, Row, answer_row, choice_row
from support.mutants import mutated
from support.prediction_files import choice_docs, choice_scores

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.reading.samples import read_prompt
from rlfocal.exchange.imports.rows import CheckedRows

N = 4
FEW = 15
MANY = pytest.param(300, marks=pytest.mark.slow)
Read = dict[tuple[str, Any], dict[str, Any]]
"""Rows of `docs` ("doc") and `scores` ("score") by document, model and pass."""


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
KEYS = [{"benchmark": "b", "task": "t", "doc_id": i} for i in range(N)]
TABLES: dict[str, dict[str, list[Row]]] = {
    "choices": {"docs": choice_docs(N), "scores": choice_scores(N, models=("m",))},
    "answers": {
        "docs": [key | {"gold": f"gold {key['doc_id']}", "split": "test"} for key in KEYS],
        "scores": [key | {"model": "m", "answer": f"gold {key['doc_id']}", "n_tokens": 3} for key in KEYS],
    },
}


def rows_of(checked: CheckedRows) -> Read | None:
    """What was read; None where a log was left out."""
    if checked.source.omissions:
        return None
    found: Read = {}
    for kind, table in (("doc", "docs"), ("score", "scores")):
        for row in checked.scratch.execute(f"FROM {table}").to_arrow_table().to_pylist():
            key = kind, (row["doc_id"], row.get("model"), row.get("pass"))
            assert key not in found, row
            found[key] = {name: value for name, value in row.items() if name != "row"}
    return found


def read_log(folder: Path, good: list[Row], mutant: list[Row]) -> Read | None:
    """A log's mutant beside another model's good one."""
    for model, rows in (("good", good), ("m", mutant)):
        path = folder / model / f"samples_t_{DATE}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        path.with_name(f"results_{DATE}.json").write_text(json.dumps({"results": {}, "model_name": model}))
    try:
        with import_lm_eval.read([folder / "good", folder / "m"], allow_missing=True) as checked:
            return rows_of(checked)
    except InputError as error:
        reason = str(error)
    assert f"{path}, line " in reason
    return None


def read_table(folder: Path, name: str, table: str, suffix: str, mutant: list[Row]) -> Read | None:
    """One of two tables as a mutant, beside the other's good rows."""
    paths = {}
    for each, good in TABLES[name].items():
        paths[each] = folder / f"{each}{suffix}"
        rows = mutant if each == table else good
        if suffix == ".jsonl":
            paths[each].write_text("".join(json.dumps(row) + "\n" for row in rows))
            continue
        with paths[each].open("w", newline="") as file:
            writer = csv.DictWriter(file, list(good[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    try:
        with import_predictions.read(paths["docs"], paths["scores"], allow_missing=True) as checked:
            return rows_of(checked)
    except InputError:
        return None


def cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def touched(before: list[Any], after: list[Any]) -> set[Any]:
    """The doc_ids of changed rows, before and after."""
    if len(before) != len(after):
        rows = [a for a in before if a not in after] + [b for b in after if b not in before]
    else:
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if json.dumps(a) != json.dumps(b)]
        rows = [row for pair in pairs for row in pair]
    return {str(row.get("doc_id")) for row in rows}


def is_as_written(value: Any, sent: Any) -> bool:
    """Whether a value that was read is the one that was sent, or none."""
    if value is None or value == sent or str(value) in (str(sent).strip(), json.dumps(sent)):
        return True
    if isinstance(sent, list) and isinstance(value, list) and len(sent) == len(value):
        return all(map(is_as_written, value, sent))
    return bool(str(value) == cell(sent))


def check_graded(name: str, key: tuple[str, Any], found: Read, mutant: list[Row]) -> None:
    """A model's answer is right exactly where its log says so, with the row's texts."""
    if key[0] == "doc" or key[1][1] != "m":
        return
    row, gold = found[key], found["doc", (key[1][0], None, None)]["gold"]
    strict = "strict" if name == "filters" else "nothing"
    own = next(r for r in mutant if r["doc_id"] == key[1][0] and strict not in str(r.get("filter")))
    if name == "choices":
        assert row["choice_logprobs"] == [float(r[0][0]) for r in own["resps"]]
        return
    assert row["text"] in [text or "" for text in own["resps"][0]] or row["text"] == own["filtered_resps"][0]
    if name != "passes":
        assert (row["answer"] == gold) == (own["exact_match"] == 1)


def check_written(kind: str, key: tuple[str, Any], found: Read, mutant: list[Row]) -> None:
    """A row of the mutant's table has what one of its document's rows says."""
    if key[0] == kind:
        written = [given for given in mutant if str(given.get("doc_id")) == str(key[1][0])]
        row = found[key]
        assert any(all(is_as_written(v, given.get(name)) for name, v in row.items()) for given in written)


def mutants_of(good: list[Any], n: int, name: str) -> Iterator[list[Any]]:
    draw = random.Random(name)
    while n:
        mutant = mutated(good, draw)
        if isinstance(mutant, list) and mutant and all(isinstance(row, dict) for row in mutant):
            n -= 1
            yield mutant


def check(
    good: list[Row],
    n: int,
    name: str,
    read: Callable[[list[Row]], Read | None],
    check_row: Callable[[tuple[str, Any], Read, list[Row]], None],
) -> None:
    """Reads n mutants: what a mutation did not touch is read as before, the rest as `check_row` says."""
    expected = read(good)
    assert expected is not None
    n_refused = 0
    for mutant in mutants_of(good, n, name):
        found = read(mutant)
        if found is None:
            n_refused += 1
            continue
        own = touched(good, mutant)
        for key, row in found.items():
            if str(key[1][0]) not in own:
                assert row == expected[key], mutant
            else:
                check_row(key, found, mutant)
        lost = {str(key[1][0]) for key in expected.keys() - found.keys()}
        assert lost <= own, (mutant, lost)
    assert 0 < n_refused < n


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("name", LOGS)
def test_a_mutated_log_is_refused_or_read_as_written(tmp_path: Path, name: str, n: int) -> None:
    read = partial(read_log, tmp_path, LOGS[name])
    check(LOGS[name], n, name, read, partial(check_graded, name))


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("suffix", [".jsonl", pytest.param(".csv", marks=pytest.mark.slow)])
@pytest.mark.parametrize("table", ["docs", "scores"])
@pytest.mark.parametrize("name", TABLES)
def test_a_mutated_table_is_refused_or_read_as_written(
    tmp_path: Path, name: str, table: str, suffix: str, n: int
) -> None:
    read = partial(read_table, tmp_path, name, table, suffix)
    check(TABLES[name][table], n, name + table, read, partial(check_written, table.removesuffix("s")))


@pytest.mark.parametrize(
    "given", [None, 1, 0.5, {}, [], [1], [[]], ["a", "b"], math.nan, [{"content": "x"}], [None]]
)
def test_what_is_no_prompt_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="neither text nor"):
        read_prompt(given)


def test_messages_of_every_form_are_read() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    expected = (("user", "a"), ("user", "b"))
    for form in (said, [said], json.dumps(said), [json.dumps(said)]):
        assert read_prompt(form) == expected
    for text in ("[{ a set }]", "[]", '["role"]'):
        assert read_prompt(text) == text

"""Corrections of labels, and removal of models. Each correction or removal is a snapshot of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from warehouse import writing
from warehouse.errors import InputError, unknown_name
from warehouse.scripts import script
from warehouse.store import PartitionKey, Warehouse


def correct_labels(warehouse: Warehouse, corrections: pa.Table, place: Callable[[int], str]) -> int:
    """Corrects documents' labels (choices) or gold answers (free answers); returns how many changed.

    `corrections` has the columns row, benchmark, task, doc_id, label and gold. An optional column source_id
    names documents without a doc_id. A document that is imported or extracted again with its former label
    keeps the corrected one. Raises InputError with `place(row)` of the first row that names no document, is
    out of range, is a duplicate, or has the wrong kind of value.
    """
    connection = warehouse.connection
    if "source_id" not in corrections.column_names:
        corrections = corrections.append_column("source_id", pa.nulls(len(corrections), pa.string()))
    with warehouse.transaction("correct labels"):
        connection.register("asked_rows", writing.with_canonical_gold(connection, corrections))
        connection.execute(script("corrections/asked"))
        connection.unregister("asked_rows")
        fault = connection.execute(script("corrections/faults")).fetchone()
        if fault is not None:
            raise InputError(f"{place(fault[0])}: {fault[1]}")
        connection.execute(script("corrections/changed"))
        n = int(warehouse.rows("SELECT count(*) FROM temp.changed")[0][0])
        if n:
            connection.execute(script("corrections/apply"))
            writing.digest_docs(connection)
        return n


def remove_model(warehouse: Warehouse, model: str, benchmarks: Sequence[str] | None = None) -> int:
    """Deletes a model's answers, also to probes, on some benchmarks or all; returns how many partitions.

    Partitions that only probes asked count. The result is 0 if an earlier call deleted them. Evaluations and
    earlier snapshots stay. Raises InputError for unknown names.
    """
    message = f"remove {model}" + (f" from {', '.join(benchmarks)}" if benchmarks else "")
    with warehouse.transaction(message):
        answered = _find_answered(warehouse, model)
        is_gone = not any(benchmarks is None or key.benchmark in benchmarks for key in answered)
        if is_gone and (benchmarks or model not in _list_models(warehouse)) and _was_done(warehouse, message):
            return 0
        _check_known(warehouse, model)
        for name in benchmarks or ():
            if name not in {key.benchmark for key in answered}:
                raise unknown_name(
                    "benchmark", name, (k.benchmark for k in answered), f"what {model} answered"
                )
        going = [key for key in answered if benchmarks is None or key.benchmark in benchmarks]
        _drop(warehouse, model, going)
        if len(going) == len(answered):
            warehouse.connection.execute("DELETE FROM models WHERE model = ?", [model])
    return len(going)


class Removal(NamedTuple):
    """The counts of partitions and runs that a removal deleted from the warehouse."""

    partitions: int
    """The number of removed partitions, including those that the model answered only in part, for a probe."""
    runs: int
    was_known: bool
    """Whether the warehouse had the model, now or before an earlier removal."""


@contextmanager
def remove_from_benchmarks(warehouse: Warehouse, model: str, benchmarks: Sequence[str]) -> Iterator[Removal]:
    """Deletes a model's answers on some benchmarks, with all that depends on it alone there.

    These are documents that no other model answered, and leaderboard runs of pools with the model. All of it
    is committed as one snapshot when the block ends, or nothing if it raises. Earlier snapshots stay. A
    second call writes nothing.
    """
    connection, message = warehouse.connection, f"remove {model} from its pool"
    named = {"model": model, "benchmarks": list(benchmarks)}
    with warehouse.transaction(message):
        answered = _find_answered(warehouse, model)
        for statement in connection.extract_statements(script("corrections/what_goes")):
            connection.execute(statement, named)
        going = [key for key in answered if key.benchmark in benchmarks]
        runs = int(warehouse.rows("SELECT count(*) FROM temp.gone_runs")[0][0])
        was_known = is_known(warehouse, model) or _was_done(warehouse, message)
        if going:
            _drop(warehouse, model, going)
        if going or runs:
            connection.execute(script("corrections/remove_from_benchmarks"))
            writing.digest_docs(connection)
        if len(going) == len(answered) and is_known(warehouse, model):
            connection.execute("DELETE FROM models WHERE model = ?", [model])
        yield Removal(len(going), runs, was_known)


def is_known(warehouse: Warehouse, model: str) -> bool:
    """Whether the warehouse has a description or answers of the model."""
    return model in _list_models(warehouse)


def first_names(warehouse: Warehouse) -> dict[str, str]:
    """By current name, the first name of each renamed model, under which its past runs are stored.

    A name that a model no longer has does not refer to it: the next model of that name is another one.
    """
    first: dict[str, str] = {}
    renames = warehouse.rows("SELECT old, new FROM renames ORDER BY renamed_at")
    for number, (old, new) in enumerate(renames):
        first[new] = first.pop(old, old)
        first[old] = f"{old}\n{number}"  # no name holds a line break
    return first


def _find_answered(warehouse: Warehouse, model: str) -> list[PartitionKey]:
    """The partitions that a model answered, even those answered only in part, for a probe."""
    probed = warehouse.rows("SELECT DISTINCT benchmark, task FROM probe_answers WHERE model = ?", [model])
    return sorted(
        {*warehouse.committed_partitions(model), *(PartitionKey(model, *place) for place in probed)}
    )


def _drop(warehouse: Warehouse, model: str, going: Sequence[PartitionKey]) -> None:
    """Deletes partitions of a model, and answers and estimates of its probes on their benchmarks."""
    writing.drop_partitions(warehouse.connection, going)
    probed = "WHERE model = ? AND list_contains(?, benchmark)"
    for table in ("probe_answers", "probe_estimates"):
        about = [model, sorted({key.benchmark for key in going})]
        warehouse.connection.execute(f"DELETE FROM {table} {probed}", about)


def _check_known(warehouse: Warehouse, model: str) -> None:
    there = _list_models(warehouse)
    if model not in there:
        raise unknown_name("model", model, there, "the warehouse")


def _was_done(warehouse: Warehouse, message: str) -> bool:
    """Whether an existing snapshot has this commit message."""
    done = "SELECT count(*) FROM warehouse.snapshots() WHERE commit_message = ?"
    return bool(warehouse.rows(done, [message])[0][0])


def _list_models(warehouse: Warehouse) -> set[str]:
    named = warehouse.rows(
        "SELECT model FROM models UNION SELECT model FROM extractions UNION SELECT model FROM probe_answers"
    )
    return {name for (name,) in named}

"""The steps of a write. Every function works inside the caller's transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from pydantic import BaseModel

from warehouse.alignment import (
    Place,
    align,
    check_coverage,
    check_length,
    check_scores,
    differences,
    differing_documents,
)
from warehouse.comparison import Rule
from warehouse.errors import InputError
from warehouse.scripts import script

_PRICE_COLUMNS = ("price", "price_input", "price_output")
_NUMBER_COLUMNS = ("params_b", "active_params_b", *_PRICE_COLUMNS)
_TEXT_COLUMNS = ("model", "hf_repo", "revision", "family", "licence")
MODEL_COLUMNS = dict.fromkeys(_TEXT_COLUMNS, "VARCHAR") | dict.fromkeys(_NUMBER_COLUMNS, "DOUBLE")
"""The columns of `models` and their types."""
STAGING_TABLES = {"choice_logprobs": "choices", "answer_passes": "passes", "traces": "thought"}
"""By table of answers, the temporary table that holds the rows to be written into it."""
_MODEL_SCHEMA = pa.schema([(c, pa.float64() if c in _NUMBER_COLUMNS else pa.string()) for c in MODEL_COLUMNS])


def append(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Appends Arrow rows by column name; missing columns become NULL."""
    with _register(connection, rows) as view:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {view}")


@contextmanager
def into_files(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Lets inserts of even a few rows write Parquet files.

    DuckLake 1.5 would put them into its catalogue, which cannot hold a NUL in the texts of a list.
    """
    connection.execute("SET ducklake_default_data_inlining_row_limit = 0")
    try:
        yield
    finally:
        connection.execute("RESET ducklake_default_data_inlining_row_limit")


def put_probe_answers(connection: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows into `probe_answers`."""
    schema = connection.execute("FROM probe_answers LIMIT 0").to_arrow_table().schema
    with into_files(connection):
        append(connection, "probe_answers", pa.Table.from_pylist(list(rows), schema=schema))


def model_rows(specs: Iterable[BaseModel]) -> pa.Table:
    """The rows of the table `models`."""
    described = [spec.model_dump(include=set(MODEL_COLUMNS)) for spec in specs]
    for row in described:  # a closed model has neither
        row |= {name: row.get(name) or None for name in ("hf_repo", "params_b")}
    return pa.Table.from_pylist(described, schema=_MODEL_SCHEMA)


def changed_models(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Table:
    """The rows that `models` lacks or holds differently."""
    with _register(connection, rows) as view:
        columns = ", ".join(MODEL_COLUMNS)
        return connection.execute(
            f"SELECT {columns} FROM {view} EXCEPT SELECT {columns} FROM models"
        ).to_arrow_table()


def put_models(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Inserts rows into `models`, replacing those of the same name."""
    with _register(connection, rows) as view:
        connection.execute(f"DELETE FROM models WHERE model IN (SELECT model FROM {view})")
    append(connection, "models", rows)


def name_models(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Inserts names that `models` lacks; their other columns stay NULL."""
    named = {name for (name,) in connection.execute("SELECT model FROM models").fetchall()}
    new = sorted(set(names) - named)
    if new:
        append(connection, "models", pa.table({"model": pa.array(new, pa.string())}))


def changed_facts(
    connection: duckdb.DuckDBPyConnection, table: str, facts: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The changed rows of `benchmarks` or `tasks`, after `facts` are applied; None changes nothing.

    Raises InputError where a benchmark's answers would be compared by another rule than stored ones.
    """
    listed = connection.execute(f"FROM {table}").to_arrow_table()
    stored = {(row["benchmark"], row.get("task")): row for row in listed.to_pylist()}
    changed = {}
    for given in facts:
        key = given["benchmark"], given.get("task")
        before = stored.get(key, dict.fromkeys(listed.column_names))
        after = before | {name: value for name, value in given.items() if value is not None}
        if (rule := given.get("comparison")) is not None and rule != before["comparison"]:
            after["comparison"] = str(_pick_rule(connection, key[0], rule, before["comparison"]))
        if after != before:
            changed[key] = stored[key] = after
    return list(changed.values())


def _pick_rule(connection: duckdb.DuckDBPyConnection, benchmark: str, text: str, stored: str | None) -> Rule:
    """The rule by which a benchmark's answers are compared from now on."""
    answered = connection.execute("SELECT 1 FROM docs WHERE benchmark = ? LIMIT 1", [benchmark]).fetchone()
    return Rule(text).merge_stored(Rule(stored or Rule.DEFAULT), benchmark) if answered else Rule(text)


def put_facts(connection: duckdb.DuckDBPyConnection, table: str, facts: Iterable[Mapping[str, Any]]) -> None:
    """Writes `facts` into the table `benchmarks` or `tasks`."""
    if changed := changed_facts(connection, table, facts):
        rows = pa.Table.from_pylist(changed)
        keys = ", ".join(name for name in ("benchmark", "task") if name in rows.column_names)
        with _register(connection, rows) as view:
            connection.execute(f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {view})")
        append(connection, table, rows)


def put_docs(connection: duckdb.DuckDBPyConnection, docs: pa.Table) -> None:
    """Inserts the documents that are new; stored ones must be the same.

    A listing with new documents, or of all stored ones, decides the split of its documents. Raises
    InputError with the first document whose doc_hash, choices, label, gold or prompt differs.
    """
    with _stage_documents(connection, docs):
        for different in differing_documents(connection).values():
            raise InputError(
                f"{different}. Models are compared on the same documents only: give this variant "
                "another name, such as BENCHMARK@v2"
            )
        _write_documents(connection)


def digest_docs(connection: duckdb.DuckDBPyConnection) -> None:
    """Stores digests of the documents of the tasks in temp.changed, so that damage on disk is found."""
    if _has_rows(connection, "temp.changed"):
        connection.execute(script("writes/digests"))
        connection.execute(script("writes/doc_digests"))


def digest_runs(connection: duckdb.DuckDBPyConnection, which: str, params: Sequence[Any] = ()) -> None:
    """Stores digests of the decisions that fulfil the SQL condition `which`, of runs without a digest."""
    connection.execute(script("writes/digests"))
    connection.execute(
        "INSERT INTO run_digests SELECT run_id, benchmark, decisions_digest(d) FROM decisions AS d "
        f"WHERE {which} GROUP BY ALL",
        list(params),
    )


def documents_differ(
    connection: duckdb.DuckDBPyConnection, docs: pa.Table, n_whole: Mapping[Place, int | None]
) -> dict[Place, str]:
    """By task, one sentence on how its documents differ from the stored ones."""
    tasks = [{"benchmark": place[0], "task": place[1], "n_whole": n} for place, n in n_whole.items()]
    with _stage_documents(connection, docs), _register(connection, pa.Table.from_pylist(tasks)) as view:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE partitions AS FROM {view}")
        found = differences(connection)
        connection.execute("DROP TABLE temp.partitions")
        return found


class Partition(NamedTuple):
    """The answers of one model to the documents of one task."""

    docs: pa.Table
    """Rows with the columns of the table `docs`."""
    rows: pa.Table
    """The rows of every choice (column `choice`), or of equally many samples (column `pass`), of each
    document."""
    extraction: Mapping[str, Any]
    """Columns of `extractions`; `extraction_id` and `committed_at` are made where missing."""
    prompts: pa.Table | None = None
    """Rows of `prompts`, where the prompts are known; stored ones stay."""
    traces: pa.Table | None = None
    """Rows of `traces`, where the model thought before it answered."""
    replace_documents: bool = False
    """Whether other models' answers to a different set of documents may be deleted."""

    @property
    def place(self) -> Place:
        return self.extraction["benchmark"], self.extraction["task"]


def put_answers(
    connection: duckdb.DuckDBPyConnection, partitions: Sequence[Partition], n_stored: Mapping[Place, int]
) -> None:
    """Writes partitions of one model and their documents.

    Documents that differ from the stored ones replace them where no other model answered those, or where
    `replace_documents` lets other models' rows be deleted. The number of statements does not grow with
    partitions. `n_stored`: how many documents the replaced partitions have. Raises InputError unless all are
    whole, answer the stored documents and shorten nothing.
    """
    model = str(partitions[0].extraction["model"])
    rows = {
        target: _join_tables(p.rows for p in partitions if _find_target(p.rows) == target)
        for target in STAGING_TABLES
    }
    rows["traces"] = _join_tables(partition.traces for partition in partitions)
    with (
        _stage_documents(connection, _join_tables(partition.docs for partition in partitions)),
        _stage_answers(connection, rows, [partition.extraction for partition in partitions]),
    ):
        check_coverage(connection, model)
        align(connection, model, replace_documents={p.place for p in partitions if p.replace_documents})
        for partition in partitions:
            check_length(n_stored.get(partition.place), partition.extraction)
        _write_documents(connection)
        _write_answers(connection, rows, {model})
    if prompts := _join_tables(partition.prompts for partition in partitions):
        put_prompts(connection, prompts)


def _join_tables(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    """All rows of the tables that are not None; None if all are."""
    there = [table for table in tables if table is not None]
    return pa.concat_tables(there, promote_options="permissive") if there else None


def put_prompts(connection: duckdb.DuckDBPyConnection, prompts: pa.Table) -> None:
    """Inserts rows of `prompts` that are not stored yet."""
    with _stage(connection, "asked", prompts, like="prompts"):
        connection.execute(script("writes/put_prompts"))


def put_partitions(
    connection: duckdb.DuckDBPyConnection,
    rows: pa.Table,
    extractions: Sequence[Mapping[str, Any]],
    traces: pa.Table | None = None,
) -> None:
    """Replaces partitions: their stored rows and records by `rows`, `traces` and one record each.

    Raises InputError if a row belongs to no stored document or to none of the partitions, and for a score
    that no model can have given.
    """
    given = {_find_target(rows): rows, "traces": traces}
    with _stage_answers(connection, given, extractions):
        _write_answers(connection, given, {str(extraction["model"]) for extraction in extractions})


@contextmanager
def _stage_answers(
    connection: duckdb.DuckDBPyConnection,
    rows: Mapping[str, pa.Table | None],
    extractions: Sequence[Mapping[str, Any]],
) -> Iterator[None]:
    """Stages rows, by the table of STAGING_TABLES that they are written to, and in temp.partitions their
    records."""
    for given in filter(None, rows.values()):
        check_scores(given)
    with ExitStack() as staged:
        for table, name in STAGING_TABLES.items():
            staged.enter_context(_stage(connection, name, rows.get(table), like=table))
        staged.enter_context(_stage(connection, "partitions", _make_records(extractions), like="extractions"))
        yield


def _write_answers(
    connection: duckdb.DuckDBPyConnection, rows: Mapping[str, pa.Table | None], models: Iterable[str]
) -> None:
    """Writes the staged rows in place of the stored ones of the same partitions."""
    name_models(connection, models)
    stray = connection.execute(script("writes/stray_row")).fetchone()
    if stray is not None:
        raise InputError("a row of {3} on {0}/{1}, document {2}, {4}".format(*stray))
    connection.execute(script("writes/replaced_partitions"))
    if _has_rows(connection, "temp.replaced"):
        connection.execute(script("writes/delete_partitions"))
    for table, name in STAGING_TABLES.items():
        if rows.get(table):
            connection.execute(f"INSERT INTO {table} FROM temp.{name}")
    connection.execute(script("writes/digests"))
    connection.execute(script("writes/put_extractions"))


def drop_partitions(
    connection: duckdb.DuckDBPyConnection, partitions: Iterable[tuple[str, str, str]]
) -> None:
    """Deletes the rows and records of partitions (model, benchmark, task)."""
    _run_on(connection, "upkeep/drop_partitions", ("model", "benchmark", "task"), partitions)


def drop_documents(connection: duckdb.DuckDBPyConnection, tasks: Iterable[tuple[str, str]]) -> None:
    """Deletes the documents of tasks (benchmark, task), but not models' answers to them."""
    _run_on(connection, "upkeep/drop_documents", ("benchmark", "task"), tasks)


def forget_prompts(connection: duckdb.DuckDBPyConnection, tasks: Iterable[tuple[str, str]]) -> None:
    """Deletes the prompts of tasks (benchmark, task), so that the next extraction of a model stores them."""
    _run_on(connection, "upkeep/forget_prompts", ("benchmark", "task"), tasks)


def _run_on(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
) -> None:
    """Runs a script on rows of text, which it reads from temp.given."""
    schema = pa.schema([(column, pa.string()) for column in columns])
    given = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)
    with _register(connection, given) as view:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE given AS FROM {view}")
    connection.execute(script(name))
    connection.execute("DROP TABLE temp.given")


def with_canonical_gold(connection: duckdb.DuckDBPyConnection, docs: pa.Table) -> pa.Table:
    """Rows with `benchmark`, `label` and `gold`, with gold in canonical form where there is no label."""
    rules = dict(connection.execute("SELECT benchmark, comparison FROM benchmarks").fetchall())
    columns = (docs[name].to_pylist() for name in ("benchmark", "label", "gold"))
    gold = [
        text if label is not None else Rule(rules.get(benchmark) or Rule.DEFAULT).canonical(text)
        for benchmark, label, text in zip(*columns, strict=True)
    ]
    return docs.set_column(docs.column_names.index("gold"), "gold", pa.array(gold, pa.string()))


def _find_target(rows: pa.Table) -> str:
    return "choice_logprobs" if "choice" in rows.column_names else "answer_passes"


def _make_records(extractions: Sequence[Mapping[str, Any]]) -> pa.Table:
    now = datetime.now(UTC)
    made = [
        {
            "extraction_id": uuid.uuid4().hex,
            "committed_at": now,
            **e,
            "settings": _to_json(e.get("settings")),
            "versions": _to_json(e.get("versions")),
        }
        for e in extractions
    ]
    return pa.Table.from_pylist(made)


def _to_json(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)


def _write_documents(connection: duckdb.DuckDBPyConnection) -> None:
    """Writes the documents in temp.given that are new, or differ in split, secrecy or a first prompt hash."""
    connection.execute(script("writes/changed_docs"))
    if _has_rows(connection, "temp.changed"):
        connection.execute(script("writes/put_docs"))
        connection.execute(script("writes/name_tasks"))
        digest_docs(connection)


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    # Not its columns: DuckLake 1.5 asks the catalogue twice about each column of an empty table.
    return connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


@contextmanager
def _stage_documents(connection: duckdb.DuckDBPyConnection, docs: pa.Table) -> Iterator[None]:
    """Stages corrected documents in temp.given, and the stored ones of their tasks in temp.stored."""
    with (
        _stage(connection, "given", docs, like="docs"),
        _stage(connection, "stored", None, like="docs"),
    ):
        connection.execute(script("writes/stored_docs"))
        if _has_rows(connection, "corrections"):  # an update by no rows takes as long as three queries
            connection.execute(script("writes/correct_given"))
        yield


@contextmanager
def _stage(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table | None, *, like: str
) -> Iterator[None]:
    """Creates a temporary table of the given rows, with the columns and types of the table `like`."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {like} LIMIT 0")
    try:
        if rows is not None:
            append(connection, f"temp.{name}", rows)
        yield
    finally:
        # An aborted transaction has already dropped the table, and its own error must show.
        with suppress(duckdb.Error):
            connection.execute(f"DROP TABLE temp.{name}")


@contextmanager
def _register(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[str]:
    """Yields a temporary name under which SQL sees an Arrow table."""
    name = f"arrow_{uuid.uuid4().hex}"
    connection.register(name, rows)
    try:
        yield f"temp.{name}"
    finally:
        connection.unregister(name)

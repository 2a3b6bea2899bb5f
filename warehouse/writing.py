"""The steps of a write to the warehouse; every function works inside the caller's transaction."""

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
"""By table of answers, the temporary table of the rows that are to be written into it."""
_MODEL_SCHEMA = pa.schema([(c, pa.float64() if c in _NUMBER_COLUMNS else pa.string()) for c in MODEL_COLUMNS])


def append(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Appends Arrow rows to a table by column name; missing columns become NULL."""
    with _register(connection, rows) as view:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {view}")


@contextmanager
def into_files(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Runs a block in which inserts of even a few rows write Parquet files.

    DuckLake 1.5 would put few rows into its catalogue, which cannot hold a NUL in the texts of a list.
    """
    connection.execute("SET ducklake_default_data_inlining_row_limit = 0")
    try:
        yield
    finally:
        connection.execute("RESET ducklake_default_data_inlining_row_limit")


def put_probe_answers(connection: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    schema = connection.execute("FROM probe_answers LIMIT 0").to_arrow_table().schema
    with into_files(connection):
        append(connection, "probe_answers", pa.Table.from_pylist(list(rows), schema=schema))


def model_rows(specs: Iterable[BaseModel]) -> pa.Table:
    """The rows of the table `models` for the models that `specs` describe."""
    described = [spec.model_dump(include=set(MODEL_COLUMNS)) for spec in specs]
    for row in described:  # a closed model has neither
        row |= {name: row.get(name) or None for name in ("hf_repo", "params_b")}
    return pa.Table.from_pylist(described, schema=_MODEL_SCHEMA)


def changed_models(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Table:
    """The given rows that the table `models` lacks or has with other values."""
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
    """Inserts rows for the names that `models` lacks; their other columns stay NULL."""
    named = {name for (name,) in connection.execute("SELECT model FROM models").fetchall()}
    new = sorted(set(names) - named)
    if new:
        append(connection, "models", pa.table({"model": pa.array(new, pa.string())}))


def changed_facts(
    connection: duckdb.DuckDBPyConnection, table: str, facts: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of `benchmarks` or `tasks` as `facts` change them; None in facts changes nothing.

    Raises InputError if answers of a benchmark would be compared by another rule than the stored ones.
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
    """The rule by which a benchmark's answers are compared from now on. `text` and `stored` name rules."""
    answered = connection.execute("SELECT 1 FROM docs WHERE benchmark = ? LIMIT 1", [benchmark]).fetchone()
    return Rule(text).merge_stored(Rule(stored or Rule.DEFAULT), benchmark) if answered else Rule(text)


def put_facts(connection: duckdb.DuckDBPyConnection, table: str, facts: Iterable[Mapping[str, Any]]) -> None:
    """Writes `facts`, parts of rows, into the table `benchmarks` or `tasks`."""
    if changed := changed_facts(connection, table, facts):
        rows = pa.Table.from_pylist(changed)
        keys = ", ".join(name for name in ("benchmark", "task") if name in rows.column_names)
        with _register(connection, rows) as view:
            connection.execute(f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {view})")
        append(connection, table, rows)


def put_docs(connection: duckdb.DuckDBPyConnection, docs: pa.Table) -> None:
    """Inserts the documents that are new; documents that are already stored must be the same.

    If `docs` have a new document, or all stored ones, their splits are stored as well. Raises InputError with
    the first document whose doc_hash, choices, label, gold or prompt differs.
    """
    with _stage_documents(connection, docs):
        for different in differing_documents(connection).values():
            raise InputError(
                f"{different}. Models are compared on the same documents only: give this variant "
                "another name, such as BENCHMARK@v2, or first mend wrong labels by `rlfocal correct-labels`"
            )
        _write_documents(connection)


def digest_docs(connection: duckdb.DuckDBPyConnection) -> None:
    """Stores digests of the documents of the tasks in temp.changed; a digest shows later damage on disk."""
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
    """By task, a sentence on how the given documents differ from the stored ones, if they do."""
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
    """The columns of the record in `extractions`; missing `extraction_id` and `committed_at` are made."""
    prompts: pa.Table | None = None
    """The rows of `prompts`; None if prompts are not known. Stored prompts stay."""
    traces: pa.Table | None = None
    """The rows of `traces`; None if the model did not think before it answered."""
    replace_documents: bool = False
    """Whether other models' answers to a different set of documents may be deleted."""

    @property
    def place(self) -> Place:
        return self.extraction["benchmark"], self.extraction["task"]


def put_answers(
    connection: duckdb.DuckDBPyConnection, partitions: Sequence[Partition], n_stored: Mapping[Place, int]
) -> None:
    """Writes partitions of one model, and their documents.

    Documents that differ from stored ones replace these if no other model answered them, or if
    `replace_documents` lets other models' rows be deleted. `n_stored`: the number of documents of each stored
    partition that is replaced. Raises InputError unless all partitions are complete, answer the stored
    documents and shorten nothing. The number of statements does not grow with partitions.
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
    """The rows of all tables that are not None, in one table; None if all are None."""
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
    """Replaces partitions: their stored rows and records become `rows`, `traces` and `extractions`.

    Raises InputError if a row belongs to no stored document or to none of the partitions, and for an
    impossible score.
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
    """Fills the temporary tables with `rows`, by the table that they are written to, and temp.partitions."""
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
    """Replaces the stored rows of the staged partitions by the staged rows."""
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
    """Deletes the prompts of tasks (benchmark, task); a model's next extraction stores them again."""
    _run_on(connection, "upkeep/forget_prompts", ("benchmark", "task"), tasks)


def _run_on(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
) -> None:
    """Runs the SQL script `name` on rows of texts, which it reads from temp.given."""
    schema = pa.schema([(column, pa.string()) for column in columns])
    given = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)
    with _register(connection, given) as view:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE given AS FROM {view}")
    connection.execute(script(name))
    connection.execute("DROP TABLE temp.given")


def with_canonical_gold(connection: duckdb.DuckDBPyConnection, docs: pa.Table) -> pa.Table:
    """The rows of `docs`, with gold in canonical form where there is no label."""
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
    """Writes documents of temp.given that are new, or have a new split, confidentiality or first prompt
    hash."""
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
    """Fills temp.given with `docs`, labels corrected, and temp.stored with what is stored of their tasks."""
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
    """Creates a temporary table of `rows` during a block, with the columns and types of the table `like`."""
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
    """Yields a temporary name under which SQL sees the Arrow table `rows` during a block."""
    name = f"arrow_{uuid.uuid4().hex}"
    connection.register(name, rows)
    try:
        yield f"temp.{name}"
    finally:
        connection.unregister(name)

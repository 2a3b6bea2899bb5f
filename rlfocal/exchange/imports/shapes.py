"""Turns given tables of any shape into the two tables that an import checks: `docs` and `scores`.

A table may have documents, scores, or both. Scores of choices are a list, or a column for each choice, or a
row for each choice. Labels are indices, letters or texts. Ids are numbers or texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from rlfocal.exchange.imports.columns import (
    GRADES_ONLY,
    INDEX_COLUMNS,
    KNOWN_COLUMNS,
    LONG_COLUMNS,
    TableShape,
    align_tasks,
    read_grade,
    understand_columns,
)
from rlfocal.exchange.imports.faults import add_faults, count
from rlfocal.exchange.imports.reading.tables import (
    WHOLE_NUMBER,
    RawTable,
    find_misspelt_columns,
    plain_name,
    type_columns,
)
from rlfocal.exchange.imports.source import DOC_COLUMNS, KEY_COLUMNS, SCORE_COLUMNS
from warehouse.scripts import quote

_REQUIRED_COLUMNS = {"benchmark": "--benchmark NAME or ", "doc_id": "", "model": "--name FILE=MODEL or "}
"""Columns that a table needs, each with the option that can take its place."""
_MACROS = rf"""
CREATE TEMP MACRO whole(t) AS TRY_CAST(regexp_extract(t, '{WHOLE_NUMBER}', 1) AS BIGINT);
CREATE TEMP MACRO plain(t) AS coalesce(whole(t)::VARCHAR, t);
CREATE TEMP MACRO letter(t) AS
    ascii(upper(nullif(regexp_extract(t, '^\s*[(]?([A-Za-z])[).:]?\s*$', 1), ''))) - 65;
"""
_CHOICE_NAMES = {
    "indices": "an index from 0",
    "texts": "the text of one of its choices",
    "letters": "a letter",
}
"""The ways in which a column can name choices, and the words for such a name."""


def load_shapes(
    scratch: duckdb.DuckDBPyConnection,
    docs: RawTable,
    scores: RawTable,
    column_names: Mapping[str, str],
    names: Mapping[str, str],
    *,
    benchmark: str | None,
    model: str | None,
    in_order: bool,
) -> list[TableShape]:
    """Creates `docs` and `scores` from a table of each, or from one with both. Adds their faults to `faults`.

    `column_names` maps names of given columns to ours, and `names` given models to ours. `benchmark` is the
    benchmark of all documents. `model` is the only model of a table that names none. `in_order` says whether
    the order of rows has a meaning.
    """
    scratch.execute(_MACROS)
    is_one = docs is scores
    shapes = [
        understand_columns(scratch, scores, ("docs", "scores") if is_one else ("scores",), column_names)
    ]
    if not is_one:
        are_scored = shapes[0].score_column is not None and "answer" not in shapes[0].given_columns
        shapes.insert(0, understand_columns(scratch, docs, ("docs",), column_names, are_scored=are_scored))
        align_tasks(*shapes)
    there = {name for shape in shapes for name in shape.table.names}
    lost = [f"--columns {a}={b}: there is no column {a!r}" for a, b in column_names.items() if a not in there]
    add_faults(scratch, 0, "docs", [(0, reason) for reason in lost])
    for shape in shapes:
        _read(scratch, shape, {"benchmark": benchmark, "model": model})
    if is_one:
        scratch.execute("CREATE TEMP VIEW given_scores AS FROM given_docs")
    has_texts = _number(scratch, shapes, in_order=in_order or "split" in shapes[0].given_columns)
    _describe(scratch, shapes[0], has_texts=has_texts)
    numbered = [shape.score_columns or shape.text_columns for shape in reversed(shapes)]
    first = next((columns[0] for columns in numbered if columns), "")
    # Where columns count from 1, so do labels, unless one is 0.
    base = int(
        first.endswith("1") and not count(scratch, "SELECT count(*) FROM described WHERE whole(label) = 0")
    )
    if "logprob" in shapes[-1].given_columns:
        base = _gather(scratch, shapes[-1], names)
    else:
        columns = {name: f'"{name}"' for name in SCORE_COLUMNS}
        if (listed := _list_of(shapes[-1].score_columns, "wide")) is not None:
            columns["choice_logprobs"] = listed
        chosen = ", ".join(f'{value} AS "{name}"' for name, value in columns.items())
        scratch.execute(f"CREATE TEMP TABLE scores AS SELECT row, {chosen} FROM numbered_scores")
    _index_labels(scratch, shapes[0], base)
    _keep_unused(scratch, shapes[0])
    _keep_grades(scratch, shapes[-1])
    return shapes


def _list_of(columns: Sequence[str], prefix: str) -> str | None:
    """The SQL of a list of the numbered columns, up to the last that is not NULL; None without columns."""
    if not columns:
        return None
    whole = ", ".join(f"{prefix}{number}" for number in range(len(columns)))
    last = ", ".join(
        f"CASE WHEN {prefix}{number} IS NOT NULL THEN {number + 1} END" for number in range(len(columns))
    )
    return f"CASE WHEN greatest({last}) IS NOT NULL THEN [{whole}][:greatest({last})] END"


def _read(
    scratch: duckdb.DuckDBPyConnection, shape: TableShape, given_names: Mapping[str, str | None]
) -> None:
    """Creates the table given_docs or given_scores. Its rows are typed, with benchmark, task, document and
    model."""
    theirs, file = shape.given_columns, shape.contents[0]
    sources = theirs | {f"wide{number}": name for number, name in enumerate(shape.score_columns)}
    sources |= {f"worded{number}": name for number, name in enumerate(shape.text_columns)}
    add_faults(
        scratch, 1, shape.contents[-1], type_columns(scratch, "typed", shape.table, shape.columns, sources)
    )
    keys = [name for name in (*KEY_COLUMNS, "model") if name in theirs]
    values = {name: f't."{name}"' for name in keys}
    is_one = len(shape.contents) == 2
    if is_one and "question" in theirs:
        values.setdefault("doc_id", "t.question")
        if plain_name(theirs.get("doc_id", "")) in INDEX_COLUMNS:
            unique = "count(DISTINCT doc_id) = count(*) AND count(DISTINCT question) < count(*)"
            if count(scratch, f"SELECT {unique} FROM typed"):  # it numbers rows, not documents
                values["doc_id"] = "t.question"
                del theirs["doc_id"]
    for name, value in given_names.items():
        if value is not None and (name == "benchmark" or name not in values) and name in shape.columns:
            values[name] = quote(value)
    if shape.kinds.get("answer") == GRADES_ONLY:
        values |= {"answer": read_grade("t.answer"), "gold": "'1'"}
    if (merging := given_names["benchmark"]) is not None and "benchmark" in theirs:
        add_faults(scratch, 0, file, _find_merged(scratch, merging, theirs["benchmark"]))
    beside = ""
    if file == "scores":  # documents with ids of their own tell where these belong
        for name in ("benchmark", "task"):
            values.setdefault(name, f"p.{name}")
        beside = """LEFT JOIN (
            SELECT plain(doc_id) AS id, any_value(benchmark) AS benchmark, any_value(task) AS task
            FROM given_docs GROUP BY id HAVING count(DISTINCT (benchmark, task)) = 1
        ) AS p ON p.id = plain(t.doc_id)"""
    elif "benchmark" in values:
        values.setdefault("task", values["benchmark"])
    for name, fix in _REQUIRED_COLUMNS.items():
        if name in shape.columns and name not in values:
            has = ", ".join(shape.table.names)
            lacking = f"no column {name!r}; it has {has}. Give {fix}--columns THEIRS={name}"
            add_faults(scratch, 0, file, [(0, lacking)])
    if "scores" in shape.contents and shape.score_column is None and "answer" not in theirs:
        has = ", ".join(shape.table.names)
        lacking = (
            "no column of scores, such as choice_logprobs or logprob_A, of answers, or, in a table that also "
            f"has the documents, of grades, such as correct (1 or 0); it has {has}"
        )
        add_faults(scratch, 0, file, [(0, lacking)])
    if "docs" in shape.contents and not {"label", "gold"} & {*theirs, *values}:
        lacking = (
            f"no column of right answers, label or gold; it has {', '.join(shape.table.names)}. Give "
            "--columns THEIRS=label if it names choices, --columns THEIRS=gold if it holds answers"
        )
        add_faults(scratch, 0, file, [(0, lacking)])
    used = {*theirs.values(), *shape.score_columns, *shape.text_columns}
    unknown = [
        name for name in shape.table.names if name not in used and plain_name(name) not in KNOWN_COLUMNS
    ]
    missing = [name for name in DOC_COLUMNS | SCORE_COLUMNS if name in shape.columns and name not in theirs]
    add_faults(scratch, 0, file, [(0, reason) for reason in find_misspelt_columns(unknown, missing)])
    values["doc_id"] = f"nullif({values.get('doc_id', 'NULL::VARCHAR')}, 'nan')"
    chosen = ", ".join(f"{value} AS {name}" for name, value in values.items())
    scratch.execute(
        f"CREATE TEMP TABLE given_{file} AS SELECT t.* REPLACE ({chosen}) FROM typed AS t {beside}"
    )
    scratch.execute("DROP TABLE typed")
    if file == "scores" and "task" not in theirs:
        scratch.execute(
            "INSERT INTO faults SELECT 2, 'scores', row, format('document {} is not described; add it to the "
            "documents, or leave its scores out', doc_id) FROM given_scores "
            "WHERE plain(doc_id) NOT IN (SELECT plain(doc_id) FROM given_docs WHERE doc_id IS NOT NULL)"
        )


def _find_merged(scratch: duckdb.DuckDBPyConnection, benchmark: str, column: str) -> list[tuple[int, str]]:
    """The fault of a column of several benchmarks, which one name for all would merge."""
    [(n, names)] = scratch.execute(
        "SELECT count(DISTINCT benchmark), string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) FROM typed"
    ).fetchall()
    reason = (
        f"--benchmark {benchmark} would merge the {n} benchmarks of column {column!r} ({names:.80}); leave "
        f"it out, or say what the column is: --columns {column}=task or {column}=none"
    )
    return [(0, reason)] if n > 1 else []


def _number(scratch: duckdb.DuckDBPyConnection, shapes: Sequence[TableShape], *, in_order: bool) -> bool:
    """Creates numbered_docs and numbered_scores. Returns whether the given ids are texts.

    The column `doc_id` is a number, and `named` the given id. Texts are numbered in the order of rows if
    `in_order`, else alphabetically.
    """
    order = "min(row)" if in_order else "doc_id"
    most = "SELECT 2 * count(*) FILTER (whole(doc_id) IS NULL) > count(*)"
    has_texts = bool(count(scratch, f"{most} FROM given_docs WHERE doc_id IS NOT NULL"))
    number = "i.number" if has_texts else "whole(g.doc_id)"
    ids = (
        f"""LEFT JOIN (
            SELECT
                benchmark, task, doc_id,
                row_number() OVER (PARTITION BY benchmark, task ORDER BY {order}) - 1 AS number
            FROM given_docs GROUP BY benchmark, task, doc_id
        ) AS i ON (g.benchmark, g.task, g.doc_id) = (i.benchmark, i.task, i.doc_id)"""
        if has_texts
        else ""
    )
    reason = "'document {} of {}/{} is not described', named, benchmark, task"
    if not has_texts:
        reason = "'doc_id ''{}'' is not a whole number such as 12', named"
    for file in ("docs", "scores"):
        scratch.execute(
            f"CREATE TEMP TABLE numbered_{file} AS "
            f"SELECT g.* REPLACE ({number} AS doc_id), g.doc_id AS named FROM given_{file} AS g {ids}"
        )
        scratch.execute(
            f"INSERT INTO faults SELECT 2, '{file}', row, format({reason}) FROM numbered_{file} "
            "WHERE named IS NOT NULL AND doc_id IS NULL AND benchmark IS NOT NULL AND task IS NOT NULL"
        )
    shapes[0].kinds["doc_id"] = " (texts)" if has_texts else ""
    return has_texts


def _describe(scratch: duckdb.DuckDBPyConnection, shape: TableShape, *, has_texts: bool) -> None:
    """Creates the table `described`: a row for each document, with its label as the file writes it."""
    choices = _list_of(shape.text_columns, "worded") or "choices"
    named = "coalesce(source_id, named)" if has_texts and "doc_id" in shape.given_columns else "source_id"
    rows = f"SELECT * REPLACE ({choices} AS choices, {named} AS source_id) FROM numbered_docs"
    if len(shape.contents) == 1:
        scratch.execute(f"CREATE TEMP TABLE described AS {rows}")
        return
    rest = ", ".join(
        f'arg_min(r."{name}", r.row) AS "{name}"' for name in DOC_COLUMNS if name not in KEY_COLUMNS
    )
    scratch.execute(
        f"CREATE TEMP TABLE described AS SELECT min(r.row) AS row, benchmark, task, doc_id, {rest} "
        f"FROM ({rows}) AS r GROUP BY benchmark, task, doc_id"
    )
    given = {*shape.given_columns, *(["choices"] if shape.text_columns else [])}
    for name in {"label", "question", "choices", "gold", "split"} & given:
        was, now = f"left(d.{name}::VARCHAR, 60)", f"left(n.{name}::VARCHAR, 60)"
        scratch.execute(
            f"INSERT INTO faults SELECT 3, 'docs', n.row, format('{name} ''{{}}'' of the document, which was "
            f"''{{}}'' in row {{}}; one document says one thing', {now}, {was}, d.row) "
            f"FROM ({rows}) AS n JOIN described AS d USING (benchmark, task, doc_id) "
            f"WHERE n.{name} <> d.{name}"
        )


def _keep_unused(scratch: duckdb.DuckDBPyConnection, shape: TableShape) -> None:
    """Creates the table `unused` with documents' values in columns of no known meaning: (row, name, value).

    `row` is the first row of a document. A value is there only if all rows of the document have the same one.
    """
    scratch.execute("CREATE TEMP TABLE unused (row BIGINT, name VARCHAR, value VARCHAR)")
    scratch.register("raw", shape.table.rows)
    row = shape.table.row_number
    for name in shape.unused:
        scratch.execute(
            f"INSERT INTO unused SELECT min(n.row), $1, any_value(r.value) FROM numbered_docs AS n "
            f"JOIN (SELECT {row} AS row, {shape.table.text(name)} AS value FROM raw) AS r ON n.row = r.row "
            "GROUP BY n.benchmark, n.task, n.doc_id HAVING count(DISTINCT r.value) = 1",
            [name],
        )
    scratch.unregister("raw")


def _keep_grades(scratch: duckdb.DuckDBPyConnection, shape: TableShape) -> None:
    """Creates the table `grades` with the given grades of scores that labels or gold answers decide:
    (row, grade)."""
    if shape.grade_column is not None:
        scratch.register("raw", shape.table.rows)
        row = shape.table.row_number
        grade = f"{read_grade(shape.table.text(shape.grade_column))} = '1'"
        scratch.execute(f"CREATE TEMP TABLE grades AS SELECT {row} AS row, {grade} AS grade FROM raw")
        scratch.unregister("raw")


def _find_kind(scratch: duckdb.DuckDBPyConnection, table: str, name: str) -> str | None:
    """The key of _CHOICE_NAMES that says how most values of the column `name` name choices; None without
    values. The table's column `choices` has the texts."""
    counted = scratch.execute(
        f"SELECT count({name}), count(*) FILTER (coalesce(whole({name}) < len(choices), "
        f"whole({name}) IS NOT NULL)), count(*) FILTER (list_contains(choices, {name})), "
        f"count(letter({name})) FROM {table}"
    ).fetchone()
    assert counted is not None
    total, *counts = counted
    return (
        max(_CHOICE_NAMES, key=dict(zip(_CHOICE_NAMES, counts, strict=True)).__getitem__) if total else None
    )


def _position(kind: str, name: str) -> str:
    """The SQL of the index of the choice that a column's value names; NULL if it names none."""
    return {
        "indices": f"whole({name})",
        "texts": f"list_position(choices, {name}) - 1",
        "letters": f"letter({name})",
    }[kind]


def _gather(scratch: duckdb.DuckDBPyConnection, shape: TableShape, names: Mapping[str, str]) -> int:
    """Creates `scores` from a table with a row for each choice. Returns the lowest index of a choice, 0 or 1.
    Choices named by texts are ordered by their first rows. `names` has rlfocal's names of models."""
    words = "count(whole(choice)) + count(letter(choice)) < count(*)"
    if count(scratch, f"SELECT {words} FROM numbered_scores"):
        scratch.execute(
            """UPDATE described AS d SET choices = w.words FROM (
                SELECT benchmark, task, doc_id, list(choice ORDER BY first) AS words FROM (
                    SELECT benchmark, task, doc_id, choice, min(row) AS first FROM numbered_scores
                    GROUP BY ALL
                ) GROUP BY ALL
            ) AS w
            WHERE d.choices IS NULL AND (d.benchmark, d.task, d.doc_id) = (w.benchmark, w.task, w.doc_id)"""
        )
    others = [name for name in SCORE_COLUMNS if name not in (*KEY_COLUMNS, "model", "choice_logprobs")]
    chosen = ", ".join(f's."{name}"' for name in ("row", *KEY_COLUMNS, "model", *LONG_COLUMNS, *others))
    scratch.execute(
        f"CREATE TEMP TABLE melted AS SELECT {chosen}, d.choices FROM numbered_scores AS s "
        "LEFT JOIN described AS d USING (benchmark, task, doc_id)"
    )
    kind = _find_kind(scratch, "melted", "choice") or "indices"
    position = _position(kind, "choice")
    least = count(scratch, f"SELECT coalesce(min({position}), 0) FROM melted")
    base = int(kind == "indices" and least == 1)
    scratch.execute(
        f"INSERT INTO faults SELECT 4, 'scores', row, format('choice ''{{}}'' is not {_CHOICE_NAMES[kind]}', "
        f"choice) FROM melted WHERE {position} IS NULL"
    )
    model = "coalesce(map($1::VARCHAR[], $2::VARCHAR[])[model], model)"
    scratch.execute(
        f"INSERT INTO faults SELECT 5, 'scores', min(row), format('{{}} has the choices {{}} of document "
        f"{{}} of {{}}/{{}}; give each choice one row', {model}, list(choice), doc_id, benchmark, task) "
        f"FROM melted GROUP BY benchmark, task, doc_id, model, pass HAVING "
        f"count(DISTINCT {position}) <> count(*) OR max({position}) + 1 - {base} <> count(*)",
        [list(names), list(names.values())],
    )
    rest = ", ".join(f'arg_min(r."{name}", r.row) AS "{name}"' for name in others)
    scratch.execute(
        f"CREATE TEMP TABLE scores AS SELECT min(r.row) AS row, benchmark, task, doc_id, model, "
        f"list(logprob ORDER BY {position}) AS choice_logprobs, {rest} FROM melted AS r "
        "GROUP BY benchmark, task, doc_id, model"
    )
    shape.kinds["choice"] = f" ({kind})"
    return base


def _index_labels(scratch: duckdb.DuckDBPyConnection, shape: TableShape, base: int) -> None:
    """Creates `docs`, with labels as indices from 0. `base` is the lowest index of a choice in the given
    table."""
    kind = _find_kind(scratch, "described", "label") or "indices"
    position = _position(kind, "label") + (f" - {base}" if kind == "indices" and base else "")
    # Out of range where it cannot be read: a document without a label would be one of answers.
    scratch.execute(
        "INSERT INTO faults "
        f"SELECT 4, 'docs', row, format('label ''{{}}'' is not {_CHOICE_NAMES[kind]}', label) "
        f"FROM described WHERE label IS NOT NULL AND ({position}) IS NULL"
    )
    chosen = ", ".join(
        f'CASE WHEN label IS NOT NULL THEN coalesce({position}, -2) END AS "label"'
        if name == "label"
        else f'"{name}"'
        for name in DOC_COLUMNS
    )
    scratch.execute(f"CREATE TEMP TABLE docs AS SELECT row, {chosen} FROM described")
    shape.kinds["label"] = f" ({kind}{' from 1' if kind == 'indices' and base else ''})"

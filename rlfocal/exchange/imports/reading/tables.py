"""Reads tables of other tools, from files or data frames. Each value is read in its column's type, or refused
with its row."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading import (
    advise_unpacking,
    check_encoding,
    first_line,
    open_plain,
    plain_suffix,
)
from warehouse.limits import memory_settings
from warehouse.scripts import quote


class Frame(Protocol):
    """A table of pandas, polars, pyarrow or DuckDB: any object that exports its columns to Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


_CSV_BLOCK_BYTES = (1 << 20, 1 << 30)
"""The bytes of a CSV file that are read at once: the first try, and the most. A row has to fit into two such
blocks."""
_NAME_SIMILARITY = 0.8  # of two names, by difflib
_TYPE_EXAMPLES = {
    "BIGINT": "a whole number such as 12",
    "DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "BIGINT[]": "a list of whole numbers; separate them by commas",
    "BOOLEAN[]": "a list of true and false; separate them by commas",
    "DOUBLE[]": "a list of numbers; separate them by commas",
    "VARCHAR": "one text; give a text a row, no list or object",
    "VARCHAR[]": "a list of texts; separate them by commas",
}


def load_table(
    scratch: duckdb.DuckDBPyConnection,
    table: str,
    path: Path,
    columns: Mapping[str, str],
    required: tuple[str, ...],
) -> None:
    """Creates `table` from a file, with `row` (from 1; in JSONL the line) and `columns` (name: DuckDB type).

    Columns that the file lacks are NULL. Raises InputError for a missing or unreadable file, a missing or
    misspelt column, and a value of the wrong type.
    """
    for row, reason in _load_all(scratch, table, path, columns, required):
        raise InputError(f"{path}, row {row}: {reason}")


def _load_all(
    scratch: duckdb.DuckDBPyConnection,
    table: str,
    path: Path,
    columns: Mapping[str, str],
    required: tuple[str, ...],
) -> list[tuple[int, str]]:
    """Creates `table` like `load_table`, but with NULL for values of the wrong type. Returns their rows and
    faults."""
    given = open_table(scratch, path)
    for reason in find_misspelt_columns(given.names, columns):
        raise InputError(f"{path}: {reason}")
    for name in () if given.is_json else required:
        if name not in given.names:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(given.names)}")
    return type_columns(scratch, table, given, columns, {name: name for name in columns})


@dataclass(frozen=True)
class RawTable:
    """A table as it was given, before any value is read."""

    title: str
    """The file's name, or the name of a data frame in messages."""
    names: Sequence[str]
    """The table's column names; of JSONL, the keys of all lines."""
    rows: pa.Table
    """The table's rows. For JSONL, its columns are `row` (from 1) and `line`."""
    is_json: bool

    @property
    def row_number(self) -> str:
        """The SQL of the rows' numbers from 1, over the registered rows."""
        return "row" if self.is_json else "row_number() OVER ()"

    def text(self, name: str) -> str:
        """The SQL of a column's values as text, over the registered rows."""
        return f"(line ->> {_pointer(name)})" if self.is_json else f"{_identifier(name)}::VARCHAR"


def open_table(scratch: duckdb.DuckDBPyConnection, source: str | Path | Frame) -> RawTable:
    """A file, a folder of Parquet files or a data frame as a RawTable. Raises InputError for a missing or
    unreadable file, and for an unknown format."""
    if hasattr(source, "__arrow_c_stream__"):
        return RawTable("the table", (rows := _read_frame(source)).column_names, rows, False)
    if not isinstance(source, str | Path):
        raise InputError(f"give a file, or a frame of pandas, polars or pyarrow, not {source!r:.60}")
    path = Path(source)
    if path.is_dir():
        return RawTable(str(path), (rows := _read_parts(path)).column_names, rows, False)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    form = plain_suffix(path)
    if form not in _READERS:
        raise InputError(f"{path}: give a file that ends in {', '.join(_READERS)}{advise_unpacking([path])}")
    if form in (".csv", ".tsv", ".jsonl"):
        check_encoding(path)
    rows = _READERS[form](path)
    if form != ".jsonl":
        return RawTable(str(path), rows.column_names, rows, False)
    return RawTable(str(path), _list_keys(scratch, rows, path), rows, True)


def _read_frame(frame: Frame) -> pa.Table:
    """The rows of a data frame. Raises InputError for a column of several types, and for a duplicate name."""
    try:
        return _widen_half_precision(_name_index(pa.table(frame)))
    except (ValueError, TypeError) as error:  # Arrow's own errors are such
        reason = "; ".join(map(str, error.args))
        raise InputError(
            f"the table cannot be read: {reason}; give each column a name of its own and values of one type"
        ) from None


def _read_parts(folder: Path) -> pa.Table:
    """All rows of a folder of Parquet files, as Spark writes a table. Raises InputError for a folder with
    other files."""
    parts = sorted(part for part in folder.iterdir() if not part.name.startswith(("_", ".")))
    if not parts or any(part.suffix != ".parquet" or part.is_dir() for part in parts):
        raise InputError(f"{folder} is a folder; give one file, or a folder that holds Parquet files alone")
    try:
        return pa.concat_tables(map(_parquet_columns, parts), promote_options="default")
    except pa.ArrowException as error:
        raise InputError(f"{folder}: its files differ in their columns: {first_line(error)}") from None


def type_columns(
    scratch: duckdb.DuckDBPyConnection,
    table: str,
    raw: RawTable,
    columns: Mapping[str, str],
    theirs: Mapping[str, str],
) -> list[tuple[int, str]]:
    """Creates `table` with `row` and `columns` (name: DuckDB type). `theirs` maps these names to the given
    columns.

    Columns that are not given are NULL, and so are values of the wrong type. Returns the (row, reason) of the
    latter.
    """
    scratch.register("raw", raw.rows)
    stored = {} if raw.is_json else {field.name: field.type for field in raw.rows.schema}
    typed = {
        name: _json_sql(theirs[name], kind)
        if raw.is_json
        else _column_sql(theirs[name], kind, stored[theirs[name]])
        for name, kind in columns.items()
        if theirs.get(name) in raw.names
    }
    selected = ", ".join(f'{typed.get(n, (f"NULL::{t}", ""))[0]} AS "{n}"' for n, t in columns.items())
    row, where = raw.row_number, "WHERE line IS NOT NULL" if raw.is_json else ""
    scratch.execute(f"CREATE TEMP TABLE {table} AS SELECT {row} AS row, {selected} FROM raw {where}")
    nulls = ", ".join(f'bool_or("{name}" IS NULL)' for name in typed) or "bool_or(false)"
    [has_null] = scratch.execute(f"SELECT {nulls} FROM {table}").fetchall()
    # Only where there is a NULL are the texts made again.
    empty = {name: typed[name][1] for name, is_empty in zip(typed, has_null, strict=False) if is_empty}
    texts = "".join(f', {text} AS "{name}"' for name, text in empty.items())
    wrong = " ".join(f"""WHEN r."{n}" IS NOT NULL AND t."{n}" IS NULL THEN ['{n}', r."{n}"]""" for n in empty)
    misfits = (
        scratch.execute(
            f"SELECT t.row, CASE {wrong} END AS wrong FROM {table} AS t "
            f"JOIN (SELECT {row} AS row{texts} FROM raw {where}) AS r USING (row) WHERE wrong IS NOT NULL "
            "ORDER BY t.row"
        ).fetchall()
        if empty
        else []
    )
    scratch.unregister("raw")
    return [
        (number, f"{theirs[name]} {text!r} is not {_TYPE_EXAMPLES[columns[name]]}")
        for number, (name, text) in misfits
    ]


def read_table(path: Path, columns: Mapping[str, str], required: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows of a file, as `load_table` reads them: the row's number, then the columns."""
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "read", path, columns, required)
        return scratch.execute("FROM read ORDER BY row").fetchall()


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _pointer(name: str) -> str:
    """The SQL of the JSON pointer to a key. A path cannot hold double quotes."""
    return quote("/" + name.replace("~", "~0").replace("/", "~1"))


def _json_sql(name: str, kind: str) -> tuple[str, str]:
    """The SQL of the value of a line's key in the type `kind`, and of the text that the value is read
    from."""
    value, text = f"(line -> {_pointer(name)})", f"(line ->> {_pointer(name)})"
    if kind == "VARCHAR":
        nested = f"json_type({value}) IN ('ARRAY', 'OBJECT')"
        no_text = f"{nested} OR {value}::VARCHAR SIMILAR TO '-?(NaN|Infinity)'"
        return f"CASE WHEN NOT ({no_text}) THEN {text} END", text
    if kind == "BIGINT":
        return _whole_sql(text)
    if kind.endswith("[]"):
        listed = f"CASE WHEN json_type({value}) = 'VARCHAR' THEN {_text_list(text, kind)} ELSE"
        return f"{listed} {_json_list(value, kind)} END", text
    if kind == "DOUBLE":
        return f"CASE WHEN json_type({value}) <> 'BOOLEAN' THEN TRY_CAST({value} AS DOUBLE) END", text
    return f"TRY_CAST({value} AS {kind})", text


def _json_list(value: str, kind: str) -> str:
    """The SQL of a JSON list as `kind`. It is NULL if an item has another type, because a cast would keep its
    printed form."""
    kinds = f"list_transform(TRY_CAST({value} AS JSON[]), lambda v: coalesce(json_type(v), 'NULL'))"
    return f"CASE WHEN list_has_all({_ITEM_TYPES[kind]}, {kinds}) THEN TRY_CAST({value}::JSON AS {kind}) END"


def _column_sql(name: str, kind: str, dtype: pa.DataType) -> tuple[str, str]:
    """The SQL of a column's value in the type `kind`, and of its text. `dtype` is the column's Arrow
    type."""
    value, text = _identifier(name), f"{_identifier(name)}::VARCHAR"
    holds = dtype.value_type if isinstance(dtype, _LIST_TYPES) else None
    if pa.types.is_nested(dtype) and (holds is None or not kind.endswith("[]") or pa.types.is_nested(holds)):
        return f"NULL::{kind}", text
    if kind == "VARCHAR":
        return text, "NULL"
    if kind == "BIGINT":
        return _whole_sql(text)
    if holds is not None:
        kept = value if pa.types.is_floating(holds) else _guard_list(value, kind)
        return f"TRY_CAST({kept} AS {kind})", text
    if kind.endswith("[]"):
        return _text_list(text, kind), text
    return f"coalesce(TRY_CAST(TRY_CAST({value} AS JSON) AS {kind}), TRY_CAST({value} AS {kind}))", text


def _guard_list(value: str, kind: str) -> str:
    """The SQL of a list. It is NULL if a cast would turn a boolean into 0 or 1, or 0.5 into a whole
    number."""
    odd = {"DOUBLE[]": "true|false", "BIGINT[]": "true|false|[.]"}.get(kind)
    return f"CASE WHEN {value}::VARCHAR NOT SIMILAR TO '.*({odd}).*' THEN {value} END" if odd else value


def _text_list(text: str, kind: str) -> str:
    """The SQL of a list that is written as text, in the form of JSON, DuckDB or numpy."""
    listed = _numpys_list(_guard_list(text, kind), is_text=kind == "VARCHAR[]")
    whole = f"TRY_CAST({listed} AS {kind})"
    plain = f"CASE WHEN len({whole}) = list_count({whole}) THEN {whole} END"
    return f"CASE WHEN json_valid({listed}) THEN {_json_list(listed, kind)} ELSE {plain} END"


WHOLE_NUMBER = "^(-?(?:0|[1-9][0-9]*))(?:[.]0*)?$"
"""A regular expression of whole numbers, which may be written as floats."""


def _whole_sql(text: str) -> tuple[str, str]:
    # pandas writes a missing number as NaN, and a column with one as floats.
    number = f"nullif({text}, 'nan')"
    whole = f"regexp_extract({number}, '{WHOLE_NUMBER}', 1)"
    return f"TRY_CAST({whole} AS BIGINT)", number


def _numpys_list(value: str, *, is_text: bool) -> str:
    """The SQL that adds the commas that numpy leaves out of a list's text: [0.5 1.], [np.float64(0.5)], ['a'
    'b']."""
    if is_text:
        item = r"""(''[^'']*[^''\s][^'']*''|"[^"]*[^"\s][^"]*")"""
        is_numpys = rf"regexp_full_match({value}, '\s*\[\s*{item}(\s+{item})+\s*\]\s*')"
        listed = rf"""regexp_replace({value}, '([''"])\s+([''"])', '\1, \2', 'g')"""
        return f"CASE WHEN {is_numpys} THEN {listed} ELSE {value} END"
    bare = rf"regexp_replace({value}, '\bnp\.\w+\(([^()]*)\)', '\1', 'g')"
    is_numpys = rf"regexp_full_match({bare}, '\s*\[[^\[\],]*\]\s*')"
    listed = rf"replace(trim(regexp_replace({bare}, '[\[\]\s]+', ' ', 'g')), ' ', ',')"
    return f"CASE WHEN {is_numpys} THEN concat('[', {listed}, ']') ELSE {bare} END"


def _parquet_columns(path: Path) -> pa.Table:
    """All columns of a Parquet file. Raises InputError if the file is not Parquet."""
    try:
        table = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {first_line(error)}") from None
    return _widen_half_precision(table)


def _widen_half_precision(table: pa.Table) -> pa.Table:
    """The table with half-precision columns as float32, because DuckDB cannot read half precision. Logits
    often have it."""
    return table.cast(pa.schema([field.with_type(_without_halves(field.type)) for field in table.schema]))


def _without_halves(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind):
        return pa.list_(_without_halves(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_halves(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_without_halves(kind.value_type), kind.list_size)
    return kind


def _arrow_columns(path: Path) -> pa.Table:
    """All columns of an Arrow or Feather file. Raises InputError if the file is neither."""
    try:
        return _widen_half_precision(pyarrow.feather.read_table(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Arrow file: {first_line(error)}") from None


def csv_columns(path: Path) -> pa.Table:
    """All columns of a CSV file, as text; an empty cell is NULL. Raises InputError if it is no readable
    CSV."""
    try:
        try:
            table = _read_csv(path, _CSV_BLOCK_BYTES[0])
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            table = _read_csv(path, _CSV_BLOCK_BYTES[1])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable CSV file: {first_line(error)}") from None
    table = _name_index(table)
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(f"{path}: duplicate column name in {', '.join(table.column_names)}")
    return table


def _name_index(table: pa.Table) -> pa.Table:
    """The table with pandas' name for a column without one, which is its index as a rule."""
    return table.rename_columns([name or "Unnamed: 0" for name in table.column_names])


def _read_csv(path: Path, block: int) -> pa.Table:
    # One thread, because only then does an error say which row it is in.
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=block)
    with open_plain(path) as file:
        first = file.readline(_CSV_BLOCK_BYTES[0])
    # Excel writes semicolons where numbers have decimal commas.
    mark = max((b",", b";", b"\t"), key=first.count).decode()
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True, delimiter=mark)
    header = pyarrow.csv.open_csv(path, read, parse).schema.names
    text = dict.fromkeys(header, pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
    table = pyarrow.csv.read_csv(path, read, parse, options)
    return table if mark == "," else _read_decimal_commas(table)


def _read_decimal_commas(table: pa.Table) -> pa.Table:
    """The table with decimal commas read as points. A column such as 1,234 may have thousands, and stays as
    it is."""
    for position, name in enumerate(table.column_names):
        column = table[name]
        numbers = pc.all(pc.match_substring_regex(column, r"^\s*-?\d+(,\d+)?([eE][-+]?\d+)?\s*$")).as_py()
        if numbers and pc.any(pc.match_substring_regex(column, r",(\d{1,2}|\d{4,})\b|^\s*-?0,")).as_py():
            table = table.set_column(position, name, pc.replace_substring(column, ",", "."))
    return table


def _read_lines(path: Path) -> pa.Table:
    try:
        with open_plain(path) as file:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig").read().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid UTF-8 (byte {error.start})") from None
    text = pa.array([line if line.strip() else None for line in lines], pa.large_string())
    return pa.table({"row": pa.array(range(1, len(lines) + 1), pa.int64()), "line": text})


def _list_keys(scratch: duckdb.DuckDBPyConnection, lines: pa.Table, path: Path) -> list[str]:
    """The keys of all lines. Raises InputError for a line that is no JSON object, or has a key twice."""
    scratch.register("lines", lines)
    broken = scratch.execute(
        "SELECT row, line[:60] FROM lines "
        "WHERE NOT json_valid(line) OR json_type(CASE WHEN json_valid(line) THEN line END) <> 'OBJECT' "
        "ORDER BY row LIMIT 1"
    ).fetchone()
    if broken is not None:
        raise InputError(f"{path}, line {broken[0]}: not a JSON object: {broken[1]}")
    keys = "SELECT row, unnest(json_keys(line)) AS key FROM lines WHERE line IS NOT NULL"
    repeated = scratch.execute(
        f"SELECT row, key FROM ({keys}) GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    ).fetchone()
    if repeated is not None:
        raise InputError(f"{path}, line {repeated[0]}: duplicate key {repeated[1]!r}; keep one of its values")
    named = scratch.execute(f"SELECT DISTINCT key FROM ({keys}) ORDER BY 1").fetchall()
    scratch.unregister("lines")
    return [name for (name,) in named]


def find_misspelt_columns(names: Sequence[str], columns: Iterable[str]) -> list[str]:
    """A sentence for each column whose name is close to that of a known column that is missing."""
    expected = list(columns)
    lacking = [name for name in expected if name not in names]
    close = [
        (name, get_close_matches(plain_name(name), lacking, n=1, cutoff=_NAME_SIMILARITY)) for name in names
    ]
    return [
        f"unknown column {name!r}; did you mean {meant[0]!r}? Rename it, or leave it out"
        for name, meant in close
        if name not in expected and meant
    ]


def plain_name(name: str) -> str:
    """A column's name in small letters, its words joined by underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


_WHOLE_TYPES = ["NULL", "BIGINT", "UBIGINT"]
_ITEM_TYPES = {
    "BIGINT[]": _WHOLE_TYPES,
    "BOOLEAN[]": ["NULL", "BOOLEAN"],
    "DOUBLE[]": [*_WHOLE_TYPES, "DOUBLE", "VARCHAR"],
    "VARCHAR[]": [*_WHOLE_TYPES, "DOUBLE", "VARCHAR", "BOOLEAN"],
}
"""The JSON types of items that can be read into each type of list."""
_LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": _parquet_columns,
    ".csv": csv_columns,
    ".jsonl": _read_lines,
    ".tsv": csv_columns,
    ".feather": _arrow_columns,
    ".arrow": _arrow_columns,
}

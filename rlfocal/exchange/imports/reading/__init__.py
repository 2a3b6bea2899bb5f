"""How files of other tools are read, whatever their format."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from rlfocal.base.errors import InputError
from warehouse.limits import memory_settings

Row = Mapping[str, Any]
_FORMATS = (".parquet", ".csv", ".jsonl")
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
_ARCHIVES = (".zip", ".xz", ".7z", ".tar", ".tgz", ".rar")
_BLOCKS = (1 << 20, 1 << 30)
"""Bytes of a CSV file that are read at once; a row has to fit into two of them."""
_SIMILAR = 0.8  # of two names, by difflib
_MEANING = {
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
    """Creates `table` from a file: `row` (from 1; in JSONL the line) and `columns` (name: DuckDB type).

    Columns the file lacks are NULL. Raises InputError: no such file, an unreadable one, a missing required
    column, one that is misspelt, or a value of the wrong type.
    """
    for row, reason in load_all(scratch, table, path, columns, required):
        raise InputError(f"{path}, row {row}: {reason}")


def load_all(
    scratch: duckdb.DuckDBPyConnection,
    table: str,
    path: Path,
    columns: Mapping[str, str],
    required: tuple[str, ...],
) -> list[tuple[int, str]]:
    """The same with NULL for values of the wrong type: their rows, and what is wrong with each."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    form = plain_suffix(path)
    reader = {".parquet": parquet_columns, ".csv": csv_columns, ".jsonl": _lines}.get(form)
    if reader is None:
        raise InputError(f"{path}: give a file that ends in {', '.join(_FORMATS)}{_unpacking([path])}")
    if reader is not parquet_columns:
        check_encoding(path)
    raw = reader(path)
    is_json = form == ".jsonl"
    keys = _json_keys(scratch, raw, path) if is_json else raw.column_names
    _check_columns(keys, path, columns, () if is_json else required)
    scratch.register("raw", raw)
    stored = {} if is_json else {field.name: field.type for field in raw.schema}
    typed = {
        name: _json_sql(name, kind) if is_json else _column_sql(name, kind, stored[name])
        for name, kind in columns.items()
        if name in keys
    }
    selected = ", ".join(f'{typed.get(n, (f"NULL::{t}", ""))[0]} AS "{n}"' for n, t in columns.items())
    row = "row" if is_json else "row_number() OVER ()"
    where = "WHERE line IS NOT NULL" if is_json else ""
    scratch.execute(f"CREATE TEMP TABLE {table} AS SELECT {row} AS row, {selected} FROM raw {where}")
    nulls = ", ".join(f'bool_or("{name}" IS NULL)' for name in typed) or "bool_or(false)"
    [has_null] = scratch.execute(f"SELECT {nulls} FROM {table}").fetchall()
    # Only where there is a NULL are the texts made again.
    empty = {name: typed[name][1] for name, is_empty in zip(typed, has_null, strict=False) if is_empty}
    texts = "".join(f', {text} AS "{name}"' for name, text in empty.items())
    wrong = " ".join(f"""WHEN r."{n}" IS NOT NULL AND t."{n}" IS NULL THEN ['{n}', r."{n}"]""" for n in empty)
    found = (
        scratch.execute(
            f"SELECT t.row, CASE {wrong} END AS wrong FROM {table} AS t "
            f"JOIN (SELECT {row} AS row{texts} FROM raw {where}) AS r USING (row) WHERE wrong IS NOT NULL "
            "ORDER BY t.row"
        ).fetchall()
        if empty
        else []
    )
    scratch.unregister("raw")
    return [(at, f"{name} {text!r} is not {_MEANING[columns[name]]}") for at, (name, text) in found]


def read_table(path: Path, columns: Mapping[str, str], required: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows of a file, as `load_table` makes them: the row's number, then the columns."""
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "read", path, columns, required)
        return scratch.execute("FROM read ORDER BY row").fetchall()


def _json_sql(name: str, kind: str) -> tuple[str, str]:
    """SQL of the value of a line's key in its type, and of the text it is read from."""
    value, text = f"(line -> '{name}')", f"(line ->> '{name}')"
    if kind == "VARCHAR":
        no_text = (
            f"json_type({value}) IN ('ARRAY', 'OBJECT') OR {value}::VARCHAR SIMILAR TO '-?(NaN|Infinity)'"
        )
        return f"CASE WHEN NOT ({no_text}) THEN {text} END", text
    if kind == "BIGINT":
        return _whole_sql(text)
    if kind.endswith("[]"):
        return _json_list(value, kind), text
    if kind == "DOUBLE":
        return f"CASE WHEN json_type({value}) <> 'BOOLEAN' THEN TRY_CAST({value} AS DOUBLE) END", text
    return f"TRY_CAST({value} AS {kind})", text


def _json_list(value: str, kind: str) -> str:
    """SQL of a JSON list; NULL where an item is of another kind, of which a cast would keep the print."""
    kinds = f"list_transform(TRY_CAST({value} AS JSON[]), lambda v: coalesce(json_type(v), 'NULL'))"
    return f"CASE WHEN list_has_all({_ITEMS[kind]}, {kinds}) THEN TRY_CAST({value}::JSON AS {kind}) END"


def _column_sql(name: str, kind: str, stored: pa.DataType) -> tuple[str, str]:
    """The same of a column that holds values of an Arrow type."""
    value, text = f'"{name}"', f'"{name}"::VARCHAR'
    holds = stored.value_type if isinstance(stored, _LISTS) else None
    if pa.types.is_nested(stored) and (holds is None or not kind.endswith("[]") or pa.types.is_nested(holds)):
        return f"NULL::{kind}", text
    if kind == "VARCHAR":
        return text, "NULL"
    if kind == "BIGINT":
        return _whole_sql(text)
    # A boolean would become 0 or 1, and half of one a whole number.
    misread = {"DOUBLE[]": "true|false", "BIGINT[]": "true|false|[.]"}.get(kind)
    if misread and not (holds is not None and pa.types.is_floating(holds)):
        value = f"CASE WHEN {text} NOT SIMILAR TO '.*({misread}).*' THEN {value} END"
    if holds is not None:
        return f"TRY_CAST({value} AS {kind})", text
    if kind.endswith("[]"):
        value = _numpys_list(value, is_text=kind == "VARCHAR[]")
        whole = f"TRY_CAST({value} AS {kind})"
        listed = f"CASE WHEN len({whole}) = list_count({whole}) THEN {whole} END"
        return f"CASE WHEN json_valid({value}) THEN {_json_list(value, kind)} ELSE {listed} END", text
    return f"coalesce(TRY_CAST(TRY_CAST({value} AS JSON) AS {kind}), TRY_CAST({value} AS {kind}))", text


def _whole_sql(text: str) -> tuple[str, str]:
    # pandas writes a missing number as NaN, and a column with one as floats.
    number = f"nullif({text}, 'nan')"
    whole = f"regexp_extract({number}, '^(-?(?:0|[1-9][0-9]*))(?:[.]0*)?$', 1)"
    return f"TRY_CAST({whole} AS BIGINT)", number


def _numpys_list(value: str, *, is_text: bool) -> str:
    """SQL of a list's text with the commas that numpy leaves out: [0.5 1.], [np.float64(0.5)], ['a' 'b']."""
    if is_text:
        item = r"""(''[^'']*[^''\s][^'']*''|"[^"]*[^"\s][^"]*")"""
        is_numpys = rf"regexp_full_match({value}, '\s*\[\s*{item}(\s+{item})+\s*\]\s*')"
        listed = rf"""regexp_replace({value}, '([''"])\s+([''"])', '\1, \2', 'g')"""
        return f"CASE WHEN {is_numpys} THEN {listed} ELSE {value} END"
    bare = rf"regexp_replace({value}, '\bnp\.\w+\(([^()]*)\)', '\1', 'g')"
    is_numpys = rf"regexp_full_match({bare}, '\s*\[[^\[\],]*\]\s*')"
    listed = rf"replace(trim(regexp_replace({bare}, '[\[\]\s]+', ' ', 'g')), ' ', ',')"
    return f"CASE WHEN {is_numpys} THEN concat('[', {listed}, ']') ELSE {bare} END"


def plain_suffix(path: Path) -> str:
    """What a file's name ends in, in small letters; ".jsonl" also of a.jsonl.gz."""
    *_, first, last = ["", "", *path.suffixes]
    return (first if last.lower() in _PACKED else last).lower()


def plain_stem(path: Path) -> str:
    """A file's name without what `plain_suffix` is of."""
    return Path(path.stem).stem if path.suffix.lower() in _PACKED else path.stem


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked. Raises InputError where they cannot be."""
    try:
        with pa.input_stream(str(path), compression="detect") as packed, io.BufferedReader(packed) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None


def _unpacking(paths: Iterable[Path]) -> str:
    """Advice where one of the files is an archive."""
    packed = next((path.name for path in paths if path.suffix.lower() in _ARCHIVES), None)
    return f"; {packed} is compressed: unpack it first" if packed else ""


def check_encoding(path: Path) -> None:
    """Raises InputError for UTF-16, in which spreadsheets and PowerShell save what they call Unicode."""
    with open_plain(path) as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"{path} is UTF-16; save it as UTF-8")


def parquet_columns(path: Path) -> pa.Table:
    """All columns of a Parquet file. Raises InputError if it is none."""
    try:
        table = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {first_line(error)}") from None
    # DuckDB reads no half precision, in which logits are often kept.
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


def csv_columns(path: Path) -> pa.Table:
    """All columns of a CSV file, as text; an empty cell is NULL. Raises InputError if it is none."""
    try:
        try:
            table = _read_csv(path, _BLOCKS[0])
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            table = _read_csv(path, _BLOCKS[1])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable CSV file: {first_line(error)}") from None
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(f"{path}: duplicate column name in {', '.join(table.column_names)}")
    return table


def _read_csv(path: Path, block: int) -> pa.Table:
    # One thread, because only then does an error say which row it is in.
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=block)
    header = pyarrow.csv.open_csv(path, read, _MULTILINE).schema.names
    text = dict.fromkeys(header, pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
    return pyarrow.csv.read_csv(path, read, _MULTILINE, options)


def _lines(path: Path) -> pa.Table:
    try:
        with open_plain(path) as file:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig").read().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid UTF-8 (byte {error.start})") from None
    text = pa.array([line if line.strip() else None for line in lines], pa.large_string())
    return pa.table({"row": pa.array(range(1, len(lines) + 1), pa.int64()), "line": text})


def _json_keys(scratch: duckdb.DuckDBPyConnection, lines: pa.Table, path: Path) -> list[str]:
    """The keys of all lines. Raises InputError for a line that is no JSON object or has a key twice."""
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


def _check_columns(
    found: Sequence[str], path: Path, columns: Mapping[str, str], required: Sequence[str]
) -> None:
    """Raises InputError for a column whose name is close to a known one that the file lacks, and for a
    required one that is missing."""
    lacking = [name for name in columns if name not in found]
    for name in found:
        plain = name.strip().lower().replace("-", "_").replace(" ", "_")
        meant = get_close_matches(plain, lacking, n=1, cutoff=_SIMILAR)
        if name not in columns and meant:
            raise InputError(
                f"{path}: unknown column {name!r}; did you mean {meant[0]!r}? Rename it, or leave it out"
            )
    for name in required:
        if name in lacking:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(found)}")


def find_files(paths: Iterable[str | Path], is_wanted: Callable[[Path], bool], advice: str) -> list[Path]:
    """The wanted ones of files, and of all that is in folders, each once.

    Raises InputError for a path that does not exist or has none, with `advice` on what it should have.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        chosen = [file for file in inside if file.is_file() and is_wanted(file)]
        if not chosen:
            raise InputError(f"{path} has no {advice}{_unpacking(inside)}")
        found |= {file.absolute(): file for file in chosen}
    return list(found.values())


def read_json(path: Path, advice: str) -> Any:
    """The content of a JSON file. Raises InputError, with `advice`, if it is broken."""
    try:
        with open_plain(path) as file:
            return parse_json(file.read())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); {advice}") from None


def read_jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    """Objects of a JSONL file with the number of their line. Raises InputError for a broken one."""
    check_encoding(path)
    with open_plain(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except (ValueError, RecursionError) as error:
                shown = line[:60].decode("utf-8", "replace").strip()
                raise InputError(
                    f"{path}, line {number}: not valid JSON ({error}): {shown}; write the log again, "
                    "or take the line out of every model's"
                ) from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: not a JSON object: {str(row)[:60]}")
            yield number, row


def parse_json(content: bytes) -> Any:
    """Parsed JSON. Raises ValueError or RecursionError if it is broken or no table can hold it."""
    value = json.loads(content, object_pairs_hook=_unique)
    if b"\\ud" in content.lower():
        # Half a surrogate pair is not text.
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict. Raises ValueError for a duplicate key, of which readers keep either value."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return row


def first_line(error: Exception) -> str:
    """The first line of a library's message, which may continue with a dump."""
    return str(error).strip().split("\n", 1)[0]


_WHOLE = ["NULL", "BIGINT", "UBIGINT"]
_ITEMS = {
    "BIGINT[]": _WHOLE,
    "BOOLEAN[]": ["NULL", "BOOLEAN"],
    "DOUBLE[]": [*_WHOLE, "DOUBLE", "VARCHAR"],
    "VARCHAR[]": [*_WHOLE, "DOUBLE", "VARCHAR", "BOOLEAN"],
}
"""What a JSON list may hold, as DuckDB names it, by the type that it is read as."""
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_MULTILINE = pyarrow.csv.ParseOptions(newlines_in_values=True)

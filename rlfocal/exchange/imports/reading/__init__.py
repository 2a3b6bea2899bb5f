"""How files of other tools are read, whatever their format."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from rlfocal.base.errors import InputError
from warehouse.memory import memory_settings

Row = Mapping[str, Any]
_FORMATS = (".parquet", ".csv", ".jsonl")
_SIMILAR = 0.8  # of two names, by difflib
_MEANING = {
    "BIGINT": "a whole number such as 12",
    "DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "BIGINT[]": "a list of whole numbers",
    "BOOLEAN[]": "a list of true and false",
    "DOUBLE[]": "a list of numbers",
    "VARCHAR[]": "a list of texts",
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
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    reader = {".parquet": parquet_columns, ".csv": csv_columns, ".jsonl": _lines}.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: give a file that ends in {', '.join(_FORMATS)}")
    if reader is not parquet_columns:
        check_encoding(path)
    raw = reader(path)
    is_json = "line" in raw.column_names and path.suffix.lower() == ".jsonl"
    found = _json_keys(scratch, raw, path) if is_json else raw.column_names
    _check_columns(found, path, columns, () if is_json else required)
    scratch.register("raw", raw)
    present = columns if is_json else [name for name in columns if name in raw.column_names]
    lists = {
        f.name: f.type.value_type
        for f in raw.schema
        if pa.types.is_list(f.type) or pa.types.is_large_list(f.type)
    }
    typed = {
        name: _typed_sql(name, columns[name], is_json=is_json, values=lists.get(name)) for name in present
    }
    selected = ", ".join(f'{typed.get(n, (f"NULL::{t}", ""))[0]} AS "{n}"' for n, t in columns.items())
    row = "row" if is_json else "row_number() OVER ()"
    where = "WHERE line IS NOT NULL" if is_json else ""
    scratch.execute(f"CREATE TEMP TABLE {table} AS SELECT {row} AS row, {selected} FROM raw {where}")
    for name, (_, text) in typed.items():
        if not scratch.execute(f'SELECT 1 FROM {table} WHERE "{name}" IS NULL LIMIT 1').fetchone():
            continue  # it need not be made text again
        wrong = scratch.execute(
            f"SELECT t.row, r.text FROM {table} AS t "
            f"JOIN (SELECT {row} AS row, {text} AS text FROM raw {where}) AS r USING (row) "
            f'WHERE r.text IS NOT NULL AND t."{name}" IS NULL ORDER BY t.row LIMIT 1'
        ).fetchone()
        if wrong is not None:
            raise InputError(f"{path}, row {wrong[0]}: {name} {wrong[1]!r} is not {_MEANING[columns[name]]}")
    scratch.unregister("raw")


def read_table(path: Path, columns: Mapping[str, str], required: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows of a file, as `load_table` makes them: the row's number, then the columns."""
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "read", path, columns, required)
        return scratch.execute("FROM read ORDER BY row").fetchall()


def _typed_sql(name: str, kind: str, *, is_json: bool, values: pa.DataType | None) -> tuple[str, str]:
    """SQL of a column's value in its type, and of the text it is read from; `values`: what its lists hold."""
    value = f"line -> '{name}'" if is_json else f'"{name}"'
    text = f"(line ->> '{name}')" if is_json else f'"{name}"::VARCHAR'
    if kind == "VARCHAR":
        return text, "NULL"
    if kind == "BIGINT":
        # pandas writes a missing number as NaN, and a column with one as floats.
        number = f"nullif({text}, 'nan')"
        whole = f"regexp_extract({number}, '^(-?(?:0|[1-9][0-9]*))(?:[.]0*)?$', 1)"
        return f"TRY_CAST({whole} AS BIGINT)", number
    # A JSON or Parquet boolean would become 0 or 1.
    if kind == "DOUBLE[]" and not (values is not None and pa.types.is_floating(values)):
        value = f"CASE WHEN {text} NOT SIMILAR TO '.*(true|false).*' THEN {value} END"
    if is_json or values is not None:
        return f"TRY_CAST({value} AS {kind})", text
    return f"coalesce(TRY_CAST(TRY_CAST({value} AS JSON) AS {kind}), TRY_CAST({value} AS {kind}))", text


def check_encoding(path: Path) -> None:
    """Raises InputError for UTF-16, in which spreadsheets and PowerShell save what they call Unicode."""
    with path.open("rb") as file:
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
    # One thread, because only then does an error say which row it is in.
    read = pyarrow.csv.ReadOptions(use_threads=False)
    try:
        header = pyarrow.csv.open_csv(path, read, _MULTILINE).schema.names
        text = dict.fromkeys(header, pa.string())
        options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
        table = pyarrow.csv.read_csv(path, read, _MULTILINE, options)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable CSV file: {first_line(error)}") from None
    if len(set(header)) < len(header):
        raise InputError(f"{path}: duplicate column name in {', '.join(header)}")
    return table


def _lines(path: Path) -> pa.Table:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
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
            raise InputError(f"{path} has no {advice}")
        found |= {file.absolute(): file for file in chosen}
    return list(found.values())


def read_json(path: Path, advice: str) -> Any:
    """The content of a JSON file. Raises InputError, with `advice`, if it is broken."""
    try:
        return parse_json(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); {advice}") from None


def read_jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    """Objects of a JSONL file with the number of their line. Raises InputError for a broken one."""
    check_encoding(path)
    with path.open("rb") as file:
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


_MULTILINE = pyarrow.csv.ParseOptions(newlines_in_values=True)

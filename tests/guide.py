"""The SQL guide, warehouse/README.md: what it asks, runs and prints.

`python tests/guide.py tables` makes COLUMNS.md from warehouse/documentation.toml; without `tables` it prints
the guide's outputs anew, too, from the warehouse of `make demo` (.rlfocal/warehouse here).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from support.terminal import run_blocks

from rlfocal.exchange.sql import run_sql
from warehouse import open_warehouse
from warehouse.scripts import meanings

_ROOT = Path(__file__).resolve().parents[1]
GUIDE = _ROOT / "warehouse" / "README.md"
PAGES = (_ROOT / "README.md", GUIDE, *sorted((_ROOT / "docs").glob("*.md")))
COLUMNS = GUIDE.with_name("COLUMNS.md")
_SAYS = {"table": "one row for", "view": "what it shows", "macro": "what it returns"}
_BLOCK = re.compile(
    r"^```(?P<language>sql|python|bash)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_QUERY = re.compile(
    r"`(?P<inline>(?:FROM|SELECT) [^`\n]+)`"
    r"|^```sql\n(?P<block>(?:FROM|SELECT|WITH)\b[^`]*?)^```\n",
    re.MULTILINE,
)
_PROGRESS = re.compile(r"\n?[^\n]*▕[^\n]*▏[^\n]*\n")
"""What the duckdb shell draws on a busy machine."""
_EXTENSIONS = (
    "import duckdb_extensions as e; e.import_extension('ducklake'); e.import_extension('sqlite_scanner')"
)


class Example(NamedTuple):
    """A block of code, and what the guide says that it prints (None where it says nothing)."""

    title: str
    language: str
    code: str
    output: str | None


def examples(text: str) -> list[Example]:
    """The guide's blocks in order; the title is that of the section."""
    found = []
    for match in _BLOCK.finditer(text):
        title = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
        found.append(Example(title, match["language"], match["code"], match["output"]))
    return found


def queries(text: str) -> list[str]:
    """Every query of a page outside its commands, whether or not its answer is shown."""
    return [found["inline"] or found["block"] for found in _QUERY.finditer(text)]


def prepare(folder: Path) -> None:
    """Installs DuckDB's extensions as `INSTALL` would, but from packages, for whom `folder` is the home."""
    subprocess.run([sys.executable, "-c", _EXTENSIONS], env=_environment(folder), check=True)


def printed(example: Example, folder: Path) -> str:
    """What an example prints in a prepared folder that holds .rlfocal/warehouse."""
    if example.language == "sql":
        return run_sql(folder / ".rlfocal" / "warehouse", example.code) + "\n"
    if example.language == "bash":
        with TemporaryDirectory() as home:  # the shell's example installs what it needs itself
            [output] = run_blocks([[example.code]], folder, _environment(Path(home)))
        return _PROGRESS.sub("", output)
    return subprocess.run(
        [sys.executable, "-"],
        input=example.code,
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    ).stdout


def renewed(text: str, folder: Path) -> str:
    """The guide with its outputs as they are now."""

    def renew(match: re.Match[str]) -> str:
        if match["output"] is None:
            return match[0]
        [example] = examples(f"## \n{match[0]}")
        return f"```{example.language}\n{example.code}```\n\n```text\n{printed(example, folder)}```\n"

    return _BLOCK.sub(renew, text)


def tables() -> list[str]:
    """The lines of three tables: what there is, a line each."""
    made: dict[str, list[str]] = {"table": [], "view": [], "macro": []}
    for what in meanings([]):
        parameters = re.sub(r" := [^,)]+", "", what.parameters)
        kind = "macro" if what.kind == "function" else what.kind
        made[kind].append(f"| `{what.name}{parameters}` | {what.comment} |")
    return [
        line
        for kind, rows in made.items()
        for line in ("", f"| {kind} | {_SAYS[kind]} |", "|---|---|", *rows)
    ]


def columns() -> str:
    """COLUMNS.md as it is now."""
    with TemporaryDirectory() as name, open_warehouse(Path(name) / "w") as warehouse:
        types = warehouse.rows(
            "SELECT name, column_name, data_type, comment FROM documentation AS d JOIN ("
            "SELECT table_name AS name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = 'warehouse') USING (name, column_name)"
        )
    lines = [
        "# The tables, views and macros of the warehouse, and their columns",
        "",
        "For looking up. [The guide](README.md) says what they are for.",
        "Made by `python tests/guide.py tables`.",
        *tables(),
    ]
    for what in meanings([]):
        if rows := [row for row in types if row[0] == what.name]:
            lines += ["", f"## {what.name}", "", "| column | type | |", "|---|---|---|"]
            lines += [f"| `{column}` | {kind} | {comment} |" for _, column, kind, comment in rows]
    return "\n".join(lines) + "\n"


def _environment(home: Path) -> dict[str, str]:
    here = str(Path(sys.executable).parent)
    return {**os.environ, "HOME": str(home), "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    COLUMNS.write_text(columns(), "utf-8")
    if sys.argv[1:] == ["tables"]:
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".rlfocal").symlink_to(Path(".rlfocal").resolve())
        prepare(folder)
        GUIDE.write_text(renewed(GUIDE.read_text("utf-8"), folder), "utf-8")


if __name__ == "__main__":
    main()

"""The SQL guide, warehouse/README.md: what it asks, runs and prints.

`python tests/guide.py` prints its outputs anew, from the warehouse of `make demo` (.rlfocal/warehouse here).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rlfocal.sql import run_sql

GUIDE = Path(__file__).resolve().parents[1] / "warehouse" / "README.md"
_BLOCK = re.compile(
    r"^```(?P<language>sql|python|bash)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
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
        title = re.findall(r"^##+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
        found.append(Example(title, match["language"], match["code"], match["output"]))
    return found


def prepare(folder: Path) -> None:
    """Installs DuckDB's extensions as `INSTALL` would, but from packages, for whom `folder` is the home."""
    subprocess.run([sys.executable, "-c", _EXTENSIONS], env=_environment(folder), check=True)


def printed(example: Example, folder: Path) -> str:
    """What an example prints in a prepared folder that holds .rlfocal/warehouse."""
    if example.language == "sql":
        return run_sql(folder / ".rlfocal" / "warehouse", example.code) + "\n"
    is_python = example.language == "python"
    with TemporaryDirectory() as home:  # the shell's example installs what it needs itself
        return subprocess.run(
            [sys.executable, "-"] if is_python else ["bash", "-euo", "pipefail"],
            input=example.code,
            cwd=folder,
            env=_environment(folder if is_python else Path(home)),
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


def _environment(home: Path) -> dict[str, str]:
    here = str(Path(sys.executable).parent)
    return {**os.environ, "HOME": str(home), "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".rlfocal").symlink_to(Path(".rlfocal").resolve())
        prepare(folder)
        GUIDE.write_text(renewed(GUIDE.read_text("utf-8"), folder), "utf-8")


if __name__ == "__main__":
    main()

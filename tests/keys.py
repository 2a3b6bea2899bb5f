"""The page of keys, docs/tables/keys.md: its tables come from the models that check pool files.

`python tests/keys.py` makes them; examples are those of the file on docs/pools.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML

from rlfocal.pool.specs import (
    Benchmark,
    BenchmarkSize,
    ModelSpec,
    PoolSpec,
    SamplingSpec,
    ThinkingSpec,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "pools.md"
TABLES = DOCS / "tables" / "keys.md"
MODELS: dict[type[BaseModel], str] = {
    PoolSpec: "A pool",
    Benchmark: "A benchmark",
    ModelSpec: "A model",
    ThinkingSpec: "`thinking`",
    SamplingSpec: "`sampling`",
    BenchmarkSize: "`size`",
}
_MADE = re.compile(r"(<!-- made: keys -->\n).*(<!-- end -->)", re.DOTALL)
_BOUNDS = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}"}


def example_file(text: str) -> str:
    """The YAML file that the page shows."""
    [found] = re.findall(r"^```yaml\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
    return str(found)


def with_tables(text: str) -> str:
    """The page of tables as they are now. Raises KeyError for a key that the example file lacks."""
    content = YAML(typ="safe").load(example_file(PAGE.read_text("utf-8")))
    shown = dict(_examples(content))
    parts = []
    for model, title in MODELS.items():
        schema = model.model_json_schema()
        rows = [
            f"| `{name}` | {_kind(field)} | {_default(name, field, schema)} | {field.get('description', '')} "
            f"| {_code(shown[title, name])} |"
            for name, field in schema["properties"].items()
        ]
        head = [f"## {title}", "", "| key | type | default | | example |", "|---|---|---|---|---|"]
        parts.append("\n".join([*head, *rows]))
    return _MADE.sub(lambda found: found[1] + "\n" + "\n\n".join(parts) + "\n" + found[2], text)


def _examples(content: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    """((table, key), value) of the file; of a key that is there more than once, the last."""
    yield from ((("A pool", key), value) for key, value in content.items())
    for place, title in (("benchmarks", "A benchmark"), ("models", "A model")):
        for entry in (one for one in content[place] if isinstance(one, dict)):
            for key, value in entry.items():
                yield (title, key), value
                if f"`{key}`" in MODELS.values():
                    yield from (((f"`{key}`", inner), of) for inner, of in value.items())


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    named = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}
    if field.get("type") in ("array", "object") or "$ref" in field:
        return "list" if field.get("type") == "array" else "keys and values"
    bounds = [words.format(field[bound]) for bound, words in _BOUNDS.items() if bound in field]
    return " ".join([named[field["type"]], *bounds])


def _default(name: str, field: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "must be given"
    default = field.get("default")
    return "none" if default in (None, "", {}, []) else _code(default)


def _code(value: Any) -> str:
    if isinstance(value, list) and isinstance(value[-1], dict):
        return "above"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text[1:-1] if isinstance(value, str) else text}`"


if __name__ == "__main__":
    TABLES.write_text(with_tables(TABLES.read_text("utf-8")), "utf-8")

"""Records of Every Eval Ever, read back and held against its schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

Row = dict[str, Any]


SCHEMAS = Path(__file__).parents[1] / "exchange" / "every_eval_ever"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def records(folder: Path) -> Iterator[tuple[Path, Row, list[Row]]]:
    """Every aggregate, with its lines, after both passed the schemas and name one another."""
    for path in sorted(folder.rglob("*.json")):
        aggregate = json.loads(path.read_bytes())
        validator("eval").validate(aggregate)
        lines: list[Row] = []
        if stated := aggregate.get("detailed_evaluation_results"):
            beside = folder / stated["file_path"]
            assert beside == path.with_name(f"{path.stem}_samples.jsonl")
            assert stated["checksum"] == sha256(beside.read_bytes()).hexdigest()
            lines = [json.loads(line) for line in beside.read_text(encoding="utf-8").splitlines()]
            assert stated["total_rows"] == len(lines)
        ids = {result["evaluation_result_id"] for result in aggregate["evaluation_results"]}
        for line in lines:
            validator("instance_level_eval").validate(line)
            assert line["evaluation_id"] == aggregate["evaluation_id"]
            assert line["model_id"] == aggregate["model_info"]["id"]
            assert line["evaluation_result_id"] in ids
        assert UUID(path.stem).version == 4
        yield path, aggregate, lines

"""The prompts that models were asked with, so that others can be asked alike."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.base.errors import InputError, unknown
from warehouse import Warehouse


@dataclass(frozen=True)
class Prompt:
    """What a model was asked about one document."""

    task: str
    doc_id: int
    text: str | None
    """As the model read it; None for a chat if no model is named."""
    messages: tuple[tuple[str, str], ...] | None
    """(role, content) of a chat; None where the prompt is plain text."""
    continuations: tuple[str, ...]
    """What follows the text, one a choice, each with its leading delimiter; empty for answers."""


def load_prompts(warehouse: Warehouse, benchmark: str, model: str | None = None) -> list[Prompt]:
    """The prompts of a benchmark in task and doc_id order, rendered for `model` where they are a chat.

    Raises InputError where the warehouse has none: its documents were imported.
    """
    rows = warehouse.rows(
        "SELECT p.task, p.doc_id, coalesce(p.prompt, own.prompt), p.messages, p.continuations "
        "FROM prompts AS p LEFT JOIN (FROM prompts WHERE model = $2 AND model <> '*') AS own "
        "USING (benchmark, task, doc_id) WHERE p.benchmark = $1 AND p.model = '*' ORDER BY p.task, p.doc_id",
        [benchmark, model],
    )
    if not rows:
        benchmarks = [name for (name,) in warehouse.rows("SELECT DISTINCT benchmark FROM docs")]
        if benchmark not in benchmarks:
            raise unknown("benchmark", benchmark, benchmarks, "the warehouse")
        raise InputError(
            f"the warehouse has no prompts of {benchmark!r}: its answers were imported; extract one of its "
            "models again"
        )
    answered = warehouse.rows("SELECT DISTINCT model FROM extractions WHERE benchmark = ?", [benchmark])
    if model is not None and (model,) not in answered:
        raise unknown("model", model, (name for (name,) in answered), f"benchmark {benchmark!r}")
    return [
        Prompt(
            task,
            doc_id,
            text,
            None if messages is None else tuple((m["role"], m["content"]) for m in messages),
            tuple(continuations or ()),
        )
        for task, doc_id, text, messages, continuations in rows
    ]

"""Checks what a service's responses report about themselves: the answering model, its provider, caches, and
token counts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlfocal.base.wording import count_noun
from warehouse import Warehouse

RESPONSES_KEY = "responses"
"""The key of the response counts in a partition's `versions`."""
VERSION_SUFFIX = re.compile(r"(?:[-@:_.]?(?:latest|free|preview|exp|beta|v?\d[\d.\-]*))*")
"""Matches the text that a service may append to a model's name: a date, a version, or a tier."""


class Response(NamedTuple):
    """The facts that one stored response reports about itself. A fact that it does not report is None."""

    id: str | None
    model: str | None
    provider: str | None
    system_fingerprint: str | None
    cached: bool | None
    prompt_tokens: int | None


def summarise(responses: Iterable[Response]) -> dict[str, Any]:
    """Counts of a partition's responses, by model, provider and fingerprint, and of suspicious responses.

    `repeated`: responses with the id of an earlier one, if the service's ids differ at all. `cached`:
    responses that came from a cache by their own report. `uncounted`: responses without token counts.
    """
    rows = list(responses)
    ids = Counter(row.id for row in rows if row.id)
    counts: dict[str, Any] = {
        "models": dict(Counter(row.model for row in rows if row.model)),
        "providers": dict(Counter(row.provider for row in rows if row.provider)),
        "system_fingerprints": dict(
            Counter(row.system_fingerprint for row in rows if row.system_fingerprint)
        ),
        "repeated": sum(ids.values()) - len(ids) if len(ids) > 1 else 0,
        "cached": sum(bool(row.cached) for row in rows),
        "uncounted": sum(not row.prompt_tokens for row in rows),
    }
    return {name: count for name, count in counts.items() if count}


def is_same_model(requested: str, reported: str) -> bool:
    """Whether the model that a service reports may be the requested one, judging by the names.

    >>> [is_same_model("openai/gpt-4o", name) for name in ("gpt-4o-2024-08-06", "gpt-4o-mini", "GPT-4o")]
    [True, False, True]
    """
    short, long = sorted((name.lower().rsplit("/", 1)[-1] for name in (requested, reported)), key=len)
    short = re.sub(r"[-:]latest$", "", short)
    return long.startswith(short) and VERSION_SUFFIX.fullmatch(long[len(short) :]) is not None


def odd_responses(warehouse: Warehouse, models: Sequence[str]) -> list[str]:
    """A sentence for each way in which responses for these models differ from what was requested."""
    rows = warehouse.query(
        "SELECT model, settings->>'served' AS served, settings->'body'->'provider' AS provider, "
        f"paid > 0 AS is_paid, (versions->'{RESPONSES_KEY}') AS facts FROM extractions "
        "WHERE list_contains($1, model) AND facts IS NOT NULL ORDER BY model",
        [list(models)],
    ).to_pylist()
    return [sentence for row in _merge_by_model(rows) for sentence in _describe_oddities(**row)]


def _merge_by_model(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = row["model"], row["served"], row["provider"]
        whole = merged.setdefault(
            key, {**row, "facts": {}, "provider": json.loads(row["provider"] or "null")}
        )
        whole["is_paid"] = whole["is_paid"] or row["is_paid"]
        for name, count in json.loads(row["facts"]).items():
            before = whole["facts"].get(name, {} if isinstance(count, dict) else 0)
            whole["facts"][name] = (
                dict(Counter(before) + Counter(count)) if isinstance(count, dict) else before + count
            )
    return list(merged.values())


def _describe_oddities(
    model: str, served: str, provider: Any, is_paid: bool | None, facts: Mapping[str, Any]
) -> Iterable[str]:
    for name, n in facts.get("models", {}).items():
        if not is_same_model(served, name):
            yield f"{model}: {count_noun(n, 'response')} came from {name!r}, where {served!r} was asked for"
    providers, wanted = facts.get("providers", {}), _read_providers(provider)
    others = [name for name in providers if wanted and name.lower() not in wanted]
    if others:
        yield f"{model}: {', '.join(others)} answered, where {', '.join(sorted(wanted))} was asked for"
    elif len(providers) > 1:
        yield f"{model}: its answers mix those of several providers, {_list_counts(providers)}"
    if len(marks := facts.get("system_fingerprints", {})) > 1:
        yield f"{model}: its service changed while it answered: system_fingerprint {_list_counts(marks)}"
    if n := facts.get("repeated"):
        yield f"{model}: {count_noun(n, 'response')} had the id of another one: no draws of their own"
    if n := facts.get("cached"):
        yield f"{model}: {count_noun(n, 'response')} came from a cache: no draws of their own"
    if is_paid and (n := facts.get("uncounted")):
        uncounted = count_noun(n, "response")
        yield f"{model}: {uncounted} counted no tokens; each is booked as the most it may cost"


def _read_providers(provider: Any) -> set[str]:
    """The providers that an entry's `body` allows in OpenRouter's form, in lower case."""
    named = (provider.get("only") or provider.get("order") or ()) if isinstance(provider, dict) else ()
    return {str(name).split("/")[0].lower() for name in named}


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({n})" for name, n in sorted(counts.items()))


MIN_PROMPT_BYTES = 1000
"""The least bytes of a prompt whose token count is checked. For shorter ones, templates and rounding weigh
too much."""
MAX_BYTES_OF_TOKEN = 12.0
"""A bound on a tokenizer's mean bytes per token over a whole prompt."""


def cut_prompts(sizes: Mapping[int, tuple[int, int]]) -> tuple[set[int], str]:
    """The doc_ids of prompts that a service cannot have read whole, and words on why; an empty set and "" if
    there are none.

    `sizes` has each prompt's bytes, and its tokens as the service counts them, by doc_id. A prompt is
    suspicious if its tokens are far too few, or if prompts of several lengths have the same, largest number
    of tokens.
    """
    long = {doc_id: size for doc_id, size in sizes.items() if size[0] >= MIN_PROMPT_BYTES and size[1] > 0}
    if not long:
        return set(), ""
    few = {doc_id for doc_id, (n, tokens) in long.items() if n > MAX_BYTES_OF_TOKEN * tokens}
    if 2 * len(few) > len(long):
        first = min(few)
        return few, f"{long[first][1]} tokens of a prompt of {long[first][0]:,} bytes (document {first})"
    most = max(tokens for _, tokens in long.values())
    for share, rules in ((1.0, ((3, 1.25), (8, 1.1))), (0.99, ((8, 1.5),))):
        top = {doc_id for doc_id, (_, tokens) in long.items() if tokens >= share * most}
        lengths = [long[doc_id][0] for doc_id in top]
        if any(len(top) >= n and max(lengths) >= span * min(lengths) for n, span in rules):
            return top, f"{most:,} tokens of {len(top)} prompts of {min(lengths):,} to {max(lengths):,} bytes"
    return set(), ""

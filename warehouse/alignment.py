"""Checks that every write must pass: documents and choices are those that are stored, and scores are
possible.

All models of a task answer the same documents, with their choices in the same order. The checks work inside
the caller's transaction. `temp.given` holds documents, and `temp.partitions` the records of their tasks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from warehouse.errors import InputError
from warehouse.scripts import script

LOGPROB_ROUNDING = 1e-6
"""The largest possible log-probability in nats: rounding may lift that of a certain token above 0."""


def check_scores(rows: pa.Table) -> None:
    """Raises InputError with the first row of `choice_logprobs` or `traces` that has an impossible score.

    A choice's own score need only be finite: imported ones may be positive. Rows of other tables pass.
    """
    if "trace" in rows.column_names:
        rows = _list_choices(rows)
    elif "choice" not in rows.column_names:
        return
    impossible = ~np.isfinite(_to_doubles(rows["logprob"]))
    if "unconditional_logprob" in rows.column_names:
        values = rows["unconditional_logprob"]
        impossible |= ~_is_possible(_to_doubles(values)) & np.asarray(pc.is_valid(values))
    if "token_logprobs" in rows.column_names:
        impossible |= _has_token(rows["token_logprobs"], lambda values: ~_is_possible(values))
    if "token_ids" in rows.column_names:
        impossible |= _has_token(rows["token_ids"], lambda values: values < 0)
    if impossible.any():
        [first] = rows.slice(int(impossible.argmax()), 1).to_pylist()
        raise InputError(_explain_impossible(first, int(impossible.sum()), len(impossible)))


def _list_choices(traces: pa.Table) -> pa.Table:
    """The choices that were scored after each trace, as rows of `choice_logprobs`."""
    rows = [
        {"doc_id": row["doc_id"], "choice": i, "token_logprobs": logprobs, "logprob": sum(logprobs)}
        for row in traces.select(["doc_id", "token_logprobs"]).to_pylist()
        for i, logprobs in enumerate(row["token_logprobs"] or ())
    ]
    schema = {"doc_id": pa.int64(), "choice": pa.int32(), "token_logprobs": pa.list_(pa.float32())}
    return pa.Table.from_pylist(rows, pa.schema(schema | {"logprob": pa.float64()}))


def _to_doubles(column: Any) -> NDArray[np.float64]:
    """The values of an Arrow column as doubles; NaN for null."""
    return np.asarray(column.cast(pa.float64()), dtype=np.float64)


def _is_possible(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values <= LOGPROB_ROUNDING)


def _has_token(column: Any, is_wrong: Any) -> NDArray[np.bool_]:
    """(rows,) whether any value of a row's list is wrong; `is_wrong` maps values to booleans."""
    lists = column.combine_chunks()
    wrong = is_wrong(_to_doubles(pc.list_flatten(lists)))
    has_wrong = np.zeros(len(lists), dtype=np.bool_)
    has_wrong[np.asarray(pc.list_parent_indices(lists))[wrong]] = True
    return has_wrong


def _explain_impossible(row: Mapping[str, Any], n: int, n_rows: int) -> str:
    values = [row["logprob"], *(row.get("token_logprobs") or ())[:4], row.get("unconditional_logprob")]
    shown = ", ".join(f"{value:g}" for value in values if value is not None) or "nothing"
    return (
        f"{n:,} of {n_rows:,} choices have a log-probability that is NaN, infinite or positive, or a token "
        f"id below 0; the first, choice {row['choice']} of document {row['doc_id']}, has {shown}: the "
        "weights are damaged, or the dtype overflows (set dtype: bfloat16 or float32)"
    )


_MAX_CHARACTERS_SHOWN = 48  # characters of a value


Place = tuple[str, str]
"""A benchmark and one of its tasks."""


class _StoredDocument(NamedTuple):
    """The compared fields of a document, stored or given."""

    doc_hash: str | None
    choices: list[str] | None
    label: int | None
    gold: str | None
    question: str | None
    prompt_hash: str | None


def prompt_hash(
    prompt: str | None, messages: Sequence[Sequence[str]] | None, continuations: Sequence[str] | None
) -> str:
    """The sha256 of a document's prompt, which says whether two models were asked the same.

    The prompt is a text, or the (role, content) pairs of a chat, and its continuations.
    """
    asked = json.dumps([messages or prompt or "", continuations or []])
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()


def differing_documents(connection: duckdb.DuckDBPyConnection) -> dict[Place, str]:
    """By task, a sentence on the first document of temp.given that differs from the stored one."""
    found = {}
    for row in connection.execute(script("writes/differing_document")).fetchall():
        benchmark, task, doc_id, confidential, *values = row
        what = _show_changes(
            _StoredDocument(*values[::2]), _StoredDocument(*values[1::2]), confidential=confidential
        )
        reason = f"document {doc_id} of {benchmark}/{task} differs from the one in the warehouse: {what}"
        found[benchmark, task] = reason
    return found


def differences(connection: duckdb.DuckDBPyConnection) -> dict[Place, str]:
    """By task, a sentence on how documents in temp.given differ from the stored ones; equal tasks are left
    out. A task whose `n_whole` in temp.partitions is not NULL must also have had so many documents before."""
    found = {}
    for row in connection.execute(script("writes/other_document_set")).fetchall():
        benchmark, task, n_whole, doc_id, model, n_then = row
        name = f"{benchmark}/{task}"
        found[benchmark, task] = (
            f"document {doc_id} of {name} is in the warehouse, but the task does not have it now"
            if model is None
            else f"{name} has {n_whole} documents now, but had {n_then} when {model} answered it: "
            "another document set"
        )
    return found | differing_documents(connection)


def align(connection: duckdb.DuckDBPyConnection, model: str, *, replace_documents: Collection[Place]) -> None:
    """Deletes stored documents and answers of the tasks in which any document differs from the given one.

    Raises InputError if models other than `model` answered such a task, unless it is in `replace_documents`.
    """
    reasons = differences(connection)
    if not reasons:
        return
    places = ", ".join("(?, ?)" for _ in reasons)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE differing AS FROM (VALUES {places}) AS v (benchmark, task)",
        [name for place in reasons for name in place],
    )
    holders: dict[Place, list[str]] = {}
    for benchmark, task, other in connection.execute(
        script("writes/other_models"), {"model": model}
    ).fetchall():
        holders.setdefault((benchmark, task), []).append(other)
    for place, names in holders.items():
        if place not in replace_documents:
            raise InputError(refusal(reasons[place], names, place[0]))
    connection.execute(script("writes/drop_differing"))


def refusal(difference: str, holders: list[str], benchmark: str) -> str:
    """The message that the models `holders` answered other documents, with what to do."""
    more = f" and {len(holders) - 2} more" if len(holders) > 2 else ""
    return (
        f"{difference}. {', '.join(holders[:2])}{more} answered the stored ones, and models are compared on "
        f"the same documents only: give the new ones another benchmark name, such as {benchmark}@v2, or let "
        "`rlfocal extract --replace-documents` extract every model of the pool again (the old rows stay in "
        "earlier snapshots)"
    )


def check_coverage(connection: duckdb.DuckDBPyConnection, model: str) -> None:
    """Raises InputError unless each document of temp.given has each choice, or each pass, exactly once.

    The answers are those of `model` in temp.choices and temp.passes.
    """
    bare = connection.execute(script("writes/incomplete_document")).fetchone()
    if bare is not None:
        benchmark, task, doc_id, n, expected = bare
        raise InputError(
            f"{model} answers a different document set than {benchmark}/{task}: document {doc_id} "
            f"has {n} rows, expected {expected}"
        )


def explain_shortening(n_stored: int, n_given: int, n_whole: int) -> str | None:
    """A sentence on why a partition of limited length must not replace the stored one; None if it may."""
    if n_given >= min(n_stored, n_whole):
        return None
    return (
        f"the warehouse has {n_stored} documents of another revision, prompt or engine here, which a "
        f"limit would replace with {n_given}; leave the limit out, or use another warehouse"
    )


def check_length(n_stored: int | None, extraction: Mapping[str, Any]) -> None:
    """Raises InputError if the `extraction`, made with a limit, would replace a longer stored partition."""
    n_whole = extraction.get("n_whole")
    if n_stored is not None and n_whole is not None:
        reason = explain_shortening(n_stored, extraction["n_docs"], n_whole)
        if reason is not None:
            raise InputError(reason)


def _show_changes(was: _StoredDocument, now: _StoredDocument, *, confidential: bool) -> str:
    """The changed fields of a document in one text, with their values unless the document is confidential."""
    changes = []
    for name in ("choices", "label", "gold", "question", "doc_hash", "prompt_hash"):
        before, after = getattr(was, name), getattr(now, name)
        if before == after or (name in ("question", "prompt_hash") and not (before and after)):
            continue
        if name == "prompt_hash":
            changes.append("another prompt (template, few-shot examples or system prompt)")
            continue
        reordered = name == "choices" and before and after and sorted(before) == sorted(after)
        hidden = confidential and name in ("choices", "gold", "question")
        changes.append(_show_change("order of choices" if reordered else name, before, after, hidden=hidden))
    return "; ".join(changes)


def _show_change(name: str, was: object, now: object, *, hidden: bool) -> str:
    if hidden:
        return f"{name} changed (confidential, not shown)"
    before, after = repr(was), repr(now)
    start = _find_first_difference(before, after) - _MAX_CHARACTERS_SHOWN // 3
    return f"{name} was {_cut_excerpt(before, start)}, is {_cut_excerpt(after, start)}"


def _find_first_difference(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut_excerpt(text: str, start: int) -> str:
    """A part of `text` from about `start`, as long as messages may quote, with dots where it is cut."""
    if len(text) <= _MAX_CHARACTERS_SHOWN:
        return text
    start = max(0, min(start, len(text) - _MAX_CHARACTERS_SHOWN))
    end = start + _MAX_CHARACTERS_SHOWN
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")

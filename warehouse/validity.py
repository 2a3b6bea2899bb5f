"""Which scores no model can have given: log-probabilities are finite and at most 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from warehouse.errors import InputError

ROUNDING = 1e-6
"""How far above 0 rounding may leave the log-probability of a token that is certain."""


def check_scores(rows: pa.Table) -> None:
    """Raises InputError with the first row of `choice_logprobs` or `traces` that holds an impossible score.

    Scores without tokens were imported, or are means over traces. Other tables' rows pass.
    """
    if "trace" in rows.column_names:
        rows = _choices_of(rows)
    elif "choice" not in rows.column_names:
        return
    impossible = ~np.isfinite(_numbers(rows["logprob"]))
    if "unconditional_logprob" in rows.column_names:
        values = rows["unconditional_logprob"]
        impossible |= ~_is_possible(_numbers(values)) & np.asarray(pc.is_valid(values))
    if "token_logprobs" in rows.column_names:
        impossible |= _has_token(rows["token_logprobs"], lambda values: ~_is_possible(values))
    if "token_ids" in rows.column_names:
        impossible |= _has_token(rows["token_ids"], lambda values: values < 0)
    if impossible.any():
        [first] = rows.slice(int(impossible.argmax()), 1).to_pylist()
        raise InputError(_reason(first, int(impossible.sum()), len(impossible)))


def _choices_of(traces: pa.Table) -> pa.Table:
    """The choices that were scored after each trace, as rows of `choice_logprobs`."""
    rows = [
        {"doc_id": row["doc_id"], "choice": i, "token_logprobs": logprobs, "logprob": sum(logprobs)}
        for row in traces.select(["doc_id", "token_logprobs"]).to_pylist()
        for i, logprobs in enumerate(row["token_logprobs"] or ())
    ]
    schema = {"doc_id": pa.int64(), "choice": pa.int32(), "token_logprobs": pa.list_(pa.float32())}
    return pa.Table.from_pylist(rows, pa.schema(schema | {"logprob": pa.float64()}))


def _numbers(column: Any) -> NDArray[np.float64]:
    """The values as doubles; NaN for null."""
    return np.asarray(column.cast(pa.float64()), dtype=np.float64)


def _is_possible(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values <= ROUNDING)


def _has_token(column: Any, is_wrong: Any) -> NDArray[np.bool_]:
    """Whether a value of each row's list is wrong."""
    lists = column.combine_chunks()
    wrong = is_wrong(_numbers(pc.list_flatten(lists)))
    has_wrong = np.zeros(len(lists), dtype=np.bool_)
    has_wrong[np.asarray(pc.list_parent_indices(lists))[wrong]] = True
    return has_wrong


def _reason(row: Mapping[str, Any], n: int, n_rows: int) -> str:
    values = [row["logprob"], *(row.get("token_logprobs") or ())[:4], row.get("unconditional_logprob")]
    shown = ", ".join(f"{value:g}" for value in values if value is not None) or "nothing"
    return (
        f"{n:,} of {n_rows:,} choices have a log-probability that is NaN, infinite or positive, or a token "
        f"id below 0; the first, choice {row['choice']} of document {row['doc_id']}, has {shown}: the "
        "weights are damaged, or the dtype overflows (set dtype: bfloat16 or float32)"
    )

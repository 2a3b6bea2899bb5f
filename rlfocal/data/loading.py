"""Reads a benchmark's rows from the warehouse as a `Dataset`, and the prompts that models were asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.dataset import Dataset, Kind, order_answers
from warehouse import Warehouse
from warehouse.corrections import first_names


def load_dataset(
    warehouse: Warehouse,
    benchmark: str,
    models: Sequence[str] | None = None,
    swaps: Mapping[str, str] | None = None,
) -> Dataset:
    """Reads the answers to one benchmark from one snapshot of the warehouse.

    `models` restricts the pool; None takes every model that answered all documents. `swaps`: for a model of
    the pool, another model whose answers replace its own. Raises InputError for an unknown benchmark or
    model, for a named model that misses documents, and if no model is left.
    """
    with warehouse.hold_snapshot():
        return _read(warehouse, benchmark, models, swaps or {})


def _read(
    warehouse: Warehouse, benchmark: str, models: Sequence[str] | None, swaps: Mapping[str, str]
) -> Dataset:
    docs = warehouse.query(
        "SELECT task, doc_id, coalesce(question, '') AS question, choices, label, gold, "
        "split = 'train' AS is_train FROM docs WHERE benchmark = ? "
        "ORDER BY task, doc_id",
        [benchmark],
    ).to_pydict()
    if not docs["task"]:
        benchmarks = [name for (name,) in warehouse.rows("SELECT DISTINCT benchmark FROM docs")]
        raise unknown_name("benchmark", benchmark, benchmarks, "the warehouse")
    n_docs = len(docs["task"])
    answer_counts = _count_answers(warehouse, benchmark)
    reasons = _explain_gaps(warehouse, benchmark, answer_counts, n_docs)
    names = _select_models(answer_counts, reasons, benchmark, models, n_docs)
    _select_models(answer_counts, reasons, benchmark, list(swaps.values()) or None, n_docs)
    token_costs = _read_token_costs(warehouse, benchmark, names, docs)
    first = first_names(warehouse)
    kind: Kind = "choices" if docs["label"][0] is not None else "answers"
    read = _read_choices if kind == "choices" else _read_answers
    answers = read(warehouse, benchmark, tuple(swaps.get(name, name) for name in names), docs)
    return Dataset(
        benchmark=benchmark,
        kind=kind,
        models=names,
        prices=_read_prices(warehouse, names, token_costs[np.array(docs["is_train"])[: len(token_costs)]]),
        tasks=np.array(docs["task"], dtype=np.str_),
        doc_ids=np.array(docs["doc_id"], dtype=np.int64),
        is_train=np.array(docs["is_train"], dtype=np.bool_),
        snapshot=warehouse.snapshot(),
        token_costs=token_costs,
        questions=tuple(docs["question"]),
        choices=tuple(tuple(texts or ()) for texts in docs["choices"]),
        first_names=tuple(first.get(name, name) for name in names),
        sampled=_find_sampled_models(warehouse, benchmark, names) if kind == "choices" else (),
        left_out=tuple(reasons.items()) if models is None else (),
        **answers._asdict(),
    )


class _AnswerFields(NamedTuple):
    """The fields of a Dataset that hold the models' answers."""

    probs: Floats
    logprobs: Floats
    n_choices: Ints
    predictions: Ints
    labels: Ints
    slots: tuple[tuple[str, ...], ...]


def _find_sampled_models(warehouse: Warehouse, benchmark: str, names: tuple[str, ...]) -> tuple[str, ...]:
    rows = warehouse.rows(
        "SELECT DISTINCT model FROM extractions WHERE benchmark = ? AND evidence = 'samples' "
        "AND list_contains(?, model) ORDER BY model",
        [benchmark, list(names)],
    )
    return tuple(model for (model,) in rows)


def _count_answers(warehouse: Warehouse, benchmark: str) -> dict[str, int]:
    """For each model, the number of documents with a usable answer."""
    counted = (
        "WITH counted AS (SELECT model, count(*) AS n FROM predictions WHERE benchmark = $1 GROUP BY model "
        "UNION ALL SELECT model, 0 FROM extractions WHERE benchmark = $1) "
        "SELECT model, max(n) FROM counted GROUP BY model ORDER BY model"
    )
    return dict(warehouse.rows(counted, [benchmark]))


def _explain_gaps(
    warehouse: Warehouse, benchmark: str, answer_counts: dict[str, int], n_docs: int
) -> dict[str, str]:
    """For each model that misses documents, the reason."""
    lacking = {model: n for model, n in answer_counts.items() if n < n_docs}
    if not lacking:
        return {}
    rows = warehouse.rows(
        "SELECT model, count(DISTINCT (task, doc_id)) FROM choice_logprobs "
        "WHERE benchmark = ? AND list_contains(?, model) GROUP BY model",
        [benchmark, list(lacking)],
    )
    impossible = {model: n - lacking[model] for model, n in rows if n > lacking[model]}
    return {
        model: (
            f"has scores that are NaN, infinite or positive on {impossible[model]} of {n_docs} documents of "
            f"{benchmark!r}: extract it again"
            if model in impossible
            else f"answered {n} of {n_docs} documents of {benchmark!r}"
        )
        for model, n in lacking.items()
    }


def _select_models(
    answer_counts: dict[str, int],
    reasons: dict[str, str],
    benchmark: str,
    requested_models: Sequence[str] | None,
    n_docs: int,
) -> tuple[str, ...]:
    """The models of the dataset, in alphabetical order: the requested ones, or all that miss no document."""
    if requested_models is not None and not requested_models:
        raise InputError(f"no model is left to answer {benchmark!r}: name at least one")
    for name in requested_models or ():
        if name not in answer_counts:
            raise unknown_name("model", name, answer_counts, f"benchmark {benchmark!r}")
        if name in reasons:
            raise InputError(
                f"model {name!r} {reasons[name]}; extract the rest, or leave the model out of --models"
            )
    complete = answer_counts.keys() - reasons.keys()
    names = sorted(complete if requested_models is None else set(requested_models))
    if not names:
        why = "".join(f"; {model} {reason}" for model, reason in list(reasons.items())[:2])
        raise InputError(
            f"no model answered all {n_docs} documents of {benchmark!r}: extract or import the rest{why}"
        )
    return tuple(names)


def _read_prices(warehouse: Warehouse, names: tuple[str, ...], token_costs: Floats) -> Floats:
    """(N,) flat prices, else the means of the known token costs (T, N)."""
    stored = dict(warehouse.rows("SELECT model, price FROM models"))
    flat = np.array([stored.get(name) for name in names], dtype=np.float64)
    n_known = (~np.isnan(token_costs)).sum(axis=0)
    if not n_known.any():
        return flat
    means = np.nansum(token_costs, axis=0) / np.where(n_known, n_known, np.nan)
    return np.where(np.isnan(flat), means, flat)


def with_prices(warehouse: Warehouse, dataset: Dataset, prices: Mapping[str, Sequence[Any]]) -> Dataset:
    """The dataset at other prices.

    `prices`: for each model of the dataset, cents per 1,000 queries, per million prompt tokens and per
    million answered tokens; None where unknown.
    """
    flat, prompt, answered = np.array([prices[name] for name in dataset.models], dtype=np.float64).T
    if np.isnan(prompt).all():
        return replace(dataset, prices=flat, token_costs=np.empty((0, 0)))
    used = warehouse.columns(
        f"""
        WITH {_NUMBERED_DOCUMENTS}
        SELECT row, place, CAST(n_prompt_tokens AS DOUBLE) AS n_prompt,
            CAST(n_answered_tokens + n_thought_tokens AS DOUBLE) AS n_answered
        FROM query_costs JOIN numbered USING (task, doc_id) JOIN placed USING (model)
        WHERE benchmark = $benchmark AND list_contains($models, model)
        """,
        {"benchmark": dataset.benchmark, "models": list(dataset.models)},
    )
    prompts, answers = (np.ma.filled(used[name], np.nan) for name in ("n_prompt", "n_answered"))
    places, token_costs = used["place"], np.full(dataset.predictions.shape, np.nan)
    token_costs[used["row"], places] = (prompts * prompt[places] + answers * answered[places]) / 1000
    return replace(dataset, prices=flat, token_costs=token_costs)


def _read_token_costs(
    warehouse: Warehouse, benchmark: str, names: tuple[str, ...], docs: dict[str, list[Any]]
) -> Floats:
    priced = "SELECT 1 FROM models WHERE price_input IS NOT NULL AND price_output IS NOT NULL LIMIT 1"
    if not warehouse.rows(priced):
        return np.empty((0, 0))
    costs = np.full((len(docs["task"]), len(names)), np.nan)
    place = {key: row for row, key in enumerate(zip(docs["task"], docs["doc_id"], strict=True))}
    by_tokens = (
        "SELECT task, doc_id, model, token_cost FROM query_costs "
        "WHERE benchmark = ? AND list_contains(?, model) AND token_cost IS NOT NULL"
    )
    for task, doc_id, model, cost in warehouse.rows(by_tokens, [benchmark, list(names)]):
        costs[place[task, doc_id], names.index(model)] = cost
    return costs


_NUMBERED_DOCUMENTS = """
    numbered AS (
        SELECT task, doc_id, row_number() OVER (ORDER BY task, doc_id) - 1 AS row
        FROM docs WHERE benchmark = $benchmark
    ),
    placed AS (SELECT unnest($models) AS model, generate_subscripts($models, 1) - 1 AS place)
"""
"""SQL of two tables: documents with their rows in a Dataset, and models with their positions there.

A model that stands in for several has several positions.
"""


def _read_choices(
    warehouse: Warehouse, benchmark: str, names: tuple[str, ...], docs: dict[str, list[Any]]
) -> _AnswerFields:
    cells = warehouse.columns(
        f"""
        WITH {_NUMBERED_DOCUMENTS}
        SELECT row, place AS model, choice, logprob, unanswered IS NOT NULL AS silent
        FROM choice_logprobs JOIN numbered USING (task, doc_id) JOIN placed USING (model)
        WHERE benchmark = $benchmark AND list_contains($models, model)
        """,
        {"benchmark": benchmark, "models": list(names)},
    )
    shape = (len(docs["task"]), len(names), int(cells["choice"].max()) + 1)
    scores = np.full(shape, -np.inf)
    scores[cells["row"], cells["model"], cells["choice"]] = cells["logprob"]
    predictions = scores.argmax(axis=2).astype(np.int64)
    silent = cells["silent"].astype(np.bool_)
    predictions[cells["row"][silent], cells["model"][silent]] = -1
    top = scores.max(axis=2, keepdims=True)
    logprobs = scores - top - np.log(np.exp(scores - top).sum(axis=2, keepdims=True))
    return _AnswerFields(
        probs=np.exp(logprobs),
        logprobs=logprobs,
        n_choices=np.isfinite(scores[:, 0]).sum(axis=1).astype(np.int64),
        predictions=predictions,
        labels=np.array(docs["label"], dtype=np.int64),
        slots=(),
    )


def _read_answers(
    warehouse: Warehouse, benchmark: str, names: tuple[str, ...], docs: dict[str, list[Any]]
) -> _AnswerFields:
    cells = warehouse.rows(
        f"""
        WITH {_NUMBERED_DOCUMENTS}, counts AS (
            SELECT row, place, answer, count(*) AS n, min(pass) AS first_pass
            FROM answer_passes JOIN numbered USING (task, doc_id) JOIN placed USING (model)
            WHERE benchmark = $benchmark AND list_contains($models, model)
            GROUP BY row, place, answer
        )
        SELECT row, place, answer, n / sum(n) OVER (PARTITION BY row, place)
        FROM counts ORDER BY row, place, n DESC, first_pass
        """,
        {"benchmark": benchmark, "models": list(names)},
    )
    T, N = len(docs["task"]), len(names)
    given: list[dict[str, dict[int, float]]] = [{} for _ in range(T)]  # row -> answer -> model -> share
    votes: list[dict[int, str]] = [{} for _ in range(T)]  # row -> model -> its first most frequent answer
    for row, model, answer, share in cells:
        if answer is not None:
            given[row].setdefault(answer, {})[model] = share
            votes[row].setdefault(model, answer)
    slots = tuple(order_answers(*both) for both in zip(given, votes, strict=True))
    width = max(1, max(map(len, slots)))
    probs = np.zeros((T, N, width))
    predictions = np.full((T, N), -1, dtype=np.int64)
    labels = np.full(T, -1, dtype=np.int64)
    for row, answers in enumerate(slots):
        place = {answer: slot for slot, answer in enumerate(answers)}
        labels[row] = place.get(str(docs["gold"][row]), -1)
        for answer, by_model in given[row].items():
            for model, share in by_model.items():
                probs[row, model, place[answer]] = share
                predictions[row, model] = place[votes[row][model]]
    return _AnswerFields(
        probs=probs,
        logprobs=np.empty((0, N, width)),
        n_choices=np.array([len(s) for s in slots], dtype=np.int64),
        predictions=predictions,
        labels=labels,
        slots=slots,
    )


@dataclass(frozen=True)
class Prompt:
    """The prompt by which a model was asked about one document."""

    task: str
    doc_id: int
    text: str | None
    """The prompt as the model read it; None for a chat if no model is named."""
    messages: tuple[tuple[str, str], ...] | None
    """(role, content) of a chat; None where the prompt is plain text."""
    continuations: tuple[str, ...]
    """The text of each choice that follows the prompt, with its leading delimiter; empty for free answers."""


def load_prompts(warehouse: Warehouse, benchmark: str, model: str | None = None) -> list[Prompt]:
    """The prompts of a benchmark in task and doc_id order; chats are rendered for `model`.

    Raises InputError where the warehouse has no prompts, because the answers were imported.
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
            raise unknown_name("benchmark", benchmark, benchmarks, "the warehouse")
        raise InputError(
            f"the warehouse has no prompts of {benchmark!r}: its answers were imported; extract one of its "
            "models again"
        )
    answered = warehouse.rows("SELECT DISTINCT model FROM extractions WHERE benchmark = ?", [benchmark])
    if model is not None and (model,) not in answered:
        raise unknown_name("model", model, (name for (name,) in answered), f"benchmark {benchmark!r}")
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

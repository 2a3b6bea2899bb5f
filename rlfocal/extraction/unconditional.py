"""Choices scored without their question, for acc_mutual_info: log P(choice | prompt) - log P(choice)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rlfocal.extraction.engine import Document, Engine

COLUMN = "unconditional_logprob"


def with_unconditional(rows: pa.Table, engine: Engine, documents: Sequence[Document]) -> pa.Table:
    """Rows of `choice_logprobs` for these documents, with each choice's log-probability on its own."""
    known = unconditional_logprobs(engine, documents)
    continuations = {document.doc_id: document.continuations for document in documents}
    places = zip(rows["doc_id"].to_pylist(), rows["choice"].to_pylist(), strict=True)
    values = [known[continuations[doc_id][choice]] for doc_id, choice in places]
    return rows.set_column(rows.column_names.index(COLUMN), COLUMN, pa.array(values, pa.float64()))


def unconditional_logprobs(engine: Engine, documents: Sequence[Document]) -> dict[str, float]:
    """The log-probability of every continuation of the documents after an empty prompt, by continuation.

    Each is asked once, however many documents have it. An empty prompt is lm-eval's: the token that begins a
    text, or, if the tokenizer has none, the one that ends it.
    """
    texts = sorted({continuation for document in documents for continuation in document.continuations})
    alone = [_alone(i, text) for i, text in enumerate(texts)]
    scores = (
        score
        for start in range(0, len(alone), engine.shard)
        for [score] in engine.score(alone[start : start + engine.shard])
    )
    return {text: sum(score.token_logprobs) for text, score in zip(texts, scores, strict=True)}


def _alone(doc_id: int, text: str) -> Document:
    return Document(
        doc_id=doc_id,
        doc_hash="",
        question="",
        label=None,
        gold="",
        choices=(text,),
        context="",
        continuations=(text,),
    )

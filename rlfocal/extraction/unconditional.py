"""Choices scored without their question, for acc_mutual_info: log P(choice | prompt) - log P(choice)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rlfocal.extraction.engine import Document

COLUMN = "unconditional_logprob"


def alone(documents: Sequence[Document]) -> list[Document]:
    """Every continuation of the documents as a document of its own, with an empty prompt, in a fixed order.

    Each is there once, however many documents have it. An empty prompt is lm-eval's: the token that begins a
    text, or, if the tokenizer has none, the one that ends it.
    """
    texts = sorted({continuation for document in documents for continuation in document.continuations})
    return [_alone(i, text) for i, text in enumerate(texts)]


def with_unconditional(rows: pa.Table, scored: pa.Table, documents: Sequence[Document]) -> pa.Table:
    """Rows of `choice_logprobs` for these documents, with each choice's log-probability on its own.

    `scored`: the rows of `alone(documents)`, one per continuation.
    """
    texts = [document.continuations[0] for document in alone(documents)]
    places = zip(scored["doc_id"].to_pylist(), scored["logprob"].to_pylist(), strict=True)
    known = {texts[place]: logprob for place, logprob in places}
    continuations = {document.doc_id: document.continuations for document in documents}
    asked = zip(rows["doc_id"].to_pylist(), rows["choice"].to_pylist(), strict=True)
    values = [known[continuations[doc_id][choice]] for doc_id, choice in asked]
    return rows.set_column(rows.column_names.index(COLUMN), COLUMN, pa.array(values, pa.float64()))


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

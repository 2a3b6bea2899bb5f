"""Fits prompts into a model's context: refuses or truncates those that are too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChoiceScore, Document, Sampling, Unanswered, no_scores
from rlfocal.extraction.engines.tokens import EncodedDocument, Encoder, Tokens


class Window(NamedTuple):
    """How much a model can read, and what to do with longer prompts."""

    context: int
    """Tokens of the model's context."""
    reads: int
    """Tokens of prompt and choice together that the engine can be given, given that context."""
    truncation: Literal["refuse", "keep"]


class Group(NamedTuple):
    """Continuations of one prefix: a document's choices, or one of them if the prompt had to be truncated."""

    document: int
    choices: tuple[int, ...]
    prefix: Tokens
    suffixes: tuple[Tokens, ...]


class Scored(NamedTuple):
    """One suffix: its tokens' log-probabilities, and whether each was the most likely."""

    logprobs: tuple[float, ...]
    is_greedy: bool
    unanswered: Unanswered | None = None


def groups(index: int, encoded: EncodedDocument, window: Window, *, share: bool = True) -> Iterator[Group]:
    """One group, if every choice sees the whole context; else each cuts it on the left, as in lm-eval."""
    context, tails = encoded
    if share and len(context) + max(map(len, tails)) <= window.reads:
        yield Group(index, tuple(range(len(tails))), context, tails)
        return
    for choice, tail in enumerate(tails):
        yield Group(index, (choice,), context[-(window.reads - len(tail)) :], (tail,))


def choice_scores(
    index: int, encoded: EncodedDocument, window: Window, found: dict[tuple[int, int], Scored]
) -> tuple[ChoiceScore, ...]:
    """A document's scores out of those found by (document, choice)."""
    context, tails = encoded
    for choice in range(len(tails)):
        if (reason := found[index, choice].unanswered) is not None:
            return no_scores(len(tails), reason)
    return tuple(
        ChoiceScore(
            token_ids=tail,
            token_logprobs=found[index, choice].logprobs,
            is_greedy=found[index, choice].is_greedy,
            n_prompt_tokens=len(context),
            truncated=len(context) + len(tail) > window.reads,
        )
        for choice, tail in enumerate(tails)
    )


def answer_prompts(
    encoder: Encoder, documents: Sequence[Document], sampling: Sampling, window: Window
) -> list[Tokens]:
    """Prompts that leave room for the answer, truncated on the left if they are longer."""
    room = window.context - sampling.max_tokens
    return [prompt[-room:] for prompt in encoder.prompts(documents)]


def check_fits(
    encoder: Encoder, documents: Sequence[Document], sampling: Sampling | None, window: Window
) -> None:
    """Raises InputError if a prompt cannot be given to the model whole, or a choice not at all."""
    if sampling is not None:
        room = window.context - sampling.max_tokens
        if room <= 0:
            raise InputError(
                f"max_tokens is {sampling.max_tokens}, but the context has only {window.context} tokens"
            )
        lengths = [len(prompt) for prompt in encoder.prompts(documents)]
    else:
        room = window.reads
        encoded = encoder.choices(documents)
        for document, (_, tails) in zip(documents, encoded, strict=True):
            if (longest := max(map(len, tails))) >= room:
                raise InputError(
                    f"document {document.doc_id}: a choice has {longest} tokens, too many for the context of "
                    f"{window.context}"
                )
        lengths = [len(context) + max(map(len, tails)) for context, tails in encoded]
    check_lengths(documents, lengths, [room] * len(lengths), window)


def check_lengths(
    documents: Sequence[Document], lengths: Sequence[int], rooms: Sequence[int], window: Window
) -> None:
    """Raises InputError if a prompt is longer than the tokens left for it and must not be truncated."""
    long = [i for i, (length, room) in enumerate(zip(lengths, rooms, strict=True)) if length > room]
    if long and window.truncation == "refuse":
        first = long[0]
        raise InputError(
            f"{len(long)} of {len(lengths)} prompts do not fit the context of {window.context} tokens "
            f"(the first is document {documents[first].doc_id}: {lengths[first]} tokens, room for "
            f"{rooms[first]}); set `truncation: keep` in the model's entry to truncate them on the left and "
            "flag them (lm-eval truncates with a warning), or leave the benchmark out for this model"
        )

"""Scoring by requests: requests to an engine that takes whole prompts, and scores from its answers.

Single-token choices take one request a question; longer ones one request each, ordered so that an engine with
a prefix cache reads every context once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rlfocal.errors import RunError
from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines.groups import Group, Scored, Window, choice_scores, groups
from rlfocal.extraction.engines.tokens import Encoder, Tokens

MAX_TARGETS = 128  # vLLM's limit of `logprob_token_ids`


class Request(NamedTuple):
    """Either the log-probabilities of the prompt's own tokens from `start` on, or those of next tokens."""

    prompt: Tokens
    start: int
    targets: Tokens = ()
    """The next tokens that are asked for; empty: the prompt's own."""
    reuse: bool = True
    """Whether tokens that a prefix cache holds may be skipped."""


class TokenScore(NamedTuple):
    logprob: float
    is_greedy: bool


Reading = Sequence[TokenScore | None]
"""One score a target, or one a token of the prompt from `start` on; None where a cached prefix hid it."""
Ask = Callable[[Sequence[Request]], Sequence[Reading]]


def score(
    documents: Sequence[Document], encoder: Encoder, window: Window, ask: Ask, *, next_tokens: bool
) -> Iterator[tuple[ChoiceScore, ...]]:
    """Scores of every document, in order. `next_tokens`: whether the engine can score chosen next tokens."""
    encoded = encoder.choices(documents)
    asked = [group for i, e in enumerate(encoded) for group in groups(i, e, window)]
    single = [next_tokens and all(len(suffix) == 1 for suffix in group.suffixes) for group in asked]
    found = _score_next([g for g, is_single in zip(asked, single, strict=True) if is_single], ask)
    longer = [g for g, is_single in zip(asked, single, strict=True) if not is_single]
    found |= _score_suffixes(longer, ask, next_tokens=next_tokens)
    for i, document in enumerate(encoded):
        yield choice_scores(i, document, window, found)


def _score_next(asked: Sequence[Group], ask: Ask) -> dict[tuple[int, int], Scored]:
    """One request a group: every choice is a next token of the same prefix."""
    known = _next_tokens(((g.prefix, suffix[0]) for g in asked for suffix in g.suffixes), ask)
    return {
        (group.document, choice): _joined([known[group.prefix, suffix[0]]])
        for group in asked
        for choice, suffix in zip(group.choices, group.suffixes, strict=True)
    }


def _next_tokens(
    wanted: Iterable[tuple[Tokens, int]], ask: Ask
) -> dict[tuple[Tokens, int], TokenScore | None]:
    """Scores of (prefix, next token), one request a prefix."""
    targets: dict[Tokens, set[int]] = {}
    for prefix, token in wanted:
        targets.setdefault(prefix, set()).add(token)
    requests = [
        Request(prefix, len(prefix), some)
        for prefix in sorted(targets)
        for some in _batched(sorted(targets[prefix]))
    ]
    return {
        (request.prompt, token): scored
        for request, reading in zip(requests, _asked(ask, requests), strict=True)
        for token, scored in zip(request.targets, reading, strict=True)
    }


def _score_suffixes(asked: Sequence[Group], ask: Ask, *, next_tokens: bool) -> dict[tuple[int, int], Scored]:
    """One request a choice, in the order of their tokens: neighbours share the longest prefixes."""
    wanted = sorted({(g.prefix + suffix, len(g.prefix)) for g in asked for suffix in g.suffixes})
    requests = [Request(prompt, start) for prompt, start in wanted]
    readings = _completed(requests, _asked(ask, requests), ask, next_tokens=next_tokens)
    known = {
        (request.prompt, request.start): _joined(reading)
        for request, reading in zip(requests, readings, strict=True)
    }
    return {
        (group.document, choice): known[group.prefix + suffix, len(group.prefix)]
        for group in asked
        for choice, suffix in zip(group.choices, group.suffixes, strict=True)
    }


def _completed(
    requests: Sequence[Request], readings: Sequence[Reading], ask: Ask, *, next_tokens: bool
) -> Sequence[Reading]:
    """Fills what a cached prefix hid: where choices begin alike, or the prompt ends where a block does."""
    if next_tokens:
        hidden = (
            (request.prompt[:position], request.prompt[position])
            for request, reading in zip(requests, readings, strict=True)
            for position, scored in enumerate(reading, start=request.start)
            if scored is None
        )
        known = _next_tokens(hidden, ask)
        return [
            [
                known[request.prompt[:position], request.prompt[position]] if scored is None else scored
                for position, scored in enumerate(reading, start=request.start)
            ]
            for request, reading in zip(requests, readings, strict=True)
        ]
    again = [i for i, reading in enumerate(readings) if None in reading]
    whole = _asked(ask, [requests[i]._replace(reuse=False) for i in again])
    return [dict(zip(again, whole, strict=True)).get(i, reading) for i, reading in enumerate(readings)]


def _batched(targets: Sequence[int]) -> Iterator[tuple[int, ...]]:
    yield from (tuple(targets[i : i + MAX_TARGETS]) for i in range(0, len(targets), MAX_TARGETS))


def _asked(ask: Ask, requests: Sequence[Request]) -> Sequence[Reading]:
    return ask(requests) if requests else []


def _joined(scores: Reading) -> Scored:
    known = [scored for scored in scores if scored is not None]
    if len(known) < len(scores):
        raise RunError("the engine returned no log-probability for a requested token")
    return Scored(tuple(s.logprob for s in known), all(s.is_greedy for s in known))

"""Scores choices by requests to an engine that takes whole prompts.

Choices of a single token take one request a question. Longer ones take one request each, ordered so that an
engine with a prefix cache reads every context once. Log-probs of a prompt cost a row of the vocabulary for
each token. So contexts are read without them where the engine scores next tokens, or can be made to continue
with a choice's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import ChoiceScore, MissingAnswer
from rlfocal.extraction.engines.tokens import (
    ContextWindow,
    EncodedDocument,
    SuffixScore,
    Tokens,
    choice_scores,
    groups,
)

MAX_TARGETS = 128  # vLLM's limit of `logprob_token_ids`


class Abilities(NamedTuple):
    """What an engine can do, beyond the log-probabilities of a prompt's own tokens."""

    next_tokens: bool = False
    """Whether it scores chosen next tokens of a prompt."""
    shares_prefixes: bool = False
    """Whether it reads the common beginning of prompts once: reading a context first makes the prompts that
    continue it cheap."""
    forced: int = 0
    """By how many given tokens it can continue a prompt, faster than it scores them in a longer prompt."""


class Request(NamedTuple):
    """A request for the log-probabilities of the prompt's own tokens from `start` on, or of tokens that may
    follow it."""

    prompt: Tokens
    start: int
    targets: Tokens = ()
    """Tokens that may come next, each of which is scored."""
    forced: Tokens = ()
    """A continuation whose tokens are scored one after the other."""
    reuse: bool = True
    """Whether tokens that a prefix cache holds may be skipped."""


class TokenScore(NamedTuple):
    logprob: float
    is_greedy: bool
    unanswered: MissingAnswer | None = None
    """The reason why the token has no score; None if it has one."""


Reading = Sequence[TokenScore | None]
"""A score for each token that was asked for; None where a cached prefix hid it."""
Ask = Callable[[Sequence[Request]], Sequence[Reading]]
Choice = tuple[Tokens, Tokens]
"""A prefix, and the tokens that continue it."""


def score(
    encoded: Sequence[EncodedDocument], window: ContextWindow, ask: Ask, able: Abilities
) -> Iterator[tuple[ChoiceScore, ...]]:
    """Yields the scores of every document, in order."""
    asked = [group for i, e in enumerate(encoded) for group in groups(i, e, window)]
    of_choice = _score_choices(
        {(group.prefix, suffix) for group in asked for suffix in group.suffixes}, ask, able
    )
    scores = {
        (group.document, choice): of_choice[group.prefix, suffix]
        for group in asked
        for choice, suffix in zip(group.choices, group.suffixes, strict=True)
    }
    for i, document in enumerate(encoded):
        yield choice_scores(i, document, window, scores)


def _score_choices(wanted: set[Choice], ask: Ask, able: Abilities) -> dict[Choice, SuffixScore]:
    """The scores of all choices, asked in the order of tokens: neighbours share the longest prefixes, after
    their context."""
    forced, split, whole = _divide(wanted, able)
    requests = sorted(
        {
            *_make_next_token_requests((prefix, suffix[0]) for prefix, suffix in split),
            *map(_make_forced_request, forced),
            *(_make_request_behind_first(choice) for choice in split if len(choice[1]) > 1),
            *map(_make_whole_request, whole),
        }
    )
    readings = _complete(dict(zip(requests, _ask(ask, requests), strict=True)), ask, able)
    next_tokens = _index_by_token(readings)

    def read_choice(choice: Choice) -> Reading:
        if choice in forced:
            return readings[_make_forced_request(choice)]
        if choice in whole:
            return readings[_make_whole_request(choice)]
        prefix, suffix = choice
        first = next_tokens[prefix, suffix[0]]
        return [first, *(readings[_make_request_behind_first(choice)] if len(suffix) > 1 else ())]

    return {choice: _join(read_choice(choice)) for choice in wanted}


def _divide(wanted: set[Choice], able: Abilities) -> tuple[set[Choice], set[Choice], set[Choice]]:
    """The choices by how they are asked: by continuing the context, by a next token, or in a longer
    prompt."""
    longer = {prefix for prefix, suffix in wanted if len(suffix) > 1}
    split = {
        (prefix, suffix)
        for prefix, suffix in wanted
        if able.next_tokens and (able.shares_prefixes or prefix not in longer)
    }
    first = 1 if able.next_tokens else 0
    forced = {choice for choice in wanted if first < len(choice[1]) <= able.forced}
    return forced, split - forced, wanted - split - forced


def _make_forced_request(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix, len(prefix), forced=suffix)


def _make_request_behind_first(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix + suffix, len(prefix) + 1)


def _make_whole_request(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix + suffix, len(prefix))


def _make_next_token_requests(wanted: Iterable[tuple[Tokens, int]]) -> list[Request]:
    """Requests for scores of (prefix, next token): one for each prefix, or several if it has too many
    tokens."""
    targets: dict[Tokens, set[int]] = {}
    for prefix, token in wanted:
        targets.setdefault(prefix, set()).add(token)
    return [
        Request(prefix, len(prefix), some)
        for prefix in sorted(targets)
        for some in _batch(sorted(targets[prefix]))
    ]


def _index_by_token(readings: dict[Request, Reading]) -> dict[tuple[Tokens, int], TokenScore | None]:
    """Scores of next tokens, by (prefix, next token)."""
    return {
        (request.prompt, token): scored
        for request, reading in readings.items()
        for token, scored in zip(request.targets, reading, strict=bool(request.targets))
    }


def _complete(readings: dict[Request, Reading], ask: Ask, able: Abilities) -> dict[Request, Reading]:
    """Fills scores that a cached prefix hid: where choices begin alike, or the prompt ends where a block
    does."""
    again = [
        request
        for request, reading in readings.items()
        if None in reading and len(request.prompt) > request.start
    ]
    if not able.next_tokens:
        whole = _ask(ask, [request._replace(reuse=False) for request in again])
        return readings | dict(zip(again, whole, strict=True))
    places = {
        request: [
            (request.prompt[:position], request.prompt[position])
            for position in range(request.start, len(request.prompt))
        ]
        for request in again
    }
    hidden = [
        place
        for request in again
        for place, scored in zip(places[request], readings[request], strict=True)
        if scored is None
    ]
    requests = _make_next_token_requests(hidden)
    of_place = _index_by_token(dict(zip(requests, _ask(ask, requests), strict=True)))
    filled = {
        request: [
            of_place[place] if scored is None else scored
            for place, scored in zip(places[request], readings[request], strict=True)
        ]
        for request in again
    }
    return readings | filled


def _batch(targets: Sequence[int]) -> Iterator[tuple[int, ...]]:
    yield from (tuple(targets[i : i + MAX_TARGETS]) for i in range(0, len(targets), MAX_TARGETS))


def _ask(ask: Ask, requests: Sequence[Request]) -> Sequence[Reading]:
    return ask(requests) if requests else []


def _join(scores: Reading) -> SuffixScore:
    present = [scored for scored in scores if scored is not None]
    if len(present) < len(scores):
        raise RunError("the engine returned no log-probability for a requested token")
    reason = next((s.unanswered for s in present if s.unanswered is not None), None)
    return SuffixScore(tuple(s.logprob for s in present), all(s.is_greedy for s in present), reason)

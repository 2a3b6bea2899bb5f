"""Scores choices by requests to an engine that takes whole prompts.

Single-token choices of a question take one request together. Longer choices take one request each, in an
order that lets a prefix cache read every context once. The log-probs of a prompt cost logits over the whole
vocabulary for each of its tokens. So contexts are read without them where the engine can score next tokens,
or be forced to continue with a choice.
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
    """What an engine can do, beyond scoring the tokens of a prompt."""

    next_tokens: bool = False
    """Whether the engine can score given candidates for the token after a prompt."""
    shares_prefixes: bool = False
    """Whether the engine's prefix cache reads the common beginning of several prompts only once."""
    max_forced_tokens: int = 0
    """The most tokens for which forcing the engine's output is faster than scoring them in a longer prompt; 0
    if it cannot be forced."""


class Request(NamedTuple):
    """A request for log-probabilities: of the prompt's own tokens from `start` on, of `targets`, or of
    `continuation`."""

    prompt: Tokens
    start: int
    targets: Tokens = ()
    """Candidates for the token after the prompt, each of which is scored."""
    continuation: Tokens = ()
    """Tokens that continue the prompt, and are scored one after the other."""
    reuse: bool = True
    """Whether the engine may leave out tokens that its prefix cache holds."""


class TokenScore(NamedTuple):
    logprob: float
    is_greedy: bool
    unanswered: MissingAnswer | None = None
    """The reason why the token has no score; None if it has one."""


Reading = Sequence[TokenScore | None]
"""A score for each requested token; None where the engine's prefix cache held the token, so that it was not
scored."""
Ask = Callable[[Sequence[Request]], Sequence[Reading]]
Choice = tuple[Tokens, Tokens]
"""The tokens of a prefix, and the tokens of the choice that continues it."""


def score(
    encoded: Sequence[EncodedDocument], window: ContextWindow, ask: Ask, able: Abilities
) -> Iterator[tuple[ChoiceScore, ...]]:
    """Yields the scores of every document's choices, in order."""
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


def _score_choices(choices: set[Choice], ask: Ask, able: Abilities) -> dict[Choice, SuffixScore]:
    """The scores of all choices. Requests are sorted by their tokens, so that neighbours share long
    prefixes."""
    forced, split, whole = _divide(choices, able)
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

    return {choice: _join(read_choice(choice)) for choice in choices}


def _divide(choices: set[Choice], able: Abilities) -> tuple[set[Choice], set[Choice], set[Choice]]:
    """The choices in three sets: those scored as forced output, those whose first token is scored separately,
    and those scored in a whole prompt."""
    longer = {prefix for prefix, suffix in choices if len(suffix) > 1}
    split = {
        (prefix, suffix)
        for prefix, suffix in choices
        if able.next_tokens and (able.shares_prefixes or prefix not in longer)
    }
    first = 1 if able.next_tokens else 0
    forced = {choice for choice in choices if first < len(choice[1]) <= able.max_forced_tokens}
    return forced, split - forced, choices - split - forced


def _make_forced_request(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix, len(prefix), continuation=suffix)


def _make_request_behind_first(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix + suffix, len(prefix) + 1)


def _make_whole_request(choice: Choice) -> Request:
    prefix, suffix = choice
    return Request(prefix + suffix, len(prefix))


def _make_next_token_requests(pairs: Iterable[tuple[Tokens, int]]) -> list[Request]:
    """Requests for the scores of (prefix, next token): one per prefix, or more if it has over MAX_TARGETS
    tokens."""
    targets: dict[Tokens, set[int]] = {}
    for prefix, token in pairs:
        targets.setdefault(prefix, set()).add(token)
    return [
        Request(prefix, len(prefix), some)
        for prefix in sorted(targets)
        for some in _batch(sorted(targets[prefix]))
    ]


def _index_by_token(readings: dict[Request, Reading]) -> dict[tuple[Tokens, int], TokenScore | None]:
    """The scores of next tokens, by (prefix, next token)."""
    return {
        (request.prompt, token): scored
        for request, reading in readings.items()
        for token, scored in zip(request.targets, reading, strict=bool(request.targets))
    }


def _complete(readings: dict[Request, Reading], ask: Ask, able: Abilities) -> dict[Request, Reading]:
    """Adds the scores that the engine left out because its prefix cache held the tokens."""
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

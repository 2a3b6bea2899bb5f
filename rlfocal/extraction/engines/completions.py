"""A server's completion, read once: log-probabilities of the tokens that were sent, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, Strict

from rlfocal.extraction.engine import UnansweredError
from rlfocal.extraction.engines.requests import TokenScore
from rlfocal.extraction.engines.service import read, why_unanswered
from rlfocal.extraction.engines.tokens import Tokens
from warehouse.validity import ROUNDING

SLACK = 0.01
"""How far two log-probabilities of one token may differ: servers round."""
ID = "token_id:"
"""What names a token by its number."""
LogProb = Annotated[float, Strict(), Field(le=ROUNDING, allow_inf_nan=False)]


class _Scored(BaseModel):
    logprob: LogProb
    rank: int | None = None


class _LogProbs(BaseModel):
    tokens: list[str] = []
    token_logprobs: list[LogProb | None] = []
    top_logprobs: Annotated[
        list[dict[str, LogProb | None] | None], BeforeValidator(lambda given: [] if given is None else given)
    ] = []


class CompletionChoice(BaseModel):
    """One text, and what is known of its tokens and of the prompt's."""

    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None
    prompt_logprobs: list[dict[str, _Scored] | None] | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None


class Completion(BaseModel):
    """The texts of one request."""

    choices: list[CompletionChoice] = Field(min_length=1)
    usage: _Usage | None = None


def completion(content: Any, n: int, prompt: Tokens) -> list[CompletionChoice]:
    """The `n` texts of an answer, in order. Raises UnansweredError unless it is one to `prompt`."""
    answer = read(Completion, content)
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(n)):
        raise UnansweredError(
            "broken",
            f"{len(choices)} texts where n={n} were asked for, or two of one index; serve the model with a "
            "server that supports n, such as vLLM",
        )
    n_read = None if answer.usage is None else answer.usage.prompt_tokens
    if n_read is not None and n_read != len(prompt):
        raise UnansweredError("broken", f"the server read {n_read} tokens where {len(prompt)} were sent")
    return choices


def prompt_scores(content: Any, prompt: Tokens) -> list[TokenScore]:
    """vLLM's `prompt_logprobs`: scores of every token but the first."""
    entries = _only_choice(content, prompt).prompt_logprobs or []
    if len(entries) != len(prompt):
        raise UnansweredError(
            "broken", f"prompt_logprobs of {len(entries)} tokens where {len(prompt)} were sent"
        )
    scored = [(entry or {}).get(str(token)) for token, entry in zip(prompt[1:], entries[1:], strict=True)]
    if None in scored:
        place = scored.index(None) + 1
        raise UnansweredError(
            "broken", f"prompt_logprobs of other tokens than were sent: at place {place}, not {prompt[place]}"
        )
    return [TokenScore(min(each.logprob, 0.0), each.rank == 1) for each in scored if each is not None]


def echoed_scores(content: Any, prompt: Tokens, piece: Callable[[int], str]) -> list[TokenScore]:
    """The older echo of the prompt: scores of every token but the first. `piece`: a token's own text."""
    logprobs = _only_choice(content, prompt).logprobs or _LogProbs()
    own, n = logprobs.token_logprobs, len(prompt)
    tops = logprobs.top_logprobs or [None] * len(own)
    # With the one that was generated.
    if not (len(own) in (n, n + 1) and len(logprobs.tokens) == len(tops) == len(own)):
        lengths = f"{len(own)}, {len(logprobs.tokens)} and {len(tops)}"
        raise UnansweredError("broken", f"an echo of {lengths} tokens where {n} were sent")
    _check_tokens(logprobs.tokens[:n], prompt, piece)
    scores = []
    for text, logprob, top in zip(logprobs.tokens[1:n], own[1:n], tops[1:n], strict=True):
        others = {name: other for name, other in (top or {}).items() if other is not None}
        if logprob is None or abs(others.get(text, logprob) - logprob) > SLACK:
            raise UnansweredError("broken", f"an echo whose token {text!r:.40} has no log-prob, or two")
        scores.append(TokenScore(min(logprob, 0.0), bool(others) and logprob >= max(others.values())))
    return scores


def next_scores(content: Any, prompt: Tokens, targets: Tokens) -> list[TokenScore | None]:
    """Scores of chosen next tokens; None of those that are not listed."""
    logprobs = _only_choice(content, prompt).logprobs or _LogProbs()
    if len(logprobs.top_logprobs) != 1 or len(logprobs.tokens) != 1:
        raise UnansweredError(
            "broken", f"scores at {len(logprobs.top_logprobs)} places where one was asked about"
        )
    [listed], [drawn] = logprobs.top_logprobs, logprobs.tokens
    scores = [(name, (listed or {}).get(name)) for name in (f"{ID}{target}" for target in targets)]
    return [None if lp is None else TokenScore(min(lp, 0.0), name == drawn) for name, lp in scores]


def _only_choice(content: Any, prompt: Tokens) -> CompletionChoice:
    [choice] = completion(content, 1, prompt)
    if (reason := why_unanswered(choice.finish_reason)) is not None:
        raise UnansweredError(reason.kind, reason.words)
    return choice


def _check_tokens(echoed: Sequence[str], prompt: Tokens, piece: Callable[[int], str]) -> None:
    """Raises UnansweredError where an echo, as far as it tells, is of other tokens than were sent."""
    if len(set(echoed)) < 2 <= len(set(prompt)):
        return  # it does not
    named = [ID + str(token) for token in prompt]
    own = named if all(text.startswith(ID) for text in echoed) else [piece(token) for token in prompt]
    for place, (text, expected) in enumerate(zip(echoed, own, strict=True)):
        is_part = "\ufffd" in text + expected  # of a character of several tokens
        if place and not is_part and text.strip(" ▁Ġ") != expected.strip(" ▁Ġ"):
            raise UnansweredError(
                "broken",
                f"an echo of other tokens: at place {place} {text!r:.40}, where {expected!r:.40} was sent",
            )

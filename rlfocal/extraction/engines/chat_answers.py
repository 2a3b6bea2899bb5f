"""A chat service's answer, read once: what is wrong with it leaves its document without an answer."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, Strict, field_validator, model_validator

from rlfocal.extraction.engine import Unanswered
from rlfocal.extraction.engines.responses import end_of, why_unanswered
from warehouse.validity import ROUNDING

MOST_WRITTEN, MOST_READ = 10**6, 10**7
"""Tokens that no answer and no prompt has."""
SLACK = 0.01
"""How much more than 1 the probabilities of the listed tokens may sum to: servers round."""


def _details(given: Any) -> dict[str, int]:
    """Counts of tokens of some kind; whatever else a service tells is left out."""
    counts = given.items() if isinstance(given, dict) else ()
    return {k: int(n) for k, n in counts if isinstance(n, int | float) and not isinstance(n, bool) and n >= 0}


def _text(given: Any) -> Any:
    """A text that may come in parts, or not at all."""
    if isinstance(given, list):
        return "".join(str(part.get("text") or "") for part in given if isinstance(part, dict))
    return "" if given is None else given


Details = Annotated[dict[str, int], BeforeValidator(_details)]
Text = Annotated[str, BeforeValidator(_text)]


class Usage(BaseModel):
    """What a request is billed for, as far as the service says."""

    prompt_tokens: int | None = Field(default=None, ge=0, le=MOST_READ)
    completion_tokens: int | None = Field(default=None, ge=0, le=MOST_WRITTEN)
    total_tokens: int | None = Field(default=None, ge=0, le=MOST_READ + MOST_WRITTEN)
    prompt_tokens_details: Details = {}
    completion_tokens_details: Details = {}

    @property
    def read(self) -> int | None:
        """Tokens of the prompt; some services count those of a cache, or of sounds, apart."""
        return _whole(self.prompt_tokens, self.prompt_tokens_details, "cached_tokens", "audio_tokens")

    @property
    def written(self) -> int | None:
        """Tokens that were generated, those of reasoning included, which some services count apart."""
        known = self.completion_tokens_details, "reasoning_tokens", "audio_tokens"
        apart = _whole(self.completion_tokens, *known)
        if self.read is None or self.total_tokens is None:
            return apart
        return max(apart or 0, self.total_tokens - self.read)


class ListedToken(BaseModel, frozen=True):
    """One of the likeliest tokens at a place."""

    token: str
    bytes: tuple[int, ...] | None = None
    # JSON has no infinity: null is the logarithm of 0.
    logprob: Annotated[float, Strict(), BeforeValidator(lambda lp: -math.inf if lp is None else lp)]

    @field_validator("logprob")
    @classmethod
    def _is_possible(cls, logprob: float) -> float:
        if not logprob <= ROUNDING:
            raise ValueError(f"{logprob:g} is no log-probability")
        return min(logprob, 0.0)

    @property
    def probability(self) -> float:
        return math.exp(self.logprob)


class Token(ListedToken, frozen=True):
    """A token of the answer, beside the likeliest at its place."""

    top_logprobs: list[ListedToken] = []

    @field_validator("top_logprobs", mode="before")
    @classmethod
    def _none(cls, given: Any) -> Any:
        return [] if given is None else given

    @model_validator(mode="after")
    def _agrees(self) -> Token:
        own = [each.logprob for each in self.top_logprobs if each.token == self.token]
        if own and min(abs(logprob - self.logprob) for logprob in own) > SLACK:
            raise ValueError(f"{self.token!r:.20} has two log-probabilities, {self.logprob:g} and {own[0]:g}")
        if (total := sum(each.probability for each in self.listed)) > 1 + SLACK:
            raise ValueError(f"the probabilities of the listed tokens sum to {total:.3g}")
        return self

    @property
    def listed(self) -> list[ListedToken]:
        """The likeliest tokens, each once, and the token itself."""
        others = list(dict.fromkeys(self.top_logprobs))
        return others if any(each.token == self.token for each in others) else [self, *others]


class _LogProbs(BaseModel):
    content: list[Token] | None = None


class _Message(BaseModel):
    content: Text = ""
    refusal: str | None = None


class ChatChoice(BaseModel):
    """One text."""

    index: int = 0
    finish_reason: str | None = None
    message: _Message
    logprobs: _LogProbs | None = None

    @property
    def tokens(self) -> list[Token]:
        """Its tokens, where the service lists the likeliest; else none."""
        tokens = (self.logprobs.content if self.logprobs else None) or []
        return tokens if tokens and tokens[0].top_logprobs else []

    @property
    def unanswered(self) -> Unanswered | None:
        """Why it is no answer."""
        if self.message.refusal:
            return Unanswered("filtered", self.message.refusal)
        return why_unanswered(self.finish_reason)

    @property
    def ended(self) -> str:
        """How it ended: "stop" or "length"; as the service says where it is no answer."""
        return end_of(self.finish_reason)


class Billed(BaseModel):
    """What is read of an answer to be paid, whatever else is wrong with it."""

    usage: Annotated[Usage, BeforeValidator(lambda given: {} if given is None else given)] = Usage()


class ChatAnswer(Billed):
    """The texts of one request."""

    model: str | None = None
    choices: list[ChatChoice] = Field(min_length=1)


def _whole(counted: int | None, details: dict[str, int], *parts: str) -> int | None:
    """Tokens in all: parts that are more than all of them were not counted among them."""
    apart = sum(details.get(part, 0) for part in parts)
    return counted if counted is None or apart <= counted else counted + apart

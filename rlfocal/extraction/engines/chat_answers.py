"""A chat service's answer, read once, and which choice it means: by first tokens, or by sampled texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, Strict, field_validator, model_validator

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document, Unanswered
from rlfocal.extraction.engines.service import end_of, why_unanswered
from warehouse.alignment import ROUNDING

LONGEST = 16
"""Characters of a choice that a service can be asked to name."""
FLOOR = 1e-6
"""The probability of a choice that was never named: a share of 0 has no logarithm."""
DECORATION = " \t\r\n▁ĠĊ*_`\"'()[]{}<>.:#$\\"
"""What may stand around a choice: " A", "(A", "**A**", "A."."""
LEAD = r"(?i:(?:the\s+)?(?:(?:correct|right|best|final)\s+)?answer\s*(?:is)?\s*:?)?"


class Belief(NamedTuple):
    """What a service holds of one document's choices."""

    logprobs: tuple[float, ...]
    """One a choice; their probabilities need not sum to 1."""
    covered_mass: float
    """The probability of all answers that name a choice, as far as they are known."""


def names_of(document: Document) -> dict[str, int]:
    """What names each choice, without decoration, and its index. InputError where a word cannot name it."""
    names = [_bare(text) for text in document.continuations]
    for name, text in zip(names, document.continuations, strict=True):
        if not name or len(name) > LONGEST or len(name.split()) > 1:
            raise InputError(
                f"document {document.doc_id}: a chat service names a choice by a letter or word, and cannot "
                f"name {text!r:.60}; leave the benchmark out for this model, or define one whose choices are "
                "letters"
            )
    if not all(len(name) == 1 for name in names):  # "a" is a word, "A" names a choice
        names = [name.casefold() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"document {document.doc_id}: two choices have one name: {', '.join(names)}")
    return {name: index for index, name in enumerate(names)}


def from_tokens(tokens: Sequence[Token], names: Mapping[str, int]) -> Belief:
    """From the likeliest tokens at each place of a greedy answer, up to the first beyond decoration.

    Every token that is a choice's name counts for it, however decorated; behind decoration, times its
    probability. A choice that is not listed is at most as likely as the least likely token that is, and at
    most what all listed ones leave.
    """
    shares = [0.0] * len(names)
    reached, unlisted = 1.0, 1.0
    for token in tokens:
        listed = [(each.token, each.probability) for each in token.listed]
        for text, probability in listed:
            if (choice := _choice(text, names)) is not None:
                shares[choice] += reached * probability
        left = max(1.0 - sum(probability for _, probability in listed), 0.0)
        unlisted = reached * min([left, *(probability for _, probability in listed)])
        if _bare(token.token):
            break
        reached *= token.probability
    logs = tuple(min(math.log(share or max(unlisted, FLOOR)), 0.0) for share in shares)
    return Belief(logs, min(sum(shares), 1.0))


def from_texts(texts: Sequence[str], names: Mapping[str, int]) -> Belief:
    """From the share of texts that begin with each choice; others count for none."""
    given = [choice for text in texts if (choice := find_choice(text, names)) is not None]
    shares = [given.count(choice) / len(texts) for choice in range(len(names))]
    return Belief(tuple(math.log(share or FLOOR) for share in shares), len(given) / len(texts))


def find_choice(text: str, names: Mapping[str, int]) -> int | None:
    """The choice that a text begins with, alone or behind "the answer is"; None where it names none.

    >>> names = {"A": 0, "B": 1}
    >>> [find_choice(text, names) for text in ("**B**", "The answer is (A).", "A good question", "b", "E")]
    [1, 0, None, None, None]
    """
    around = f"[{re.escape(DECORATION)}]*"
    is_letter = all(len(name) == 1 for name in names)
    word = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    match = re.match(rf"{around}{LEAD}{around}({word})(?![\w'])", text, 0 if is_letter else re.IGNORECASE)
    if match is None:
        return None
    is_article = match[1] in ("A", "I") and re.match(r"\s+(?!is\b)[a-z]", text[match.end() :])
    return None if is_letter and is_article else names[match[1] if is_letter else match[1].casefold()]


def _choice(token: str, names: Mapping[str, int]) -> int | None:
    name = _bare(token)
    return names.get(name) if len(name) == 1 and name in names else names.get(name.casefold())


def _bare(text: str) -> str:
    return text.strip(DECORATION)


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
        others = self.completion_tokens_details, "reasoning_tokens", "audio_tokens"
        apart = _whole(self.completion_tokens, *others)
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

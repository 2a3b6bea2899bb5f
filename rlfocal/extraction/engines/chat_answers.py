"""Reads a chat service's responses, and which choice they name: by their first tokens, or by sampled
texts."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, Strict, field_validator, model_validator

from rlfocal.base.errors import InputError
from rlfocal.extraction.answers import strip_reasoning
from rlfocal.extraction.engine import Document, MissingAnswer
from rlfocal.extraction.engines.server_responses import end_of, read, why_unanswered
from warehouse.alignment import LOGPROB_ROUNDING

MAX_CHOICE_CHARACTERS = 16
"""The most characters of a choice that a service can be asked to name."""
MIN_SHARE = 1e-6
"""The probability given to a choice that no sample named, because a probability of 0 has no logarithm."""
DECORATION_CHARACTERS = " \t\r\n▁ĠĊ*_`\"'()[]{}<>.:#$\\"
"""Characters that may stand around a choice's name, as in " A", "(A", "**A**" and "A."."""
LEAD_PATTERN = r"(?i:(?:the\s+)?(?:(?:correct|right|best|final)\s+)?answer\s*(?:is)?\s*:?)?"
LEAD_WORDS = frozenset(("the", "correct", "right", "best", "final", "answer", "is"))
ARTICLE_PATTERN = re.compile(r"\s+(?!is\b)(?:[a-z]|\d+-[a-z])")
"""Matches what follows "A" or "I" where it is a word of a sentence: "A train", "I think", "A 24-year-old"."""
PLAIN_WORD = re.compile(r"\s*\w+", re.ASCII)
"""Matches a token of plain word characters, whose text needs no correction by its bytes."""
SPELLED_BYTES = re.compile(r"<0x[0-9A-Fa-f]{2}>|bytes:\s*(?:\\x[0-9A-Fa-f]{2})+")
"""Matches a token that is written as its bytes."""
BYTE_LITERAL = re.compile(r"b(['\"]).+\1")


Tokens = tuple[int, int]
"""The number of tokens that a service read, and the number that it wrote."""


class ChoiceLogprobs(NamedTuple):
    """The log-probs of one document's choices, as far as a service reveals them."""

    logprobs: tuple[float, ...]
    """A log-prob for each choice; their probabilities need not sum to 1."""
    covered_mass: float
    """The total probability of answers that name a choice, as far as the service lists them."""


def names_of(document: Document) -> dict[str, int]:
    """The index of each choice by the text that names it, without decoration. Raises InputError where a
    choice cannot be named by a letter or word."""
    names = [text.strip(DECORATION_CHARACTERS) for text in document.continuations]
    for name, text in zip(names, document.continuations, strict=True):
        if not name or len(name) > MAX_CHOICE_CHARACTERS or len(name.split()) > 1:
            raise InputError(
                f"document {document.doc_id}: a chat service names a choice by a letter or word, and cannot "
                f"name {text!r:.60}; leave the benchmark out for this model, or define one whose choices are "
                "letters"
            )
    if not all(len(name) == 1 for name in names):  # "a" is a word, "A" names a choice
        names = [name.casefold() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"document {document.doc_id}: two choices have the same name: {', '.join(names)}")
    return {name: index for index, name in enumerate(names)}


def logprobs_from_tokens(
    tokens: Sequence[Token], names: Mapping[str, int], content: str = ""
) -> ChoiceLogprobs:
    """The choices' log-probs, from the likeliest tokens that a service lists at each place of its answer.

    It reads the answer up to the first token that is no lead: decoration, or words such as "The answer is". A
    listed token counts for the choice that the answer names if it goes on with that token. Behind a lead, its
    probability is multiplied by that of the lead. A listed token that the answer goes on with is read with
    all text that follows: "A train leaves" names no choice. `content` may hold more of that text than the
    tokens. A choice that is not listed gets the probability of the least likely listed token, or what all
    listed tokens leave if that is less.
    """
    shares: dict[int, float] = {}
    reached, unlisted, before = 1.0, 0.0, ""
    drawn = "".join(token.text for token in tokens)
    text = (
        content
        if content.lstrip(DECORATION_CHARACTERS).startswith(drawn.strip(DECORATION_CHARACTERS))
        else drawn
    )
    lead = LEAD_WORDS - names.keys()
    for place, token in enumerate(tokens):
        listed = token.candidates
        is_lead = lead.issuperset(re.findall(r"\w+", (before + token.text).lower()))
        for each in listed:
            choice, share = find_choice(before + each.text, names), reached * each.probability
            if each.text == token.text and not is_lead and (whole := find_choice(text, names)) != choice:
                if choice is not None:  # a word of a sentence, unless something else had followed
                    others = _sum_undrawn(tokens[place + 1 : place + 2], before + each.text, choice, names)
                    shares[choice] = shares.get(choice, 0.0) + share * others
                choice = whole
            if choice is not None:
                shares[choice] = shares.get(choice, 0.0) + share
        left = max(1.0 - sum(each.probability for each in listed), 0.0)
        unlisted = max(unlisted, reached * min([left, *(each.probability for each in listed)]))
        if not is_lead:
            break
        before += token.text
        reached *= left if token.logprob is None else token.probability
    known = [shares.get(choice, max(unlisted, MIN_SHARE)) for choice in range(len(names))]
    return ChoiceLogprobs(
        tuple(min(math.log(share or MIN_SHARE), 0.0) for share in known), min(sum(shares.values()), 1.0)
    )


def _sum_undrawn(following: Sequence[Token], text: str, choice: int, names: Mapping[str, int]) -> float:
    """The total probability of next tokens that the answer does not go on with, but after which `text` would
    still name the choice."""
    return sum(
        each.probability
        for token in following
        for each in token.candidates
        if each.text != token.text and find_choice(text + each.text, names) == choice
    )


def logprobs_from_texts(texts: Sequence[str], names: Mapping[str, int]) -> ChoiceLogprobs:
    """The log-prob of each choice, from the share of texts that begin with it. Other texts count for no
    choice."""
    given = [choice for text in texts if (choice := find_choice(text, names)) is not None]
    shares = [given.count(choice) / len(texts) for choice in range(len(names))]
    return ChoiceLogprobs(tuple(math.log(share or MIN_SHARE) for share in shares), len(given) / len(texts))


def find_choice(text: str, names: Mapping[str, int]) -> int | None:
    """The index of the choice that a text begins with, alone or behind "the answer is"; None where it names
    none.

    >>> names = {"A": 0, "B": 1}
    >>> [find_choice(text, names) for text in ("**B**", "The answer is (A).", "A good question", "b", "E")]
    [1, 0, None, None, None]
    """
    around = f"[{re.escape(DECORATION_CHARACTERS)}]*"
    is_letter = all(len(name) == 1 for name in names)
    word = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    match = re.match(
        rf"{around}{LEAD_PATTERN}{around}({word})(?!'?\w)", text, 0 if is_letter else re.IGNORECASE
    )
    if match is None:
        return None
    is_article = match[1] in ("A", "I") and ARTICLE_PATTERN.match(text, match.end())
    return None if is_letter and is_article else names[match[1] if is_letter else match[1].casefold()]


MAX_TOKENS = 10**8
"""A bound on the token counts that are believed: no request has so many tokens."""
PROBABILITY_SLACK = 0.01
"""The allowed excess over 1 of the candidates' total probability, because servers round."""


def _read_details(value: Any) -> dict[str, int]:
    """The counts of tokens by kind, without values that are no counts."""
    counts = value.items() if isinstance(value, dict) else ()
    return {k: int(n) for k, n in counts if isinstance(n, int | float) and not isinstance(n, bool) and n >= 0}


def _join_parts(value: Any) -> Any:
    """The content of a message, joined if it comes in parts; "" where there is none."""
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return "" if value is None else value


Details = Annotated[dict[str, int], BeforeValidator(_read_details)]
Text = Annotated[str, BeforeValidator(_join_parts)]


class Usage(BaseModel):
    """The token counts that a request is billed by, as far as the service reports them."""

    prompt_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS)
    completion_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS)
    total_tokens: int | None = Field(default=None, ge=0, le=2 * MAX_TOKENS)
    prompt_tokens_details: Details = {}
    completion_tokens_details: Details = {}

    @property
    def read(self) -> int | None:
        """The number of the prompt's tokens. It includes cached and audio tokens that some services count
        separately."""
        return _add_up_tokens(self.prompt_tokens, self.prompt_tokens_details, "cached_tokens", "audio_tokens")

    @property
    def written(self) -> int | None:
        """The number of generated tokens. It includes reasoning tokens, which some services count
        separately."""
        others = self.completion_tokens_details, "reasoning_tokens", "audio_tokens"
        apart = _add_up_tokens(self.completion_tokens, *others)
        if self.read is None or self.total_tokens is None:
            return apart
        return max(apart or 0, self.total_tokens - self.read)

    def tokens(self, *, is_empty: bool) -> Tokens | None:
        """The numbers of tokens read and written; None where the service does not report them.

        Counts that cannot be right are not believed: 0 tokens read, or 0 written for a text. `is_empty` says
        that the response has no text.
        """
        if not self.read or self.written is None or not (self.written or is_empty):
            return None
        return self.read, self.written


def _read_bytes(value: Any) -> Any:
    """The bytes of a token; None where a service sends another value."""
    is_bytes = isinstance(value, list) and all(type(byte) is int and 0 <= byte < 256 for byte in value)
    return tuple(value) if value and is_bytes else None


class ListedToken(BaseModel, frozen=True):
    """One of the likeliest tokens at a place in the answer."""

    token: str = ""
    bytes: Annotated[tuple[int, ...] | None, BeforeValidator(_read_bytes)] = None
    logprob: Annotated[float | None, Strict()] = None
    """The token's log-prob; None where the service does not report it."""

    @field_validator("logprob")
    @classmethod
    def _is_possible(cls, logprob: float | None) -> float | None:
        if logprob is None:
            return None
        if not logprob <= LOGPROB_ROUNDING:
            raise ValueError(f"{logprob:g} is no log-probability")
        return min(logprob, 0.0)

    @model_validator(mode="after")
    def _is_some_token(self) -> ListedToken:
        if not self.token and self.bytes is None and "token" not in self.model_fields_set:
            raise ValueError("a listed token has neither a text nor bytes")
        return self

    @property
    def text(self) -> str:
        r"""The token's text: the token itself if it is a plain word, else its decoded bytes. Bytes come in
        their own field, or spelled in the token (<0x41>, bytes:\x41, b'A')."""
        if PLAIN_WORD.fullmatch(self.token):
            return self.token
        spelled: Sequence[int] | None = self.bytes
        if spelled is None and SPELLED_BYTES.fullmatch(self.token):
            spelled = [int(byte, 16) for byte in re.findall(r"x([0-9A-Fa-f]{2})", self.token)]
        if spelled is None and BYTE_LITERAL.fullmatch(self.token):
            with suppress(ValueError, SyntaxError):
                spelled = ast.literal_eval(self.token)
        return self.token if spelled is None else bytes(spelled).decode(errors="replace")

    @property
    def probability(self) -> float:
        """The token's probability; 0 where it is not known."""
        return 0.0 if self.logprob is None else math.exp(self.logprob)


class Token(ListedToken, frozen=True):
    """A token of the answer, with the likeliest tokens at its place."""

    top_logprobs: list[ListedToken] = []

    @field_validator("top_logprobs", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return [] if value is None else value

    @model_validator(mode="after")
    def _agrees(self) -> Token:
        own = [each.logprob for each in self.top_logprobs if each.token == self.token]
        known = [] if self.logprob is None else [logprob for logprob in own if logprob is not None]
        if known and min(abs(logprob - (self.logprob or 0.0)) for logprob in known) > PROBABILITY_SLACK:
            raise ValueError(
                f"{self.token!r:.20} has different log-probabilities, {self.logprob} and {known[0]}"
            )
        if (total := sum(each.probability for each in self.candidates)) > 1 + PROBABILITY_SLACK:
            raise ValueError(f"the probabilities of the listed tokens sum to {total:.3g}")
        return self

    @property
    def candidates(self) -> list[ListedToken]:
        """The likeliest tokens at this place with known log-probs, each once. They include this token if its
        log-prob is known."""
        others = [each for each in dict.fromkeys(self.top_logprobs) if each.logprob is not None]
        is_there = self.logprob is None or any(each.token == self.token for each in others)
        return others if is_there else [self, *others]


class _ChatLogProbs(BaseModel):
    content: list[Token] | None = None


class _Message(BaseModel):
    content: Text = ""
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None


class ChatChoice(BaseModel):
    """One of the texts that a chat service returned."""

    index: int = 0
    finish_reason: str | None = None
    message: _Message
    logprobs: _ChatLogProbs | None = None

    @property
    def tokens(self) -> list[Token]:
        """The answer's tokens; empty where the service does not list the likeliest tokens at the first
        place."""
        tokens = (self.logprobs.content if self.logprobs else None) or []
        return tokens if tokens and tokens[0].top_logprobs and tokens[0].candidates else []

    @property
    def unanswered(self) -> MissingAnswer | None:
        """The reason why the text is no answer; None if it is one."""
        if self.message.refusal:
            return MissingAnswer("filtered", self.message.refusal)
        if (reason := why_unanswered(self.finish_reason)) is not None or self.tokens:
            return reason
        if self.ending == "length" and not strip_reasoning(self.message.content).strip():
            return MissingAnswer("empty", "no text was written before max_tokens ended it")
        has_reasoned = self.message.reasoning or self.message.reasoning_content
        if has_reasoned and not self.message.content.strip():
            return MissingAnswer("empty", "no text was written beside the reasoning")
        return None

    @property
    def ending(self) -> str:
        """How the text ended: "stop" or "length", or the service's own word where the text is no answer."""
        return end_of(self.finish_reason)


class BillableAnswer(BaseModel):
    """The part of a response that is needed to pay for it, even if the rest is wrong."""

    usage: Annotated[Usage, BeforeValidator(lambda given: {} if given is None else given)] = Usage()


class ChatAnswer(BillableAnswer):
    """The texts of one request, with their tokens and token counts."""

    model: str | None = None
    choices: list[ChatChoice] = Field(min_length=1)

    @property
    def tokens(self) -> Tokens | None:
        """The numbers of tokens read and written; None where the service does not report them."""
        return self.usage.tokens(is_empty=not any(choice.message.content for choice in self.choices))


def count_tokens(content: Mapping[str, Any]) -> Tokens | None:
    """The `ChatAnswer.tokens` of a response, even if the response is no valid answer. Raises UnansweredError
    for impossible counts."""
    choices = content.get("choices")
    messages = [c.get("message") for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    texts = [message.get("content") for message in messages if isinstance(message, dict)]
    return read(BillableAnswer, content).usage.tokens(is_empty=not any(texts))


def _add_up_tokens(tokens: int | None, details: dict[str, int], *parts: str) -> int | None:
    """The total number of tokens. Parts that together exceed `tokens` are not included in it, and are
    added."""
    apart = sum(details.get(part, 0) for part in parts)
    return tokens if tokens is None or apart <= tokens else tokens + apart

"""The engine behind an OpenAI-compatible server, such as `vllm serve`. A server that scores no prompts can
still be sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, Strict

from rlfocal.base.errors import RunError, describe_error
from rlfocal.extraction.engine import (
    ChoiceScore,
    Document,
    HopelessError,
    Sample,
    SamplingSettings,
    UnansweredError,
    empty_sample,
)
from rlfocal.extraction.engines.options import options_of
from rlfocal.extraction.engines.requests import Abilities, Reading, Request, TokenScore, score
from rlfocal.extraction.engines.server_responses import end_of, read, why_unanswered
from rlfocal.extraction.engines.service import (
    BUSY_SECONDS,
    Answer,
    Content,
    Service,
    address_of,
    bill_nothing,
)
from rlfocal.extraction.engines.token_engine import TokenEngine
from rlfocal.extraction.engines.tokenizers import tokenizer_of
from rlfocal.extraction.engines.tokens import (
    ContextWindow,
    EncodedDocument,
    PromptEncoder,
    Tokens,
    max_length,
)
from rlfocal.pool.specs import ModelSpec, ThinkingSpec
from warehouse.alignment import LOGPROB_ROUNDING

LOGPROB_SLACK = 0.01
"""The allowed difference between two log-probabilities that a server gives for one token, because servers
round."""
TOKEN_ID_PREFIX = "token_id:"
"""The prefix with which a server writes a token as its id."""
LogProb = Annotated[float, Strict(), Field(le=LOGPROB_ROUNDING, allow_inf_nan=False)]


class _TokenLogProb(BaseModel):
    logprob: LogProb
    rank: int | None = None


class _CompletionLogProbs(BaseModel):
    tokens: list[str] = []
    token_logprobs: list[LogProb | None] = []
    top_logprobs: Annotated[
        list[dict[str, LogProb | None] | None], BeforeValidator(lambda given: [] if given is None else given)
    ] = []


class CompletionChoice(BaseModel):
    """One text of a server's response, with its token ids and log-probs as far as the server returns them."""

    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _CompletionLogProbs | None = None
    prompt_logprobs: list[dict[str, _TokenLogProb] | None] | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None


class Completion(BaseModel):
    """The texts that a server returned to one request."""

    choices: list[CompletionChoice] = Field(min_length=1)
    usage: _Usage | None = None


def completion(content: Any, n: int, prompt: Tokens) -> list[CompletionChoice]:
    """The `n` texts of a response, in order. Raises UnansweredError for other numbers of texts or of the
    prompt's tokens."""
    answer = read(Completion, content)
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(n)):
        raise UnansweredError(
            "broken",
            f"{len(choices)} texts came where n={n} were requested, or two of one index; serve the model "
            "with a server that supports n, such as vLLM",
        )
    n_read = None if answer.usage is None else answer.usage.prompt_tokens
    if n_read is not None and n_read != len(prompt):
        raise UnansweredError("broken", f"the server read {n_read} tokens where {len(prompt)} were sent")
    return choices


def prompt_scores(content: Any, prompt: Tokens) -> list[TokenScore]:
    """The scores of every token of the prompt but the first, from the `prompt_logprobs` of a vLLM server's
    response."""
    entries = _read_choice(content, prompt).prompt_logprobs or []
    if len(entries) != len(prompt):
        raise UnansweredError(
            "broken", f"prompt_logprobs came for {len(entries)} tokens where {len(prompt)} were sent"
        )
    scored = [(entry or {}).get(str(token)) for token, entry in zip(prompt[1:], entries[1:], strict=True)]
    if None in scored:
        place = scored.index(None) + 1
        raise UnansweredError(
            "broken", f"prompt_logprobs at place {place} lack the token that was sent, {prompt[place]}"
        )
    return [TokenScore(min(each.logprob, 0.0), each.rank == 1) for each in scored if each is not None]


def echoed_scores(content: Any, prompt: Tokens, piece: Callable[[int], str]) -> list[TokenScore]:
    """The scores of every token of the prompt but the first, from a response that echoes the prompt. `piece`
    returns the text of a token id."""
    logprobs = _read_choice(content, prompt).logprobs or _CompletionLogProbs()
    own, n = logprobs.token_logprobs, len(prompt)
    tops = logprobs.top_logprobs or [None] * len(own)
    # An echo may end with the one token that was generated.
    if not (len(own) in (n, n + 1) and len(logprobs.tokens) == len(tops) == len(own)):
        lengths = f"{len(own)}, {len(logprobs.tokens)} and {len(tops)}"
        raise UnansweredError("broken", f"the server echoed {lengths} tokens where {n} were sent")
    _check_tokens(logprobs.tokens[:n], prompt, piece)
    scores = []
    for text, logprob, top in zip(logprobs.tokens[1:n], own[1:n], tops[1:n], strict=True):
        others = {name: other for name, other in (top or {}).items() if other is not None}
        if logprob is None or abs(others.get(text, logprob) - logprob) > LOGPROB_SLACK:
            raise UnansweredError("broken", f"the echoed token {text!r:.40} has no log-prob, or two")
        scores.append(TokenScore(min(logprob, 0.0), bool(others) and logprob >= max(others.values())))
    return scores


def read_next_scores(content: Any, prompt: Tokens, targets: Tokens) -> list[TokenScore | None]:
    """The scores of `targets` as the token after the prompt; None for targets that the response does not
    list."""
    logprobs = _read_choice(content, prompt).logprobs or _CompletionLogProbs()
    if len(logprobs.top_logprobs) != 1 or len(logprobs.tokens) != 1:
        raise UnansweredError(
            "broken", f"scores came for {len(logprobs.top_logprobs)} places where one was requested"
        )
    [listed], [drawn] = logprobs.top_logprobs, logprobs.tokens
    scores = [
        (name, (listed or {}).get(name)) for name in (f"{TOKEN_ID_PREFIX}{target}" for target in targets)
    ]
    return [None if lp is None else TokenScore(min(lp, 0.0), name == drawn) for name, lp in scores]


def _read_choice(content: Any, prompt: Tokens) -> CompletionChoice:
    [choice] = completion(content, 1, prompt)
    if (reason := why_unanswered(choice.finish_reason)) is not None:
        raise UnansweredError(reason.kind, reason.words)
    return choice


def _check_tokens(echoed: Sequence[str], prompt: Tokens, piece: Callable[[int], str]) -> None:
    """Raises UnansweredError if the echoed tokens are not those of the prompt. An echo of one text repeated
    is not checked."""
    if len(set(echoed)) < 2 <= len(set(prompt)):
        return  # it does not
    named = [TOKEN_ID_PREFIX + str(token) for token in prompt]
    own = (
        named
        if all(text.startswith(TOKEN_ID_PREFIX) for text in echoed)
        else [piece(token) for token in prompt]
    )
    for place, (text, expected) in enumerate(zip(echoed, own, strict=True)):
        is_part = "\ufffd" in text + expected  # of a character of several tokens
        if place and not is_part and text.strip(" ▁Ġ") != expected.strip(" ▁Ġ"):
            raise UnansweredError(
                "broken",
                f"the server echoed other tokens: at place {place} {text!r:.40} and not {expected!r:.40}",
            )


PROBE_TOKENS: Tokens = (5, 6, 7)
SCORING_OPTIONS: dict[str, dict[str, Any]] = {
    "prompt_logprobs": {"prompt_logprobs": 0},
    "echo": {"echo": True, "logprobs": 1},
}
"""The request fields for each way to get a prompt's log-probs: vLLM's own, and the older echo of the
prompt."""


@dataclass(frozen=True)
class CompletionOptions:
    """The options of a completions server: `engine_args: {openai: ...}` in a model's entry."""

    concurrency: int = 32
    patience: float = BUSY_SECONDS
    """The seconds that a request waits for a busy server."""


class CannotScoreError(RunError):
    """The error of a server that does not return the log-probabilities of prompts."""


class OpenAIEngine(TokenEngine):
    """A model on a server. Prompts are sent as token ids, the same ids as for any other engine."""

    shard = 256

    def __init__(
        self,
        service: Service,
        served: str,
        tokenizer: Any,
        window: ContextWindow,
        options: CompletionOptions,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._service = service
        self._served = served
        self._encoder = PromptEncoder(tokenizer, template_args=template_args)
        self._window = window
        self._concurrency = options.concurrency
        self._scoring_error: CannotScoreError | None = None
        self._way: str | None = None
        self._next_tokens = False
        try:
            self._way = self._find_way_to_read()
            self._next_tokens = self._scores_next_tokens(self._way)
        except CannotScoreError as error:
            self._scoring_error = error

    @property
    def slower(self) -> str | None:
        if self._next_tokens or self._scoring_error is not None:
            return None
        return "asks once for each choice: the server does not score next tokens that it is given"

    def settings(self) -> dict[str, object]:
        return {
            "served": self._served,
            "url": self._service.address,
            "max_length": self._window.context,
            "next_tokens": self._next_tokens,
            "reads_by": self._way,
            "concurrency": self._concurrency,
        }

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("rlfocal", "httpx", "transformers", "lm_eval")}

    def check(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        if sampling is None and self._scoring_error is not None:
            raise self._scoring_error
        super().check(documents, sampling, thinking)

    def _score(self, encoded: Sequence[EncodedDocument]) -> Iterator[tuple[ChoiceScore, ...]]:
        return score(encoded, self._window, self._ask, Abilities(self._next_tokens))

    def _sample(
        self, prompts: Sequence[Tokens], doc_ids: Sequence[int], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        asked = list(zip(prompts, doc_ids, strict=True))
        yield from self._service.ask_each(
            lambda each: self._samples(each[0], each[1], sampling), asked, self._concurrency
        )

    def _samples(self, prompt: Tokens, doc_id: int, sampling: SamplingSettings) -> tuple[Sample, ...]:
        options = {
            "n": sampling.passes,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop": list(sampling.stop),
            "seed": sampling.seed_of(doc_id),
            "return_token_ids": True,
        }
        if sampling.stop_tokens:
            options["stop_token_ids"] = list(sampling.stop_tokens)

        def check(content: Content, _: None) -> tuple[Sample, ...]:
            choices = completion(content, sampling.passes, prompt)
            return tuple(self._sample_of(choice, doc_id, len(prompt)) for choice in choices)

        try:
            return self._complete(prompt, options, check)
        except UnansweredError as error:
            return (empty_sample(error.reason),) * sampling.passes

    def _sample_of(self, choice: CompletionChoice, doc_id: int, n_prompt_tokens: int) -> Sample:
        ids = tuple(choice.token_ids or ())
        decoded, text = (each.strip(" \ufffd") for each in (self._encoder.decode(ids), choice.text))
        if ids and not decoded.startswith(text):  # it may be cut before a stop string
            raise HopelessError(
                f"the server's text for document {doc_id} is not what its token ids mean to the tokenizer of "
                f"the entry ({choice.text!r:.40} and {decoded!r:.40}): serve the model with its own tokenizer"
            )
        n_tokens = len(ids or self._encoder.encode_continuation(choice.text))
        ended, reason = end_of(choice.finish_reason), why_unanswered(choice.finish_reason)
        return Sample(choice.text, n_tokens, ended, n_prompt_tokens, ids, reason)

    def _ask(self, requests: Sequence[Request]) -> list[Reading]:
        return self._service.ask_each(self._score_request, requests, self._concurrency)

    def _score_request(self, request: Request) -> Reading:
        try:
            if request.targets:
                return self._next(request.prompt, request.targets)
            return self._read(request.prompt, self._way)[request.start - 1 :]
        except UnansweredError as error:
            n_scores = len(request.targets) or len(request.prompt) - request.start
            return [TokenScore(-math.inf, False, error.reason)] * n_scores

    def _read(self, prompt: Tokens, way: str | None) -> Sequence[TokenScore]:
        """The scores of every token of the prompt but the first. `way` is a key of SCORING_OPTIONS."""
        assert way is not None  # `check` refuses choices otherwise
        piece = lambda token: self._encoder.decode((token,))  # noqa: E731
        scores = prompt_scores if way == "prompt_logprobs" else partial(echoed_scores, piece=piece)
        options = {"max_tokens": 1, "temperature": 0, **SCORING_OPTIONS[way]}
        return self._complete(prompt, options, lambda content, _: scores(content, prompt))

    def _next(self, prompt: Tokens, targets: Tokens) -> list[TokenScore | None]:
        options = {
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": len(targets),
            "logprob_token_ids": list(targets),
            "return_tokens_as_token_ids": True,
        }
        return self._complete(prompt, options, lambda content, _: read_next_scores(content, prompt, targets))

    def _complete(
        self, prompt: Tokens, options: Mapping[str, Any], check: Callable[[Content, None], Answer]
    ) -> Answer:
        body = {"model": self._served, "prompt": list(prompt), **options}
        return self._service.post("completions", body, check, bill_nothing)

    def _find_way_to_read(self) -> str:
        """The first key of SCORING_OPTIONS by which the server returns a prompt's log-probs. Raises
        CannotScoreError if none works."""
        refusals = []
        for way in SCORING_OPTIONS:
            try:
                self._read(PROBE_TOKENS, way)
                return way
            except UnansweredError as error:
                refusals.append(f"by {way}: {error}")
        raise CannotScoreError(
            f"the server at {self._service.address} does not return the log-probabilities of prompts, which "
            f"scoring choices needs ({describe_error(RunError('; '.join(refusals)))}); serve the model with "
            "`vllm serve`, for example, or extract only benchmarks of kind answers from it"
        )

    def _scores_next_tokens(self, way: str) -> bool:
        """Whether the server scores next tokens that a request names, and scores them as in a longer
        prompt."""
        try:
            [scored] = self._next(PROBE_TOKENS[:-1], PROBE_TOKENS[-1:])
            expected = self._read(PROBE_TOKENS, way)[-1]
        except UnansweredError:
            return False
        return scored is not None and math.isclose(scored.logprob, expected.logprob, abs_tol=0.1)


def load(spec: ModelSpec, folder: Path | None, threads: int = 1) -> OpenAIEngine:
    """Connects to a model's server; only the tokenizer is loaded here, and `threads` is not used. The
    server's address is the entry's `base_url` or OPENAI_BASE_URL. A key is read from OPENAI_API_KEY."""
    options = options_of(spec, "openai", CompletionOptions)
    url = address_of(spec, "openai", "http://localhost:8000/v1")
    service = Service(url, options.patience, options.concurrency)
    source = spec.hf_repo if folder is None else str(folder)
    tokenizer = tokenizer_of(spec)
    served = _find_served(service, spec, source)
    limits = [spec.context_length, served.get("max_model_len")]
    context = min([limit for limit in limits if limit] or [max_length(None, tokenizer)])
    window = ContextWindow(context, context - 1, spec.truncation)
    return OpenAIEngine(service, served["id"], tokenizer, window, options, spec.template_args)


def _find_served(service: Service, spec: ModelSpec, source: str) -> Content:
    """The server's entry for the model, by the model's name or repository. Raises RunError without one."""
    by_name = {entry["id"]: entry for entry in service.models()}
    # A server may offer an adapter's model under one name and its base under another.
    names = (spec.model, spec.hf_repo, source) if spec.adapter is None else (spec.model, spec.adapter)
    for name in names:
        if name in by_name:
            return by_name[name]
    offers = ", ".join(sorted(by_name)) or "nothing"
    raise RunError(
        f"the server at {service.address} serves {offers}, not {spec.adapter or spec.hf_repo!r}; "
        f"start it with --served-model-name {spec.model}"
    )

"""The engine behind an OpenAI-compatible server, such as `vllm serve`; one that does not score is sampled."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai

from rlfocal.base.errors import RunError
from rlfocal.base.failures import plain
from rlfocal.extraction.engine import ChoiceScore, Document, Sample, Sampling
from rlfocal.extraction.engines.groups import Window
from rlfocal.extraction.engines.requests import Abilities, Reading, Request, TokenScore, score
from rlfocal.extraction.engines.token_engine import TokenEngine
from rlfocal.extraction.engines.tokens import EncodedDocument, Encoder, Tokens, max_length, tokenizer_of
from rlfocal.pool.specs import ModelSpec, ThinkingSpec
from warehouse.validity import ROUNDING

CONCURRENCY = 32
RETRIES = 6
PROBE: Tokens = (5, 6, 7)

Completion = Any
Read = Callable[[Callable[..., Completion], Tokens], Reading]


class CannotScoreError(RunError):
    """A server does not return the log-probabilities of prompts."""


class OpenAIEngine(TokenEngine):
    """A served model. Prompts are sent as token ids, so that they are the same as of any other engine."""

    shard = 256

    def __init__(
        self,
        client: openai.OpenAI,
        served: str,
        tokenizer: Any,
        window: Window,
        *,
        concurrency: int = CONCURRENCY,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = client
        self._served = served
        self._encoder = Encoder(tokenizer, template_args=template_args)
        self._window = window
        self._concurrency = concurrency
        self._unscored: CannotScoreError | None = None
        self._next_tokens = False
        try:
            self._read: Read = self._way_to_read()
            self._next_tokens = self._scores_next_tokens()
        except CannotScoreError as error:
            self._unscored = error

    @property
    def slower(self) -> str | None:
        if self._next_tokens or self._unscored is not None:
            return None
        return "asks once for each choice: the server does not score next tokens that it is given"

    def settings(self) -> dict[str, object]:
        return {
            "served": self._served,
            "max_length": self._window.context,
            "next_tokens": self._next_tokens,
            "reads_by": None if self._unscored else READS_BY[self._read],
            "concurrency": self._concurrency,
        }

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("rlfocal", "openai", "transformers", "lm_eval")}

    def check(
        self,
        documents: Sequence[Document],
        sampling: Sampling | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        if sampling is None and self._unscored is not None:
            raise self._unscored
        super().check(documents, sampling, thinking)

    def _score(self, encoded: Sequence[EncodedDocument]) -> Iterator[tuple[ChoiceScore, ...]]:
        return score(encoded, self._window, self._ask, Abilities(self._next_tokens))

    def _sample(
        self, prompts: Sequence[Tokens], doc_ids: Sequence[int], sampling: Sampling
    ) -> Iterator[tuple[Sample, ...]]:
        with ThreadPoolExecutor(self._concurrency) as threads:
            yield from threads.map(self._samples, prompts, doc_ids, [sampling] * len(prompts))

    def _samples(self, prompt: Tokens, doc_id: int, sampling: Sampling) -> tuple[Sample, ...]:
        greedy = sampling.temperature == 0
        wanted = 1 if greedy else sampling.passes
        answer = self._complete(
            prompt,
            n=wanted,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop),
            seed=sampling.seed_of(doc_id),
            extra_body={"return_token_ids": True}
            | ({"stop_token_ids": list(sampling.stop_tokens)} if sampling.stop_tokens else {}),
        )
        if len(answer.choices) != wanted:
            raise RunError(
                f"the server was asked for n={wanted} texts of document {doc_id} and returned "
                f"{len(answer.choices)}; serve the model with a server that supports n, such as vLLM"
            )
        samples = tuple(
            self._sample_of(c, doc_id, len(prompt)) for c in sorted(answer.choices, key=lambda c: c.index)
        )
        return samples * (sampling.passes if greedy else 1)

    def _sample_of(self, choice: Any, doc_id: int, n_prompt_tokens: int) -> Sample:
        ids = tuple((choice.model_extra or {}).get("token_ids") or ())
        known, text = (each.strip(" \ufffd") for each in (self._encoder.decode(ids), choice.text))
        if ids and not known.startswith(text):  # it may be cut before a stop string
            raise RunError(
                f"the server's text for document {doc_id} is not what its token ids mean to the tokenizer of "
                f"the entry ({choice.text!r:.40} and {known!r:.40}): serve the model with its own tokenizer"
            )
        n_tokens = len(ids or self._encoder.bare(choice.text))
        return Sample(choice.text, n_tokens, choice.finish_reason, n_prompt_tokens, ids)

    def _ask(self, requests: Sequence[Request]) -> list[Reading]:
        with ThreadPoolExecutor(self._concurrency) as threads:
            return list(threads.map(self._reading, requests))

    def _reading(self, request: Request) -> Reading:
        if request.targets:
            return self._next(request.prompt, request.targets)
        try:
            return self._read(self._complete, request.prompt)[request.start - 1 :]
        except (KeyError, ValueError) as error:
            raise RunError(
                f"the server returned log-probabilities of other tokens than the {len(request.prompt)} it "
                f"was sent ({plain(error)}): serve the model with its own tokenizer"
            ) from error

    def _next(self, prompt: Tokens, targets: Tokens) -> Reading:
        answer = self._complete(
            prompt,
            max_tokens=1,
            temperature=0,
            logprobs=len(targets),
            extra_body={"logprob_token_ids": list(targets), "return_tokens_as_token_ids": True},
        )
        [found] = answer.choices[0].logprobs.top_logprobs
        [drawn] = answer.choices[0].logprobs.tokens
        names = [f"token_id:{target}" for target in targets]
        return [TokenScore(found[name], name == drawn) if name in found else None for name in names]

    def _complete(self, prompt: Tokens, **options: Any) -> Completion:
        try:
            return self._client.completions.create(model=self._served, prompt=list(prompt), **options)
        except openai.NotFoundError as error:
            raise RunError(
                f"{reason(error, self._client)}; if it has chat completions alone, use --backend chat"
            ) from error
        except openai.APIError as error:
            raise RunError(reason(error, self._client)) from error

    def _way_to_read(self) -> Read:
        """vLLM's field for prompt log-probabilities, or the older echo of the prompt."""
        refused: Exception | None = None
        for way in READS_BY:
            try:
                scores = way(self._complete, PROBE)
            except (RunError, AttributeError, TypeError, KeyError, IndexError) as error:
                if _is_about_all_requests(error.__cause__):
                    raise
                refused = error
                continue
            if len(scores) == len(PROBE) - 1 and all(
                s and math.isfinite(s.logprob) and s.logprob <= ROUNDING for s in scores
            ):
                return way
        why = "they are NaN, infinite or positive" if refused is None else plain(refused)
        raise CannotScoreError(
            f"the server at {address(self._client)} does not return the log-probabilities of prompts, which "
            f"scoring choices needs ({why}); serve the model with `vllm serve`, for example, or extract only "
            "benchmarks of kind answers from it"
        ) from refused

    def _scores_next_tokens(self) -> bool:
        """Whether the server scores next tokens that it is given, equal to those of a longer prompt."""
        try:
            [scored] = self._next(PROBE[:-1], PROBE[-1:])
        except (RunError, AttributeError, TypeError, KeyError, ValueError):
            return False
        expected = self._read(self._complete, PROBE)[-1]
        if scored is None or expected is None:
            return False
        return math.isclose(scored.logprob, expected.logprob, abs_tol=0.1)


def load(spec: ModelSpec, folder: Path | None, threads: int = 1) -> OpenAIEngine:
    """Connects to the server of a model; its tokenizer is loaded here.

    The address is the entry's `base_url` or OPENAI_BASE_URL; a key, where one is needed, OPENAI_API_KEY.
    `threads` is not used: nothing is computed here.
    """
    url = spec.base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        raise RunError(
            f"model {spec.model!r}: the backend openai needs the server's address; set `base_url` in the "
            "model's entry or OPENAI_BASE_URL, such as http://localhost:8000/v1"
        )
    source = spec.hf_repo if folder is None else str(folder)
    tokenizer = tokenizer_of(spec, folder)
    key = os.environ.get("OPENAI_API_KEY", "none")
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=RETRIES)
    served = _find_served(client, spec, source)
    limits = [spec.context_length, (served.model_extra or {}).get("max_model_len")]
    context = min([limit for limit in limits if limit] or [max_length(None, tokenizer)])
    window = Window(context, context - 1, spec.truncation)
    options = spec.engine_args.get("openai", {})
    return OpenAIEngine(client, served.id, tokenizer, window, template_args=spec.template_args, **options)


def _find_served(client: openai.OpenAI, spec: ModelSpec, source: str) -> Any:
    """The server's entry of the model: by its name here or its repository, or the only one there is."""
    try:
        offered = list(client.models.list())
    except openai.APIError as error:
        raise RunError(reason(error, client)) from error
    by_name = {entry.id: entry for entry in offered}
    # A server may offer an adapter's model under one name and its base under another.
    names = (spec.model, spec.hf_repo, source) if spec.adapter is None else (spec.model, spec.adapter)
    for name in names:
        if name in by_name:
            return by_name[name]
    offers = ", ".join(sorted(by_name)) or "nothing"
    raise RunError(
        f"the server at {address(client)} serves {offers}, not {spec.adapter or spec.hf_repo!r}; "
        f"start it with --served-model-name {spec.model}"
    )


def _read_prompt_logprobs(complete: Callable[..., Completion], prompt: Tokens) -> Reading:
    """Scores of every token but the first."""
    answer = complete(prompt, max_tokens=1, temperature=0, extra_body={"prompt_logprobs": 0})
    entries = answer.choices[0].model_extra["prompt_logprobs"]
    found = [entry[str(token)] for token, entry in zip(prompt[1:], entries[1:], strict=True)]
    return [TokenScore(entry["logprob"], entry["rank"] == 1) for entry in found]


def _read_by_echo(complete: Callable[..., Completion], prompt: Tokens) -> Reading:
    """Scores of every token but the first."""
    answer = complete(prompt, max_tokens=1, temperature=0, echo=True, logprobs=1)
    found = answer.choices[0].logprobs
    own, top = found.token_logprobs[1 : len(prompt)], found.top_logprobs[1 : len(prompt)]
    return [TokenScore(one, one >= max(best.values())) for one, best in zip(own, top, strict=True)]


READS_BY: dict[Read, str] = {_read_prompt_logprobs: "prompt_logprobs", _read_by_echo: "echo"}


def _is_about_all_requests(cause: BaseException | None) -> bool:
    """Whether a server refused for another reason than that it lacks the field asked for."""
    status = cause.status_code if isinstance(cause, openai.APIStatusError) else None
    return isinstance(cause, openai.APIConnectionError) or status in (401, 403, 404, 429, 500, 502, 503, 504)


def reason(error: openai.APIError, client: openai.OpenAI) -> str:
    where = f"the server at {address(client)}"
    if isinstance(error, openai.APIConnectionError):
        return f"{where} cannot be reached; check base_url, or start it if it is yours (`vllm serve MODEL`)"
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return f"{where} rejected the API key ({error.message}); set OPENAI_API_KEY"
    status = f" with status {error.status_code}" if isinstance(error, openai.APIStatusError) else ""
    return f"{where} answered{status}: {error.message}"


def address(client: openai.OpenAI) -> str:
    """The address without a user's name and password."""
    parts = urlsplit(str(client.base_url))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

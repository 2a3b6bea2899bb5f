"""The engine behind any chat-completions service: first tokens or sampled letters stand for scores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import openai
from openai.types.chat import ChatCompletion

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.engine import ChangedModelError, ChoiceScore, Document, Sample, Sampling
from rlfocal.extraction.engines.letters import Belief, from_texts, from_tokens, names_of
from rlfocal.extraction.engines.openai import address, reason
from rlfocal.extraction.engines.payments import Payments
from rlfocal.pool.specs import ModelSpec, ThinkingSpec

PATIENCE = 30
"""How often a request is sent again; the client waits as long as the service says, up to two minutes."""
DECORATED = 4
"""Tokens of an answer in which its first real one must come."""
FEWER_LISTED = 5
"""What services list that refuse more."""
MOST_STOPS = 4
"""Stop strings that services take; texts are cut at the others here."""
FEW = 4
"""Documents that may be left without any choice, in however small a group."""
OVERHEAD, OVERHEAD_OF_MESSAGE = 256, 16
"""Tokens that a service's template adds at most. A token is one byte of text, at the shortest."""

Given = TypeVar("Given")
Body = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """`engine_args: {chat: ...}` of an entry."""

    top_logprobs: int = 20
    """Likeliest first tokens to ask for; 0: samples instead."""
    samples: int = 16
    """Texts of a document, where the service lists no tokens."""
    temperature: float = 1.0
    """Of these samples."""
    max_tokens: int = 16
    """Of each of these samples."""
    per_request: int | None = None
    """Texts to ask for in one request; None: all of a document's."""
    concurrency: int = 16
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request, in place of ours; null leaves one out."""


class ChatEngine:
    """A model that only a service runs. All that it is told is kept, as it was paid."""

    shard = 64
    slower: str | None = None

    def __init__(self, client: openai.OpenAI, model: ModelSpec, options: Options) -> None:
        self._client = client
        self._model = model
        self._served = model.served or model.model
        self._options = options
        self._payments: Payments | None = None
        self._answered_by: str | None = None
        self._top: int | None = None
        self._lock = Lock()

    def begin(self, file: Path, partition: str) -> None:
        if self._payments is not None:
            self._payments.close()
        self._payments = Payments(file, self._model.model, self._model.spending_limit, partition)
        first = self._payments.first_answer()
        self._answered_by = None if first is None else ChatCompletion.model_validate_json(first).model
        self._top = self._payments.offer(self._service) if self._options.top_logprobs else 0

    def facts(self) -> dict[str, Any]:
        evidence = "top_logprobs" if self._top else "samples"
        versions = self.versions() | {"answered_by": self._answered_by}
        return {"evidence": evidence, "paid": self._book.paid, "versions": versions}

    def forget(self) -> None:
        self._book.forget()

    def settings(self) -> dict[str, object]:
        return {"served": self._served, "url": address(self._client), **asdict(self._options)}

    def versions(self) -> dict[str, str | None]:
        return {name: version(name) for name in ("rlfocal", "openai", "lm_eval")}

    def check(
        self,
        documents: Sequence[Document],
        sampling: Sampling | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        if thinking is not None:
            raise InputError(
                "a chat service shows no traces that choices could be scored after: leave `thinking` out of "
                "the entry and the benchmark, and ask for the service's own reasoning in engine_args: {chat: "
                "{body: {reasoning_effort: low}}}"
            )
        for document in documents if sampling is None else ():
            if not document.context and document.messages is None:
                raise InputError("a chat service scores no choice on its own; leave `unconditional` out")
            names_of(document)

    def texts(self, documents: Sequence[Document]) -> list[str]:
        return [""] * len(documents)  # only the service knows its template

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        if self._top is None:
            self._top = self._find_offer(documents[0])
        judged = self._map(self._judge, documents)
        self._book.note_offer(self._service, self._top)  # now: a refusal may have been about the document
        pairs = zip(documents, judged, strict=True)
        unnamed = [document.doc_id for document, scores in pairs if not scores[0].covered_mass]
        if len(unnamed) > max(len(documents) / 2, FEW):
            raise RunError(
                f"the answers to {len(unnamed)} of {len(documents)} documents, such as {unnamed[0]}, name "
                "none of their choices; ask for a letter in the `system_prompt` of a chat benchmark, "
                "or raise max_tokens in engine_args: {chat: ...}"
            )
        return iter(judged)

    def sample(self, documents: Sequence[Document], sampling: Sampling) -> Iterator[tuple[Sample, ...]]:
        return iter(self._map(lambda document: self._samples(document, sampling), documents))

    @property
    def _book(self) -> Payments:
        assert self._payments is not None, "begin() comes first"
        return self._payments

    @property
    def _service(self) -> str:
        return f"{self._client.base_url} {self._served} {self._options.top_logprobs}"

    def _map(self, ask: Callable[[Document], Given], documents: Sequence[Document]) -> list[Given]:
        with ThreadPoolExecutor(self._options.concurrency) as threads:
            return list(threads.map(ask, documents))

    def _find_offer(self, document: Document) -> int:
        """How many likeliest tokens the service lists, found by asking about a document; 0: none."""
        most = self._options.top_logprobs
        for top in sorted({most, min(most, FEWER_LISTED)}, reverse=True):
            try:
                answer = self._first_tokens(document, top)
            except RunError as error:
                cause = error.__cause__
                if not isinstance(cause, openai.BadRequestError | openai.UnprocessableEntityError):
                    raise
                continue  # not paid
            return top if _listed(answer) else 0
        return 0

    def _judge(self, document: Document) -> tuple[ChoiceScore, ...]:
        names = names_of(document)
        if self._top:
            answers = [self._first_tokens(document, self._top)]
            if not (tokens := _listed(answers[0])):
                raise RunError(
                    f"the service returned no top_logprobs for document {document.doc_id}, though it did "
                    "before; set engine_args: {chat: {top_logprobs: 0}} to sample letters instead"
                )
            belief = from_tokens(tokens, names)
        else:
            o = self._options
            sampling = Sampling(o.samples, o.temperature, 1.0, o.max_tokens, (), seed=0)
            answers = self._passes(document, sampling)
            belief = from_texts([_text(choice) for answer in answers for choice in answer.choices], names)
        return _scores(belief, answers)

    def _first_tokens(self, document: Document, top: int) -> ChatCompletion:
        body = {"max_tokens": DECORATED, "temperature": 0, "logprobs": True, "top_logprobs": top}
        return self._ask(document, body, 1)

    def _samples(self, document: Document, sampling: Sampling) -> tuple[Sample, ...]:
        greedy = sampling.temperature == 0
        samples: list[Sample] = []
        for answer in self._passes(document, sampling):
            usage = answer.usage
            assert usage is not None  # `_ask` refuses it
            each, more = divmod(usage.completion_tokens, len(answer.choices))
            for i, choice in enumerate(answer.choices):  # only their sum is known
                text, is_cut = _cut(_text(choice), sampling.stop)
                ended = "length" if choice.finish_reason == "length" and not is_cut else "stop"
                samples.append(Sample(text, each + (i < more), ended, usage.prompt_tokens))
        return tuple(samples) * (sampling.passes if greedy else 1)

    def _passes(self, document: Document, sampling: Sampling) -> list[ChatCompletion]:
        """All texts of a document, in as many requests as that takes."""
        wanted = 1 if sampling.temperature == 0 else sampling.passes
        size = self._options.per_request or wanted
        return [
            self._ask(
                document,
                {
                    "n": min(size, wanted - begun),
                    "max_tokens": sampling.max_tokens,
                    "temperature": sampling.temperature,
                    "top_p": None if sampling.top_p == 1 else sampling.top_p,
                    "stop": list(filter(None, sampling.stop))[:MOST_STOPS] or None,
                    "seed": sampling.seed_of(document.doc_id) + begun,
                },
                min(size, wanted - begun),
            )
            for begun in range(0, wanted, size)
        ]

    def _ask(self, document: Document, options: Body, n: int) -> ChatCompletion:
        """The answer of `n` texts to one request, which is paid unless it was before."""
        messages = document.messages or (("user", document.context),)
        written = [{"role": role, "content": content} for role, content in messages]
        body = options | {"n": None if n == 1 else n} | dict(self._options.body)
        body = {name: value for name, value in body.items() if value is not None}
        content = [str(self._client.base_url), self._served, document.doc_id, written, body]
        key = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if (kept := self._book.answer(key)) is None:
            answer = self._pay(key, written, body, self._most(written, body, n))
        else:
            answer = ChatCompletion.model_validate_json(kept)
        self._check_answer(answer, document, n)
        return answer

    def _pay(self, key: str, messages: list[dict[str, str]], body: Body, most: float) -> ChatCompletion:
        self._book.reserve(most)
        try:
            answer = self._client.chat.completions.create(
                model=self._served,
                messages=messages,  # type: ignore[arg-type]
                extra_body=body,
                # A service that knows it is paid once, even if its answer is lost on the way.
                extra_headers={"Idempotency-Key": key},
            )
        except openai.APIStatusError as error:
            self._book.refund(most)
            raise RunError(reason(error, self._client)) from error
        except BaseException as error:
            self._book.lose()
            if isinstance(error, openai.APIError):
                raise RunError(reason(error, self._client)) from error
            raise
        if not getattr(answer, "choices", None):
            self._book.lose()
            raise RunError(f"{address(self._client)} answered with no chat completion: {answer!r:.200}")
        usage = answer.usage
        paid = most if usage is None else self._cents(usage.prompt_tokens, usage.completion_tokens)
        self._book.settle(key, most, paid, answer.to_json(indent=None))
        return answer

    def _most(self, messages: list[dict[str, str]], body: Body, n: int) -> float:
        """What a request may cost at most, in cents."""
        read = sum(len(m["content"].encode()) + OVERHEAD_OF_MESSAGE for m in messages) + OVERHEAD
        written = body.get("max_completion_tokens") or body.get("max_tokens")
        if written is None and self._model.spending_limit is not None:
            raise InputError(
                f"model {self._model.model!r}: a request without max_tokens may cost any amount; set it, or "
                "max_completion_tokens, in engine_args: {chat: {body: ...}}, or leave `spending_limit` out"
            )
        return self._cents(read, n * (written or 0))

    def _cents(self, read: int, written: int) -> float:
        return (read * (self._model.price_input or 0) + written * (self._model.price_output or 0)) / 1e6

    def _check_answer(self, answer: ChatCompletion, document: Document, n: int) -> None:
        where = f"document {document.doc_id}"
        with self._lock:
            self._answered_by = self._answered_by or answer.model
        if answer.model != self._answered_by:
            raise ChangedModelError(
                f"the service answered {where} by {answer.model!r}, and those before by "
                f"{self._answered_by!r}: it changed the model; name a dated version as `served`, or run "
                "again, which begins this task anew"
            )
        if answer.usage is None:
            raise RunError(f"the service returned no usage for {where}, so what it costs is not known")
        if len(answer.choices) != n:
            raise RunError(
                f"the service was asked for n={n} texts of {where} and returned {len(answer.choices)}; set "
                "engine_args: {chat: {per_request: 1}} in the entry: each is then a request of its own"
            )


def load(spec: ModelSpec, folder: Path | None, threads: int = 1) -> ChatEngine:
    """Connects to a service: to the entry's `base_url` or OPENAI_BASE_URL, with OPENAI_API_KEY."""
    url = spec.base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        raise RunError(
            f"model {spec.model!r}: the backend chat needs the service's address; set `base_url` in the "
            "model's entry or OPENAI_BASE_URL, such as https://api.openai.com/v1"
        )
    given = spec.engine_args.get("chat", {})
    try:
        options = Options(**given)
    except TypeError as error:
        known = ", ".join(Options.__dataclass_fields__)
        raise InputError(f"model {spec.model!r}: engine_args.chat knows {known} ({error})") from None
    key = os.environ.get("OPENAI_API_KEY", "none")
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=PATIENCE)
    try:
        client.with_options(max_retries=1).models.list()
    except openai.APIStatusError as error:
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            raise RunError(reason(error, client)) from error
    except openai.APIConnectionError as error:
        raise RunError(reason(error, client)) from error
    return ChatEngine(client, spec, options)


def _scores(belief: Belief, answers: Sequence[ChatCompletion]) -> tuple[ChoiceScore, ...]:
    usages = [answer.usage for answer in answers if answer.usage is not None]
    best = max(belief.logprobs)
    return tuple(
        ChoiceScore(
            token_ids=(),
            token_logprobs=(logprob,),
            is_greedy=logprob == best,
            n_prompt_tokens=usages[0].prompt_tokens,
            truncated=False,
            covered_mass=belief.covered_mass,
            n_generated=sum(usage.completion_tokens for usage in usages),
        )
        for logprob in belief.logprobs
    )


def _listed(answer: ChatCompletion) -> list[Any]:
    """The answer's tokens with their likeliest alternatives; none where the service lists none."""
    logprobs = answer.choices[0].logprobs
    tokens = (logprobs.content if logprobs else None) or []
    return tokens if tokens and tokens[0].top_logprobs else []


def _text(choice: Any) -> str:
    return choice.message.content or ""


def _cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text up to the first stop string, and whether it has one."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)

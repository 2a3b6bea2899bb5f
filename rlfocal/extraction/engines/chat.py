"""The engine behind any chat-completions service. It scores choices by the answer's first tokens, or by
sampled letters."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import (
    ChangedModelError,
    ChoiceScore,
    Document,
    MissingAnswer,
    Sample,
    SamplingSettings,
    UnansweredError,
    empty_sample,
    empty_scores,
)
from rlfocal.extraction.engines.chat_answers import (
    ChatAnswer,
    ChatChoice,
    ChoiceLogprobs,
    Tokens,
    count_tokens,
    logprobs_from_texts,
    logprobs_from_tokens,
    names_of,
)
from rlfocal.extraction.engines.options import options_of
from rlfocal.extraction.engines.payments import Bill, Payments
from rlfocal.extraction.engines.server_responses import read
from rlfocal.extraction.engines.service import BUSY_SECONDS, Content, Service, address_of
from rlfocal.extraction.recording import log
from rlfocal.extraction.responses import RESPONSES_KEY, cut_prompts, summarise
from rlfocal.pool.specs import ModelSpec, ThinkingSpec

MAX_DECORATION_TOKENS = 4
"""The number of an answer's first tokens that are requested: one of them must name a choice."""
FEWER_LISTED_TOKENS = 5
"""The number of likeliest tokens to request where a service refuses to list more."""
MAX_STOP_STRINGS = 4
"""The most stop strings that services take. Texts are cut at further stop strings on this side."""
MIN_COVERED_MASS = 0.01
"""The least total probability of all choices. Below it, the answer says nothing about them."""
PROBE_DOCUMENTS = 3
"""The most documents with which to find out how many tokens a service lists. One might not suffice, because a
service may refuse a document for its content."""
MAX_TEXT_TOKENS = 131_072
"""The assumed bound on the tokens of one prompt, and of one text with its reasoning where a service ignores
max_tokens."""
MAX_TEMPLATE_TOKENS, MAX_MESSAGE_TOKENS = 256, 16
"""The most tokens that a service's template adds to a chat, and to each of its messages."""

Body = dict[str, Any]


@dataclass(frozen=True)
class ChatOptions:
    """The options of a chat service: `engine_args: {chat: ...}` in a model's entry."""

    top_logprobs: int = 20
    """The number of likeliest first tokens to request; 0 to sample texts instead."""
    samples: int = 16
    """The number of texts to sample for a document, where the service lists no likeliest tokens."""
    temperature: float = 1.0
    """The temperature of the samples."""
    max_tokens: int = 16
    """The most tokens of each sample."""
    per_request: int | None = None
    """The number of texts to request at once; None for all texts of a document."""
    concurrency: int = 16
    patience: float = BUSY_SECONDS
    """The seconds that a request waits for a busy service."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields that replace those of every request's body. A null leaves a field out."""


class ChatEngine:
    """A model that only a paid service runs. Every usable response is saved on disk."""

    shard = 64
    slower: str | None = None

    def __init__(self, service: Service, model: ModelSpec, options: ChatOptions) -> None:
        self._service = service
        self._model = model
        self._served = model.served or model.model
        self._options = options
        self._payments: Payments | None = None
        self._probe_id: str | None = None
        self._answered_by: str | None = None
        self._sizes: dict[int, tuple[int, int]] = {}
        self._top: int | None = None
        self._lock = Lock()

    def begin(self, file: Path, partition: str, probe_id: str | None = None) -> None:
        self._probe_id = probe_id
        if self._payments is not None:
            self._payments.close()
        self._payments = Payments(file, self._model.model, self._model.spending_limit, partition)
        first = self._payments.first_answer()
        self._answered_by = None if first is None else json.loads(first).get("model")
        self._sizes = {}
        self._top = self._payments.offer(self._offers) if self._options.top_logprobs else 0

    def facts(self) -> dict[str, Any]:
        evidence = "top_logprobs" if self._top else "samples"
        said = {"answered_by": self._answered_by, RESPONSES_KEY: summarise(self._book.responses())}
        return {"evidence": evidence, "paid": self._book.paid, "versions": self.versions() | said}

    def forget(self) -> None:
        self._book.forget()

    def settings(self) -> dict[str, object]:
        return {"served": self._served, "url": self._service.address, **asdict(self._options)}

    def versions(self) -> dict[str, str | None]:
        return {name: version(name) for name in ("rlfocal", "httpx", "lm_eval")}

    def check(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings | None = None,
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
            self._top = self._find_offer(documents)
        # Where that is not known yet, its refusals tell why.
        top = self._options.top_logprobs if self._top is None else self._top
        judged = self._service.ask_each(lambda d: self._judge(d, top), documents, self._options.concurrency)
        cut = self._find_cut_prompts()
        return iter(
            [
                tuple(replace(score, truncated=document.doc_id in cut) for score in scores)
                for document, scores in zip(documents, judged, strict=True)
            ]
        )

    def sample(
        self, documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        def ask(document: Document) -> tuple[Sample, ...]:
            try:
                return self._samples(document, sampling)
            except UnansweredError as error:
                return (empty_sample(error.reason),) * sampling.passes

        sampled = self._service.ask_each(ask, documents, self._options.concurrency)
        self._find_cut_prompts()
        return iter(sampled)

    def _find_cut_prompts(self) -> set[int]:
        """The doc_ids of documents whose prompts the service truncated. Raises InputError unless the model's
        entry allows truncation."""
        cut, words = cut_prompts(self._sizes)
        if cut and self._model.truncation == "refuse":
            raise InputError(
                f"the service cut prompts: it says that it read {words}; give it a longer context "
                "(Ollama: num_ctx), or set `truncation: keep` in the entry if that is meant, or if its "
                "usage leaves tokens out"
            )
        return cut

    @property
    def _book(self) -> Payments:
        assert self._payments is not None, "begin() comes first"
        return self._payments

    @property
    def _offers(self) -> str:
        return f"{self._service.address} {self._served} {self._options.top_logprobs}"

    def _find_offer(self, documents: Sequence[Document]) -> int | None:
        """The number of likeliest tokens that the service lists, 0 if it lists none; None where it refuses
        every document."""
        most = self._options.top_logprobs
        for document in documents[:PROBE_DOCUMENTS]:
            for top in sorted({most, min(most, FEWER_LISTED_TOKENS)}, reverse=True):
                try:
                    offer = top if self._ask_first_tokens(document, top).choices[0].tokens else 0
                except UnansweredError as error:
                    if error.reason.kind != "refused":
                        break  # it is about the document
                    continue
                self._book.note_offer(self._offers, offer)
                return offer
            else:
                try:
                    self._ask_letters(document)
                except UnansweredError:
                    continue
                self._book.note_offer(self._offers, 0)
                return 0
        return None

    def _judge(self, document: Document, top: int) -> tuple[ChoiceScore, ...]:
        try:
            belief, usages = self._believe(document, top)
        except UnansweredError as error:
            return empty_scores(len(document.continuations), error.reason)
        if belief.covered_mass >= MIN_COVERED_MASS:
            return _scores(belief, usages)
        words = f"the answer names a choice with a probability of {belief.covered_mass:.2g}"
        n = len(document.continuations)
        flat = belief._replace(logprobs=(-math.log(n),) * n)
        return _scores(flat, usages, MissingAnswer("unclear", words))

    def _believe(self, document: Document, top: int) -> tuple[ChoiceLogprobs, list[Tokens | None]]:
        names = names_of(document)
        if not top:
            answers = self._ask_letters(document)
            choices = [choice for answer in answers for choice in answer.choices]
            refused = [choice.unanswered for choice in choices if choice.unanswered is not None]
            if len(refused) == len(choices):
                raise UnansweredError(refused[0].kind, refused[0].words)
            texts = ["" if choice.unanswered else choice.message.content for choice in choices]
            return logprobs_from_texts(texts, names), [answer.tokens for answer in answers]
        answer = self._ask_first_tokens(document, top)
        [choice] = answer.choices
        if choice.unanswered is not None:
            raise UnansweredError(choice.unanswered.kind, choice.unanswered.words)
        if not choice.tokens:
            raise UnansweredError(
                "broken",
                "the service lists top_logprobs no longer; engine_args: {chat: {top_logprobs: 0}} "
                "samples letters instead",
            )
        return logprobs_from_tokens(choice.tokens, names, choice.message.content), [answer.tokens]

    def _ask_first_tokens(self, document: Document, top: int) -> ChatAnswer:
        body = {"max_tokens": MAX_DECORATION_TOKENS, "temperature": 0, "logprobs": True, "top_logprobs": top}
        return self._ask(document, body, 1)

    def _ask_letters(self, document: Document) -> list[ChatAnswer]:
        o = self._options
        return self._ask_passes(
            document, SamplingSettings(o.samples, o.temperature, 1.0, o.max_tokens, (), seed=0)
        )

    def _samples(self, document: Document, sampling: SamplingSettings) -> tuple[Sample, ...]:
        samples: list[Sample] = []
        for answer in self._ask_passes(document, sampling):
            n_read, written = answer.tokens or (None, None)
            n = len(answer.choices)
            for i, choice in enumerate(sorted(answer.choices, key=lambda choice: choice.index)):
                # Only their sum is known.
                n_tokens = None if written is None else (written + n - 1 - i) // n
                samples.append(_sample(choice, sampling.stop, n_tokens, n_read))
        return tuple(samples) * (sampling.passes if sampling.temperature == 0 else 1)

    def _ask_passes(self, document: Document, sampling: SamplingSettings) -> list[ChatAnswer]:
        """All samples for a document, in as many requests as needed; one sample at temperature 0."""
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
                    "stop": list(filter(None, sampling.stop))[:MAX_STOP_STRINGS] or None,
                    "seed": sampling.seed_of(document.doc_id) + begun,
                },
                min(size, wanted - begun),
            )
            for begun in range(0, wanted, size)
        ]

    def _ask(self, document: Document, options: Body, n: int) -> ChatAnswer:
        """The response with `n` texts to one request. It is paid for unless an earlier response to the
        request is saved."""
        messages = document.messages or (("user", document.context),)
        written = [{"role": role, "content": content} for role, content in messages]
        body = options | {"n": None if n == 1 else n} | dict(self._options.body)
        body = {name: value for name, value in body.items() if value is not None}
        content = [str(self._service.base) + "/", self._served, document.doc_id, written, body]
        content += [] if self._probe_id is None else [self._probe_id]
        key = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if (kept := self._book.answer(key)) is not None:
            try:
                return self._check(json.loads(kept), document, n)
            except (UnansweredError, ValueError) as error:
                log("kept answer set aside", document=document.doc_id, reason=str(error))
                self._book.set_aside(key)
        most, worst = self._bound_cost(written, body, n)

        def check(content: Content, bill: Bill) -> ChatAnswer:
            if (tokens := count_tokens(content)) is not None:  # else it counts in full
                bill.pay(self._price(*tokens))
            answer = self._check(content, document, n)
            bill.stored_answer = key, json.dumps(content)
            return answer

        return self._service.post(
            "chat/completions",
            {"model": self._served, "messages": written, **body},
            check,
            lambda: self._book.open_bill(most, worst),
            # A service that knows it is paid once, even if its answer is lost on the way.
            {"Idempotency-Key": key},
        )

    def _bound_cost(self, messages: list[dict[str, str]], body: Body, n: int) -> tuple[float, float]:
        """The most cents that a request can cost; and the most if the service ignores max_tokens."""
        read = sum(len(m["content"].encode()) + MAX_MESSAGE_TOKENS for m in messages) + MAX_TEMPLATE_TOKENS
        written = body.get("max_completion_tokens") or body.get("max_tokens")
        if written is None and self._model.spending_limit is not None:
            raise InputError(
                f"model {self._model.model!r}: a request without max_tokens may cost any amount; set it, or "
                "max_completion_tokens, in engine_args: {chat: {body: ...}}, or leave `spending_limit` out"
            )
        most, longest = n * (written or 0), n * MAX_TEXT_TOKENS
        return self._price(read, most), self._price(max(read, MAX_TEXT_TOKENS), max(most, longest))

    def _price(self, n_read: int, n_written: int) -> float:
        return (n_read * (self._model.price_input or 0) + n_written * (self._model.price_output or 0)) / 1e6

    def _check(self, content: Content, document: Document, n: int) -> ChatAnswer:
        """The parsed response. Raises UnansweredError if another attempt may give a usable one, and
        ChangedModelError if another model answered."""
        answer = read(ChatAnswer, content)
        with self._lock:
            self._answered_by = self._answered_by or answer.model
            if answer.tokens is not None:
                asked = document.messages or (("user", document.context),)
                n_bytes = sum(len(text.encode()) for _, text in asked)
                self._sizes[document.doc_id] = n_bytes, answer.tokens[0]
        if answer.model not in (None, self._answered_by):
            raise ChangedModelError(
                f"the service answered document {document.doc_id} by {answer.model!r}, and those before by "
                f"{self._answered_by!r}: it changed the model; name a dated version as `served`, or run "
                "again, which begins this task anew"
            )
        if sorted(choice.index for choice in answer.choices) != list(range(n)):
            raise UnansweredError(
                "broken",
                f"{len(answer.choices)} texts came where n={n} were requested, or two of one index; set "
                "engine_args: {chat: {per_request: 1}} in the entry: each is then a request of its own",
            )
        for choice in answer.choices:
            if choice.unanswered is not None and choice.unanswered.may_pass:
                raise UnansweredError(choice.unanswered.kind, choice.unanswered.words)
        return answer


def load(spec: ModelSpec, folder: Path | None, threads: int = 1) -> ChatEngine:
    """Connects to a model's service. `threads` and `folder` are not used. The service's address is the
    entry's `base_url` or OPENAI_BASE_URL, its key OPENAI_API_KEY."""
    options = options_of(spec, "chat", ChatOptions)
    service = Service(
        address_of(spec, "chat", "https://api.openai.com/v1"), options.patience, options.concurrency
    )
    service.models()  # whether it is there, and takes the key
    return ChatEngine(service, spec, options)


def _scores(
    belief: ChoiceLogprobs, counts: Sequence[Tokens | None], unanswered: MissingAnswer | None = None
) -> tuple[ChoiceScore, ...]:
    best = max(belief.logprobs)
    known = [count for count in counts if count is not None]
    n_generated = sum(written for _, written in known) if len(known) == len(counts) else None
    return tuple(
        ChoiceScore(
            token_ids=(),
            token_logprobs=(logprob,),
            is_greedy=logprob == best and unanswered is None,
            n_prompt_tokens=known[0][0] if known else None,
            truncated=False,
            covered_mass=belief.covered_mass,
            n_generated=n_generated,
            unanswered=unanswered,
        )
        for logprob in belief.logprobs
    )


def _sample(
    choice: ChatChoice, stops: Sequence[str], n_tokens: int | None, n_prompt_tokens: int | None
) -> Sample:
    text, is_cut = _cut(choice.message.content, stops)
    return Sample(
        text, n_tokens, "stop" if is_cut else choice.ending, n_prompt_tokens, unanswered=choice.unanswered
    )


def _cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop string, and whether the text has a stop string."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)

"""The base class of engines that read token ids. It scores choices and samples texts, at once or after
traces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.engine import ChoiceScore, Document, Sample, SamplingSettings, Trace, empty_scores
from rlfocal.extraction.engines.tokens import (
    ContextWindow,
    EncodedDocument,
    PromptEncoder,
    Tokens,
    answer_prompts,
    check_fits,
    check_lengths,
)
from rlfocal.pool.specs import ThinkingSpec

TRACE_SEED = 1
"""The seed of the samples that are traces. Samples of answers have seed 0."""


class _TracedPrompt(NamedTuple):
    """A document's prompt for a model that thinks, and what follows each of its traces."""

    prompt: Tokens
    """The tokens of the whole prompt, ending with the marker that opens a trace."""
    fitted_prompt: Tokens
    """The last tokens of the prompt that fit the context, which the model reads."""
    end: Tokens
    """The tokens after a trace: its closing marker and the text that leads to the answer."""
    tails: tuple[Tokens, ...]
    """The tokens of each choice; empty for free answers."""


class TokenEngine(ABC):
    """An engine that reads token ids. This class joins prompts, traces and the tokens that follow them."""

    _encoder: PromptEncoder
    _window: ContextWindow

    @abstractmethod
    def _score(self, encoded: Sequence[EncodedDocument]) -> Iterator[tuple[ChoiceScore, ...]]:
        """Yields the scores of every document's continuations, in order."""

    @abstractmethod
    def _sample(
        self, prompts: Sequence[Tokens], doc_ids: Sequence[int], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        """Yields `sampling.passes` texts after each prompt. They depend only on the prompt, its doc_id and
        `sampling`."""

    def _forget(self) -> None:  # noqa: B027 (most have none)
        """Empties the engine's caches, because a call's numbers must not depend on earlier calls."""

    def check(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        if thinking is None:
            check_fits(self._encoder, documents, sampling, self._window)
        else:
            begun = self._begin(documents, thinking, sampling)
            rooms = [len(each.fitted_prompt) for each in begun]
            check_lengths(documents, [len(each.prompt) for each in begun], rooms, self._window)

    def texts(self, documents: Sequence[Document]) -> list[str]:
        return self._encoder.texts(documents)

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        self.check(documents)
        self._forget()
        return self._score(self._encoder.choices(documents))

    def sample(
        self, documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        self.check(documents, sampling)
        self._forget()
        prompts = answer_prompts(self._encoder, documents, sampling, self._window)
        return self._draw(prompts, documents, sampling)

    def _draw(
        self, prompts: Sequence[Tokens], documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        """Yields the texts of `_sample`. At temperature 0, one text is computed and repeated for all
        samples."""
        once = sampling.temperature == 0
        asked = replace(sampling, passes=1) if once else sampling
        for samples in self._sample(prompts, [document.doc_id for document in documents], asked):
            yield samples * (sampling.passes if once else 1)

    def think(
        self, documents: Sequence[Document], thinking: ThinkingSpec, sampling: SamplingSettings | None = None
    ) -> Iterator[tuple[Trace, ...]]:
        self.check(documents, sampling, thinking)
        self._forget()
        begun = self._begin(documents, thinking, sampling)
        close = thinking.markers[1]
        drawn = SamplingSettings(
            passes=thinking.traces if sampling is None else sampling.passes,
            temperature=thinking.temperature,
            top_p=thinking.top_p,
            max_tokens=thinking.budget,
            stop=(close,) if thinking.text_markers else (),
            seed=TRACE_SEED,
            stop_tokens=() if thinking.text_markers else self._encoder.encode_continuation(close),
        )
        for samples in self._draw([each.fitted_prompt for each in begun], documents, drawn):
            yield tuple(self._read_trace(sample, thinking) for sample in samples)

    def score_after(
        self, documents: Sequence[Document], thinking: ThinkingSpec, traces: Sequence[Sequence[Trace]]
    ) -> Iterator[tuple[tuple[ChoiceScore, ...], ...]]:
        begun = self._begin(documents, thinking, None)
        asked = [
            EncodedDocument(each.fitted_prompt + trace.token_ids + each.end, each.tails)
            for each, own in zip(begun, traces, strict=True)
            for trace in own
        ]
        scores = self._score(asked)
        for each, own in zip(begun, traces, strict=True):
            n, truncated = len(each.prompt), each.fitted_prompt != each.prompt
            after = [
                tuple(replace(s, n_prompt_tokens=n, truncated=truncated) for s in next(scores)) for _ in own
            ]
            reasons = [
                trace.unanswered or scored[0].unanswered for trace, scored in zip(own, after, strict=True)
            ]
            reason = next(filter(None, reasons), None)
            yield tuple(after) if reason is None else (empty_scores(len(each.tails), reason),) * len(own)

    def sample_after(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings,
        thinking: ThinkingSpec,
        traces: Sequence[Sequence[Trace]],
    ) -> Iterator[tuple[Sample, ...]]:
        begun = self._begin(documents, thinking, sampling)
        prompts = [
            each.fitted_prompt + trace.token_ids + each.end
            for each, own in zip(begun, traces, strict=True)
            for trace in own
        ]
        # The seed of a pass is that of a document of its own.
        passes = [d.doc_id * sampling.passes + p for d in documents for p in range(sampling.passes)]
        samples = self._sample(prompts, passes, replace(sampling, passes=1))
        for each, own in zip(begun, traces, strict=True):
            yield tuple(
                replace(
                    sample, n_prompt_tokens=len(each.prompt), unanswered=trace.unanswered or sample.unanswered
                )
                for trace, sample in ((trace, next(samples)[0]) for trace in own)
            )

    def _begin(
        self, documents: Sequence[Document], thinking: ThinkingSpec, sampling: SamplingSettings | None
    ) -> list[_TracedPrompt]:
        """Prompts for traces. They leave room for a trace and what follows it, and are truncated on the left
        if longer."""
        self._check_marker(thinking)
        opening, closing = thinking.markers
        opened = self._encoder.encode_continuation(opening) if opening else ()
        texts, prompts = self._encoder.texts(documents), self._encoder.prompts(documents)
        endings = self._encoder.endings(documents, closing + thinking.lead_in)
        begun = []
        for document, text, prompt, (end, tails) in zip(documents, texts, prompts, endings, strict=True):
            whole = prompt if text.rstrip().endswith(opening) else prompt + opened
            last = max(map(len, tails)) if sampling is None else sampling.max_tokens
            limit = self._window.limit if sampling is None else self._window.context
            room = limit - thinking.budget - len(end) - last
            if room <= len(opened):
                raise InputError(
                    f"document {document.doc_id}: a trace of {thinking.budget} tokens and an answer of up to "
                    f"{last} leave no room for the prompt in the context of {self._window.context}; set a "
                    "lower `budget` in the model's or the benchmark's `thinking`"
                )
            begun.append(_TracedPrompt(whole, whole[-room:], end, tails))
        return begun

    def _check_marker(self, thinking: ThinkingSpec) -> None:
        """Raises InputError if the closing marker is no single token, unless the model writes it as text."""
        tokens = self._encoder.encode_continuation(thinking.markers[1])
        if len(tokens) != 1 and not thinking.text_markers:
            read = ", ".join(map(repr, self._encoder.pieces(tokens)))
            raise InputError(
                f"the tokenizer has no token {thinking.markers[1]!r} (it reads {read}): set the model's own "
                "`markers` in its entry's `thinking`, `text_markers: true` if it was trained to write them "
                "as text, or `budget: 0` if it does not think"
            )

    def _read_trace(self, sample: Sample, thinking: ThinkingSpec) -> Trace:
        """The trace in a sampled text: its part before the closing marker."""
        tokens = sample.token_ids
        if sample.unanswered is not None:
            return Trace((), sample.text, sample.n_tokens or 0, sample.finish_reason, sample.unanswered)
        if len(tokens) != sample.n_tokens:
            raise RunError(
                "the server does not return the token ids of what it generates, which scoring after a trace "
                "needs; serve the model with `vllm serve`, for example"
            )
        reason = sample.finish_reason
        if thinking.text_markers:
            closed = thinking.markers[1] in self._encoder.decode(tokens)
            reason = reason if reason == "length" or closed else "end"
            return Trace(self._encoder.encode_continuation(sample.text), sample.text, sample.n_tokens, reason)
        [close] = self._encoder.encode_continuation(thinking.markers[1])
        if close in tokens:
            tokens, reason = tokens[: tokens.index(close)], "stop"
        elif reason != "length":
            tokens, reason = tokens[:-1], "end"
        return Trace(tokens, self._encoder.decode(tokens), sample.n_tokens, reason)

"""Turns text into token ids exactly as lm-eval's HFLM does, so that an engine gets lm-eval's prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from jinja2 import TemplateError

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChoiceScore, Document, MissingAnswer, SamplingSettings, empty_scores

CONTEXT_FIELDS = ("n_positions", "max_position_embeddings", "n_ctx")
"""The fields of a config.json that may have a model's context length, in order of precedence."""
DEFAULT_MAX_LENGTH = 2048
UNLIMITED_LENGTH = 10**15  # tokenizers give something far beyond this for "no limit"

Tokens = tuple[int, ...]


class EncodedDocument(NamedTuple):
    """The tokens of a document's context, which all choices share, and of each choice's continuation."""

    context: Tokens
    continuations: tuple[Tokens, ...]


class PromptEncoder:
    """A tokenizer with lm-eval's rules for special tokens, empty prompts and the spaces at the end of a
    context."""

    def __init__(
        self, tokenizer: Any, vocabulary: int | None = None, template_args: Mapping[str, Any] | None = None
    ) -> None:
        """Takes a tokenizer and the size of the model's vocabulary, None where only a server knows it.
        `template_args` are arguments of the model's chat template beside the messages."""
        self._tokenizer = tokenizer
        self._template_args = dict(template_args or {})
        self._vocabulary = vocabulary
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self._prefix: int | None = eos if bos is None else bos
        self._encoded: dict[Document, EncodedDocument] = {}
        self._prompts: dict[Document, Tokens] = {}

    def choices(self, documents: Sequence[Document]) -> list[EncodedDocument]:
        """The context and continuations of every document. Raises InputError if a choice has no tokens.

        Only the last call's documents are cached: a whole task is checked first, and then scored shard by
        shard.
        """
        if any(document not in self._encoded for document in documents):
            self._encoded = dict(zip(documents, self._encode(documents), strict=True))
        return [self._encoded[document] for document in documents]

    def _encode(self, unrendered: Sequence[Document]) -> list[EncodedDocument]:
        documents = [self._render(document) for document in unrendered]
        begin = None if self._prefix is None else self._tokenizer.decode(self._prefix)
        # Trailing spaces of the context belong to the continuation.
        pairs = [[(d.context.rstrip(), d.context + c) for c in d.continuations] for d in documents]
        prompts = self._encode_prompts({text for pair in pairs for texts in pair for text in texts}, begin)
        bare = self._encode_texts({c for d in documents if not d.context for c in d.continuations})
        encoded = []
        for document, texts in zip(documents, pairs, strict=True):
            context = prompts[texts[0][0]] if document.context else ()
            tails = (
                [prompts[whole][len(context) :] for _, whole in texts]
                if document.context
                else [self._without_prefix(bare[c]) for c in document.continuations]
            )
            whole = context or self._require_prefix()
            self._check_known(document, *tails, whole)
            encoded.append(EncodedDocument(whole, tuple(tails)))
        return encoded

    def prompts(self, documents: Sequence[Document]) -> list[Tokens]:
        """The tokens of every document's prompt, without its choices. Only the last call's documents are
        cached."""
        if any(document not in self._prompts for document in documents):
            texts = [self._render(d).context for d in documents]
            of_text = self._encode_prompts(set(texts), self._tokenizer.bos_token)
            prompts = [of_text[text] or self._require_prefix() for text in texts]
            for document, prompt in zip(documents, prompts, strict=True):
                self._check_known(document, prompt)
            self._prompts = dict(zip(documents, prompts, strict=True))
        return [self._prompts[document] for document in documents]

    def _check_known(self, document: Document, *texts: Tokens) -> None:
        """Raises InputError for a text without tokens, and for a token id outside the model's vocabulary."""
        if not all(texts):
            raise InputError(f"document {document.doc_id}: choice {texts.index(())} has no tokens")
        highest = max(map(max, texts), default=0)
        if self._vocabulary is not None and highest >= self._vocabulary:
            token = self._tokenizer.convert_ids_to_tokens(highest)
            raise InputError(
                f"document {document.doc_id}: the tokenizer gives token id {highest} ({token!r:.40}), but "
                f"the model's vocabulary ends at {self._vocabulary - 1}: save the tokenizer that it was "
                "trained with beside its weights"
            )

    def texts(self, documents: Sequence[Document]) -> list[str]:
        """The prompt of every document as text, with chats rendered."""
        return [self._render(document).context for document in documents]

    def _render(self, document: Document) -> Document:
        """The document with its chat rendered by the tokenizer's template; a document without a chat is
        returned unchanged."""
        if document.messages is None:
            return document
        self._check_template_args()
        begun = document.messages[-1][0] == "assistant"
        try:
            context = self._tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in document.messages],
                tokenize=False,
                add_generation_prompt=not begun,
                continue_final_message=begun,
                **self._template_args,
            )
        except (TemplateError, ValueError) as error:
            raise InputError(
                f"the model's tokenizer cannot render the benchmark's chat ({' '.join(str(error).split())}); "
                "leave the benchmark out for this model, or its `system_prompt` where the template takes none"
            ) from error
        return replace(document, context=context, messages=None)

    def _check_template_args(self) -> None:
        """Raises InputError for an argument that the chat template does not read."""
        template = str(self._tokenizer.chat_template)
        for name in self._template_args:
            if name not in template:
                raise InputError(
                    f"the model's chat template has no argument {name!r}; remove it from `template_args` in "
                    "the model's entry, or name the one that the template reads"
                )

    def encode_continuation(self, text: str) -> Tokens:
        """The tokens of a text that continues a prompt, without special tokens."""
        return self._encode_texts([text])[text]

    def decode(self, tokens: Tokens) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def pieces(self, tokens: Tokens) -> list[str]:
        """The text of each token in the tokenizer's vocabulary."""
        return list(map(str, self._tokenizer.convert_ids_to_tokens(list(tokens))))

    def endings(self, documents: Sequence[Document], begin: str) -> list[EncodedDocument]:
        """The tokens of `begin` followed by each of a document's continuations. A token that spans the
        boundary belongs to the continuation."""
        texts = {begin, *(begin + c for d in documents for c in d.continuations)}
        of_text = self._encode_texts(texts)
        encoded = []
        for document in documents:
            wholes = [of_text[begin + c] for c in document.continuations]
            shared = common_length([of_text[begin], *wholes])
            tails = tuple(whole[shared:] for whole in wholes)
            self._check_known(document, *tails)
            encoded.append(EncodedDocument(of_text[begin][:shared], tails))
        return encoded

    def _require_prefix(self) -> Tokens:
        if self._prefix is None:
            raise InputError("a prompt is empty, but the tokenizer defines neither BOS nor EOS")
        return (self._prefix,)

    def _without_prefix(self, tokens: Tokens) -> Tokens:
        return tokens[1:] if tokens[:1] == (self._prefix,) else tokens

    def _encode_prompts(self, texts: Iterable[str], begin: str | None) -> dict[str, Tokens]:
        """The token ids of each text, with special tokens unless the text begins with `begin`, the first
        special token."""
        begun = {text for text in texts if begin is not None and text.startswith(begin)}
        fresh = sorted(set(texts) - begun)
        ids = self._tokenizer(fresh)["input_ids"] if fresh else []
        return dict(zip(fresh, map(tuple, ids), strict=True)) | self._encode_texts(begun)

    def _encode_texts(self, texts: Iterable[str]) -> dict[str, Tokens]:
        listed = sorted(set(texts))
        ids = self._tokenizer(listed, add_special_tokens=False)["input_ids"] if listed else []
        return dict(zip(listed, map(tuple, ids), strict=True))


def common_length(prompts: Sequence[Tokens]) -> int:
    """The number of first tokens that all prompts share. The smallest and largest prompt in order differ the
    earliest."""
    first, last = min(prompts), max(prompts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def max_length(config: Any, tokenizer: Any) -> int:
    """The context length of a model in tokens: by its configuration, else by its tokenizer."""
    text_config = getattr(config, "text_config", None) or config
    for name in CONTEXT_FIELDS:
        if (length := getattr(text_config, name, None)) is not None:
            return int(length)
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if length is not None and length < UNLIMITED_LENGTH else DEFAULT_MAX_LENGTH


class ContextWindow(NamedTuple):
    """The length of a model's context, and how longer prompts are treated."""

    context: int
    """The number of tokens of the model's context."""
    limit: int
    """The most tokens of prompt and choice together that the engine takes within that context."""
    truncation: Literal["refuse", "keep"]


class PrefixGroup(NamedTuple):
    """Choices of a document that continue one prefix. It is all choices, or one choice if its prompt had to
    be truncated."""

    document: int
    choices: tuple[int, ...]
    prefix: Tokens
    suffixes: tuple[Tokens, ...]


class SuffixScore(NamedTuple):
    """The log-probabilities of a suffix's tokens, and whether each token was the likeliest."""

    logprobs: tuple[float, ...]
    is_greedy: bool
    unanswered: MissingAnswer | None = None


def groups(
    index: int, encoded: EncodedDocument, window: ContextWindow, *, share: bool = True
) -> Iterator[PrefixGroup]:
    """Yields one group with all choices, if every choice fits behind the whole context. Otherwise yields one
    group per choice, with the context truncated on the left, as in lm-eval."""
    context, tails = encoded
    if share and len(context) + max(map(len, tails)) <= window.limit:
        yield PrefixGroup(index, tuple(range(len(tails))), context, tails)
        return
    for choice, tail in enumerate(tails):
        yield PrefixGroup(index, (choice,), context[-(window.limit - len(tail)) :], (tail,))


def choice_scores(
    index: int, encoded: EncodedDocument, window: ContextWindow, scores: dict[tuple[int, int], SuffixScore]
) -> tuple[ChoiceScore, ...]:
    """The scores of a document's choices, from the suffix scores by (document, choice)."""
    context, tails = encoded
    for choice in range(len(tails)):
        if (reason := scores[index, choice].unanswered) is not None:
            return empty_scores(len(tails), reason)
    return tuple(
        ChoiceScore(
            token_ids=tail,
            token_logprobs=scores[index, choice].logprobs,
            is_greedy=scores[index, choice].is_greedy,
            n_prompt_tokens=len(context),
            truncated=len(context) + len(tail) > window.limit,
        )
        for choice, tail in enumerate(tails)
    )


def answer_prompts(
    encoder: PromptEncoder, documents: Sequence[Document], sampling: SamplingSettings, window: ContextWindow
) -> list[Tokens]:
    """The tokens of each document's prompt. They leave room for `max_tokens` of an answer; longer prompts are
    truncated on the left."""
    room = window.context - sampling.max_tokens
    return [prompt[-room:] for prompt in encoder.prompts(documents)]


def check_fits(
    encoder: PromptEncoder,
    documents: Sequence[Document],
    sampling: SamplingSettings | None,
    window: ContextWindow,
) -> None:
    """Raises InputError if a choice or max_tokens exceeds the context, or if a prompt does and must not be
    truncated."""
    if sampling is not None:
        room = window.context - sampling.max_tokens
        if room <= 0:
            raise InputError(
                f"max_tokens is {sampling.max_tokens}, but the context has only {window.context} tokens"
            )
        lengths = [len(prompt) for prompt in encoder.prompts(documents)]
    else:
        room = window.limit
        encoded = encoder.choices(documents)
        for document, (_, tails) in zip(documents, encoded, strict=True):
            if (longest := max(map(len, tails))) >= room:
                raise InputError(
                    f"document {document.doc_id}: a choice has {longest} tokens, too many for the context of "
                    f"{window.context}"
                )
        lengths = [len(context) + max(map(len, tails)) for context, tails in encoded]
    check_lengths(documents, lengths, [room] * len(lengths), window)


def check_lengths(
    documents: Sequence[Document], lengths: Sequence[int], rooms: Sequence[int], window: ContextWindow
) -> None:
    """Raises InputError if a prompt is longer than its room and must not be truncated. `lengths` and `rooms`
    are in tokens."""
    long = [i for i, (length, room) in enumerate(zip(lengths, rooms, strict=True)) if length > room]
    if long and window.truncation == "refuse":
        first = long[0]
        raise InputError(
            f"{len(long)} of {len(lengths)} prompts do not fit the context of {window.context} tokens "
            f"(the first is document {documents[first].doc_id}: {lengths[first]} tokens, room for "
            f"{rooms[first]}); set `truncation: keep` in the model's entry to truncate them on the left and "
            "flag them (lm-eval truncates with a warning), or leave the benchmark out for this model"
        )

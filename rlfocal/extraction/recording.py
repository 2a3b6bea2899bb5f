"""Records how a partition was extracted, on which hardware, and logs an extraction's events as JSON lines.

A partition's numbers depend on the GPU, its driver, and how the engine uses it, to the last bit.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.wording import percent
from rlfocal.extraction.engine import RETRIED_REASONS
from rlfocal.extraction.gpus import find_gpus
from rlfocal.pool.hub import mixes_experts
from warehouse import Warehouse
from warehouse.limits import writing_to

LOG_VARIABLE = "RLFOCAL_LOG"
MANY_TIES = 0.01
"""The least share of documents with tied choices that a message mentions."""
EXTRACT_AGAIN = "Its logits were rounded: extract it again without `head_dtype: model`."
SAME_CHOICES = "Nothing was rounded: these choices are the same text, or the model cannot tell them apart."
SCORE_AGAIN = "Its scores were rounded: have them served, or exported, as float32."
_LOGGER = logging.getLogger("rlfocal.extraction")
_LOGGER.addHandler(logging.NullHandler())  # or Python prints errors on stderr where nobody asked for a log
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
HARDWARE_FACTS = (
    *("device_product", "compute_capability", "driver", "cuda"),
    *("attention_backend", "model_runner", "kv_dtype", "head_dtype", "batch_invariant"),
)
"""The names of hardware facts in a partition's settings. Partitions from a CPU, and older ones, have none."""


class _JsonLines(logging.Formatter):
    """Formats each event as a JSON object on one line: time (UTC), level, event, host, process, and the
    event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        about = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "host": platform.node(),
            "process": record.process,
        }
        fields = {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        return json.dumps(about | fields, default=str, ensure_ascii=False)


def start_log() -> None:
    """Starts the log at the place that RLFOCAL_LOG names, if any. Raises InputError if it cannot be
    written."""
    place = os.environ.get(LOG_VARIABLE)
    if not place or any(isinstance(handler.formatter, _JsonLines) for handler in _LOGGER.handlers):
        return
    if place == "-":
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(place, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"{LOG_VARIABLE}={place!r} cannot be written ({error.strerror}); name a file, or - for stderr"
            ) from None
    handler.setFormatter(_JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)


def log(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Logs an event to RLFOCAL_LOG alone: other handlers, such as Prefect's, would print it without its
    `fields`. These may name its model, benchmark, task and shard."""
    if _LOGGER.isEnabledFor(level):
        record = _LOGGER.makeRecord(_LOGGER.name, level, __file__, 0, event, (), None, extra=fields)
        for handler in _LOGGER.handlers:
            handler.handle(record)


def unanswered_documents(rows: pa.Table) -> dict[int, str]:
    """For each document without an answer, by doc_id, the first reason why."""
    missing = rows.filter(pc.is_valid(rows["unanswered"])).select(["doc_id", "unanswered"]).to_pylist()
    reasons: dict[int, str] = {}
    for row in missing:
        reasons.setdefault(row["doc_id"], row["unanswered"])
    return reasons


def documents_to_ask(rows: pa.Table) -> list[int]:
    """The doc_ids of documents without an answer that are asked again, because the reason may pass."""
    reasons = unanswered_documents(rows).items()
    return [doc_id for doc_id, reason in reasons if RETRIED_REASONS[reason.partition(":")[0]]]


def count_ties(rows: pa.Table) -> int | None:
    """The number of documents whose likeliest choices have exactly equal log-probs; None for rows of
    `answer_passes`."""
    if "choice" not in rows.column_names:
        return None
    rows = rows.filter(pc.is_null(rows["unanswered"]))
    best = rows.group_by("doc_id").aggregate([("logprob", "max")])
    joined = rows.select(["doc_id", "logprob"]).join(best, "doc_id")
    tied = joined.filter(pc.equal(joined["logprob"], joined["logprob_max"])).group_by("doc_id")
    counts = tied.aggregate([("logprob", "count")])["logprob_count"]
    return pc.sum(pc.greater(counts, 1)).as_py() or 0


def measure(
    rows: pa.Table, traces: pa.Table | None, seconds: float, retries: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns of `extractions` for a partition's rows, which its engine computed in `seconds`.

    The engine read each prompt once, and scored choices; it generated sampled texts and traces. The column
    `evidence` is left out for choices from a service: only its engine knows how it got them.
    """
    prompts = rows.group_by("doc_id").aggregate([("n_prompt_tokens", "max"), ("n_tokens", "max")])
    n_read, n_answered = (
        pc.sum(column).as_py() or 0 for column in (prompts["n_prompt_tokens_max"], rows["n_tokens"])
    )
    n_generated = 0 if traces is None else pc.sum(traces["n_tokens"]).as_py() or 0
    evidence = {"evidence": "logprobs" if "choice" in rows.column_names else "samples"}
    answered = rows.filter(pc.is_null(rows["unanswered"]))
    if "covered_mass" in rows.column_names and answered["covered_mass"].null_count < len(answered):
        evidence = {}
        # A service cannot score given text. Each choice's row has what was generated for the document.
        n_generated = pc.sum(prompts["n_tokens_max"]).as_py() or 0
    elif "choice" in rows.column_names:
        n_read += n_answered
    else:
        n_generated += n_answered
    return {
        "n_prompt_tokens": n_read,
        "n_generated_tokens": n_generated,
        "tokens_per_second": (n_read + n_generated) / seconds if seconds > 0 else None,
        "retries": retries,
        "n_ties": count_ties(rows),
        "n_unanswered": len(unanswered_documents(rows)),
        "n_to_ask": len(documents_to_ask(rows)),
        "gpus": gpus_of_engine(settings),
        "host": platform.node(),
        **evidence,
    }


def gpus_of_engine(settings: Mapping[str, Any]) -> str | None:
    """The GPUs that an engine with these settings runs on, as CUDA_VISIBLE_DEVICES names them; None for a
    CPU.

    >>> gpus_of_engine({"device": "cpu"})
    """
    if not str(settings.get("device")).startswith("cuda"):
        return None
    n = int(settings.get("tensor_parallel") or 1)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ",".join(visible.split(",")[:n] if visible else map(str, range(n)))


def slower_models(warehouse: Warehouse, models: Sequence[str]) -> list[str]:
    """A sentence for each of the models whose engine had to work in a slower way than usual."""
    rows = warehouse.rows(
        "SELECT DISTINCT model, settings->>'slower' AS slower FROM extractions "
        "WHERE list_contains(?, model) AND slower IS NOT NULL ORDER BY ALL",
        [list(models)],
    )
    return [f"{model} {slower}" for model, slower in rows]


def tied_models(warehouse: Warehouse, benchmark: str | None = None) -> list[str]:
    """A sentence with the remedy for each model and benchmark with too many tied documents. None stands for
    all benchmarks."""
    rows = warehouse.rows(
        "SELECT model, benchmark, sum(n_ties) / nullif(sum(n_docs - coalesce(n_unanswered, 0)), 0) AS ties, "
        "bool_and(coalesce(backend IN ('hf', 'vllm'), false)), "
        "bool_and(coalesce('float32' IN (settings->>'dtype', settings->>'head_dtype'), false)) "
        "FROM extractions WHERE fault IS NULL AND n_ties IS NOT NULL AND ($1 IS NULL OR benchmark = $1) "
        "GROUP BY ALL HAVING ties >= $2 ORDER BY ALL",
        [benchmark, MANY_TIES],
    )
    return [
        f"{model} on {of}: the likeliest choices tie on {percent(ties, 1)} % of the answered documents, and "
        "the first counts. " + (SAME_CHOICES if is_exact else EXTRACT_AGAIN if is_own else SCORE_AGAIN)
        for model, of, ties, is_own, is_exact in rows
    ]


def unanswered_partitions(warehouse: Warehouse, models: Sequence[str]) -> list[dict[str, Any]]:
    """A dictionary for each task on which the models lack answers: the numbers of documents, the first
    doc_ids, and a reason."""
    missing = (
        "SELECT r.model, r.benchmark, r.task, r.doc_id, r.unanswered FROM {} AS r JOIN extractions AS e "
        "USING (model, benchmark, task) WHERE e.n_unanswered > 0 AND list_contains($1, r.model) "
        "AND r.unanswered IS NOT NULL"
    )
    partitions = warehouse.query(
        "SELECT e.model, e.benchmark, e.task, e.n_docs, e.n_unanswered, e.n_to_ask, "
        "list(DISTINCT m.doc_id ORDER BY m.doc_id)[:5] AS doc_ids, min_by(m.unanswered, m.doc_id) AS reason "
        f"FROM ({missing.format('choice_logprobs')} UNION ALL {missing.format('answer_passes')}) AS m "
        "JOIN extractions AS e USING (model, benchmark, task) GROUP BY ALL ORDER BY ALL",
        [list(models)],
    )
    rows: list[dict[str, Any]] = partitions.to_pylist()
    return rows


def count_start(folder: Path) -> int:
    """Notes that a partition was started whose shards are in `folder`. Returns how often it was started
    before. A commit deletes the note with the shards. Raises DiskFullError if the disk is full."""
    note, before = folder / "begun", 0
    with suppress(OSError, ValueError, IndexError):  # it was not started, or the note is torn
        before = int(note.read_text().split()[0])
    with writing_to(folder):
        write_file(note, str(before + 1))
    return before


def gpu_facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """The products, compute capabilities, driver and CUDA version of the GPUs that this process sees. It is
    empty for an engine whose settings name another device, and where no driver answers."""
    devices = [device for device in find_gpus() if device.product]
    if not str(settings.get("device")).startswith("cuda") or not devices:
        return {}
    import torch

    return {
        "device_product": ", ".join(sorted({device.product for device in devices})),
        "compute_capability": ", ".join(sorted({device.capability for device in devices})),
        "driver": ", ".join(sorted({device.driver for device in devices})),
        "cuda": str(torch.version.cuda),
    }


def vllm_facts(llm: Any) -> dict[str, Any]:
    """The attention backend, model runner, cache dtype and batch invariance of a loaded vLLM; empty on a CPU.
    For a mixture of experts, batch invariance is false even under VLLM_BATCH_INVARIANT (vllm#57016)."""
    config = llm.llm_engine.vllm_config
    if config.device_config.device_type == "cpu":
        return {}
    from vllm import envs

    described: dict[str, Any] = llm.collective_rpc(_describe_worker)[0]
    is_mixture = mixes_experts(config.model_config.hf_config.to_dict())
    return described | {"batch_invariant": envs.VLLM_BATCH_INVARIANT and not is_mixture}


def _describe_worker(worker: Any) -> dict[str, str]:
    """The model runner, attention and cache dtype of a vLLM worker. It runs in the worker's process."""
    runner = worker.model_runner
    # Its runners keep these under no promised name.
    groups = [group for groups in getattr(runner, "attn_groups", ()) for group in groups]
    backends = sorted({group.backend.get_name() for group in groups})
    return {
        "model_runner": type(runner).__module__.removeprefix("vllm."),
        "attention_backend": ", ".join(backends) or "unknown",
        "kv_dtype": str(getattr(runner, "kv_cache_dtype", "unknown")).removeprefix("torch."),
    }

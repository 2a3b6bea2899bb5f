"""Probes of an engine whose answers are known: what it was asked, where it is killed, what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from rlfocal.extraction import engines
from rlfocal.extraction.engine import (
    ChoiceScore,
    Document,
    MissingAnswer,
    Sample,
    SamplingSettings,
    empty_scores,
)
from rlfocal.extraction.partition import Job
from rlfocal.extraction.running import probing, worker
from rlfocal.extraction.running.events import ProbeBatch
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.writing import put_probe_answers

Place = tuple[str, str]
Batch = Mapping[Place, Mapping[int, float]]
ONE, TWO, SUMS = ("b", "one"), ("b", "two"), ("s", "sums")
MODEL = ModelSpec(model="m", hf_repo="/m", params_b=1)
N_DOCS = 12
COMPARED = (
    "probe_id, model, benchmark, task, doc_id, fingerprint, settings, versions, evidence, probability, "
    "choices, passes, traces, paid"
)
"""The columns of `probe_answers` that are the same however often the probe was killed."""


def drawn(place: Place, *doc_ids: int) -> dict[Place, dict[int, float]]:
    """A batch of one task, each document with a probability of its own."""
    return {place: {doc_id: 1 / (2 + doc_id) for doc_id in doc_ids}}


@dataclass
class BatchSequence:
    """Chooses these batches one after another, by what is committed; killed before one if that is said."""

    probe_id: str
    batches: Sequence[Batch]
    killed_before: int | None = None
    seen: list[int] = field(default_factory=list)
    """How many documents were committed whenever it was called."""

    def __call__(self, warehouse: Warehouse) -> Batch:
        rows = "SELECT benchmark, task, doc_id FROM probe_answers WHERE probe_id = ?"
        asked = set(warehouse.rows(rows, [self.probe_id]))
        self.seen.append(len(asked))
        for number, batch in enumerate(self.batches):
            wanted = {(*place, doc_id) for place, documents in batch.items() for doc_id in documents}
            if not wanted <= asked:
                if number == self.killed_before:
                    os.kill(os.getpid(), signal.SIGKILL)
                return batch
        return {}


@dataclass
class WordEngine:
    """An engine whose answers depend on a document's words alone; it writes down what it is asked.

    Document i has a prompt of 10 + i tokens.
    """

    asked: list[str] = field(default_factory=list)
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a document of these words has no answer."""
    device: str = "cpu"
    killed_at: int | None = None
    """The number of the document, from 0, at which the process is killed."""
    shard: int = 2
    slower: str | None = None

    def _ask(self, document: Document) -> int:
        if self.killed_at == len(self.asked):
            os.kill(os.getpid(), signal.SIGKILL)
        self.asked.append(document.context or "".join(document.continuations))
        text = document.context + "".join(document.continuations)
        return int.from_bytes(sha256(text.encode()).digest()[:4])

    def check(self, *_: object) -> None:
        pass

    def texts(self, documents: Sequence[Document]) -> list[str]:
        return [document.context for document in documents]

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        for document in documents:
            number = self._ask(document)
            if document.context in self.reasons:
                reason = MissingAnswer(self.reasons[document.context], "no")
                yield empty_scores(len(document.choices), reason)
            else:
                n_prompt = 10 + document.doc_id
                yield tuple(
                    ChoiceScore((1, c), (-0.25, -(number // 7**c % 7) / 3), False, n_prompt, False)
                    for c in range(len(document.choices))
                )

    def sample(
        self, documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        for document in documents:
            number = self._ask(document)
            said: list[int | str] = [number // 3**p % 3 or "none" for p in range(sampling.passes)]
            if document.doc_id == 4:
                said[:4] = 1, 2, 2, 1  # the first of two that are given as often
            n_prompt = 10 + document.doc_id
            yield tuple(Sample(f"\0 it's {text}", 3 + p, "stop", n_prompt) for p, text in enumerate(said))

    def settings(self) -> dict[str, object]:
        return {"dtype": "float32", "device": self.device}

    def versions(self) -> dict[str, str]:
        return {"torch": "2"}


def job(place: Place, n: int = N_DOCS, *, unconditional: bool = False) -> Job:
    """Choices x, y and z, or numbers of 4 passes, of which the first `n` documents are asked."""
    benchmark, task = place
    sampling = SamplingSettings(4, 0.6, 1, 8, (), 0) if place == SUMS else None
    choices = () if sampling else ("x", "y", "z")
    documents = tuple(
        Document(
            i, f"{task}{i}", "q", None if sampling else i % 3, str(i % 3), choices, f"{task} {i}", choices
        )
        for i in range(n)
    )
    of = TaskDocuments(
        *(benchmark, task, "1", documents, ("train",) * n, sampling, N_DOCS, task),
        unconditional=unconditional,
        is_numeric=True,
    )
    return Job(of, f"of {task}" + "+unconditional" * unconditional)


@contextmanager
def running(engine: WordEngine) -> Iterator[None]:
    """Whatever model is started, it is this one."""
    loaded = SimpleNamespace(load=lambda *_: engine)
    with (
        patch.object(engines, "import_module", lambda _: loaded),
        patch.object(engines, "local_weights", lambda _: None),
        patch.object(worker, "tokenizer_for", lambda *_: None),
    ):
        yield


def extract(location: Path | str, engine: WordEngine, *jobs: Job, model: ModelSpec = MODEL) -> list[Any]:
    """Extracts in this process; returns all events."""
    sent: list[Any] = []
    with running(engine):
        worker.extract_jobs(sent.append, location, model, "hf", jobs, 1)
    return sent


def probe(location: Path | str, engine: WordEngine, choose: BatchSequence, *jobs: Job) -> list[ProbeBatch]:
    """Probes in this process."""
    sent: list[Any] = []
    with running(engine):
        probing.ask_batches(sent.append, location, choose.probe_id, MODEL, "hf", jobs, choose, 1)
    return [event for event in sent if isinstance(event, ProbeBatch)]


BATCHES: tuple[Batch, ...] = (
    drawn(ONE, 3, 7, 2, 11, 5) | drawn(SUMS, 0, 9, 4),
    drawn(TWO, 1) | drawn(ONE, 0, 6),
    drawn(SUMS, 10) | drawn(TWO, 8, 3),
)
JOBS = (job(ONE), job(TWO), job(SUMS))
KILLS = ("asking 4", "asking 7", "choosing 1", "writing", "committed", "asking 9", "asking 13", "choosing 2")
"""Where a probe is killed: at a document, before a batch, in the middle of a commit, and just after it."""


def probe_until(location: str, where: str) -> None:
    """Probes the batches in this process, which kills itself there."""
    what, _, number = where.partition(" ")

    def write(connection: Any, rows: Any) -> None:
        put_probe_answers(connection, rows)
        if what == "writing":
            os.kill(os.getpid(), signal.SIGKILL)

    def delete(folder: Path, ignore_errors: bool) -> None:
        if what == "committed":
            os.kill(os.getpid(), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=ignore_errors)

    engine = WordEngine(killed_at=int(number) if what == "asking" else None)
    choose = BatchSequence("p", BATCHES, killed_before=int(number) if what == "choosing" else None)
    with patch.object(probing, "put_probe_answers", write), patch.object(probing, "rmtree", delete):
        probe(location, engine, choose, *JOBS)


def probe_and_kill(location: str, where: str) -> None:
    """`probe_until` in a process of its own."""
    code = (
        f"import sys; from support.probes import probe_until; probe_until(*{json.dumps([location, where])})"
    )
    path = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False)
    assert ended.returncode == -signal.SIGKILL


def probe_answers(location: Path | str) -> pa.Table:
    with open_warehouse(location, read_only=True) as warehouse:
        return warehouse.query(
            f"SELECT {COMPARED} FROM probe_answers ORDER BY probe_id, benchmark, task, doc_id"
        )

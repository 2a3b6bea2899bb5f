"""What an extraction records of itself, in the warehouse and in its log."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlfocal.base.errors import InputError
from rlfocal.extraction import engines, recording
from rlfocal.extraction.engine import ChoiceScore, Document, Sample, Sampling
from rlfocal.extraction.partition import Job
from rlfocal.extraction.recording import count_start, gpus_of_engine
from rlfocal.extraction.running import worker
from rlfocal.extraction.running.events import Extracted, Failure
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec
from warehouse import open_warehouse

MODEL = ModelSpec(model="m", hf_repo="/m", params_b=1)
PASSES = Sampling(passes=2, temperature=0.6, top_p=1, max_tokens=8, stop=(), seed=0)


class Scripted:
    """Answers shards of two documents: document i has a prompt of 10 + i tokens, choice c of c + 1 tokens."""

    shard = 2
    slower: str | None = None

    def __init__(self, fails_at: int | None = None, device: str = "cpu") -> None:
        self.fails_at, self.device = fails_at, device

    def check(self, *_: object) -> None:
        pass

    def texts(self, documents: Sequence[Document]) -> list[str]:
        return [document.context for document in documents]

    def _asked(self, documents: Sequence[Document]) -> Iterator[int]:
        for document in documents:
            if document.doc_id == self.fails_at:
                raise RuntimeError("CUDA error: the GPU fell off the bus")
            yield document.doc_id

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        for i in self._asked(documents):
            yield tuple(ChoiceScore((1,) * (c + 1), (-0.5,) * (c + 1), False, 10 + i, False) for c in (0, 1))

    def sample(self, documents: Sequence[Document], sampling: Sampling) -> Iterator[tuple[Sample, ...]]:
        for i in self._asked(documents):
            yield tuple(Sample("18", 3 + p, "stop", 10 + i) for p in range(sampling.passes))

    def settings(self) -> dict[str, object]:
        return {"dtype": "float32", "device": self.device}

    def versions(self) -> dict[str, str]:
        return {"torch": "2"}


def job(task: str, sampling: Sampling | None = None) -> Job:
    choices = () if sampling else ("x", "y")
    documents = tuple(
        Document(i, f"{task}{i}", "q", None if sampling else 0, "18", choices, "q", choices) for i in range(5)
    )
    return Job(TaskDocuments("b", task, "1", documents, ("train",) * 5, sampling, 5, task), f"of {task}")


def run(monkeypatch: pytest.MonkeyPatch, location: Path, engine: Scripted, *jobs: Job) -> list[Any]:
    monkeypatch.setattr(engines, "import_module", lambda _: SimpleNamespace(load=lambda *_: engine))
    monkeypatch.setattr(engines, "local_weights", lambda _: None)
    sent: list[Any] = []
    worker.extract_jobs(sent.append, location, MODEL, "hf", jobs, 1)
    return [event for event in sent if isinstance(event, Extracted | Failure)]


def test_tokens_speed_retries_and_places_are_recorded_and_logged(
    empty_warehouse: Path, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / "w"
    open_warehouse(location).close()
    tasks = (job("choices"), job("answers", PASSES))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    for _ in range(2):
        events = run(monkeypatch, location, Scripted(fails_at=3, device="cuda:0"), *tasks)
        assert [type(event) for event in events] == [Failure, Failure]
    events = run(monkeypatch, location, Scripted(device="cuda:0"), *tasks)
    assert [type(event) for event in events] == [Extracted, Extracted]
    with open_warehouse(location) as warehouse:
        rows = warehouse.rows(
            "SELECT task, n_prompt_tokens, n_generated_tokens, retries, gpus, host, "
            "round(tokens_per_second * seconds, 6) FROM extractions ORDER BY task DESC"
        )
        assert not list(warehouse.location.shards.iterdir())
    prompts = sum(10 + i for i in range(5))
    assert rows == [
        ("choices", prompts + 5 * 3, 0, 2, "5", platform.node(), prompts + 5 * 3),
        ("answers", prompts, 5 * 7, 2, "5", platform.node(), prompts + 5 * 7),
    ]
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    assert all(line["host"] == platform.node() and line["process"] and line["time"] for line in lines)
    of_choices = [line for line in lines if line.get("task") == "choices"]
    assert [(line["event"], line.get("shard")) for line in of_choices] == [
        ("shard answered", 0),
        ("partition failed", None),
        ("partition failed", None),  # the first shard was kept
        ("shard answered", 1),
        ("shard answered", 2),
        ("partition committed", None),
    ]
    assert {(line["model"], line["benchmark"]) for line in of_choices} == {("m", "b")}
    assert "fell off the bus" in of_choices[1]["reason"]
    assert of_choices[1]["level"] == "error"
    assert of_choices[-1]["retries"] == 2
    assert [line["model"] for line in lines if line["event"] == "engine started"] == ["m"] * 3


class Alone(Scripted):
    """Remembers which choices it was asked for after an empty prompt; `fails_at` is one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(fails_at)
        self.after_nothing: list[int] = []
        self.n_prompts = 0

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        for document in documents:
            if document.context:
                self.n_prompts += 1
                yield tuple(ChoiceScore((1,), (-0.5,), False, 10, False) for _ in document.continuations)
                continue
            [i] = self._asked([document])
            self.after_nothing.append(i)
            yield (ChoiceScore((1,), (-1.0 - i,), False, 1, False),)


@pytest.mark.slow
def test_choices_after_nothing_are_kept_in_shards_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job("choices")
    documents = tuple(
        replace(d, choices=(f"a{i}", f"b{i}"), continuations=(f" a{i}", f" b{i}"))
        for i, d in enumerate(asked.task.documents)
    )
    wanted = Job(replace(asked.task, documents=documents, unconditional=True), asked.fingerprint)
    first, second = Alone(fails_at=5), Alone()
    open_warehouse(tmp_path / "w").close()
    [failed] = run(monkeypatch, tmp_path / "w", first, wanted)
    assert isinstance(failed, Failure)
    assert (first.n_prompts, first.after_nothing) == (5, [0, 1, 2, 3, 4])
    [made] = run(monkeypatch, tmp_path / "w", second, wanted)
    assert isinstance(made, Extracted)
    assert (second.n_prompts, second.after_nothing) == (0, [4, 5, 6, 7, 8, 9])
    with open_warehouse(tmp_path / "w") as warehouse:
        rows = warehouse.rows("SELECT choice, unconditional_logprob FROM choice_logprobs ORDER BY ALL DESC")
    assert rows == [(1, -6.0 - i) for i in range(5)] + [(0, -1.0 - i) for i in range(5)]


@pytest.mark.slow
def test_without_a_log_nothing_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(recording.VARIABLE, raising=False)
    open_warehouse(tmp_path / "w").close()
    [event] = run(monkeypatch, tmp_path / "w", Scripted(fails_at=0), job("choices"))
    assert isinstance(event, Failure)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("log_file")
def test_a_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recording.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="RLFOCAL_LOG="):
        recording.start_log()


@pytest.mark.parametrize(
    ("visible", "settings", "expected"),
    [
        ("2,3,6", {"device": "cuda", "tensor_parallel": 2}, "2,3"),
        ("6", {"device": "cuda:0"}, "6"),
        ("GPU-ab,GPU-cd", {"device": "cuda", "tensor_parallel": 1}, "GPU-ab"),
        (None, {"device": "cuda", "tensor_parallel": 4}, "0,1,2,3"),
        ("2,3", {"device": "cpu"}, None),
        ("2,3", {"served": "m"}, None),
    ],
)
def test_gpus(
    visible: str | None, settings: dict[str, Any], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_of_engine(settings) == expected


def test_a_partition_is_begun_again_and_again(tmp_path: Path) -> None:
    assert [count_start(tmp_path / "s") for _ in range(3)] == [0, 1, 2]
    (tmp_path / "s" / "begun").write_text("")  # torn
    assert count_start(tmp_path / "s") == 0
    (tmp_path / "s" / "begun").write_text("3 8")  # as earlier versions wrote it, with the documents
    assert count_start(tmp_path / "s") == 3

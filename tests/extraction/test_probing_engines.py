"""Probes of real engines: a model that thinks, one that only a service runs, one of the embedded pool."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from support.closed_pool import write_closed_pool
from support.killing import tables
from support.one_process import in_one_process
from support.probes import Batch, BatchSequence, drawn, probe_answers
from support.stub_server import READ, SERVED, WRITTEN, Reply, chat_answer, question_of, stub_server
from support.tiny_models import save_models, tiny_benchmarks, write_tasks

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.running.events import ProbeBatch, Progress
from rlfocal.extraction.running.probing import ask_documents
from rlfocal.extraction.running.runner import extract
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import load_pool
from rlfocal.pool.specs import PoolSpec, ThinkingSpec
from rlfocal.upkeep.drift import FULL_PRECISION_LIMITS
from warehouse import open_warehouse

PLAIN, SPACES, SUMS = ("tiny-c", "plain"), ("tiny-c", "spaces"), ("tiny-a", "all")
N_CHOICES, N_ANSWERS = 16, 6
BATCHES: tuple[Batch, ...] = (
    drawn(PLAIN, 3, 12, 4, 15, 8, 9) | drawn(SUMS, 4, 2),
    drawn(SPACES, 0, 12) | drawn(PLAIN, 11),
    drawn(SUMS, 5),
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> PoolSpec:
    """The second model thinks before it answers; choices are scored after an empty prompt as well."""
    folder = tmp_path_factory.mktemp("tiny")
    tasks = write_tasks(folder / "tasks", choices=N_CHOICES, answers=N_ANSWERS)
    choices, answers = tiny_benchmarks(tasks)
    llama, gpt2 = save_models(folder, "llama", "gpt2")
    thinking = ThinkingSpec(budget=4, traces=2, markers=("Question", "dog"), text_markers=True)
    thinker = gpt2.model_copy(update={"thinking": thinking, "engine_args": {"hf": {"shard": 4}}})
    benchmarks = (choices.model_copy(update={"unconditional": True}), answers)
    return PoolSpec(name="tiny", benchmarks=benchmarks, models=(llama, thinker))


@pytest.fixture(scope="module")
def places(pool: PoolSpec, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Warehouses that the first model has answered, and both."""
    folder = tmp_path_factory.mktemp("answered")
    with in_one_process():
        assert not extract(pool.choose(["llama"], None), folder / "one").missing
        shutil.copytree(folder / "one", folder / "both")
        assert not extract(pool, folder / "both").missing
    return folder / "one", folder / "both"


def check_alike(location: Path, undisturbed: Path) -> None:
    """The same rows, up to what other batches may change, which is less than drift allows."""
    found, expected = tables(location), tables(undisturbed)
    largest, texts = 0.0, 0
    for name, own in expected.items():
        for now, then in zip(found[name].to_pylist(), own.to_pylist(), strict=True):
            for column, value in then.items():
                if column in ("logprob", "unconditional_logprob") and value is not None:
                    largest = max(largest, abs(now[column] - value) / sqrt(then["n_tokens"]))
                elif column == "token_logprobs":
                    continue  # their sums are compared
                elif name == "choice_logprobs" or column in ("doc_id", "model", "task"):
                    assert now[column] == value
                elif column == "text":
                    texts += now[column] != value
    assert largest <= FULL_PRECISION_LIMITS.logprob
    assert texts <= FULL_PRECISION_LIMITS.texts * (len(found["answer_passes"]) + len(found["traces"]))


def leaves(value: Any) -> list[Any]:
    """What nested lists and dicts hold, in order."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for each in inner for leaf in leaves(each)]


def test_a_model_that_thinks(pool: PoolSpec, places: tuple[Path, Path], tmp_path: Path) -> None:
    """Killed before its second batch, and called again."""
    one, both = places
    location, killed = (Path(shutil.copytree(one, tmp_path / name)) for name in ("w", "killed"))
    events: list[ProbeBatch | Progress] = []
    thinker, tasks = pool.models[1], load_tasks(pool.benchmarks)

    def ask(
        place: Path, killed_before: int | None = None, on_progress: Callable[..., None] | None = None
    ) -> int:
        choose = BatchSequence("p", BATCHES, killed_before)
        return ask_documents(place, "p", thinker, tasks, "hf", choose, on_progress=on_progress)

    with in_one_process():
        assert ask(location, on_progress=events.append) == 12
    batches = [event for event in events if isinstance(event, ProbeBatch)]
    assert [(batch.n_docs, batch.n_so_far) for batch in batches] == [(8, 8), (3, 11), (1, 12)]
    assert [event.done for event in events if isinstance(event, Progress)][-1] == 1
    with pytest.raises(RunError, match="its process was killed by SIGKILL"):
        ask(killed, killed_before=1)
    assert len(probe_answers(killed)) == 8
    with in_one_process():
        assert ask(killed) == 4
    # Another process may have another number of threads, which round otherwise.
    assert leaves(probe_answers(killed).to_pylist()) == pytest.approx(
        leaves(probe_answers(location).to_pylist())
    )

    left: dict[str, int] = {}

    def note(event: Any) -> None:
        if isinstance(event, Progress):
            left[event.task] = event.total

    with in_one_process():
        assert not extract(pool, location, on_progress=note).missing
    with open_warehouse(location) as warehouse:
        texts = "SELECT count(DISTINCT c) FROM (SELECT task, unnest(choices) AS c FROM docs) WHERE task = ?"
        alone = {task: warehouse.rows(texts, [task])[0][0] for task in ("plain", "spaces")}
        n_choices = {"plain": N_CHOICES - 7 + alone["plain"], "spaces": N_CHOICES - 2 + alone["spaces"]}
        assert left == n_choices | {"all": N_ANSWERS - 3}
        said = "SELECT benchmark, task, doc_id, prediction, answer, correct FROM {} ORDER BY ALL"
        own = said.format(
            "(FROM predictions SEMI JOIN probe_predictions USING (benchmark, task, doc_id, model))"
        )
        assert warehouse.rows(said.format("probe_predictions")) == warehouse.rows(own)
    check_alike(location, both)


@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_probed_is_refused(pool: PoolSpec, places: tuple[Path, Path], tmp_path: Path) -> None:
    location = Path(shutil.copytree(places[0], tmp_path / "w"))
    tasks, thinker = load_tasks(pool.benchmarks), pool.models[1]
    choose = BatchSequence("p", [drawn(SUMS, 3)])
    assert ask_documents(location, "p", thinker, tasks, "hf", choose) == 1
    other = thinker.model_copy(update={"thinking": None})
    for model in (other, pool.models[0]):
        with pytest.raises(InputError, match="probe 'p' asked gpt2 with other weights, prompts or settings"):
            ask_documents(location, "p", model, tasks, "hf", choose)
    gone = thinker.model_copy(update={"hf_repo": str(tmp_path / "nothing")})
    with pytest.raises(InputError, match="nothing"):
        ask_documents(location, "q", gone, tasks, "hf", choose)
    fewer = load_tasks([pool.benchmarks[1].model_copy(update={"system_prompt": "Think."})])
    with pytest.raises(InputError, match="differs from the one in the warehouse"):
        ask_documents(location, "q", thinker, fewer, "hf", choose)
    with open_warehouse(location, read_only=True) as warehouse:
        assert warehouse.rows("SELECT DISTINCT probe_id FROM probe_answers") == [("p",)]


LETTERS, MORE = ("letters", "one"), ("letters", "two")
PRICES = {"price_input": 1000, "price_output": 2000}
CENTS = (READ * PRICES["price_input"] + WRITTEN * PRICES["price_output"]) / 1e6
"""What an answer of the stub costs."""


QUOTA = Reply({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429)


def closed_pool(folder: Path, *urls: str) -> PoolSpec:
    """Two models of two services."""
    asked = {task: [f"{task} {i}" for i in range(12)] for task in ("one", "two")}
    about = {"served": SERVED, "engine_args": {"chat": {"concurrency": 1}}, **PRICES}
    entries = [{"model": name, "base_url": url} | about for name, url in zip("ab", urls, strict=True)]
    return load_pool(str(write_closed_pool(folder, asked, entries)))


@pytest.mark.usefixtures("one_process")
def test_a_service_is_paid_once_for_each_document(tmp_path: Path) -> None:
    """The probe is broken off in its first batch; another one asks and pays for the same documents anew."""
    broken_at = [3]

    def reply(request: dict[str, Any], number: int = 0) -> Any:
        top: dict[str, float | None] = {"A": -0.1 - len(question_of(request)) / 100, "B": -3.0, "C": -4.0}
        return QUOTA if number in broken_at else chat_answer("A", top=top)

    batches = (drawn(LETTERS, 5, 1, 7) | drawn(MORE, 2, 0), drawn(MORE, 11, 4, 3))
    location = tmp_path / "w"
    with stub_server(reply) as stub, stub_server(lambda request, number: reply(request)) as other:
        pool = closed_pool(tmp_path, stub.url, other.url)
        tasks = load_tasks(pool.benchmarks)
        assert not extract(pool.choose(["b"], None), location).missing

        def ask(probe_id: str) -> list[str]:
            """What is asked for a probe."""
            before = len(stub.asked)
            ask_documents(location, probe_id, pool.models[0], tasks, "chat", BatchSequence(probe_id, batches))
            return sorted(map(question_of, stub.asked[before:]))

        whole = ["one 1", "one 5", "one 7", "two 0", "two 11", "two 2", "two 3", "two 4"]
        with pytest.raises(RunError, match="You exceeded your current quota"):
            ask("first")
        assert len(stub.asked) == 3
        assert len(ask("first")) == 8 - 2
        assert ask("second") == whole
        assert ask("first") == ask("second") == []
        rows = probe_answers(location).to_pylist()
        assert [row["paid"] for row in rows] == [pytest.approx(CENTS)] * 16
        assert {(row["evidence"], json.loads(row["versions"])["answered_by"]) for row in rows} == {
            ("top_logprobs", SERVED)
        }
        before = len(stub.asked)
        assert not extract(pool, location).missing
        left = {f"{task} {i}" for task in ("one", "two") for i in range(12)} - set(whole)
        assert sorted(map(question_of, stub.asked[before:])) == sorted(left)
    with open_warehouse(location, read_only=True) as warehouse:
        facts = "any_value(evidence), any_value(versions->>'answered_by')"
        paid = warehouse.rows(f"SELECT model, sum(paid), {facts} FROM extractions GROUP BY ALL ORDER BY ALL")
        assert paid == [(model, pytest.approx(24 * CENTS), "top_logprobs", SERVED) for model in "ab"]
        columns = "benchmark, task, doc_id, choice, logprob, covered_mass"
        of = "SELECT {} FROM choice_logprobs WHERE model = '{}' ORDER BY ALL"
        assert warehouse.rows(of.format(columns, "a")) == warehouse.rows(of.format(columns, "b"))


@pytest.mark.usefixtures("one_process")
def test_what_another_served_model_said_is_not_taken_over(tmp_path: Path) -> None:
    """Of a partition that a probe asked in full, nothing is asked, though this machine paid for nothing."""
    served = ["version 1"]
    location = tmp_path / "w"
    whole = {place: dict.fromkeys(range(12), 1.0) for place in (LETTERS, MORE)}

    def reply(request: dict[str, Any], number: int) -> Any:
        return chat_answer("A", top={"A": -0.1, "B": -3.0, "C": -4.0}, model=served[0])

    with stub_server(reply) as stub:
        pool = closed_pool(tmp_path, stub.url, "http://127.0.0.1:9/v1")
        tasks, one = load_tasks(pool.benchmarks), pool.choose(["a"], None)
        some: Batch = {LETTERS: dict.fromkeys(range(5), 0.5), MORE: whole[MORE]}
        ask_documents(location, "p", pool.models[0], tasks, "chat", BatchSequence("p", [some]))
        served[0] = "version 2"
        before = len(stub.asked)
        (location / "payments.sqlite").unlink()
        assert not extract(one, location).missing
        assert sorted(map(question_of, stub.asked[before:])) == sorted(f"one {i}" for i in range(12))
    with open_warehouse(location, read_only=True) as warehouse:
        rows = "SELECT task, versions->>'answered_by', evidence, paid FROM extractions ORDER BY task"
        assert warehouse.rows(rows) == [
            ("one", "version 2", "top_logprobs", pytest.approx(12 * CENTS)),
            ("two", "version 1", "top_logprobs", pytest.approx(12 * CENTS)),
        ]

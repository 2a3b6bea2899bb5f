"""Probes: some documents are asked, batch by batch, and the next extraction asks only for the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.probes import InTurn, drawn, probe_answers
from support.tiny_models import save_model, tiny_benchmarks, write_tasks

from rlfocal.extraction.running.events import Asked, Progress
from rlfocal.extraction.running.probing import ask_documents
from rlfocal.extraction.running.runner import extract
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool.specs import ModelSpec, PoolSpec, ThinkingSpec
from warehouse import open_warehouse

PLAIN, SPACES, SUMS = ("tiny-c", "plain"), ("tiny-c", "spaces"), ("tiny-a", "all")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    write_tasks(made / "tasks")
    for model in ("llama", "gpt2"):
        save_model(made / model, model)
    return made


@pytest.fixture(scope="module")
def pool(folder: Path) -> PoolSpec:
    """The second model thinks before it answers; choices are scored after an empty prompt as well."""
    choices, answers = tiny_benchmarks(folder / "tasks")
    thinking = ThinkingSpec(budget=4, traces=2, markers=("Question", "dog"), text_markers=True)
    models = [
        ModelSpec(
            model=m,
            hf_repo=str(folder / m),
            params_b=1e-4,
            truncation="keep",
            thinking=thinking if m == "gpt2" else None,
            engine_args={"hf": {"shard": 4}},
        )
        for m in ("llama", "gpt2")
    ]
    benchmarks = (choices.model_copy(update={"unconditional": True}), answers)
    return PoolSpec(name="tiny", benchmarks=benchmarks, models=tuple(models))


@pytest.fixture(scope="module")
def answered(folder: Path, pool: PoolSpec) -> Path:
    """A warehouse that llama has answered."""
    location = folder / "answered"
    llama = pool.model_copy(update={"models": pool.models[:1]})
    assert not extract(llama, location).missing
    return location


BATCHES = (
    drawn(PLAIN, 3, 17, 4, 29, 8, 9) | drawn(SUMS, 7, 2),
    drawn(SPACES, 0, 12) | drawn(PLAIN, 11),
    drawn(SUMS, 11),
)


def test_a_probe(answered: Path, pool: PoolSpec, tmp_path: Path) -> None:
    location = shutil.copytree(answered, tmp_path / "w")
    events: list[Asked | Progress] = []
    n = ask_documents(
        location,
        "p",
        pool.models[1],
        load_tasks(pool.benchmarks),
        "hf",
        InTurn("p", BATCHES),
        on_progress=events.append,
    )
    print(n, events)
    rows = probe_answers(location)
    assert len(rows) == 12
    with open_warehouse(location) as warehouse:
        print(warehouse.query("FROM probe_predictions").to_pylist()[:3])
    report = extract(pool, location)
    print(report)

"""A pool of tiny models, and a temporary Prefect server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.tiny_models import save_model, write_tasks


def write_pool(folder: Path, models: dict[str, Path]) -> Path:
    """A pool file of tiny models and one benchmark of two tasks."""
    benchmark = {
        "name": "tiny",
        "kind": "choices",
        "tasks": {"plain": "tiny_choices", "spaces": "tiny_spaces"},
        "include_path": str(folder / "tasks"),
    }
    entries = [
        {"model": name, "hf_repo": str(path), "params_b": 1e-4, "price": 1.0, "truncation": "keep"}
        for name, path in models.items()
    ]
    path = folder / f"{'-'.join(models)}.yaml"
    path.write_text(yaml.safe_dump({"name": "tiny", "benchmarks": [benchmark], "models": entries}))
    return path


def asked_for(folder: Path, *models: str, place: Path, **more: Any) -> dict[str, Any]:
    """Parameters of a regeneration of models in `folder`, with warehouse and report in `place`."""
    pool = write_pool(folder, {name: folder / name for name in models})
    places = {"warehouse": str(place / "warehouse"), "report": str(place / "report.html")}
    return {"pool": str(pool), "seeds": 1, **places, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flow")
    write_tasks(made / "tasks")
    for name in ("llama", "mistral", "gpt2"):
        save_model(made / name, name)
    (made / "torn").mkdir()
    return made


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary server with a database of its own."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield

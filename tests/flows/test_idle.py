"""Doing nothing is quick, and never taken for nothing where something has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from support.tiny_models import save_model, write_tasks

from flows.idle import find_done
from rlfocal.evaluation import evaluate, train
from rlfocal.extraction.running.runner import extract_pool
from rlfocal.methods import make_method
from rlfocal.methods.fusing.stacking import Stacking
from rlfocal.methods.trained import RL_FOCAL
from rlfocal.pool import load_pool
from rlfocal.report import write_report
from warehouse import Warehouse, open_warehouse, writing
from warehouse.store import ReadOnlyError
from warehouse.upkeep.corrections import correct_labels, rename_model

SLOW_TO_IMPORT = ("torch", "sklearn", "matplotlib", "transformers", "prefect.flows", "prefect.server")
MODELS = ("llama", "gpt2")
SEEDS = 1


@dataclass
class Finished:
    """A pool that is regenerated: nothing is left to do."""

    folder: Path

    @property
    def pool(self) -> Path:
        return self.folder / "pool.yaml"

    @property
    def location(self) -> Path:
        return self.folder / "warehouse"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def find(self, **changed: Any) -> Any:
        asked = {
            "pool": str(self.pool),
            "warehouse": str(self.location),
            "benchmarks": None,
            "models": None,
            "limit": None,
            "datasets": None,
            "backend": None,
            "seeds": SEEDS,
            "report": str(self.report),
        }
        return find_done(**{**asked, **changed})

    def write_pool(self, change: Callable[[dict[str, Any]], None] = lambda content: None) -> None:
        benchmark = {
            "name": "tiny",
            "kind": "choices",
            "tasks": {"plain": "tiny_choices", "spaces": "tiny_spaces"},
            "include_path": str(self.folder / "tasks"),
        }
        settings = {"params_b": 1e-4, "price": 1.0, "truncation": "keep"}
        models = [{"model": name, "hf_repo": str(self.folder / name), **settings} for name in MODELS]
        content: dict[str, Any] = {"name": "tiny", "benchmarks": [benchmark], "models": models}
        change(content)
        self.pool.write_text(yaml.safe_dump(content))

    def change(self, change: Callable[[Warehouse], object]) -> None:
        """Changes the warehouse and writes the report anew, so that the report alone does not tell."""
        with open_warehouse(self.location) as warehouse:
            change(warehouse)
            write_report(warehouse, self.report)

    def regenerate(self) -> None:
        """What the flow does, without Prefect."""
        pool = load_pool(str(self.pool))
        assert not extract_pool(self.location, pool).missing
        self.change(lambda warehouse: evaluate(warehouse, "tiny", models=MODELS, seeds=SEEDS))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finished = Finished(tmp_path_factory.mktemp("made") / "here")
    finished.folder.mkdir()
    for name in MODELS:
        save_model(finished.folder / name, name)
    write_tasks(finished.folder / "tasks")
    finished.write_pool()
    finished.regenerate()
    return finished.folder


@pytest.fixture
def finished(made: Path) -> Finished:
    """The same, at the same place: where a model or a warehouse lies is part of what was done."""
    kept = made.with_name("kept")
    if not kept.exists():
        shutil.copytree(made, kept)
    shutil.rmtree(made)
    shutil.copytree(kept, made)
    return Finished(made)


def correct_a_label(warehouse: Warehouse) -> None:
    [(label,)] = warehouse.rows("SELECT label FROM docs WHERE task = 'plain' AND doc_id = 3")
    row = {"row": [0], "benchmark": ["tiny"], "task": ["plain"], "doc_id": [3]}
    table = pa.table(
        row | {"label": pa.array([1 - label], pa.int32()), "gold": pa.array([None], pa.string())}
    )
    assert correct_labels(warehouse, table, str) == 1


def drop_a_partition(warehouse: Warehouse) -> None:
    with warehouse.transaction("drop"):
        writing.drop_partitions(warehouse.connection, [("gpt2", "tiny", "spaces")])


def change_an_answer(warehouse: Warehouse) -> None:
    """One score, and nothing else: the partition keeps its fingerprint."""
    with warehouse.transaction("change"):
        warehouse.connection.execute(
            "UPDATE choice_logprobs SET logprob = logprob - 1 "
            "WHERE (model, task, doc_id, choice) = ('gpt2', 'plain', 5, 0)"
        )


def change_a_price(warehouse: Warehouse) -> None:
    with warehouse.transaction("price"):
        warehouse.connection.execute("UPDATE models SET price = 7 WHERE model = 'gpt2'")


def rename_a_model(finished: Finished) -> None:
    with open_warehouse(finished.location) as warehouse:
        rename_model(warehouse, "gpt2", "gpt")


def edit_a_document(finished: Finished) -> None:
    path = finished.folder / "tasks" / "choices.jsonl"
    first, *others = path.read_text().splitlines()
    edited = json.loads(first) | {"question": "Is it another question?"}
    path.write_text("\n".join([json.dumps(edited), *others]))


def edit_a_prompt(finished: Finished) -> None:
    path = finished.folder / "tasks" / "tiny_spaces.yaml"
    path.write_text(path.read_text().replace("{{question}} ", "Q: {{question}} "))


def make_a_study(finished: Finished) -> None:
    (finished.location / "studies").mkdir()
    (finished.location / "studies" / "window-tiny.json").write_text("{}")


def price_in_the_pool(content: dict[str, Any]) -> None:
    content["models"][0]["price"] = 2.0


def length_in_the_pool(content: dict[str, Any]) -> None:
    content["models"][0]["context_length"] = 64


def name_in_the_pool(content: dict[str, Any]) -> None:
    content["models"][0]["model"] = "lama"


CHANGES: dict[str, Callable[[Finished], object]] = {
    "a label is corrected": lambda f: f.change(correct_a_label),
    "a partition is gone": lambda f: f.change(drop_a_partition),
    "an answer differs": lambda f: f.change(change_an_answer),
    "a price differs": lambda f: f.change(change_a_price),
    "a model has another name": rename_a_model,
    "other rows were evaluated last": lambda f: f.change(
        lambda w: evaluate(w, "tiny", models=["gpt2"], methods=["plurality"])
    ),
    "a document is another": edit_a_document,
    "a prompt is another": edit_a_prompt,
    "a data set is gone": lambda f: (f.folder / "tasks" / "choices.jsonl").unlink(),
    "other weights": lambda f: save_model(f.folder / "llama", "llama", seed=1),
    "another price in the pool": lambda f: f.write_pool(price_in_the_pool),
    "another setting in the pool": lambda f: f.write_pool(length_in_the_pool),
    "another name in the pool": lambda f: f.write_pool(name_in_the_pool),
    "no report": lambda f: f.report.unlink(),
    "the report was edited": lambda f: f.report.write_text(f.report.read_text().replace("gpt2", "gpt3", 1)),
    "a study was made": make_a_study,
    "no warehouse": lambda f: shutil.rmtree(f.location),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_work_to_do(finished: Finished, change: Callable[[Finished], object]) -> None:
    change(finished)
    assert finished.find() is None


@pytest.mark.slow
def test_nothing_is_done_where_nothing_changed(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    done = finished.find()
    assert (done.extracted, done.present, done.gaps, done.report) == (0, 4, (), finished.report)
    with open_warehouse(finished.location) as warehouse:
        before = warehouse.snapshot()
        again = evaluate(warehouse, "tiny", models=MODELS, seeds=SEEDS)
        assert (again.rows, again.ran) == (done.evaluations, ())
        assert warehouse.snapshot() == before
    assert finished.find(limit=5).present == 4, "a shorter partition is part of the longer one"
    for asked in ({"seeds": SEEDS + 1}, {"backend": "vllm"}, {"report": str(finished.folder / "other")}):
        assert finished.find(**asked) is None
    monkeypatch.setattr(Stacking, "recipe", lambda self, n: "of another kind")
    assert finished.find() is None
    monkeypatch.undo()
    monkeypatch.setattr("rlfocal.report.inputs.code_digest", lambda: "another version")
    assert finished.find() is None
    monkeypatch.undo()
    assert finished.find() is not None
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    code = "from flows.idle import _is_recorded; print(_is_recorded())"
    assert _python(code, finished.folder) == "True\n", "a server shows every run"


@pytest.mark.slow
def test_a_partition_that_was_made_again_with_equal_answers_is_no_work(finished: Finished) -> None:
    """What counts is the data, not when it was committed."""
    finished.change(drop_a_partition)
    assert finished.find() is None
    finished.regenerate()
    assert finished.find() is not None


@pytest.mark.slow
def test_commands_with_nothing_to_do_import_nothing_slow(finished: Finished) -> None:
    here = ["--warehouse", str(finished.location)]
    commands = [
        ["evaluate", "-b", "tiny", "--seeds", str(SEEDS), *here],
        ["train", "-b", "tiny", "--seeds", str(SEEDS), *here],
        ["report", "-o", str(finished.report), *here],
        ["regenerate", "-p", str(finished.pool), "--seeds", str(SEEDS), "-o", str(finished.report), *here],
        *([] if _has_gpu() else [["doctor", *here]]),
    ]
    with open_warehouse(finished.location, read_only=True) as warehouse:
        before = warehouse.snapshot()
        train(warehouse, "tiny", seeds=SEEDS)
    page = finished.report.stat().st_mtime_ns
    for command in commands:
        loaded = _modules_after(command, finished.folder)
        assert not loaded & set(SLOW_TO_IMPORT), command
    assert finished.report.stat().st_mtime_ns == page
    with open_warehouse(finished.location, read_only=True) as warehouse:
        assert warehouse.snapshot() == before


def test_help_imports_no_library_of_ours(tmp_path: Path) -> None:
    loaded = _modules_after(["--help"], tmp_path)
    assert not loaded & {*SLOW_TO_IMPORT, "numpy", "duckdb", "pyarrow", "pydantic", "ruamel.yaml", "prefect"}


@pytest.mark.parametrize("method", RL_FOCAL)
def test_a_recipe_needs_no_torch(method: str, tmp_path: Path) -> None:
    code = (
        "import sys; from rlfocal.methods import make_method; "
        f"print(make_method({method!r}).recipe(100)); print('torch' in sys.modules)"
    )
    assert _python(code, tmp_path).splitlines() == [make_method(method).recipe(100), "False"]


def test_a_warehouse_open_read_only_is_refused_before_anything_is_fitted(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warehouse.transaction("fill"):
        keys = {"benchmark": ["b"] * 20, "task": ["t"] * 20, "doc_id": list(range(20))}
        labels = pa.array([i % 2 for i in range(20)], pa.int32())
        split = ["train"] * 16 + ["test"] * 4
        warehouse.append("docs", pa.table(keys | {"label": labels, "split": split}))
        for choice in range(2):
            scores = {"model": ["m"] * 20, "choice": [choice] * 20, "logprob": [-1.0 - choice] * 20}
            warehouse.append("choice_logprobs", pa.table(keys | scores))
    monkeypatch.setattr("rlfocal.evaluation.candidates.fit_groups", lambda *_: pytest.fail("fitted"))
    with (
        open_warehouse(warehouse.location, read_only=True) as opened,
        pytest.raises(ReadOnlyError, match="open read-only"),
    ):
        evaluate(opened, "b", methods=["plurality"])


def _modules_after(command: list[str], folder: Path) -> set[str]:
    """What a command has imported at its end."""
    code = (
        "import sys; sys.argv = ['rlfocal', *sys.argv[1:]]\n"
        "from rlfocal.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('\\n' + '\\n'.join(sys.modules))"
    )
    return set(_python(code, folder, *command).splitlines())


def _python(code: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()

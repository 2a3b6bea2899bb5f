"""A 13th embedded model joins a pool and leaves it: what is extracted, said, and left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlfocal.base.errors import InputError
from rlfocal.base.wording import cents, percent
from rlfocal.new_model import ModelRemoval, Newcomer, add_model, remove_model
from rlfocal.pool import find_pool, load_pool, remove_from_pool
from rlfocal.pool.hub import weights_dir
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import remove_from_benchmarks
from warehouse.integrity import examine

pytestmark = pytest.mark.slow
BENCHMARKS = ["lab-gpqa", "lab-gsm8k"]
ENTRY = """\
# The thirteenth.
model: thirteenth   # lab-phi under another name
hf_repo: rlfocal-lab/lab-phi
params_b: 0.0002
price: 0.05
"""
STATE = {
    "accuracy": "SELECT * REPLACE (round(stderr, 12) AS stderr) FROM accuracy ORDER BY ALL",
    "models": "SELECT * FROM models ORDER BY ALL",
    "docs": "SELECT * FROM docs ORDER BY ALL",
    "tasks": "SELECT * FROM tasks JOIN benchmarks USING (benchmark) ORDER BY ALL",
    "extractions": "SELECT * FROM extractions ORDER BY ALL",
    "choices": "SELECT count(*), sum(hash(c)) FROM choice_logprobs AS c",
    "answers": "SELECT count(*), sum(hash(p)) FROM answer_passes AS p",
    "pools": "SELECT * FROM all_pools('lab-gpqa', 2) ORDER BY models",
    "leaderboards": "SELECT DISTINCT models FROM current_evaluations WHERE len(models) > 12",
}


class Place(NamedTuple):
    """A pool and its warehouse."""

    pool: Path
    entry: Path
    warehouse: str

    def state(self) -> dict[str, list[Any]]:
        with open_warehouse(self.warehouse, read_only=True) as opened:
            return {name: opened.rows(sql) for name, sql in STATE.items()}

    def add(self, **asked: Any) -> Newcomer:
        return add_model(str(self.pool), self.entry, warehouse=self.warehouse, **asked)

    def remove(self, model: str, *, keep_answers: bool = False) -> ModelRemoval:
        return remove_model(str(self.pool), model, warehouse=self.warehouse, keep_answers=keep_answers)

    def copied(self, folder: Path) -> Place:
        shutil.copytree(self.warehouse, folder / "warehouse")
        shutil.copy(self.pool, folder / "mine.yaml")
        shutil.copy(self.entry, folder / "entry.yaml")
        return Place(folder / "mine.yaml", folder / "entry.yaml", str(folder / "warehouse"))


class AddedModel(NamedTuple):
    place: Place
    text: bytes
    """Of the pool's file before."""
    before: dict[str, list[Any]]
    page: Newcomer
    said: list[str]


def mine(benchmarks: list[str]) -> str:
    """The embedded pool on some benchmarks, with a comment behind its models."""
    shipped = find_pool("lab").read_text("utf-8")
    every = "[lab-mmlu, lab-bbh, lab-musr, lab-gpqa, lab-gsm8k]"
    return shipped.replace(every, f"[{', '.join(benchmarks)}]") + "# the end\n"


@pytest.fixture(scope="module")
def added(lab_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> AddedModel:
    folder = tmp_path_factory.mktemp("added")
    shutil.copytree(lab_warehouse, folder / "warehouse")
    place = Place(folder / "mine.yaml", folder / "entry.yaml", str(folder / "warehouse"))
    place.pool.write_text(mine(BENCHMARKS))
    place.entry.write_text(ENTRY)
    before, text = place.state(), place.pool.read_bytes()
    said: list[str] = []
    return AddedModel(place, text, before, place.add(say=said.append), said)


@pytest.fixture
def opened(added: AddedModel) -> Iterator[Warehouse]:
    with open_warehouse(added.place.warehouse, read_only=True) as warehouse:
        yield warehouse


def test_its_partitions_and_nothing_else_are_extracted(added: AddedModel) -> None:
    now = added.place.state()
    new = [row for row in now["extractions"] if row not in added.before["extractions"]]
    assert [row for row in added.before["extractions"] if row not in now["extractions"]] == []
    assert sorted((row[1], row[2]) for row in new) == [("thirteenth", name) for name in BENCHMARKS]
    assert (added.page.extracted, added.page.present, added.page.missing) == (2, 0, ())
    assert now["docs"] == added.before["docs"]
    assert added.said == [f"added thirteenth to {added.place.pool}"]
    assert "  - model: thirteenth   # lab-phi under another name\n" in added.place.pool.read_text()
    assert added.place.pool.read_text().endswith("price: 0.05\n# the end\n")


def test_it_is_called_the_copy_that_it_is(added: AddedModel) -> None:
    assert added.page.copies == "lab-phi"
    assert not any("log-probs" in note for note in added.page.notes)


def rows(added: AddedModel, title: str, benchmark: str) -> list[tuple[str, ...]]:
    """The rows of a table of the page that are about a benchmark, without its name."""
    table = next(table for table in added.page.tables if table.title.startswith(title))
    return [row[1:] for row in table.rows if row[0] == benchmark]


def test_the_page_agrees_with_sql(added: AddedModel, opened: Warehouse) -> None:
    for name in BENCHMARKS:
        whole = opened.rows(
            "SELECT n, accuracy, stderr, (SELECT count(*) FROM benchmark_accuracy AS o "
            "WHERE o.benchmark = b.benchmark AND o.accuracy > b.accuracy) + 1 "
            "FROM benchmark_accuracy AS b WHERE benchmark = ? AND model = 'thirteenth'",
            [name],
        )
        [(n, share, stderr, rank)] = whole
        figures = str(n), percent(share), percent(stderr)
        assert rows(added, "Accuracy", name)[0] == (*figures, f"{rank} of 13")
        [found] = [one for one in added.page.assessments if one.benchmark == name]
        assert found.n == n
        assert found.accuracy[0] == pytest.approx(share)
        assert len(rows(added, "How differently", name)) == len(found.pairs) == 12
        for pair in found.pairs:
            of = [name, sorted(["thirteenth", pair.member])]
            sql = "SELECT correlation, focal_diversity FROM pool_diversity(?, ?)"
            assert opened.rows(sql, of) == [
                (pytest.approx(pair.correlation[0]), pytest.approx(pair.focal_diversity[0]))
            ]
        assert len(rows(added, "Best pools", name)) == len(found.pools) == 3
        for pool in found.pools:
            ranked = opened.rows(
                "SELECT models FROM all_pools(?, 4, split := 'train') "
                "WHERE size = ? AND NOT list_contains(models, 'thirteenth') "
                "ORDER BY plurality_accuracy DESC, models LIMIT 1",
                [name, pool.size],
            )
            assert ranked == [(list(pool.models),)]  # of equals the alphabetically first
    [(n_docs, seconds, price)] = opened.rows(
        "SELECT sum(n_docs), sum(seconds), any_value(price) FROM extractions JOIN models USING (model) "
        "WHERE model = 'thirteenth'"
    )
    facts = {row[0]: row[1] for row in added.page.tables[0].rows}
    assert facts["documents answered, seconds"] == f"{n_docs:,}, {seconds:,.1f}"
    assert facts["cents per 1,000 queries"] == cents(price)


def test_again_goes_on_where_it_stopped(added: AddedModel, tmp_path: Path) -> None:
    place = added.place.copied(tmp_path)
    with open_warehouse(place.warehouse) as warehouse:
        warehouse.connection.execute(
            "DELETE FROM extractions WHERE model = 'thirteenth' AND benchmark = 'lab-gpqa'"
        )
    page = place.add()
    assert (page.was_there, page.extracted, page.present) == (True, 1, 1)
    place.entry.write_text(ENTRY.replace("0.0002", "0.0003"))
    with pytest.raises(InputError, match="already has a model 'thirteenth', with other settings"):
        place.add()


def interrupted_after_the_file(place: Place) -> None:
    remove_from_pool(str(place.pool), "thirteenth")


def interrupted_after_the_rows(place: Place) -> None:
    with (
        open_warehouse(place.warehouse) as warehouse,
        remove_from_benchmarks(warehouse, "thirteenth", BENCHMARKS),
    ):
        pass


@pytest.mark.parametrize("interrupted", [None, interrupted_after_the_file, interrupted_after_the_rows])
def test_out_again_all_is_as_before(
    added: AddedModel, tmp_path: Path, interrupted: Callable[[Place], None] | None
) -> None:
    place = added.place.copied(tmp_path)
    if interrupted is not None:
        interrupted(place)
    removed = place.remove("thirteenth")
    assert not removed.is_nothing
    assert place.pool.read_bytes() == added.text
    assert place.state() == added.before
    with open_warehouse(place.warehouse) as warehouse:
        assert examine(warehouse).is_sound
        snapshot = warehouse.snapshot()
    again = place.remove("thirteenth")
    assert again.is_nothing
    assert again.snapshot == snapshot
    with pytest.raises(InputError, match="unknown model 'fourteenth'"):
        place.remove("fourteenth")
    with open_warehouse(place.warehouse, read_only=True, snapshot=snapshot - 1) as earlier:
        assert earlier.rows("SELECT count(*) FROM extractions WHERE model = 'thirteenth'") == [(2,)]


def test_its_answers_may_stay(added: AddedModel, tmp_path: Path) -> None:
    place = added.place.copied(tmp_path)
    before = place.state()
    removed = place.remove("thirteenth", keep_answers=True)
    assert (removed.file, removed.partitions) == (place.pool, 0)
    assert place.pool.read_bytes() == added.text
    assert place.state() == before


def inverted(folder: Path) -> Path:
    """lab-phi with another output layer."""
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(weights_dir("lab-phi"), folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight.neg_()
        model.lm_head.bias.neg_()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def fresh(tmp_path: Path) -> Place:
    """A pool on one benchmark, and no warehouse yet."""
    place = Place(tmp_path / "mine.yaml", tmp_path / "entry.yaml", str(tmp_path / "warehouse"))
    place.pool.write_text(mine(["lab-gpqa"]))
    place.entry.write_text(ENTRY)
    return place


def test_a_model_that_cannot_work_is_refused(
    fresh: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlfocal.new_model.trial.TRIAL_DOCUMENTS", 60)
    folder = inverted(tmp_path / "model")
    fresh.entry.write_text(f"{{model: spoiled, hf_repo: {folder}, params_b: 0.0002}}\n")
    with pytest.raises(InputError, match=r"lab-gpqa: [0-6] of 60 right.*--force"):
        fresh.add()
    assert fresh.pool.read_text() == mine(["lab-gpqa"])
    assert not Path(fresh.warehouse).exists()


def test_it_is_taken_in_by_force_and_leaves_nothing(fresh: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "b: 0 of 20 right; guessing gets 1. Look."
    monkeypatch.setattr("rlfocal.new_model.adding.find_faults", lambda *_: [fault])
    page = fresh.add(limit=10, force=True)
    assert page.faults == (fault,)
    assert load_pool(str(fresh.pool)).models[-1].model == "thirteenth"
    assert fresh.remove("thirteenth").partitions == 1
    with open_warehouse(fresh.warehouse, read_only=True) as warehouse:
        assert warehouse.rows("SELECT count(*) FROM docs") == [(0,)]  # nobody else had answered them


def test_of_fewer_documents_only_the_accuracy_is_told(lab_warehouse: Path, fresh: Place) -> None:
    shutil.copytree(lab_warehouse, fresh.warehouse)
    fresh.pool.write_text(
        "name: mine\nbenchmarks: [lab-gsm8k]\nmodels:\n"
        "  - {model: lab-llama-large, hf_repo: rlfocal-lab/lab-llama-large, params_b: 0.0003}\n"
    )
    fresh.entry.write_text("{model: weak, hf_repo: rlfocal-lab/lab-gemma-small, params_b: 0.00005}\n")
    page = fresh.add(limit=100)
    assert page.records[0].score.n == 100
    assert (page.assessments, page.error_correlation) == ((), None)
    assert any("answered only part" in note for note in page.notes)
    with open_warehouse(fresh.warehouse, read_only=True) as warehouse:
        assert warehouse.rows("SELECT n_docs FROM extractions WHERE model = 'weak'") == [(100,)]

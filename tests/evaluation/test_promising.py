"""Promises of stored runs: made on train, tested on test, and tested again when answers change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from support.cli import Cli

from rlfocal.base.errors import InputError
from rlfocal.evaluation.promising import look_again, stored_promises, table_of, withdrawn_since
from rlfocal.evaluation.running import evaluate
from rlfocal.exchange.imports.labels import correct
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.scenarios.replaying import replay
from rlfocal.serving import Router
from warehouse import Warehouse, open_warehouse

METHODS = ["best_single", "plurality", "log_linear"]
N = 600


def answers(seed: int = 0, *, models: tuple[str, ...] = ("a", "b", "c"), noise: float = 1.0) -> pd.DataFrame:
    """Choices of models that know most documents well; the more they know, the surer they are."""
    rng = np.random.default_rng(7)
    labels, known = rng.integers(0, 4, N), rng.gamma(1.0, 6.0, N)
    rows = []
    for model in models:
        logits = np.random.default_rng([seed, ord(model)]).normal(0, noise, (N, 4))
        logits[np.arange(N), labels] += known
        rows.append(
            pd.DataFrame(
                {
                    "doc_id": range(N), "model": model, "label": labels,
                    "split": np.where(np.arange(N) % 2, "test", "train"), "choice_logprobs": list(logits),
                }
            )
        )  # fmt: skip
    return pd.concat(rows)


@pytest.fixture(scope="module")
def imported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the answers, to copy."""
    folder = tmp_path_factory.mktemp("promising") / "warehouse"
    with open_warehouse(folder) as opened:
        import_predictions(opened, answers(), benchmark="made")
    return folder


@pytest.fixture
def filled(imported_once: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with open_warehouse(shutil.copytree(imported_once, tmp_path / "promising")) as opened:
        yield opened


@pytest.fixture(scope="module")
def trained_once(imported_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with rl_focal_sequential's promises of 10 % and of 0.5 %, to copy."""
    folder = Path(shutil.copytree(imported_once, tmp_path_factory.mktemp("trained") / "warehouse"))
    with open_warehouse(folder) as opened:
        promised(opened, "10%", "0.5%", methods=["rl_focal_sequential"])
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with open_warehouse(shutil.copytree(trained_once, tmp_path / "trained")) as opened:
        yield opened


def promised(warehouse: Warehouse, *targets: str, methods: list[str] | None = None) -> None:
    evaluate(warehouse, "made", methods=methods or METHODS, seeds=1, target_errors=targets or ("10%",))


def test_every_answer_has_a_probability(filled: Warehouse) -> None:
    """Votes and single models, too: what their agreement meant on held-out train documents."""
    evaluate(filled, "made", methods=["best_single", "plurality", "oracle"], seeds=1)
    found = dict(
        filled.rows("SELECT method, count(probability) FROM decided WHERE benchmark = 'made' GROUP BY ALL")
    )
    assert found["plurality"] == found["best_single"] == N // 2
    assert found["oracle"] == 0
    [(off,)] = filled.rows(
        "SELECT abs(avg(probability) - avg(correct::INT)) FROM decided WHERE method = 'plurality'"
    )
    assert off < 0.06


def test_promises_are_made_on_train_and_tested_on_test(filled: Warehouse) -> None:
    promised(filled, "1%", "10%")
    found = {(one.method, one.target): one for one in stored_promises(filled)}
    assert {method for method, _ in found} >= set(METHODS)
    assert "oracle" not in {method for method, _ in found}
    assert {one.state for one in found.values() if one.target == 0.01} == {"not made"}
    free = found["plurality", 0.1]
    assert free.budget is None
    rows = table_of([free, replace(free, budget="2.0")]).rows
    assert [row[0] for row in rows] == ["plurality", "plurality within 2"]
    for method in METHODS:
        one = found[method, 0.1]
        assert (one.state, one.looks, one.n) == ("kept", 1, N // 2)
        [(answered, wrong)] = filled.rows(
            "SELECT count(*), count_if(NOT correct) FROM decisions WHERE run_id = ? AND probability >= ?",
            [one.run_id, one.threshold],
        )
        assert one.coverage == pytest.approx(answered / one.n)
        assert one.error == pytest.approx(wrong / answered)


def test_a_promise_is_made_once(filled: Warehouse) -> None:
    promised(filled)
    before = filled.snapshot()
    promised(filled)
    assert filled.snapshot() == before
    promised(filled, "20%")
    assert {one.target for one in stored_promises(filled)} == {0.1, 0.2}


def renewed(warehouse: Warehouse, given: pd.DataFrame) -> None:
    """As a regeneration does: the partitions' answers are replaced."""
    with warehouse.transaction("renew"):
        for name in ("choice_logprobs", "extractions"):
            warehouse.connection.execute(f"DELETE FROM {name} WHERE benchmark = 'made'")
    import_predictions(warehouse, given, benchmark="made")


def test_a_promise_breaks_with_its_models(filled: Warehouse) -> None:
    promised(filled, methods=["best_single", "log_linear"])
    assert not look_again(filled).withdrawn
    assert all(one.looks == 1 for one in stored_promises(filled)), "nothing changed, so nothing is tested"
    renewed(filled, answers(seed=1))
    looked = look_again(filled)
    assert not looked.withdrawn
    assert {one.looks for one in looked.promises} == {2}
    useless = answers(seed=2)
    shuffled = np.random.default_rng(0).permutation(N)
    useless["choice_logprobs"] = [
        row for _, of in useless.groupby("model") for row in of.choice_logprobs.to_numpy()[shuffled]
    ]
    renewed(filled, useless)
    looked = look_again(filled)
    assert {one.method for one in looked.withdrawn} >= {"best_single", "log_linear"}
    assert not look_again(filled).withdrawn, "it is withdrawn once, and for good"
    assert {one.state for one in stored_promises(filled)} == {"withdrawn"}


def test_the_answers_and_labels_of_the_last_look_decide(filled: Warehouse) -> None:
    """Also where they come back: what was last said of a promise is of other ones."""
    promised(filled, methods=["log_linear"])

    def looks() -> list[int]:
        look_again(filled)
        return [one.looks for one in stored_promises(filled)]

    assert looks() == [1]
    before = filled.snapshot()
    renewed(filled, answers(seed=1))
    assert looks() == [2]
    assert looks() == [2]
    renewed(filled, answers())
    assert looks() == [3]
    found = "SELECT benchmark, task, doc_id, (label + 1) % 4 AS label FROM docs WHERE split = 'test' LIMIT 1"
    [wrong] = filled.query(found).to_pylist()
    other = pa.Table.from_pylist([{"row": 1} | wrong]).append_column("gold", pa.nulls(1, pa.string()))
    assert correct(filled, other, "labels.jsonl") == 1
    assert looks() == [4]
    assert withdrawn_since(filled, before) == ()
    with filled.transaction("break"):
        filled.connection.execute("UPDATE promise_looks SET wrong = answered WHERE look = 4")
    [broken] = withdrawn_since(filled, before)
    assert (broken.method, broken.state) == ("log_linear", "withdrawn")
    assert withdrawn_since(filled, filled.snapshot()) == ()


def test_a_promise_for_tasks_that_train_lacks_is_made_with_a_warning(tmp_path: Path, cli: Cli) -> None:
    given = answers()
    given["task"] = np.where(given.doc_id % 3 == 0, "held out", "seen")
    given["split"] = np.where(given.task == "held out", "test", "train")
    with open_warehouse(tmp_path / "w") as warehouse:
        import_predictions(warehouse, given, benchmark="made")
        promised(warehouse, methods=["log_linear"])
        [promise] = stored_promises(warehouse)
        assert promise.threshold is not None
        assert promise.warning is not None
        assert "held out" in promise.warning
    run = cli(
        "evaluate", "-b", "made", "--methods", "log_linear", "--seeds", "1", "--target-error", "10%",
        "-w", str(tmp_path / "w"),
    )  # fmt: skip
    assert promise.warning in " ".join(run.err.split())


def test_what_is_withdrawn_stays_so(trained: Warehouse) -> None:
    """Neither another promise of the run, nor the file beside its checkpoint, brings it back."""
    methods = ["rl_focal_sequential"]
    with trained.transaction("break"):
        trained.connection.execute("UPDATE promise_looks SET wrong = answered WHERE look = 1")
    promised(trained, "10%", "20%", methods=methods)
    [one] = [p for p in stored_promises(trained) if p.method == methods[0] and p.target == 0.1]
    assert one.state == "withdrawn"
    [path] = trained.location.checkpoints.rglob("made/rl_focal_sequential-*/*.promises.json")
    checkpoint = path.parent / "seed-0.safetensors"
    with pytest.raises(InputError, match="withdrawn"):
        Router.load(checkpoint, target_error="10%")
    assert Router.load(checkpoint, target_error="20%").abstains
    assert [one.target for one in replay(trained, str(checkpoint), "made").promises] == [0.2]


def test_a_promise_of_a_model_that_is_gone_cannot_be_tested(filled: Warehouse) -> None:
    promised(filled, methods=["log_linear"])
    renewed(filled, answers(seed=1, models=("a", "b")))
    looked = look_again(filled)
    assert any("'c'" in reason for reason in looked.untested)
    assert {one.state for one in looked.promises} == {"kept"}


def test_the_command_prints_promises(filled: Warehouse, cli: Cli) -> None:
    run = cli(
        "evaluate", "-b", "made", "--methods", "plurality", "--seeds", "1", "--target-error", "10%",
        "-w", filled.location.name,
    )  # fmt: skip
    assert "kept" in run.out
    assert "abstentions" in " ".join(run.out.split())


def test_wrong_targets_are_refused_before_any_work(filled: Warehouse) -> None:
    with pytest.raises(InputError, match="share of errors"):
        promised(filled, "5")
    with pytest.raises(InputError, match="--tune"):
        evaluate(filled, "made", methods=["knn"], tune=2, target_errors=["5%"])
    assert not filled.rows("FROM evaluations")


def test_a_router_abstains_by_the_promise(trained: Warehouse) -> None:
    [path] = trained.location.checkpoints.rglob("made/rl_focal_sequential-*/*.promises.json")
    checkpoint = path.parent / "seed-0.safetensors"
    threshold = json.loads(path.read_text())["0.1"]
    router = Router.load(checkpoint, target_error="10%")
    # Models that agree, and models that each prefer another choice.
    agreement, disagreement = {"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 1, "c": 2}
    for preferred, abstains in ((agreement, False), (disagreement, True)):
        outputs: dict[str, list[float]] = {}
        while models := router.choose("", outputs):
            outputs |= {
                model: [0.0 if k == preferred[model] else -20.0 for k in range(4)] for model in models
            }
        router.fuse(outputs)
        assert router.probability is not None
        assert router.abstains == (router.probability < threshold) == abstains
    with pytest.raises(InputError, match="too few"):
        Router.load(checkpoint, target_error="0.5%")
    made = json.loads(path.read_text())
    path.unlink()
    promised(trained, "10%", methods=["rl_focal_sequential"])
    assert json.loads(path.read_text()) == made


def test_a_replay_shows_what_becomes_of_promises(filled: Warehouse) -> None:
    promised(filled, "10%", methods=["log_linear"])
    [kept] = [one for one in stored_promises(filled) if one.method == "log_linear"]
    same = replay(filled, "log_linear", "made")
    [one] = same.promises
    assert one.target == 0.1
    assert one.coverage == (kept.coverage, kept.coverage)
    assert one.error == (kept.error, kept.error)
    [alone] = replay(filled, "log_linear", "made", down=["a", "b"]).promises
    assert alone.coverage[1] < alone.coverage[0]

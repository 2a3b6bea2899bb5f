"""Which models a regeneration hands over, and in which order."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from flows.support.threads import Turns
from rlfocal.extraction.running import missing as lacking
from rlfocal.extraction.running.missing import describe_and_find_lacking, is_filled
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import ModelSpec, load_pool
from rlfocal.pool.hub import HubError
from warehouse import Warehouse


def test_the_most_work_comes_first_and_what_cannot_run_last(warehouse: Warehouse, tmp_path: Path) -> None:
    pool = load_pool("lab").choose(None, ["lab-gpqa"])
    broken = pool.models[0].model_copy(update={"hf_repo": str(tmp_path)})
    pool = pool.model_copy(update={"models": [broken, *pool.models[1:]]})
    tasks = load_tasks(pool.benchmarks, 8)
    found = describe_and_find_lacking(warehouse, pool, tasks, "hf")
    assert found[-1] == broken
    assert {model.model for model in found} == {model.model for model in pool.models}
    sizes = [model.params_b for model in found[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    assert warehouse.rows("SELECT count(*) FROM models") == [(12,)]
    assert not is_filled(warehouse, pool, tasks, "hf")


def test_whatever_is_wrong_with_one_model_the_others_run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = list(load_pool("lab").models[:4])
    unreached, broken, ignored, good = (model.model for model in models)
    models[2] = models[2].model_copy(update={"quantization": "awq"})

    def found(spec: ModelSpec) -> ModelSpec:
        if spec.model == unreached:
            raise HubError("no answer")
        if spec.model == broken:
            raise ZeroDivisionError("what nobody thought of")
        return spec

    monkeypatch.setattr(lacking, "pinned", found)
    tasks = load_tasks(load_pool("lab").choose(None, ["lab-gpqa"]).benchmarks, 8)
    plan = lacking.plan_of(models, tasks, "hf", {})
    assert list(plan.pending) == [good]
    assert plan.unreached == {unreached}
    assert plan.failed.keys() == {unreached, broken, ignored}
    assert plan.failed[broken] == "ZeroDivisionError: what nobody thought of"
    assert "hf does not quantize (awq)" in plan.failed[ignored]
    assert list(lacking.plan_of(models, tasks, "vllm", {}).pending) == [ignored, good]


def test_the_widest_come_first(warehouse: Warehouse) -> None:
    pool = load_pool("lab").choose(None, ["lab-gpqa"])
    smallest = min(pool.models, key=lambda model: model.params_b)
    wide = smallest.model_copy(update={"tensor_parallel": 2})
    models = [wide if model == smallest else model for model in pool.models]
    tasks = load_tasks(pool.benchmarks, 8)
    found = describe_and_find_lacking(warehouse, pool.model_copy(update={"models": models}), tasks, "hf")
    assert found[0] == wide


def test_threads_go_in_turn_whoever_comes_first_and_whoever_fails() -> None:
    turns, passed, inside = Turns(), list[int](), list[int]()
    rng = random.Random(1)

    def go(number: int, seconds: float) -> None:
        time.sleep(seconds)
        try:
            with turns.turn(number):
                inside.append(number)
                assert inside == [number], "one at a time"
                passed.append(number)
                time.sleep(0.001)
                inside.remove(number)
                if number % 3 == 1:
                    raise ValueError(number)
        except ValueError:
            pass

    threads = [threading.Thread(target=go, args=(n, rng.uniform(0, 0.05))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert passed == list(range(20))
    with turns.turn(3):
        passed.append(3)
    assert passed[-1] == 3, "who has been through does not wait again"

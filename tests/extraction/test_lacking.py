"""Which models a regeneration hands over, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlfocal.extraction.running import missing
from rlfocal.extraction.running.missing import find_missing, plan_extraction
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import ModelSpec, load_pool
from rlfocal.pool.hub import HubError
from warehouse import Warehouse


def test_the_widest_and_then_the_most_work_come_first_and_what_cannot_run_last(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    pool = load_pool("lab").choose(None, ["lab-gpqa"])
    broken = pool.models[0].model_copy(update={"hf_repo": str(tmp_path)})
    smallest = min(pool.models[1:], key=lambda model: model.params_b)
    wide = smallest.model_copy(update={"tensor_parallel": 2})
    models = [broken, *(wide if model == smallest else model for model in pool.models[1:])]
    plans = plan_extraction(warehouse, models, load_tasks(pool.benchmarks, 8), "hf")
    found = [plan.model for plan in sorted(plans, key=lambda plan: plan.place) if plan.is_incomplete]
    assert (found[0], found[-1]) == (wide, broken)
    assert {model.model for model in found} == {model.model for model in pool.models}
    sizes = [model.params_b for model in found[1:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    assert warehouse.rows("SELECT count(*) FROM models") == [(12,)]


def test_whatever_is_wrong_with_one_model_the_others_run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = list(load_pool("lab").models[:4])
    unreached, broken, ignored, good = (model.model for model in models)
    models[2] = models[2].model_copy(update={"quantization": "awq"})

    def found(spec: ModelSpec, **_: bool) -> ModelSpec:
        if spec.model == unreached:
            raise HubError("no answer")
        if spec.model == broken:
            raise ZeroDivisionError("what nobody thought of")
        return spec

    monkeypatch.setattr(missing, "pin_revision", found)
    tasks = load_tasks(load_pool("lab").choose(None, ["lab-gpqa"]).benchmarks, 8)
    plans = {plan.model.model: plan for plan in find_missing(models, tasks, "hf", {})}
    assert [model for model, plan in plans.items() if plan.jobs] == [good]
    assert [model for model, plan in plans.items() if plan.reason] == [unreached, broken, ignored]
    assert [model for model, plan in plans.items() if not plan.is_lasting] == [unreached]
    assert plans[broken].reason == "ZeroDivisionError: what nobody thought of"
    assert "hf does not quantize (awq)" in str(plans[ignored].reason)
    assert [p.model.model for p in find_missing(models, tasks, "vllm", {}) if p.jobs] == [ignored, good]

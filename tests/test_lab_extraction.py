"""The embedded pool's rows against lm-eval itself: the same models, tasks, documents in simple_evaluate."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlfocal.extraction.runner import extract_pool
from rlfocal.lab import weights_dir
from rlfocal.pool import load_pool
from rlfocal.pool.files import packaged
from rlfocal.pool.specs import PoolSpec
from warehouse import open_warehouse

LAB = load_pool("lab")
TASKS = {t: (b.name, name) for b in LAB.benchmarks if b.kind == "choices" for name, t in b.tasks.items()}


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    location = tmp_path_factory.mktemp("lab") / "warehouse"
    choices: PoolSpec = LAB.choose(benchmarks=[b.name for b in LAB.benchmarks if b.kind == "choices"])
    report = extract_pool(location, choices)
    assert report.missing == []
    assert len(report.committed) == len(LAB.models) * len(TASKS)
    return location


def evaluated(model: str) -> dict[str, Any]:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel("ERROR")
    folder = str(weights_dir(model))
    found = lm_eval.simple_evaluate(
        model=HFLM(pretrained=folder, dtype="float32", batch_size=64, device="cpu"),
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(packaged("lab/tasks")), include_defaults=False),
        bootstrap_iters=0,
    )
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("model", [m.model for m in LAB.models])
def test_accuracy_and_sums_equal_lm_evals(extracted: Path, model: str) -> None:
    theirs = evaluated(model)
    with open_warehouse(extracted) as warehouse:
        for lm_eval_task, (benchmark, task) in TASKS.items():
            where = [benchmark, task, model]
            [(accuracy, n)] = warehouse.rows(
                "SELECT accuracy, n FROM accuracy WHERE (benchmark, task, model) = (?, ?, ?)", where
            )
            samples = sorted(theirs["samples"][lm_eval_task], key=lambda s: s["doc_id"])
            assert n == len(samples)
            assert accuracy == pytest.approx(theirs["results"][lm_eval_task]["acc,none"], abs=1e-12)
            rows = warehouse.rows(
                "SELECT doc_hash, logprob, list_sum(token_logprobs), is_greedy FROM choice_logprobs"
                " JOIN docs USING (benchmark, task, doc_id)"
                " WHERE (benchmark, task, model) = (?, ?, ?) ORDER BY doc_id, choice",
                where,
            )
            hashes, logprobs, sums, greedy = zip(*rows, strict=True)
            responses = [(s["doc_hash"], *r[0]) for s in samples for r in s["resps"]]
            their_hashes, their_sums, their_greedy = zip(*responses, strict=True)
            assert hashes == their_hashes
            assert greedy == their_greedy
            np.testing.assert_allclose(logprobs, their_sums, atol=1e-4)
            np.testing.assert_allclose(sums, their_sums, atol=1e-4)

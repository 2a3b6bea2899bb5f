"""The embedded pool, extracted whole: lm-eval's own accuracy, and the skill and diversity it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scores import lm_eval_results

from rlfocal.lab import TASKS_DIR, weights_dir
from rlfocal.pool import PoolSpec, load_pool
from warehouse import Warehouse, open_warehouse

pytestmark = pytest.mark.slow
MODELS = [model.model for model in load_pool("lab").models]
ARCHITECTURES = [model for model in MODELS if not model.endswith(("-small", "-large"))]
CHOICES = ["lab-mmlu", "lab-bbh", "lab-musr", "lab-gpqa"]


@pytest.fixture(scope="module")
def pool() -> PoolSpec:
    return load_pool("lab")


@pytest.fixture(scope="module")
def opened(lab_warehouse: Path) -> Warehouse:
    return open_warehouse(lab_warehouse, read_only=True)


@pytest.mark.parametrize(
    ("model", "limit"), [(model, 10 if at else None) for at, model in enumerate(ARCHITECTURES)]
)
def test_accuracy_by_sql_is_lm_evals(
    opened: Warehouse, pool: PoolSpec, model: str, limit: int | None
) -> None:
    """lm-eval's own backend on the same documents: log-likelihoods within 1e-4, equal accuracies of all."""
    names = {lm: (b.name, t) for b in pool.benchmarks if b.kind == "choices" for t, lm in b.tasks.items()}
    weights = str(weights_dir(model))
    results = lm_eval_results(weights, TASKS_DIR, names, limit=limit, dtype="float32", batch_size=128)
    by_sql = {
        (benchmark, task): (accuracy, acc_norm, n)
        for benchmark, task, accuracy, acc_norm, n in opened.rows(
            "SELECT benchmark, task, accuracy, acc_norm, a.n "
            "FROM accuracy AS a LEFT JOIN accuracy_norm USING (benchmark, task, model) WHERE model = ?",
            [model],
        )
    }
    for lm_eval_task, (benchmark, task) in names.items():
        samples = {s["doc_id"]: s for s in results["samples"][lm_eval_task]}
        accuracy, acc_norm, n = by_sql[benchmark, task]
        if limit is None:
            assert n == len(samples)
            assert accuracy == results["results"][lm_eval_task]["acc,none"]
            assert acc_norm == results["results"][lm_eval_task]["acc_norm,none"]
        ours = opened.rows(
            "SELECT doc_id, any_value(doc_hash), list(is_greedy ORDER BY choice), "
            "list(logprob ORDER BY choice), list(list_sum(token_logprobs) ORDER BY choice) "
            "FROM choice_logprobs JOIN docs USING (benchmark, task, doc_id) "
            "WHERE benchmark = ? AND task = ? AND model = ? AND doc_id < ? GROUP BY doc_id",
            [benchmark, task, model, n if limit is None else limit],
        )
        assert len(ours) == len(samples)
        for doc_id, doc_hash, greedy, logprobs, sums in ours:
            theirs = [response[0] for response in samples[doc_id]["resps"]]
            assert doc_hash == samples[doc_id]["doc_hash"]
            assert greedy == [is_greedy for _, is_greedy in theirs]
            assert logprobs == pytest.approx([total for total, _ in theirs], abs=1e-4)
            assert sums == pytest.approx([total for total, _ in theirs], abs=1e-4)


@pytest.mark.parametrize("benchmark", CHOICES)
def test_there_is_real_skill_and_real_diversity(opened: Warehouse, benchmark: str) -> None:
    [(best,)] = opened.rows("SELECT max(accuracy) FROM benchmark_accuracy WHERE benchmark = ?", [benchmark])
    assert 0.60 <= best <= 0.90
    [(oracle,)] = opened.rows(
        "SELECT avg(someone::INT) FROM (SELECT bool_or(correct) AS someone FROM predictions "
        "WHERE benchmark = ? GROUP BY task, doc_id)",
        [benchmark],
    )
    assert oracle >= best + 0.10


def test_ten_passes_of_every_word_problem_are_there(opened: Warehouse) -> None:
    [(documents, fewest, most, parsed)] = opened.rows(
        "SELECT count(*), min(n), max(n), avg(answered) FROM (SELECT model, doc_id, count(*) AS n, "
        "count(answer) / count(*) AS answered FROM answer_passes WHERE benchmark = 'lab-gsm8k' GROUP BY ALL)"
    )
    assert (documents, fewest, most) == (12 * 600, 10, 10)
    assert parsed > 0.9
    splits = opened.rows(
        "SELECT split, count(*), min(doc_id) FROM docs WHERE benchmark = 'lab-gsm8k' GROUP BY ALL"
    )
    assert sorted(splits) == [("test", 360, 240), ("train", 240, 0)]

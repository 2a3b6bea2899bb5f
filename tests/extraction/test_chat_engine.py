"""Models that only a chat service runs, against a real `vllm serve` without its prompt log-probs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.basics import RLFOCAL
from support.closed_pool import write_closed_pool
from support.killing import kill_tree, tables
from support.limited_server import LimitedServer, limit
from support.scores import NEEDS_VLLM
from support.servers import SERVED

from rlfocal.base.errors import InputError, RunError
from rlfocal.data.loading import load_dataset
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines import chat, hf
from rlfocal.extraction.running.runner import extract
from rlfocal.pool import ModelSpec, load_pool
from rlfocal.pool.specs import ThinkingSpec
from warehouse import open_warehouse

TOLERANCE = 1e-4
PRICES = {"price_input": 1000, "price_output": 2000}  # cents per million tokens
pytestmark = [pytest.mark.slow, *NEEDS_VLLM]


def documents(n: int = 6) -> list[Document]:
    letters = (" A", " B", " C")
    asked = [
        (
            ("system", "Answer with one letter."),
            ("user", f"What is {i} + 1?\nA. {i + 1}\nB. {i + 2}\nC. {i}\nAnswer:"),
        )
        for i in range(n)
    ]
    return [Document(i, "", "", 0, "", ("A", "B", "C"), "", letters, text) for i, text in enumerate(asked)]


def entry(url: str, **changes: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {"model": "closed", "served": SERVED, "base_url": url, **PRICES, **changes}
    )


def cents(limited: LimitedServer) -> float:
    """What was paid to a service."""
    read, written = limited.tokens
    return (read * PRICES["price_input"] + written * PRICES["price_output"]) / 1e6


def start(url: str, folder: Path, partition: str = "one", **changes: Any) -> chat.ChatEngine:
    engine = chat.load(entry(url, **changes), None)
    engine.begin(folder / "payments", partition)
    return engine


@pytest.fixture
def served(smollm_served: str) -> str:
    """The address of a `vllm serve` of the model."""
    return f"http://{smollm_served}/v1"


def test_first_tokens_are_transformers_log_probs(served: str, smollm: Path, tmp_path: Path) -> None:
    """Of each letter, the sum over the tokens that name it; `hf` scores the same chat."""
    engine = start(served, tmp_path)
    spec = ModelSpec(model="open", hf_repo=str(smollm), params_b=0.135, dtype="float32")
    exact = hf.load(spec, smollm, threads=1)
    forms = [replace(d, continuations=("A", " A", "B", " B", "C", " C")) for d in documents()]
    for scores, known in zip(engine.score(documents()), exact.score(forms), strict=True):
        # lm-eval's rule scores the newline of the template's end with the choice; the service is past it.
        probs = [math.exp(score.token_logprobs[-1]) for score in known]
        letters = [probs[0] + probs[1], probs[2] + probs[3], probs[4] + probs[5]]
        found = np.exp([score.token_logprobs[0] for score in scores])
        assert found / found.sum() == pytest.approx(np.array(letters) / sum(letters), abs=TOLERANCE)
        assert scores[0].covered_mass == pytest.approx(sum(letters), abs=TOLERANCE)
        assert scores[0].n_prompt_tokens == (known[0].n_prompt_tokens or 0) + len(known[0].token_ids) - 1
    assert engine.facts()["evidence"] == "top_logprobs"


def test_samples_are_drawn_from_that_distribution(served: str, tmp_path: Path) -> None:
    """A multinomial's chi-square, summed over documents, stays below its 1 - 1e-4 quantile."""
    from scipy.stats import chi2

    n = 100
    believed = [
        [score.token_logprobs[0] for score in row] for row in start(served, tmp_path).score(documents())
    ]
    options = {"chat": {"top_logprobs": 0, "samples": n, "max_tokens": 1}}
    engine = start(served, tmp_path, "two", engine_args=options)
    statistic, freedom = 0.0, 0
    for logprobs, scores in zip(believed, engine.score(documents()), strict=True):
        expected = np.exp([*logprobs, math.log1p(-sum(map(math.exp, logprobs)))]) * n
        counts = np.exp([score.token_logprobs[0] for score in scores]) * n
        counts = np.append(counts, n - n * (scores[0].covered_mass or 0))
        statistic += float(((counts - expected) ** 2 / expected).sum())
        freedom += len(expected) - 1
    assert 0 < statistic < chi2.ppf(1 - 1e-4, freedom)
    assert engine.facts()["evidence"] == "samples"


def test_a_service_that_lists_no_tokens_is_sampled(served: str, tmp_path: Path) -> None:
    with limit(served, "top_logprobs") as limited:
        engine = start(limited.url, tmp_path, engine_args={"chat": {"samples": 4}})
        scores = list(engine.score(documents()))
        assert len(limited.paid) == 6
        again = start(limited.url, tmp_path, engine_args={"chat": {"samples": 4}})
        assert list(again.score(documents())) == scores
        assert (len(limited.paid), len(limited.passed), limited.repeated) == (6, 6, 0)
        assert again.facts()["paid"] == pytest.approx(cents(limited))
        assert sum(row[0].n_generated or 0 for row in scores) == limited.tokens[1]


def test_a_service_that_ignores_n(served: str, tmp_path: Path) -> None:
    def ignore(request: dict[str, Any], answer: dict[str, Any] | None) -> None:
        request.pop("n", None)

    sampling = SamplingSettings(passes=3, temperature=0.6, top_p=0.95, max_tokens=8, stop=("\n",), seed=0)
    with limit(served, edit=ignore) as limited:
        [refused] = start(limited.url, tmp_path).sample(documents(1), sampling)
        assert "per_request: 1" in str(refused[0].unanswered)
        engine = start(limited.url, tmp_path, engine_args={"chat": {"per_request": 1}})
        samples = list(engine.sample(documents(2), sampling))
        assert [len(row) for row in samples] == [3, 3]
        assert all("\n" not in sample.text for row in samples for sample in row)


def test_what_cannot_be_asked_is_refused(served: str, tmp_path: Path) -> None:
    engine = start(served, tmp_path)
    with pytest.raises(InputError, match="`thinking`"):
        engine.check(documents(), thinking=ThinkingSpec(budget=8))
    with pytest.raises(InputError, match="`unconditional`"):
        engine.check([Document(0, "", "", None, "", ("A",), "", ("A",))])
    with pytest.raises(InputError, match="'sample'"):
        start(served, tmp_path, engine_args={"chat": {"sample": 2}})
    with pytest.raises(RunError, match="reached"):
        start("http://127.0.0.1:9/v1", tmp_path)


def write_pool(folder: Path, url: str, **changes: Any) -> Path:
    """A pool of one closed model, and two tasks of letters."""
    asked = [d.messages[1][1] for d in documents(24) if d.messages is not None]
    spec = entry(url, **({"engine_args": {"chat": {"concurrency": 2}}} | changes))
    return write_closed_pool(
        folder,
        {"one": asked[:12], "two": asked[12:]},
        [spec.model_dump(mode="json", exclude_unset=True)],
        system_prompt="Answer with one letter.",
    )


def test_killed_resumed_and_limited_nothing_is_paid_twice(served: str, tmp_path: Path) -> None:
    with limit(served) as limited:
        pool = write_pool(tmp_path, limited.url)
        command = [sys.executable, *RLFOCAL, "extract", "--pool", str(pool), "-w", str(tmp_path / "w")]
        killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 600
        while len(limited.paid) < 5:
            assert killed.poll() is None, killed.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        kill_tree(killed)
        before = len(limited.passed)
        assert before < 24

        most = 2.5 * cents(limited)
        low = load_pool(str(write_pool(tmp_path, limited.url, spending_limit=most)))
        report = extract(low, tmp_path / "w")
        assert len(report.missing) > 0
        assert all("spending limit" in gap.reason and "raise" in gap.reason for gap in report.missing)
        assert cents(limited) <= most

        high = load_pool(str(write_pool(tmp_path, limited.url, spending_limit=1000)))
        assert not extract(high, tmp_path / "w").missing
        assert limited.refused > 10
        assert set(Counter(limited.passed).values()) == {1}
        assert len(limited.passed) == len(limited.paid) == 24
        assert limited.repeated <= 2  # what was on its way at the kill

        slower = {"concurrency": 1}  # which changes no request
        again = load_pool(str(write_pool(tmp_path, limited.url, engine_args={"chat": slower})))
        assert not extract(again, tmp_path / "w").committed
        assert len(limited.passed) == 24

    undisturbed = load_pool(str(write_pool(tmp_path, served)))
    assert not extract(undisturbed, tmp_path / "undisturbed").missing
    assert tables(tmp_path / "w") == tables(tmp_path / "undisturbed")
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        evidence = warehouse.rows("SELECT DISTINCT evidence FROM extractions")
        [(mass,)] = warehouse.rows("SELECT min(covered_mass) FROM choice_logprobs")
        [(paid,)] = warehouse.rows("SELECT sum(paid) FROM extractions")
        [(cost,)] = warehouse.rows("SELECT sum(token_cost) / 1000 FROM query_costs")
        assert evidence == [("top_logprobs",)]
        assert 0 < mass <= 1
        assert paid == pytest.approx(cost)
        assert load_dataset(warehouse, "letters").sampled == ()


def test_a_changed_model_fails_its_task_alone_which_begins_anew(served: str, tmp_path: Path) -> None:
    changed = ["What is 15 +"]

    def change(request: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if answer is not None and any(question in json.dumps(request) for question in changed):
            answer["model"] = "another"

    with limit(served, edit=change) as limited:
        pool = load_pool(str(write_pool(tmp_path, limited.url)))
        report = extract(pool, tmp_path / "w")
        assert [(gap.task, "changed the model" in gap.reason) for gap in report.missing] == [("two", True)]
        assert [done.task for done in report.committed] == ["one"]
        changed.clear()
        limited.paid.clear()
        assert [done.task for done in extract(pool, tmp_path / "w").committed] == ["two"]
        assert len(limited.paid) == 12

"""Thinking before scoring: a model that was trained to need its traces, extracted by transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from support.killing import tables
from support.one_process import in_one_process
from support.thinking_model import (
    LEAD_IN,
    LETTERS,
    MARKERS,
    questions,
    save_thinking_model,
    write_thinking_tasks,
)
from support.tiny_models import save_model
from typer.testing import CliRunner

from benchmarks.studies.__main__ import app as studies
from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.tables import import_tables
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines import hf
from rlfocal.extraction.estimate import KNOWN_GPUS
from rlfocal.extraction.partition import fingerprint, weights_digest
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.rows import mean_logprobs
from rlfocal.extraction.running.missing import find_missing
from rlfocal.extraction.running.runner import extract
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import load_pool
from rlfocal.pool.specs import ModelSpec, PoolSpec, ThinkingSpec, resolve_thinking
from warehouse import Warehouse, open_warehouse
from warehouse.integrity import examine

N = 40
THINKING = ThinkingSpec(budget=8, traces=3, temperature=0.5, top_p=1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_thinking_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(model: Path) -> hf.HFEngine:
    return hf.load(entry(model), model, 1)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_thinking_tasks(tmp_path_factory.mktemp("tasks"), N)


def entry(
    model: Path, name: str = "thinker", thinking: ThinkingSpec | None = THINKING, **more: Any
) -> ModelSpec:
    about = {"family": "tiny", "params_b": 1e-4, "price_input": 1.0, "price_output": 4.0}
    return ModelSpec(model=name, hf_repo=str(model), thinking=thinking, **{**about, **more})


def pool(tasks: Path, *models: ModelSpec) -> PoolSpec:
    named = (("t", "choices", "thought"), ("a", "answers", "thought_answers"))
    benchmarks = [
        {"name": name, "kind": kind, "tasks": {"all": task}, "include_path": str(tasks)}
        for name, kind, task in named
    ]
    return PoolSpec.model_validate({"name": "p", "benchmarks": benchmarks, "models": models})


@pytest.fixture(scope="module")
def location(model: Path, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with and without thinking, on both benchmarks."""
    location = tmp_path_factory.mktemp("warehouse")
    both = pool(tasks, entry(model), entry(model, "at-once", None))
    with in_one_process():
        report = extract(both, location, backend="hf")
    assert [gap.reason for gap in report.missing] == []
    return location


def documents(n: int) -> list[Document]:
    choices = tuple(f" {letter}" for letter in LETTERS)
    return [
        Document(i, "", "", q["label"], "", choices, f"{q['question']}:", choices)
        for i, q in enumerate(questions(n, seed=7))
    ]


def accuracies(warehouse: Warehouse, benchmark: str) -> dict[tuple[str, bool], float]:
    """By model and whether the questions are hard."""
    rows = warehouse.rows(
        "SELECT model, contains(question, 'Question') AS hard, avg(correct::INT) FROM outcomes "
        "JOIN docs USING (benchmark, task, doc_id) WHERE benchmark = ? GROUP BY ALL",
        [benchmark],
    )
    return {(model, hard): share for model, hard, share in rows}


@pytest.mark.parametrize("benchmark", ["t", "a"])
def test_a_model_is_right_where_its_trace_holds_the_answer(location: Path, benchmark: str) -> None:
    with open_warehouse(location) as warehouse:
        found = accuracies(warehouse, benchmark)
    assert found["thinker", True] >= 0.9
    assert found["at-once", True] <= 0.6  # chance is 0.25
    assert found["at-once", False] >= 0.9 > 0.6 >= found["thinker", False]


def test_traces_are_stored_and_choices_have_their_mean(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        traces = warehouse.query("FROM traces WHERE benchmark = 't' ORDER BY doc_id, trace").to_pylist()
        assert [(row["doc_id"], row["trace"]) for row in traces] == [
            (d, t) for d in range(N) for t in range(3)
        ]
        for row in traces:
            assert row["finish_reason"] == "stop"
            assert not row["cut_by_budget"]
            assert row["text"].strip() in LETTERS
            assert row["n_tokens"] == len(row["token_ids"]) + 1
            assert [len(logprobs) for logprobs in row["token_logprobs"]] == [2] * 4
        assert len({row["text"] for row in traces if row["doc_id"] % 2}) == 4
        different = warehouse.rows(
            "WITH means AS (SELECT doc_id, model, choice, avg(prob) AS prob FROM trace_probs "
            "WHERE benchmark = 't' GROUP BY ALL) SELECT max(abs(c.prob - m.prob)), count(*) "
            "FROM choice_probs AS c JOIN means AS m USING (doc_id, model, choice) WHERE c.benchmark = 't'"
        )
        assert different == [(pytest.approx(0, abs=1e-6), 4 * N)]
        assert warehouse.rows(
            "SELECT DISTINCT token_logprobs IS NULL, model FROM choice_logprobs ORDER BY ALL"
        ) == [(False, "at-once"), (True, "thinker")]


def test_traces_are_apart_from_the_answers_that_are_parsed(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        rows = warehouse.rows(
            "SELECT t.text, p.text, t.token_logprobs FROM traces AS t JOIN answer_passes AS p "
            "ON (t.benchmark, t.doc_id, t.trace, t.model) = (p.benchmark, p.doc_id, p.pass, p.model)"
        )
    assert len(rows) == 3 * N
    for trace, answer, logprobs in rows:
        assert MARKERS[1] not in trace + answer
        assert logprobs is None


def test_thinking_is_paid_by_its_tokens(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        costs = warehouse.rows(
            "SELECT q.model, n_prompt_tokens, n_answered_tokens, n_thought_tokens, token_cost, "
            "coalesce((SELECT sum(n_tokens) FROM traces AS t WHERE (t.benchmark, t.doc_id, t.model) = "
            "(q.benchmark, q.doc_id, q.model)), 0) FROM query_costs AS q"
        )
        records = warehouse.rows(
            "SELECT model, benchmark, n_generated_tokens FROM extractions ORDER BY model, benchmark"
        )
        thought = warehouse.rows("SELECT sum(n_tokens) FROM traces WHERE benchmark = 't'")
    for model, prompt, answered, paid, cost, drawn in costs:
        assert paid == drawn
        assert (paid > 0) == (model == "thinker")
        assert cost == pytest.approx((prompt + 4 * (answered + paid)) / 1000)
    assert records[1][2] == 0  # scored at once
    assert records[3] == ("thinker", "t", thought[0][0])


@pytest.mark.slow
def test_tables_of_thoughts_travel_and_are_checked(location: Path, tmp_path: Path) -> None:
    with open_warehouse(location) as warehouse:
        assert examine(warehouse).is_sound
        export(warehouse, tmp_path / "tables", questions=True)
    with open_warehouse(tmp_path / "other") as other:
        import_tables(other, tmp_path / "tables")
        assert examine(other).is_sound
    assert tables(tmp_path / "other")["traces"].equals(tables(location)["traces"])
    with open_warehouse(tmp_path / "other") as other, other.transaction("damage"):
        other.connection.execute(
            "UPDATE traces SET text = 'x' WHERE doc_id = 1 AND trace = 1 AND benchmark = 't'"
        )
    with open_warehouse(tmp_path / "other") as other:
        [fault] = examine(other).partitions or ()
        assert fault[:3] == ("thinker", "t", "all")


def test_a_budget_of_zero_is_scoring_at_once(model: Path, tasks: Path) -> None:
    [task, _] = load_tasks(pool(tasks, entry(model)).benchmarks)
    none, zero, eight = (
        fingerprint(spec, weights_digest(spec), task, "hf")
        for spec in (entry(model, thinking=own) for own in (None, ThinkingSpec(traces=4), THINKING))
    )
    assert none == zero != eight
    own = replace(task, thinking=THINKING)  # the benchmark's
    opted_out = entry(model, thinking=ThinkingSpec(budget=0))
    [missing] = find_missing([opted_out], [own], "hf", {})
    assert missing.jobs[0].thinking is None
    [missing] = find_missing([entry(model, thinking=ThinkingSpec(traces=2))], [own], "hf", {})
    assert missing.jobs[0].thinking == THINKING.model_copy(update={"traces": 2})


def test_scores_after_a_trace_are_those_of_the_whole_text(engine: hf.HFEngine) -> None:
    asked = documents(6)
    traces = list(engine.think(asked, THINKING))
    found = list(engine.score_after(asked, THINKING, traces))
    for document, own, scores in zip(asked, traces, found, strict=True):
        for trace, after in zip(own, scores, strict=True):
            text = document.context + MARKERS[0] + trace.text + MARKERS[1] + LEAD_IN.rstrip()
            continuations = tuple(LEAD_IN + choice for choice in document.choices)
            [expected] = engine.score([replace(document, context=text, continuations=continuations)])
            for a, b in zip(after, expected, strict=True):
                assert a.token_ids == b.token_ids[-2:]
                assert a.token_logprobs == pytest.approx(b.token_logprobs[-2:], abs=1e-5)
                assert a.n_prompt_tokens == len(
                    engine._encoder.encode_continuation(document.context + MARKERS[0])
                )


def test_the_same_seed_gives_the_same_trace(model: Path, engine: hf.HFEngine) -> None:
    asked = documents(9)
    traces = list(engine.think(asked, THINKING))
    assert list(engine.think(asked[4:6], THINKING)) == traces[4:6]
    narrow = hf.load(entry(model, engine_args={"hf": {"batch_tokens": 64}}), model, 1)
    assert list(narrow.think(asked, THINKING)) == traces
    assert len({trace for own in traces for trace in own}) >= 4


def test_a_budget_cuts_and_the_marker_is_put_in(engine: hf.HFEngine) -> None:
    short = THINKING.model_copy(update={"budget": 1})
    traces = list(engine.think(documents(4), short))
    assert {(trace.finish_reason, trace.n_tokens) for own in traces for trace in own} == {("length", 1)}
    scores = list(engine.score_after(documents(4), short, traces))
    assert all(np.isfinite(score.token_logprobs).all() for own in scores for t in own for score in t)


def test_markers_may_be_text(engine: hf.HFEngine) -> None:
    letters = {" A", " B", " C", " D"}
    as_text = THINKING.model_copy(update={"text_markers": True})
    traces = [trace for own in engine.think(documents(4), as_text) for trace in own]
    assert {trace.text for trace in traces} <= letters
    assert {trace.finish_reason for trace in traces} == {"stop"}


@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_thought_fails_and_the_rest_goes_on(model: Path, tasks: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", "llama")
    models = (
        entry(other, "markerless"),
        entry(model, "endless", ThinkingSpec(budget=500)),
        entry(model, "fine", THINKING.model_copy(update={"budget": 4})),
    )
    one = pool(tasks, *models).choose(benchmarks=["t"])
    report = extract(one, tmp_path / "w", backend="hf", limit=5)
    reasons = {gap.model: gap.reason for gap in report.missing}
    assert reasons.keys() == {"markerless", "endless"}
    assert "'</think>'" in reasons["markerless"]
    assert "`budget`" in reasons["endless"]


def test_an_argument_that_the_template_lacks_is_refused(model: Path) -> None:
    engine = hf.load(entry(model, template_args={"enable_thinking": True}), model, 1)
    engine._tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    [document] = documents(1)
    chat = replace(document, context="", messages=(("user", document.context),))
    with pytest.raises(InputError, match="'enable_thinking'"):
        engine.texts([chat])
    engine._tokenizer.chat_template += "{% if enable_thinking %}<think>{% endif %}"
    assert engine.texts([chat]) == [document.context + "<think>"]
    # What the template has opened is not opened again.
    [traces] = engine.think([chat], THINKING)
    assert list(engine.think([document], THINKING)) == [traces]


@pytest.mark.parametrize(
    "wrong",
    [{"budget": -1}, {"markers": ["<think>", ""]}, {"markers": ["<think>"]}, {"traces": 0}, {"tokens": 5}],
)
def test_specs_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ThinkingSpec.model_validate(wrong)


def test_the_example_of_the_docs_is_a_pool(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "entries.md").read_text()
    [_, section] = text.split("## Models that think")
    (tmp_path / "p.yaml").write_text("name: p\n" + section.split("```yaml\n")[1].split("```")[0])
    thinker, at_once = load_pool(str(tmp_path / "p.yaml")).models
    assert resolve_thinking(thinker, None) == thinker.thinking
    assert resolve_thinking(at_once, None) is None
    assert (thinker.hf_repo, thinker.family) == (at_once.hf_repo, at_once.family)


@pytest.mark.slow
def test_agents_and_a_cascade_learn_where_thinking_helps(model: Path, tmp_path: Path) -> None:
    """By what the model says at once: the questions' words, which tell the answers here, are hidden."""
    many = pool(write_thinking_tasks(tmp_path, 300), entry(model), entry(model, "at-once", None))
    location = str(tmp_path / "w")
    extract(many.choose(benchmarks=["t"]), location, backend="hf", jobs=1)
    methods = "cascade,rl_focal_sequential-text"
    words = ["evaluate", "-b", "t", "-w", location, "--seeds", "1", "--methods", methods]
    done = CliRunner().invoke(app, [*words, "--set", "rl_focal_sequential-text.price_penalty=0.3"])
    assert done.exit_code == 0, done.output
    with open_warehouse(location) as warehouse:
        rows = warehouse.rows(
            "SELECT method, contains(question, 'Question') AS hard, "
            "avg(list_contains(pool, 'thinker')::INT), avg(correct::INT) "
            "FROM decisions JOIN docs USING (benchmark, task, doc_id) JOIN runs USING (run_id) "
            "WHERE list_contains(?, method) GROUP BY ALL ORDER BY ALL",
            [methods.split(",")],
        )
    assert len(rows) == 4
    for (_, _, easy, right_easy), (_, _, hard, right_hard) in zip(rows[::2], rows[1::2], strict=True):
        assert easy <= 0.1 < 0.6 <= hard
        assert min(right_easy, right_hard) >= 0.9

    words = ["thinking", "-b", "t", "-w", location, "--seeds", "1", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(studies, words)
    assert done.exit_code == 0, done.output
    points = {(p["series"], p["label"]): p for p in json.loads(done.stdout)["points"]}
    at_once, thinker = points["single", "at-once"], points["single", "thinker"]
    assert at_once["x"] == 0 < thinker["x"] <= THINKING.traces * THINKING.budget
    assert at_once["cost"] < thinker["cost"]
    # Each is right where the other guesses, so which of the two is better is luck.
    alone = {at_once["accuracy"], thinker["accuracy"]}
    assert points["best_single", "up to thinker"]["accuracy"] in alone
    assert points["cascade", "up to thinker"]["accuracy"] >= max(alone) + 0.2
    assert points["RL-Focal", "up to thinker"]["x"] == thinker["x"]


def test_a_plan_counts_the_traces(model: Path, tasks: Path, tmp_path: Path) -> None:
    both = pool(tasks, entry(model), entry(model, "at-once", None))
    thinker, at_once = plan_pool(both, tmp_path, backend="hf", gpu=KNOWN_GPUS["H100"]).models
    # Three traces a document before choices, one before each of three passes.
    assert thinker.decode_tokens - at_once.decode_tokens == N * 3 * THINKING.budget * 2
    assert thinker.requests > at_once.requests
    assert thinker.hours > at_once.hours


def test_every_trace_weighs_the_same(engine: hf.HFEngine) -> None:
    asked = documents(2)
    traces = list(engine.think(asked, THINKING))
    for scores in engine.score_after(asked, THINKING, traces):
        logprobs = np.array([[sum(c.token_logprobs) for c in trace] for trace in scores])
        softmax = np.exp(logprobs) / np.exp(logprobs).sum(axis=1, keepdims=True)
        mean = np.exp(mean_logprobs(scores))
        np.testing.assert_allclose(mean / mean.sum(), softmax.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(mean_logprobs(scores[:1]), logprobs[0], atol=1e-9)

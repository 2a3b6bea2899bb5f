"""Extraction end to end: real tiny models, real processes, a real warehouse."""

from __future__ import annotations

import json
import shutil
from logging import ERROR
from pathlib import Path
from typing import Any

import pytest
from support.basics import run_python
from support.killing import tables
from support.tiny_models import save_models, tiny_benchmarks, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.estimate import KNOWN_GPUS
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.recording import log, start_log
from rlfocal.extraction.running.events import (
    ConcurrentPartition,
    ExtractedPartition,
    Failure,
    Progress,
    share_of_tasks,
)
from rlfocal.extraction.running.runner import ExtractionReport, extract
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import open_warehouse


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    write_tasks(made / "tasks")
    return made


@pytest.fixture(scope="module")
def pool(folder: Path) -> PoolSpec:
    benchmarks = tiny_benchmarks(folder / "tasks", train_docs=9)
    return PoolSpec(name="tiny", benchmarks=benchmarks, models=save_models(folder, "llama", "gpt2"))


@pytest.fixture(scope="module")
def undisturbed(folder: Path, pool: PoolSpec) -> tuple[Path, ExtractionReport]:
    location = folder / "undisturbed"
    return location, extract(pool, location)


def test_every_partition_is_committed_with_the_contract_columns(
    pool: PoolSpec, undisturbed: tuple[Path, ExtractionReport]
) -> None:
    location, report = undisturbed
    assert {(c.model, c.benchmark, c.task, c.n_docs) for c in report.committed} == {
        (m.model, benchmark, task, n)
        for m in pool.models
        for benchmark, task, n in [("tiny-c", "plain", 30), ("tiny-c", "spaces", 30), ("tiny-a", "all", 12)]
    }
    assert (report.missing, report.n_skipped, report.n_docs) == ([], 0, 144)
    with open_warehouse(location) as warehouse:
        labels = "SELECT benchmark, count(*), count(label) FROM docs GROUP BY ALL ORDER BY ALL"
        assert warehouse.rows(labels) == [("tiny-a", 12, 0), ("tiny-c", 60, 60)]
        splits = "SELECT benchmark, task, doc_id FROM docs WHERE split = 'test' ORDER BY ALL"
        expected = [("tiny-a", "all", i) for i in range(9, 12)]
        expected += [("tiny-c", task, i) for task in ("plain", "spaces") for i in range(24, 30)]
        assert warehouse.rows(splits) == expected
        [(wrong,)] = warehouse.rows(
            "SELECT count(*) FROM choice_logprobs JOIN docs USING (benchmark, task, doc_id)"
            " WHERE abs(logprob - list_sum(token_logprobs)) > 1e-5 OR n_tokens != len(token_ids)"
            " OR n_chars != length(choices[choice + 1]) OR truncated != (n_prompt_tokens + n_tokens > 97)"
        )
        assert wrong == 0
        passes = "SELECT doc_id, model, count(*), max(pass) FROM answer_passes GROUP BY ALL ORDER BY ALL"
        assert warehouse.rows(passes) == [(i, m, 3, 2) for i in range(12) for m in ("gpt2", "llama")]
        golds = warehouse.rows("SELECT gold FROM docs WHERE task = 'all' ORDER BY doc_id")
        assert golds == [(str(2 * i),) for i in range(12)]
        [(settings, versions)] = warehouse.rows(
            "SELECT DISTINCT settings->>'dtype', versions->>'torch' FROM extractions"
        )
        assert (settings, versions.split("+")[0]) == ("float32", "2.13.0")
        about = (
            "SELECT benchmark, task, lm_eval_task, num_fewshot, kind, category, licence, dataset, revision "
        )
        assert warehouse.rows(f"{about} FROM tasks JOIN benchmarks USING (benchmark) ORDER BY ALL") == [
            ("tiny-a", "all", "tiny_answers", 0, "answers", "sums", "MIT", None, None),
            ("tiny-c", "plain", "tiny_choices", 2, "choices", None, None, None, None),
            ("tiny-c", "spaces", "tiny_spaces", 0, "choices", None, None, None, None),
        ]


AGAIN = """
import sys
from rlfocal.pool.specs import PoolSpec
from rlfocal.extraction.running.runner import extract
report = extract(PoolSpec.model_validate_json(sys.argv[1]), sys.argv[2])
print(len(report.committed), report.n_skipped, len(report.missing), 'torch' in sys.modules)
"""


def test_second_run_extracts_nothing_and_loads_no_model(
    pool: PoolSpec, undisturbed: tuple[Path, ExtractionReport]
) -> None:
    location, _ = undisturbed
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
    said = run_python("-c", AGAIN, pool.model_dump_json(), location)
    assert said.split() == ["0", "6", "0", "False"]
    with open_warehouse(location) as warehouse:
        assert warehouse.snapshot() == before


def test_broken_models_take_down_only_their_own_partitions(
    folder: Path, pool: PoolSpec, tmp_path: Path, log_file: Path
) -> None:
    torn, untokenized = (
        Path(shutil.copytree(folder / "llama", tmp_path / name)) for name in ("torn", "bare")
    )
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (untokenized / name).unlink()
    broken = {"torn": str(torn), "untokenized": str(untokenized), "absent": str(tmp_path / "absent")}
    models = [ModelSpec(model=m, hf_repo=path, params_b=1) for m, path in broken.items()]
    mixed = pool.model_copy(update={"models": (*models, pool.models[0])})
    report = extract(mixed.choose(benchmarks=["tiny-c"]), tmp_path / "w")
    assert {(c.model, c.task) for c in report.committed} == {("llama", "plain"), ("llama", "spaces")}
    gaps = {(m.model, m.task): m.reason for m in report.missing}
    assert gaps.keys() == {(b, t) for b in broken for t in ("plain", "spaces")}
    assert "does not exist" in gaps["absent", "plain"]
    assert "safetensors" in gaps["torn", "plain"]
    assert "tokenizer" in gaps["untokenized", "plain"]
    assert all(reason and "\n" not in reason for reason in gaps.values())
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    failed = [line for line in lines if line["event"] == "partition failed" and line["model"] == "torn"]
    assert [(line["task"], line["reason"]) for line in failed] == [
        (task, gaps["torn", task]) for task in ("plain", "spaces")
    ]


@pytest.mark.usefixtures("one_process")
def test_progress_counts_documents_and_begins_with_what_is_there(pool: PoolSpec, tmp_path: Path) -> None:
    seen: list[Any] = []
    one = pool.choose(models=["llama"])
    extract(one.choose(benchmarks=["tiny-c"]), tmp_path, limit=7, on_progress=seen.append)
    assert [type(event) for event in seen] == [Progress] * 2 + [ExtractedPartition] * 2, "committed together"
    assert (seen[0].done, seen[0].total) == (7, 7)
    seen.clear()
    assert extract(one, tmp_path, limit=7, on_progress=seen.append).n_skipped == 2
    assert [type(event) for event in seen[:2]] == [ConcurrentPartition] * 2, "bars begin where they stopped"


@pytest.mark.usefixtures("one_process")
def test_what_is_replaced_is_named_with_the_settings_that_changed(
    folder: Path, pool: PoolSpec, tmp_path: Path
) -> None:
    one = pool.choose(models=["llama"], benchmarks=["tiny-c"])
    assert extract(one, tmp_path / "w", limit=3).replaced == ()
    assert extract(one, tmp_path / "w", limit=4).replaced == (), "more documents replace nothing"
    shutil.copytree(folder / "llama", tmp_path / "moved")
    another = "its files, its prompts or another key of its entry changed"
    changes: list[tuple[dict[str, Any], str, str]] = [
        ({"dtype": "bfloat16"}, "dtype float32 → bfloat16", ", head_dtype None → float32"),
        ({"hf_repo": str(tmp_path / "moved")}, f"hf_repo {folder / 'llama'} → {tmp_path / 'moved'}", ""),
        ({"engine_args": {"hf": {"logit_mib": 64}}}, another, ""),
    ]
    for change, why, found in changes:
        one = one.model_copy(update={"models": (one.models[0].model_copy(update=change),)})
        sentence = f"llama on tiny-c (2 partitions): {why}"
        planned = plan_pool(one, tmp_path / "w", backend="hf", gpu=KNOWN_GPUS["H100"], limit=4)
        assert f"to be replaced: {sentence}." in planned.warnings
        [refusal] = plan_pool(one, tmp_path / "w", backend="hf", gpu=KNOWN_GPUS["H100"], limit=3).warnings
        assert refusal.startswith("llama: 2 partitions will fail: the warehouse has 4 documents of another")
        assert extract(one, tmp_path / "w", limit=4).replaced == (sentence + found,)


@pytest.mark.slow
def test_a_limit_never_shortens_what_is_there_and_grows(folder: Path, pool: PoolSpec, tmp_path: Path) -> None:
    one = pool.choose(models=["gpt2"])
    location = tmp_path / "w"
    assert len(extract(one, location, limit=10).committed) == 3
    before = tables(location)
    report = extract(one, location, limit=5)
    assert (report.committed, report.n_skipped, report.missing) == ([], 3, [])
    grown = extract(one, location, limit=12)
    assert {(c.task, c.n_docs) for c in grown.committed} == {("all", 12), ("plain", 12), ("spaces", 12)}
    after = tables(location)
    assert all(after[name].num_rows > table.num_rows for name, table in before.items() if table.num_rows)

    moved = one.models[0].model_copy(update={"hf_repo": str(folder / "llama")})
    other = one.model_copy(update={"models": (moved,)})
    before = tables(location)
    refused = extract(other, location, limit=5)
    assert (refused.committed, refused.n_skipped, len(refused.missing)) == ([], 0, 3)
    assert all("has 12 documents of another revision" in gap.reason for gap in refused.missing)
    assert tables(location) == before
    assert len(extract(other, location, limit=12).committed) == 3
    whole = extract(other, location)
    assert (len(whole.committed), whole.n_skipped) == (2, 1)
    with open_warehouse(location) as warehouse:
        found = warehouse.rows(
            "SELECT task, count(*), count_if(split = 'train') FROM docs GROUP BY ALL ORDER BY ALL"
        )
    assert found == [("all", 12, 9), ("plain", 30, 24), ("spaces", 30, 24)]


def test_a_model_is_asked_only_what_asks_it(pool: PoolSpec, tmp_path: Path) -> None:
    named = [
        b.model_copy(update={"models": ("gpt2",) if b.kind == "answers" else None}) for b in pool.benchmarks
    ]
    some = [b.model_copy(update={"models": ("llama", "gpt2")}) if b.models is None else b for b in named]
    asked = PoolSpec.model_validate({**dict(pool), "benchmarks": some})
    report = extract(asked, tmp_path / "w", limit=2)
    assert report.missing == []
    assert {(c.model, c.benchmark) for c in report.committed} == {
        ("llama", "tiny-c"),
        ("gpt2", "tiny-c"),
        ("gpt2", "tiny-a"),
    }
    assert extract(asked, tmp_path / "w", limit=2).n_skipped == 5


def test_shares_count_tasks_of_each_model() -> None:
    told: list[tuple[str, float]] = []
    note = share_of_tasks(lambda title, share: told.append((title, share)), lambda _: 2)
    note(Progress("m", "b", "t", 1, 4))
    note(ExtractedPartition("m", "b", "t", 4, 0.1))
    note(Failure("extract", "n", "b", "t", "why"))
    note(ExtractedPartition("m", "b", "u", 4, 0.1))
    assert told == [("extract m", 0.125), ("extract m", 0.5), ("extract n", 0.0), ("extract m", 1.0)]


@pytest.mark.parametrize(
    ("wrong", "message"), [({"backend": "vlm"}, "unknown backend 'vlm'"), ({"limit": 0}, "limit must be")]
)
def test_an_unknown_backend_or_no_documents_are_refused_and_nothing_is_written(
    pool: PoolSpec, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        extract(pool, tmp_path / "w", **wrong)
    assert not (tmp_path / "w").exists()


def test_events_are_in_their_log_alone(log_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A handler of all loggers, as Prefect has one, would print them without their fields."""
    start_log()
    log("partition failed", level=ERROR, model="m")
    assert json.loads(log_file.read_text())["model"] == "m"
    assert caplog.messages == []

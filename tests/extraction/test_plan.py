"""What a plan says: counts against documents, hours against arithmetic by hand; and it touches nothing."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.basics import RLFOCAL, run_python
from support.hub_server import serve
from support.mirror import make_mirror
from tokenizers import Tokenizer

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines.chat import MAX_DECORATION_TOKENS
from rlfocal.extraction.estimate import (
    GPU,
    KNOWN_GPUS,
    Workload,
    digit_by_digit,
    estimate_workload,
    hours_of,
    measure_workload,
    splits_digits,
    too_large,
    weights_gb,
)
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.running.runner import extract
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool import load_pool
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec, SamplingSpec
from warehouse import open_warehouse

H100 = KNOWN_GPUS["H100"]
SIMPLE = GPU("simple", tflops=100, memory_gb=80, bandwidth_gb=1000, dollars=2)


def documents(contexts: list[str], continuations: tuple[str, ...]) -> tuple[Document, ...]:
    return tuple(
        Document(i, "", "", 0 if continuations else None, "", continuations, context, continuations)
        for i, context in enumerate(contexts)
    )


def task_of(asked: tuple[Document, ...], sampling: SamplingSettings | None = None) -> TaskDocuments:
    splits = ("test",) * len(asked)
    return TaskDocuments(
        "b", "t", "1", documents=asked, splits=splits, sampling=sampling, n_whole=len(asked), digest="d"
    )


CONTEXTS = ["x" * 400 + "a" * 40, "x" * 400 + "b" * 80]


def sized(kind: str = "choices", **size: Any) -> Benchmark:
    """A benchmark of one task that states its size: prompts of 100 common tokens and 10 of their own."""
    tokens = {"preamble_tokens": 100, "document_tokens": 10}
    return Benchmark.model_validate({"name": "b", "kind": kind, "tasks": {"t": "t"}, "size": tokens | size})


def test_a_workload_counts_every_shared_character_once() -> None:
    letters = measure_workload(task_of(documents(CONTEXTS, (" A", " B", " C"))), None)
    assert letters == Workload("b", 1, 2, 2, 130, 130 * 1.15, 110 + 120, 0)
    words = measure_workload(task_of(documents(CONTEXTS, (" a longer", " one"))), None)
    assert (words.requests, words.computed_tokens) == (4, 2 * words.prefill_tokens)
    assert words.prefill_tokens == 130 + 2 * 13 / 4


def test_choices_after_nothing_are_asked_once() -> None:
    task = task_of(documents(CONTEXTS, (" A", " B", " C")))
    plain, more = measure_workload(task, None), measure_workload(replace(task, unconditional=True), None)
    assert more.requests == plain.requests + 3
    assert more.prefill_tokens == plain.prefill_tokens + 3 * 2 / 4
    benchmark = sized(documents=8, choices=4, choice_tokens=1)
    assert estimate_workload(benchmark.model_copy(update={"unconditional": True})).requests == 8 + 4


def test_ten_passes_are_one_request_and_one_prefill() -> None:
    sampling = SamplingSettings(passes=10, temperature=0.6, top_p=0.95, max_tokens=512, stop=(), seed=0)
    task = task_of(documents(["q" * 80, "p" * 40], ()), sampling)
    assert measure_workload(task, 73) == Workload("b", 1, 2, 2, 30, 30 * 1.15, 30, 2 * 10 * 73)
    assert measure_workload(task, None).decode_tokens == 2 * 10 * 512


def test_a_chats_messages_are_its_prompt() -> None:
    spoken = (("system", "x" * 400), ("user", "a" * 40))
    plain = task_of(documents(["x" * 400 + "a" * 40], (" A", " B")))
    chat = task_of(tuple(replace(d, context="", messages=spoken) for d in plain.documents))
    assert measure_workload(chat, None) == measure_workload(plain, None)


def test_a_variants_passes_count() -> None:
    benchmark = sized("answers", documents=8, answer_tokens=50, passes=10)
    assert estimate_workload(benchmark).decode_tokens == 8 * 10 * 50
    once = benchmark.model_copy(update={"sampling": SamplingSpec(passes=1, temperature=0)})
    assert estimate_workload(once).decode_tokens == 8 * 50


def test_a_size_gives_what_its_documents_would() -> None:
    contexts = ["x" * 400 + chr(97 + i) * 40 for i in range(8)]
    benchmark = sized(documents=8, choices=4, choice_tokens=1)
    counted = measure_workload(task_of(documents(contexts, (" A ", " B ", " C ", " D "))), None)
    stated = estimate_workload(benchmark)
    assert (stated.documents, stated.requests) == (counted.documents, 8)
    assert stated.prefill_tokens == 100 + 8 * 10
    assert stated.prompt_tokens == counted.prompt_tokens == 8 * 110
    assert estimate_workload(benchmark, limit=3).documents == 3
    with pytest.raises(InputError, match="`size`"):
        estimate_workload(benchmark.model_copy(update={"size": None}))


def test_hours_are_those_of_the_stated_assumptions() -> None:
    dense = ModelSpec(model="m", hf_repo="o/m", params_b=10, dtype="bfloat16", tensor_parallel=2)
    work = Workload("b", 1, 10, 10, 1e6, 1.15e6, 1e6, 64e3)
    # 2 x 10e9 x 1.15e6 operations at 40e12 a second; 1,000 steps that read 20 GB at 600 GB/s.
    # And the keys and values of 64 texts of 1e5 tokens: 8 heads of 128, in 16 bits.
    cache = 64 * 1e5 * 2 * 2 * 1024 * 13 * 10**0.43 / 1e9
    prefill, decode, start = 575 / 3600, 1000 * ((20 + cache) / 600) / 3600, 2 * (120 + 20) / 3600
    assert hours_of(dense, [work], SIMPLE) == pytest.approx((prefill, decode, start))
    mixture = dense.model_copy(update={"active_params_b": 5.0})  # a step reads every expert
    assert hours_of(mixture, [work], SIMPLE).prefill == pytest.approx(prefill / 2)
    assert hours_of(dense, [], SIMPLE).total == 0


def test_a_digit_is_a_token_where_the_tokenizer_splits_numbers() -> None:
    sampling = SamplingSettings(passes=10, temperature=0.6, top_p=0.95, max_tokens=512, stop=(), seed=0)
    work = measure_workload(task_of(documents(["q" * 60 + "1" * 20, "p" * 40], ()), sampling), 73, 76)
    split = digit_by_digit(work)
    assert split.prefill_tokens == work.prefill_tokens + 0.75 * 20
    assert split.decode_tokens == work.decode_tokens + 2 * 10 * 0.75 * 76
    known = {name: load_pool("lab").models[n] for n, name in enumerate(("first", "second"))}
    for model in known.values():
        tokens = Tokenizer.from_file(str(local_weights(model) / "tokenizer.json")).encode("0123456789")  # type: ignore[operator]
        assert splits_digits(model) == (len(tokens.ids) >= 10)


def test_the_papers_pool_takes_what_was_estimated_by_hand(tmp_path: Path) -> None:
    """For its twelve models on all five benchmarks: 41 to 45 GPU-hours, 5.2 to 5.6 hours on eight GPUs."""
    pool = load_pool("paper")
    everything = [b.model_copy(update={"models": None}) for b in pool.benchmarks]
    twelve = PoolSpec.model_validate({**dict(pool), "benchmarks": everything, "models": pool.models[:12]})
    made = plan_pool(twelve, tmp_path / "none", gpu=H100, gpus=8)
    hours = sum(model.hours for model in made.models)
    assert hours == pytest.approx(43, rel=0.2)
    assert made.clock_hours == pytest.approx(5.4, rel=0.2)
    items = [
        sum(getattr(model, f"{item}_hours") for model in made.models)
        for item in ("prefill", "decode", "start")
    ]
    assert sum(items) == pytest.approx(hours)
    assert sum(model.download_gb for model in made.models) == pytest.approx(1000, rel=0.1)


@pytest.mark.usefixtures("one_process")
def test_what_was_measured_replaces_the_estimate(tmp_path: Path) -> None:
    lab = load_pool("lab")
    pool = lab.choose([lab.models[0].model], ["lab-mmlu"])
    location = tmp_path / "warehouse"
    extract(pool.model_copy(update={"benchmarks": (few(pool.benchmarks[0], 1),)}), location, limit=5)
    [model] = plan_pool(pool, location, backend="hf", gpu=H100, limit=5).models
    assert (model.present, model.measured_before) == (1, 0)
    with open_warehouse(location) as warehouse:
        warehouse.connection.execute(
            "UPDATE extractions SET seconds = 36, "
            'settings = json_merge_patch(settings, \'{"device_product": "NVIDIA H100 80GB HBM3"}\')'
        )
    [measured] = plan_pool(pool, location, backend="hf", gpu=H100, limit=5).models
    assert measured.measured_before == pytest.approx(0.01)
    factor = measured.measured_before / measured.planned_before
    assert measured.prefill_hours == pytest.approx(model.prefill_hours * factor)
    [other] = plan_pool(pool, location, backend="hf", gpu=KNOWN_GPUS["L4"], limit=5).models
    assert other.measured_before == 0


def few(benchmark: Benchmark, n: int) -> Benchmark:
    """Its first tasks."""
    return benchmark.model_copy(update={"tasks": dict([*benchmark.tasks.items()][:n])})


def test_a_service_is_paid_for_every_prompt_and_answer(tmp_path: Path) -> None:
    closed = {"model": "m", "served": "m", "price_input": 200, "price_output": 1000}
    choices = sized(documents=50, choices=4, choice_tokens=1)
    answers = sized("answers", documents=50, answer_tokens=30, passes=10)

    def dollars(benchmark: Benchmark, **changes: Any) -> float:
        model = ModelSpec.model_validate({**closed, **changes})
        plan = plan_pool(PoolSpec(name="p", models=(model,), benchmarks=(benchmark,)), tmp_path, gpu=H100)
        [one], [said] = plan.models, [w for w in plan.warnings if w.startswith("m:")]
        assert (one.gpus, one.hours) == (0, 0)
        assert ("is not counted: give the entry price_input" in said) == (not one.dollars)
        return one.dollars

    prompts = 50 * 110 * 2 / 1e6  # dollars, at 2 a million tokens
    assert dollars(choices) == pytest.approx(prompts + 50 * MAX_DECORATION_TOKENS * 10 / 1e6)
    sampled = {"chat": {"top_logprobs": 0, "samples": 8, "max_tokens": 5}}
    assert dollars(choices, engine_args=sampled) == pytest.approx(prompts + 50 * 40 * 10 / 1e6)
    assert dollars(answers) == pytest.approx(prompts + 50 * 10 * 30 * 10 / 1e6)
    assert dollars(choices, price_input=None) == 0
    digits = sized(documents=50, choices=4, choice_tokens=1, prompt_digits=6)
    assert dollars(digits) == dollars(choices)  # no tokenizer of the service's is here to split them
    with pytest.raises(InputError, match=r"engine_args\.chat takes .*samples"):
        dollars(choices, engine_args={"chat": {"sample": 8}})


def test_weights_of_another_shape_are_refused() -> None:
    model = ModelSpec(model="big", hf_repo="o/big", params_b=70, dtype="bfloat16")
    assert weights_gb(model) == 140
    assert "set tensor_parallel to 2" in str(too_large(model, H100))
    assert too_large(model.model_copy(update={"tensor_parallel": 2}), H100) is None
    assert too_large(model.model_copy(update={"quantization": "awq"}), H100) is None


@pytest.mark.parametrize(("name", "models"), [("paper", 17), ("small", 9), ("modern", 12)])
def test_shipped_pools_are_pinned_priced_and_fit(name: str, models: int, tmp_path: Path) -> None:
    pool = load_pool(name)
    assert len({m.hf_repo for m in pool.models}) == models
    for model in pool.models:
        assert re.fullmatch("[0-9a-f]{40}", model.revision)
        assert model.price_source
        assert not model.trust_remote_code
        assert (model.price or 0) > 0 or 0 < (model.price_input or 0) < (model.price_output or 0)
        assert too_large(model, H100) is None
        assert (model.params_b < 1) or name != "small"
    made = plan_pool(pool, tmp_path / "none", gpu=H100, gpus=8)
    assert not [note for note in made.warnings if "would not run" in note or "do not fit" in note]
    alone = [planned.hours / planned.gpus for planned in made.models]
    assert made.clock_hours == max(*alone, sum(planned.hours for planned in made.models) / 8)
    hours = {planned.model: planned.hours for planned in made.models}
    if name == "modern":
        assert hours["llama-3.2-1b"] < hours["gemma-3-27b"] < hours["llama-3.3-70b"]
        assert hours["gemma-3-27b"] < hours["qwen3-8b"]  # which writes a trace for every document
        assert hours["qwen3-30b-a3b"] < hours["olmo-3-32b-think"]  # active parameters count


@pytest.mark.slow
def test_an_unfinished_warehouse_leaves_the_rest(tmp_path: Path) -> None:
    lab = load_pool("lab").choose(["lab-gemma-small", "lab-phi"], ["lab-gpqa", "lab-gsm8k"])
    location = tmp_path / "warehouse"
    extract(lab.choose(["lab-phi"], ["lab-gpqa"]), location, backend="hf", limit=3)

    def left(**changes: object) -> dict[str, tuple[int, int]]:
        changed = lab.model_copy(update={"models": tuple(m.model_copy(update=changes) for m in lab.models)})
        made = plan_pool(changed, location, backend="hf", gpu=H100, limit=3)
        return {m.model: (m.partitions, m.present) for m in made.models}

    assert left() == {"lab-gemma-small": (2, 0), "lab-phi": (1, 1)}
    assert left(dtype="bfloat16") == {"lab-gemma-small": (2, 0), "lab-phi": (2, 0)}
    whole = plan_pool(lab, location, backend="hf", gpu=H100, dollars=4)
    assert [(m.partitions, m.present) for m in whole.models] == [(2, 0), (2, 0)]  # 3 documents are not all
    assert whole.models[0].dollars == pytest.approx(4 * whole.models[0].hours)


@pytest.mark.slow
def test_a_plan_asks_no_network_and_writes_nothing(tmp_path: Path) -> None:
    location = tmp_path / "warehouse"
    with serve() as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "RLFOCAL_DATASETS": ""}
        words = ("plan", "--pool", "paper", "-w", location, "--json")
        printed = run_python(*RLFOCAL, *words, env=os.environ | environment)
        assert hub.asked == []
    assert not location.exists()
    made = json.loads(printed)
    assert len(made["models"]) == 17
    for key, total in made["totals"].items():
        assert total == pytest.approx(sum(m[key] for m in made["models"]))
    assert made["totals"]["partitions"] == 12 * 57 + 5 * (24 + 3 + 1) + 8 * 1
    assert made["totals"]["hours"] / 8 <= made["clock_hours"]


@pytest.mark.parametrize(
    ("hardware", "model", "reason"),
    [
        ({"gpu": H100, "gpus": 4}, "Mixtral-8x22b", "needs 8 GPUs, more than 4"),
        ({"gpu": KNOWN_GPUS["L4"]}, "Llama-2-70b", "138 GB of weights do not fit into 4 x 24 GB"),
    ],
)
def test_what_the_machine_cannot_run_is_named(
    hardware: dict[str, Any], model: str, reason: str, tmp_path: Path
) -> None:
    made = plan_pool(load_pool("paper"), tmp_path / "none", **hardware)
    assert any(model in note and reason in note for note in made.warnings)


def test_documents_of_a_mirror_are_counted(shared: Path, tmp_path: Path) -> None:
    folder = make_mirror(tmp_path / "mirror", shared, mmlu=["astronomy"], bbh=["navigate"])
    pool = load_pool("paper").choose(["Phi-2b"], ["mmlu", "bbh"])
    mmlu, bbh = (
        b.model_copy(update={"tasks": {task: b.tasks[task]}})
        for b, task in zip(pool.benchmarks, ("astronomy", "navigate"), strict=True)
    )
    two = pool.model_copy(update={"benchmarks": (mmlu, bbh)})
    made = plan_pool(two, tmp_path / "none", backend="vllm", gpu=H100, datasets=folder)
    assert [w.documents for w in made.benchmarks] == [152, 250]
    assert made.benchmarks[0].requests == 152  # letters are single tokens
    # The 5-shot preamble is most of each prompt, and is read once.
    assert made.benchmarks[0].prompt_tokens > 2 * made.benchmarks[0].prefill_tokens
    assert made.warnings == ()

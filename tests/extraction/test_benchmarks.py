"""The five benchmarks by lm-eval's stock tasks over a mirror: prompts, orders, splits; and its making."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from huggingface_hub import constants
from support.basics import RLFOCAL
from support.hub_server import fake_hub
from support.mirror import MUSR, gpqa_rows, make_mirror, some, write_gpqa, write_musr
from support.real_weights import stock_tasks_of

from rlfocal.base.errors import InputError
from rlfocal.extraction.lm_eval_tasks import stock_tasks
from rlfocal.extraction.mirror import mirror_datasets, write_config
from rlfocal.extraction.tasks import TaskDocuments, load_each, load_tasks
from rlfocal.pool import Benchmark, load_benchmarks, load_pool
from rlfocal.pool import hub as pool_hub
from rlfocal.pool.specs import SamplingSpec

SUBJECTS = ["astronomy", "virology"]
BBH = ["navigate", "date_understanding"]
GSM8K = (40, 20)


@pytest.fixture(scope="module")
def mirror(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All five, some tasks of MMLU and BBH, some rows of GSM8K."""
    return make_mirror(tmp_path_factory.mktemp("mirror"), shared, mmlu=SUBJECTS, bbh=BBH, gsm8k=GSM8K)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_mirror(tmp_path_factory.mktemp("generated"), None)


def lm_eval_requests(mirror: Path, benchmark: Benchmark, limit: int | None = None, **chat: Any) -> list[Any]:
    """lm-eval's own requests of the benchmark's one task."""
    [name] = benchmark.tasks.values()
    with stock_tasks_of(benchmark, mirror) as manager:
        task: Any = manager.load([name])["tasks"][name]
    if benchmark.num_fewshot is not None:
        task.set_config(key="num_fewshot", value=benchmark.num_fewshot)
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=limit, rank=0, world_size=1, **chat)
    return list(task.instances)


def test_the_paper_s_benchmarks_are_the_stock_tasks() -> None:
    known = load_benchmarks()
    n_tasks = {"mmlu": 57, "bbh": 24, "musr": 3, "gpqa": 1, "gsm8k": 1}
    for name in n_tasks:
        assert len(known[name].tasks) == n_tasks[name]
        assert len(known[name].dataset_revision or "") == 40
        assert known[name].size is not None
        assert known[name].confidential == (name == "gpqa")
    assert set(known["musr"].tasks) == set(MUSR)


@pytest.mark.parametrize(
    ("name", "task"),
    [("mmlu", "astronomy"), ("bbh", "navigate"), ("bbh", "date_understanding"), ("musr", "team_allocation")],
)
def test_prompts_are_lm_eval_s_own(mirror: Path, name: str, task: str) -> None:
    benchmark = some(name, task)
    [loaded] = load_tasks([benchmark], datasets=mirror)
    ours = [(d.context, c) for d in loaded.documents for c in d.continuations]
    assert ours == [request.args for request in lm_eval_requests(mirror, benchmark)]
    assert [d.doc_id for d in loaded.documents] == list(range(len(loaded.documents)))
    assert loaded.splits.count("train") == 4 * len(loaded.documents) // 5
    assert not loaded.confidential


def test_gsm8k_is_the_official_train_split_and_then_the_stock_test(mirror: Path) -> None:
    benchmark = some("gsm8k")
    [loaded] = load_tasks([benchmark], datasets=mirror)
    n_train, n_test = GSM8K
    assert loaded.splits == ("train",) * n_train + ("test",) * n_test
    for document in loaded.documents:  # none is among its own examples
        assert document.context.count(document.question) == 1
        assert document.context.count("Question: ") == 6
    assert [d.doc_id for d in loaded.documents] == list(range(n_train + n_test))
    requests = lm_eval_requests(mirror, benchmark)
    assert [d.context for d in loaded.documents[n_train:]] == [request.args[0] for request in requests]
    sampling = loaded.sampling
    assert sampling is not None
    assert (sampling.passes, sampling.temperature, sampling.top_p) == (10, 0.6, 0.95)
    assert list(sampling.stop) == requests[0].args[1]["until"]


def test_a_limit_takes_both_official_splits(mirror: Path) -> None:
    [whole] = load_tasks([some("gsm8k")], datasets=mirror)
    [loaded] = load_tasks([some("gsm8k")], limit=10, datasets=mirror)
    assert [d.doc_id for d in loaded.documents] == [*range(6), *range(40, 44)]  # of 40 and 20
    assert loaded.splits == ("train",) * 6 + ("test",) * 4
    assert (loaded.n_whole, loaded.digest) == (60, whole.digest)


@pytest.mark.slow
def test_whole_gsm8k_has_numbers_and_whole_bbh_three_questions_without_a_right_choice(
    shared: Path, tmp_path: Path
) -> None:
    mirror = make_mirror(tmp_path, shared, mmlu=SUBJECTS[:1])
    *tasks, sums = load_tasks([some("bbh"), some("gsm8k")], datasets=mirror)
    assert (sums.splits.count("train"), sums.splits.count("test")) == (7473, 1319)
    for document in sums.documents:
        float(document.gold)
        assert document.context.count(document.question) == 1
    documents = [d for loaded in tasks for d in loaded.documents]
    assert len(documents) == 5761
    assert {len(d.choices) for d in documents} <= set(range(2, 20))
    assert sum(d.label == -1 for d in documents) == 3


def orders(loaded: TaskDocuments) -> dict[str, list[str]]:
    """Record by record, the choices in the order shown."""
    shown = {}
    for document in loaded.documents:
        question, _, choices = document.question.partition("\nChoices:\n")
        shown[question] = choices.splitlines()[:4]
    return shown


def test_gpqa_shows_a_document_s_choices_in_one_order_always(generated: Path, tmp_path: Path) -> None:
    [loaded] = load_tasks([some("gpqa")], datasets=generated)
    usual = orders(loaded)
    assert loaded.confidential
    assert len(usual) == 448
    assert {d.label for d in loaded.documents} == {0, 1, 2, 3}
    for document, row in zip(loaded.documents, gpqa_rows(), strict=True):
        assert document.label is not None
        [letter, text] = usual[document.question.partition("\n")[0]][document.label].split(" ", 1)
        assert (letter, text) == (document.gold, row["Correct Answer"].strip())

    write_gpqa(tmp_path, gpqa_rows()[::-3])
    random.seed(7)
    musr = some("musr", "murder_mysteries")
    write_musr(tmp_path)
    [_, other] = load_tasks([musr, some("gpqa")], datasets=tmp_path)
    assert orders(other) == {question: usual[question] for question in orders(other)}
    assert other.digest != loaded.digest
    [again] = load_tasks([some("gpqa")], datasets=tmp_path)
    assert again == other


def test_an_edited_data_set_has_another_digest_and_a_copy_the_same(tmp_path: Path) -> None:
    digests = []
    for folder, change in (("a", ""), ("b", ""), ("c", " (edited)")):
        rows = gpqa_rows(5)
        rows[-1]["Question"] += change
        write_gpqa(tmp_path / folder, rows)
        [loaded] = load_tasks([some("gpqa")], limit=1, datasets=tmp_path / folder)
        digests.append(loaded.digest)
    assert digests[0] == digests[1] != digests[2]
    write_gpqa(tmp_path / "a", rows)
    [edited] = load_tasks([some("gpqa")], datasets=tmp_path / "a")
    assert edited.digest == digests[2]


@pytest.mark.parametrize(("name", "task"), [("mmlu", "astronomy"), ("gsm8k", "main")])
def test_a_chat_is_the_messages_lm_eval_hands_to_a_template(mirror: Path, name: str, task: str) -> None:
    chat = some(name, task, chat_template=True, system_prompt="Be brief.")
    [loaded] = load_tasks([chat], datasets=mirror)
    seen: list[tuple[tuple[str, str], ...]] = []

    def template(messages: list[dict[str, str]], **_: object) -> str:
        seen.append(tuple((m["role"], m["content"]) for m in messages))
        return "rendered"

    requests = lm_eval_requests(
        mirror,
        some(name, task),
        system_instruction="Be brief.",
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        chat_template=template,
    )
    tested = loaded.documents[GSM8K[0] :] if name == "gsm8k" else loaded.documents
    assert [d.messages for d in tested] == seen
    assert {d.context for d in loaded.documents} == {""}
    assert seen[0][0][0] == "system"
    assert seen[0][0][1].startswith("Be brief.")
    assert [role for role, _ in seen[0][1:]] == ["user", "assistant"] * 5 + ["user"]
    if name == "mmlu":
        assert [c for d in tested for c in d.continuations] == [request.args[1] for request in requests]
    [terse] = load_tasks([chat.model_copy(update={"system_prompt": "Be terse."})], datasets=mirror)
    [plain] = load_tasks([some(name, task)], datasets=mirror)
    assert len({loaded.digest, terse.digest, plain.digest}) == 3
    assert all(d.messages is None for d in plain.documents)


def test_a_variant_extends_a_benchmark_and_has_its_name(tmp_path: Path) -> None:
    known = load_benchmarks()
    assert known["mmlu@chat"] == known["mmlu"].model_copy(update={"name": "mmlu@chat", "chat_template": True})
    pool = tmp_path / "p.yaml"
    text = """\
name: p
benchmarks:
  - {name: mine, kind: choices, tasks: {easy: arc_easy}, num_fewshot: 3}
  - {extends: mine, name: mine@0-shot, num_fewshot: 0}
  - {extends: gpqa, name: gpqa@chat, chat_template: true}
models: [{model: a, hf_repo: org/a, params_b: 1}]
"""
    pool.write_text(text)
    mine, variant, gpqa = load_pool(str(pool)).benchmarks
    assert variant == mine.model_copy(update={"name": "mine@0-shot", "num_fewshot": 0})
    assert gpqa.confidential
    assert gpqa.chat_template
    several = ("extends: gpqa, name: gpqa@chat", "extends: gsm8k, name: gsm8k@x, train_docs: 9")
    for change, noun in (
        (("mine@0-shot", "zero-shot"), "mine@"),
        (("extends: gpqa", "extends: gpqaa"), "'gpqaa'"),
        (("chat_template: true", "sampling: {passes: 2, temperature: 1}"), "sampling"),
        (several, "train_docs"),
    ):
        pool.write_text(text.replace(*change))
        with pytest.raises(InputError, match=noun):
            load_pool(str(pool))


@pytest.mark.slow  # lm-eval parses all its files
def test_stock_tasks_are_those_that_lm_eval_finds() -> None:
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._index import Kind

    found = TaskManager().task_index.items()
    tasks = {name: entry for name, entry in found if entry.kind in (Kind.TASK, Kind.PY_TASK)}
    assert len(tasks) > 10_000
    assert stock_tasks() == {name: entry.yaml_path.parent for name, entry in tasks.items() if entry.yaml_path}


@pytest.mark.parametrize("wrong", ["arc_esy", "mmlu"])
def test_what_is_no_stock_task_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=f"'{wrong}'"):
        load_tasks([Benchmark(name="mine", kind="choices", tasks={"one": wrong, "other": "arc_easy"})])


def test_any_stock_task_loads_from_a_mirror(tmp_path: Path) -> None:
    choices = {"text": ["red", "blue", "green"], "label": ["A", "B", "C"]}
    rows = [
        {"id": str(i), "question": f"Colour {i}?", "choices": choices, "answerKey": "ABC"[i % 3]}
        for i in range(10)
    ]
    table = pa.Table.from_pylist(rows)
    splits = {"train": table, "validation": table, "test": table}
    write_config(tmp_path, "allenai/ai2_arc", "ARC-Easy", splits, "x")
    questions = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(10)]
    sums = pa.Table.from_pylist(questions)
    write_config(tmp_path, "openai/gsm8k", "main", {"train": sums, "test": sums}, "x")
    arc = Benchmark(name="arc", kind="choices", tasks={"easy": "arc_easy"}, num_fewshot=2)
    cot = Benchmark(
        name="cot",
        kind="answers",
        tasks={"sums": "gsm8k_cot_zeroshot"},
        sampling=SamplingSpec(passes=3, temperature=0.5, max_tokens=7),
    )
    [easy, summed] = load_tasks([arc, cot], datasets=tmp_path)
    assert [d.gold for d in easy.documents[:3]] == ["red", "blue", "green"]
    assert easy.documents[0].context.count("Question:") == 3
    assert [d.gold for d in summed.documents] == [str(2 * i) for i in range(10)]
    assert summed.sampling is not None
    assert (summed.sampling.passes, summed.sampling.top_p, summed.sampling.max_tokens) == (3, 1.0, 7)
    assert "Q:" in summed.sampling.stop


def test_a_file_missing_from_a_mirror_is_named_with_the_command(generated: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--benchmarks mmlu"):
        load_tasks([some("mmlu", "astronomy")], datasets=generated)
    with pytest.raises(InputError, match="is not a folder"):
        load_tasks([some("gpqa")], datasets=tmp_path / "no")
    write_config(tmp_path, "Idavidrein/gpqa", "gpqa_extended", {"train": pa.table({"Question": ["?"]})}, "x")
    with pytest.raises(InputError, match="gpqa_main"):
        load_tasks([some("gpqa")], datasets=tmp_path)


def test_the_environment_names_a_mirror(generated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_DATASETS", str(generated))
    [loaded] = load_tasks([some("musr", "object_placements")])
    assert len(loaded.documents) == 256
    assert {len(d.choices) for d in loaded.documents} == {5}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    write_musr(folder)
    write_gpqa(folder, gpqa_rows(4))
    return folder


def test_a_mirror_is_made_once_and_goes_on_where_it_stopped(small: Path, tmp_path: Path) -> None:
    benchmarks = [some("musr"), some("gpqa"), load_benchmarks()["gpqa"].model_copy(update={"name": "gpqa@x"})]
    told: list[float] = []
    made = mirror_datasets(tmp_path / "copy", benchmarks[:2], small, lambda _, share: told.append(share))
    assert [(c.repo, c.config, c.rows) for c in made] == [
        ("TAUR-Lab/MuSR", "default", 756),
        ("Idavidrein/gpqa", "gpqa_main", 4),
    ]
    assert told == [0.5, 1.0]
    assert load_tasks(benchmarks, datasets=tmp_path / "copy") == load_tasks(benchmarks, datasets=small)
    again = mirror_datasets(tmp_path / "copy", benchmarks, small)
    assert [c.rows for c in again] == [None, None]
    (tmp_path / "copy/Idavidrein/gpqa/README.md").unlink()  # as if stopped before it was listed
    resumed = mirror_datasets(tmp_path / "copy", benchmarks, small)
    assert [c.rows for c in resumed] == [None, 4]


def test_a_mirror_never_mixes_revisions(small: Path, tmp_path: Path) -> None:
    mirror_datasets(tmp_path / "copy", [some("gpqa")], small)
    write_config(small, "Idavidrein/gpqa", "gpqa_main", {"train": pa.table({"Question": ["?"]})}, "newer")
    with pytest.raises(InputError, match="'newer'"):
        mirror_datasets(tmp_path / "copy", [some("gpqa")], small)
    with pytest.raises(InputError, match="'cais/mmlu'"):
        mirror_datasets(tmp_path / "copy", [some("mmlu", "virology")], small)


FROM_HUB = """
from rlfocal.extraction.tasks import load_each
from rlfocal.pool import load_benchmarks
known = load_benchmarks()
edited = known["gpqa"].model_copy(update={"dataset_revision": "0" * 40})
for benchmark, tasks in load_each([known["gpqa"], edited, known["musr"], known["mmlu"]]):
    print(repr(tasks) if isinstance(tasks, Exception) else tasks[0].digest)
"""


@pytest.mark.slow
def test_the_hub_serves_the_pinned_revision_and_its_refusals_are_plain(small: Path, tmp_path: Path) -> None:
    gpqa = some("gpqa")
    assert gpqa.dataset_revision is not None
    with fake_hub(small, gpqa.dataset_revision, gated="TAUR-Lab/MuSR") as address:
        token = "hf_" + "planted" * 5
        caches = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": address, "HF_TOKEN": token}
        copy = (*RLFOCAL, "datasets", "mirror", str(tmp_path / "m"), "--benchmarks", "gpqa")
        options: dict[str, Any] = {"env": os.environ | caches, "capture_output": True, "text": True}
        ran, copied = (
            subprocess.run([sys.executable, *words], check=True, **options)
            for words in (("-c", FROM_HUB), copy)
        )
    cached = subprocess.run([sys.executable, "-c", FROM_HUB], check=True, **options)
    loaded, edited, gated, missing = ran.stdout.splitlines()
    [local] = load_tasks([gpqa], datasets=small)
    from_cache, _, unseen, _ = cached.stdout.splitlines()
    assert loaded == from_cache == local.digest
    assert "the hub cannot be reached" in unseen
    assert "has no revision '0000" in edited
    assert "is gated: accept its terms" in gated
    assert "is not on the hub" in missing
    assert f"4 rows, revision {gpqa.dataset_revision}" in copied.stdout
    [mirrored] = load_tasks([gpqa], datasets=tmp_path / "m")
    assert (mirrored.documents, mirrored.digest) == (local.documents, local.digest)
    for said in (ran.stdout, ran.stderr, copied.stdout, copied.stderr):
        assert token not in said


def test_a_hub_that_never_answers_is_asked_once_for_all_data_sets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool_hub, "HUB_SECONDS", 0.2)
    monkeypatch.setattr(pool_hub, "_silent_until", {})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.delenv("RLFOCAL_DATASETS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{url}/{{repo_id}}/{{filename}}")
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", url)
        for benchmark, loaded in load_each([some("gpqa"), some("musr")]):
            assert f"of {benchmark.name} cannot be downloaded: the hub cannot be reached" in str(loaded)
        server.settimeout(0.2)
        server.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.accept()
    assert not constants.HF_HUB_OFFLINE

"""Choices scored after an empty prompt: lm-eval's acc_mutual_info, and who pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pydantic import ValidationError
from support.rows import SCORES, choice_rows, docs, extraction
from support.scores import lm_eval_results
from support.tiny_models import tiny_model, tiny_tokenizer, write_tasks
from typer.testing import CliRunner

from rlfocal.cli.app import app
from rlfocal.extraction.engine import Document
from rlfocal.extraction.partition import Job, fingerprint
from rlfocal.extraction.rows import add_unconditional, documents_of_choices
from rlfocal.extraction.running.runner import extract
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import Warehouse, open_warehouse
from warehouse.integrity import examine
from warehouse.store import PartitionRecord

METRICS = ("acc", "acc_norm", "acc_mutual_info")
TASKS = ("tiny_choices", "tiny_spaces")


def write_all(folder: Path) -> Path:
    """The tiny tasks, whose metrics include acc_mutual_info."""
    write_tasks(folder)
    for name in TASKS:
        file = folder / f"{name}.yaml"
        metrics = [{"metric": metric} for metric in METRICS]
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"metric_list": metrics}))
    return folder


def benchmark(tasks: Path, *, unconditional: bool = True) -> Benchmark:
    names = {name: name for name in TASKS}
    return Benchmark(
        name="tiny", kind="choices", tasks=names, include_path=str(tasks), unconditional=unconditional
    )


@pytest.mark.slow
@pytest.mark.parametrize("bos", [False, True])
def test_accuracies_and_log_probs_are_lm_evals(tmp_path: Path, bos: bool) -> None:
    """Without a beginning token, lm-eval's empty prompt is the token that ends a text."""
    tasks = write_all(tmp_path / "tasks")
    tokenizer = tiny_tokenizer(bos=bos)
    model = tiny_model("llama", len(tokenizer), context=256)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    # With bootstrap_iters=0 there are no standard errors; those of means are not bootstrapped.
    expected = lm_eval_results(model, tasks, TASKS, bootstrap_iters=1, tokenizer=tokenizer, batch_size=8)
    spec = ModelSpec(model="m", hf_repo=str(tmp_path / "model"), params_b=0.001)
    pool = PoolSpec(name="tiny", benchmarks=(benchmark(tasks),), models=(spec,))
    assert not extract(pool, tmp_path / "w").missing
    with open_warehouse(tmp_path / "w") as warehouse:
        found = warehouse.rows(
            "SELECT task, accuracy, acc_norm, acc_mutual_info, acc_mutual_info_stderr "
            "FROM accuracy JOIN accuracy_norm USING (benchmark, task, model) ORDER BY task"
        )
        stored = dict(
            warehouse.rows(
                "SELECT task || doc_id, list(unconditional_logprob ORDER BY choice) "
                "FROM choice_logprobs GROUP BY ALL"
            )
        )
        assert examine(warehouse).is_sound
    theirs = [
        (task, *(expected["results"][task][f"{metric},none"] for metric in METRICS)) for task in sorted(TASKS)
    ]
    assert [row[:4] for row in found] == theirs
    for task, *_, stderr in found:
        assert stderr == pytest.approx(expected["results"][task]["acc_mutual_info_stderr,none"])
        for sample in expected["samples"][task]:
            values = stored[f"{task}{sample['doc_id']}"]
            documents_of_choices = [r[0][0] for r in sample["resps"]][len(values) :]
            assert values == pytest.approx(documents_of_choices, abs=1e-4)
    assert len({row[3] for row in found} | {row[1] for row in found}) > 1
    # What has them is good without them; what lacks them is extracted again.
    without = pool.model_copy(update={"benchmarks": (benchmark(tasks, unconditional=False),)})
    assert extract(without, tmp_path / "w").n_skipped == 2


def asking(texts: dict[int, tuple[str, ...]]) -> list[Document]:
    return [Document(i, "", "", 0, "", each, "a prompt", each) for i, each in texts.items()]


def test_each_text_is_asked_once_after_nothing() -> None:
    texts = documents_of_choices(
        asking({0: (" yes", " no"), 1: (" no", " perhaps"), 2: (" yes", " no"), 3: (" a", " b")})
    )
    assert [d.continuations for d in texts] == [(" a",), (" b",), (" no",), (" perhaps",), (" yes",)]
    assert {(d.context, d.messages) for d in texts} == {("", None)}
    assert [d.doc_id for d in texts] == [0, 1, 2, 3, 4]


def test_each_row_has_its_own_choices() -> None:
    some = asking({7: (" yes", " no"), 9: (" a", " perhaps")})
    keys = {"doc_id": [9, 7, 9, 7], "choice": [1, 0, 0, 1]}
    given = pa.table(keys | {"unconditional_logprob": [None] * 4, "n_bytes": [1] * 4})
    lengths = [-float(len(d.continuations[0])) for d in documents_of_choices(some)]
    scored = pa.table({"doc_id": [2, 3, 0, 1], "logprob": [lengths[i] for i in (2, 3, 0, 1)]})
    found = add_unconditional(given, scored, some)
    assert found.column_names == given.column_names
    assert found["unconditional_logprob"].to_pylist() == [-8, -4, -2, -3]


def test_a_fingerprint_says_whether_they_are_there(tmp_path: Path) -> None:
    tasks = write_all(tmp_path / "tasks")
    [plain, _], [asked, _] = (
        load_tasks([benchmark(tasks, unconditional=wanted)], limit=3) for wanted in (False, True)
    )
    assert asked == replace(plain, unconditional=True)
    spec = ModelSpec(model="m", hf_repo="r", params_b=1)
    without, having = (fingerprint(spec, "w", task, "hf") for task in (plain, asked))
    assert having.startswith(without)
    there = PartitionRecord("e", having, 3)
    assert Job(plain, without).is_covered_by(there)
    assert Job(asked, having).is_covered_by(there)
    assert not Job(asked, having).is_covered_by(PartitionRecord("e", without, 3))
    assert not Job(plain, without).is_covered_by(PartitionRecord("e", having, 2))


def test_answers_have_no_choices() -> None:
    with pytest.raises(ValidationError, match="unconditional is only for benchmarks of kind choices"):
        Benchmark(name="a", kind="answers", tasks={"a": "gsm8k"}, unconditional=True)


def test_extract_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Benchmark] = []

    def load_tasks(benchmarks: Sequence[Benchmark], *_: object) -> None:
        asked.extend(benchmarks)
        raise KeyboardInterrupt

    monkeypatch.setattr("rlfocal.extraction.running.runner.load_tasks", load_tasks)
    CliRunner().invoke(app, ["extract", "--pool", "lab", "--unconditional", "-w", str(tmp_path / "w")])
    assert {b.unconditional for b in asked if b.kind == "choices"} == {True}
    assert {b.unconditional for b in asked if b.kind == "answers"} == {False}
    assert [Benchmark.model_validate(b.model_dump()) for b in asked] == asked


@pytest.mark.slow
def test_an_altered_one_shows(warehouse: Warehouse) -> None:
    given = choice_rows(SCORES)
    beside = pa.array([-1.0 - i for i in range(len(given))])
    warehouse.put_partition(docs(2), given.append_column("unconditional_logprob", beside), extraction())
    assert examine(warehouse).is_sound
    with warehouse.transaction("damage"):
        warehouse.connection.execute(
            "UPDATE choice_logprobs SET unconditional_logprob = -0.5 WHERE doc_id = 1 AND choice = 0"
        )
    assert not examine(warehouse).is_sound

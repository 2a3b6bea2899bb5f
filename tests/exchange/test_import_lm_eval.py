"""`import lm-eval`: logs that lm-eval itself wrote, and everything a log may hold that is not taken."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lm_eval_files import DATE, Row, answer_row, choice_row, log_with_lm_eval
from support.tiny_models import write_tasks

from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_prompts
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.reading.samples import sample
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import Benchmark
from warehouse import Warehouse

TASKS = ("tiny_choices", "tiny_spaces", "tiny_answers")
Logged = tuple[Path, dict[str, Row]]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """Two models through lm-eval's own evaluator and tracker: the folder, and its results by model."""
    folder = tmp_path_factory.mktemp("logged")
    tasks = write_tasks(folder / "tasks", choices=20, answers=5)
    found, draw = {}, random.Random(0)
    for model in ("org/one", "org/other"):
        samples, results = log_with_lm_eval(
            folder / "out", tasks, TASKS, model, lambda doc: draw.choice([doc["answer"], "#### 7", "none"])
        )
        found[model] = {"samples": samples, "results": results}
    return folder, found


@pytest.mark.slow
def test_accuracy_is_lm_evals(logged: Logged, warehouse: Warehouse) -> None:
    folder, found = logged
    report = import_lm_eval(warehouse, [folder / "out"])
    assert (report.n_written, report.n_docs) == (6, 45)
    for model, run in found.items():
        for task in ("tiny_choices", "tiny_spaces"):
            graded = "SELECT accuracy, n FROM accuracy WHERE (model, benchmark, task) = (?, ?, ?)"
            [(accuracy, n)] = warehouse.rows(graded, [model, task, task])
            assert n == 20
            assert accuracy == pytest.approx(run["results"][task]["acc,none"], abs=1e-12)
            stored = warehouse.rows(
                "SELECT doc_id, list((logprob, is_greedy) ORDER BY choice) FROM choice_logprobs "
                "WHERE (model, task) = (?, ?) GROUP BY doc_id ORDER BY doc_id",
                [model, task],
            )
            assert stored == [
                (row["doc_id"], [tuple(each[0]) for each in row["resps"]]) for row in run["samples"][task]
            ]
        [(accuracy,)] = warehouse.rows(
            "SELECT accuracy FROM accuracy WHERE (model, task) = (?, 'tiny_answers')", [model]
        )
        assert accuracy == pytest.approx(run["results"]["tiny_answers"]["exact_match,none"], abs=1e-12)
        given_by = (
            "SELECT doc_id, list(text ORDER BY pass) FROM answer_passes WHERE model = ? GROUP BY doc_id"
        )
        said = dict(warehouse.rows(given_by, [model]))
        for row in run["samples"]["tiny_answers"]:  # whose vote is not as the log says is one answer
            assert said[row["doc_id"]] == row["resps"][0] or len(said[row["doc_id"]]) == 1
    assert warehouse.rows("SELECT count(*) FROM choice_logprobs WHERE n_tokens IS NOT NULL") == [(0,)]
    about = "SELECT task, lm_eval_task, num_fewshot, dataset, kind"
    assert sorted(warehouse.rows(f"{about} FROM tasks JOIN benchmarks USING (benchmark)")) == [
        ("tiny_answers", "tiny_answers", 0, None, "answers"),
        ("tiny_choices", "tiny_choices", 2, None, "choices"),
        ("tiny_spaces", "tiny_spaces", 0, None, "choices"),
    ]
    settings_ = warehouse.rows("SELECT DISTINCT settings ->> 'source', n_whole FROM extractions ORDER BY ALL")
    assert settings_ == [("lm-eval", 5), ("lm-eval", 20)]


@pytest.mark.slow
def test_documents_are_those_of_an_extraction(logged: Logged, warehouse: Warehouse) -> None:
    """So that imported and extracted models can stand side by side under one benchmark."""
    folder, _ = logged
    import_lm_eval(warehouse, [folder / "out"])
    for kind, names in (("choices", TASKS[:2]), ("answers", TASKS[2:])):
        about = {"name": "b", "kind": kind, "tasks": {n: n for n in names}}
        benchmark = Benchmark.model_validate(about | {"include_path": str(folder / "tasks")})
        for task in load_tasks([benchmark]):
            stored = warehouse.rows(
                "SELECT doc_id, doc_hash, coalesce(choices, []), label, gold, question FROM docs "
                "WHERE task = ? ORDER BY doc_id",
                [task.task],
            )
            assert stored == [
                (d.doc_id, d.doc_hash, list(d.choices), d.label, d.gold, d.question) for d in task.documents
            ]
            asked = warehouse.rows(
                "SELECT prompt_hash, prompt, coalesce(continuations, []) FROM docs JOIN prompts "
                "USING (benchmark, task, doc_id) WHERE task = ? AND model = '*' ORDER BY doc_id",
                [task.task],
            )
            assert asked == [(d.prompt_hash, d.context, list(d.continuations)) for d in task.documents]


def test_models_asked_with_other_prompts_are_refused(write: Write, warehouse: Warehouse) -> None:
    """In one import as beside a stored model; a chat template's prompts differ by model, and say nothing."""
    rows = [choice_row(number) for number in range(4)]
    other = [choice_row(number, preamble="Answer carefully.") for number in range(4)]
    logs = [write(rows, model="a"), write(other, model="b")]
    with pytest.raises(InputError, match="another prompt"):
        import_lm_eval(warehouse, logs)
    import_lm_eval(warehouse, logs[:1])
    with pytest.raises(InputError, match="another prompt"):
        import_lm_eval(warehouse, logs[1:])
    edit_run(logs[1], chat_template_sha="0123")
    import_lm_eval(warehouse, logs[1:])
    assert warehouse.rows("SELECT count(DISTINCT prompt_hash), count(*) FROM docs") == [(4, 4)]
    asked = {p.text for p in load_prompts(warehouse, "t")}
    assert asked == {f"A preamble.\n\nquestion {n}" for n in range(4)}


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def log(rows: list[Row], task: str = "t", model: str | None = "m", date: str = DATE) -> Path:
        folder = tmp_path / "out" / str(model)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"samples_{task}_{date}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if model is not None:
            config = {"doc_to_text": "{{question}}", "target_delimiter": " "}
            run = {"results": {}, "configs": {task: config}, "model_name": model}
            (folder / f"results_{date}.json").write_text(json.dumps(run))
        return path

    return log


def edit_run(log: Path, **changes: Any) -> None:
    """Of the run that this log belongs to."""
    run = log.with_name(f"results_{DATE}.json")
    run.write_text(json.dumps(json.loads(run.read_text()) | changes))


def test_twice_is_once_and_one_model_has_one_name(write: Write, warehouse: Warehouse) -> None:
    logs = [write([choice_row(0)], model=model) for model in ("a", "b")]
    import_lm_eval(warehouse, logs)
    before = warehouse.snapshot()
    again = import_lm_eval(warehouse, logs)
    assert (again.n_written, again.n_unchanged, warehouse.snapshot()) == (0, 2, before)
    assert import_lm_eval(warehouse, logs[1:], model="mine").models == ("mine",)
    with pytest.raises(InputError, match="--model mine"):
        import_lm_eval(warehouse, logs, model="mine")


def test_one_filter_is_taken(write: Write, warehouse: Warehouse) -> None:
    graded = [("strict", 0.0), ("flexible", 1.0), ("other", 0.0)]
    rows = [
        answer_row(i, "#### 1234", "none", filter=name, exact_match=grade)
        for name, grade in graded
        for i in range(5)
    ]
    report = import_lm_eval(warehouse, [write(rows)])
    assert report.notes == ("t/t is graded by the filter flexible, not strict, other",)
    with pytest.raises(InputError, match="line 5: document 4 has no row of the filter 'other'"):
        import_lm_eval(warehouse, [write(rows[:-1])])
    assert (report.n_docs, report.n_scores) == (5, 10)
    said = "SELECT DISTINCT pass, text, answer FROM answer_passes ORDER BY ALL"
    assert warehouse.rows(said) == [(0, "#### 1234", "1234"), (1, "none", None)]
    golds = warehouse.rows("SELECT DISTINCT gold, question FROM docs WHERE doc_id = 0")
    assert golds == [("1234", "question 0")]


def test_names_come_from_the_registry(write: Write, warehouse: Warehouse) -> None:
    path = write([choice_row(i) for i in range(5)], "leaderboard_gpqa_main")
    write([choice_row(i) for i in range(5)], "lab_mmlu_history")
    report = import_lm_eval(warehouse, [path.parent])
    assert report.benchmarks == ("gpqa", "lab-mmlu")
    assert warehouse.rows("SELECT DISTINCT benchmark, task, confidential FROM docs ORDER BY ALL") == [
        ("gpqa", "main", True),
        ("lab-mmlu", "history", False),
    ]
    other = import_lm_eval(warehouse, [path], benchmark="gpqa@mine")
    assert other.benchmarks == ("gpqa@mine",)


def test_the_latest_run_counts(write: Write, warehouse: Warehouse) -> None:
    first = write([choice_row(0, logprobs=[0.0, -1.0, -1.0])], date="2026-01-01T00-00-00.000001")
    write([choice_row(0, logprobs=[-1.0, -1.0, 0.0])], date="2026-01-02T00-00-00")
    report = import_lm_eval(warehouse, [first.parent])
    assert report.left == (f"{first} (an earlier run of t by m)",)
    assert warehouse.rows("SELECT prediction FROM predictions") == [(2,)]


def test_other_tasks_are_left(write: Write, warehouse: Warehouse) -> None:
    write([choice_row(0)], "taken")
    rolling = choice_row(0, arguments={"gen_args_0": {"arg_0": "text"}}, resps=[["-3.5"]])
    write([rolling], "rolling")
    write([answer_row(0, "x", exact_match=None) | {"target": ""}], "gold")
    ungraded = answer_row(0, "x")
    del ungraded["exact_match"]
    write([ungraded], "ungraded")
    other = choice_row(0)
    other["arguments"]["gen_args_1"]["arg_0"] = "another prompt"
    write([other], "winogrande")
    write([choice_row(0, target="[0, 2]", acc=1.0)], "several")
    write([choice_row(i, target="none of these") for i in range(2)], "lost")
    path = write([choice_row(0, acc=0.37)], "mc2")
    report = import_lm_eval(warehouse, [path.parent])
    assert report.benchmarks == ("taken",)
    assert len(report.left) == str(report).count("left out: ") == 7
    with pytest.raises(InputError, match="nothing to import"):
        import_lm_eval(warehouse, [path])


def test_mutual_information_and_lost_targets(write: Write, warehouse: Warehouse) -> None:
    """The second half of such requests is no choice; a target that is none makes every model wrong."""
    row = choice_row(0, target="neither", acc=0.0, acc_mutual_info=0.0)
    for i in range(3):
        row["arguments"][f"gen_args_{3 + i}"] = {**row["arguments"][f"gen_args_{i}"], "arg_0": ""}
    row["resps"] += [[["-9.0", "False"]]] * 3
    import_lm_eval(warehouse, [write([row, choice_row(1, acc=0.0)])])
    lost = warehouse.rows("SELECT label, gold, choices FROM docs WHERE doc_id = 0")
    assert lost == [(-1, "neither", ["no", "yes, really", "ça"])]
    assert warehouse.rows("SELECT correct FROM predictions WHERE doc_id = 0") == [(False,)]
    lengths = warehouse.rows("SELECT DISTINCT n_chars, n_bytes FROM choice_logprobs WHERE choice = 2")
    assert lengths == [(2, 3)]


@given(st.data())
def test_labels_survive_the_way_through_text(data: st.DataObject) -> None:
    """An index and a choice's text look alike on disk; the row's own acc, or the task's field, tells."""
    choices = data.draw(st.lists(st.sampled_from("0123456789ab"), min_size=2, max_size=6, unique=True))
    scores = st.integers(-9, 0).map(float)
    logprobs = data.draw(st.lists(scores, min_size=len(choices), max_size=len(choices)))
    label = data.draw(st.integers(0, len(choices) - 1))
    target: Any = choices[label] if data.draw(st.booleans()) else label
    row = choice_row(0, choices=choices, logprobs=logprobs, target=str(target))
    row["doc"]["gold"] = target
    row["acc"] = float(np.argmax(logprobs) == label)
    logged = sample(row, {"doc_to_target": "gold"})
    assert logged.document["label"] == label
    assert logged.document["gold"] == choices[label]


def test_models_must_have_answered_the_same(write: Write, warehouse: Warehouse) -> None:
    rows = [choice_row(i) for i in range(5)]
    x = write(rows, model="x")
    y = write([*rows[:3], choice_row(3, doc_hash="other"), rows[4]], model="y")
    with pytest.raises(InputError, match=rf"{y}, line 4: document 3 of t/t differs from {x}, line 4: doc_h"):
        import_lm_eval(warehouse, [x, y])
    write(rows[:4], model="y")
    with pytest.raises(InputError, match=r"x.*, line 5: model y has no row for document 4 of t/t, "):
        import_lm_eval(warehouse, [x, y])
    assert warehouse.rows("FROM docs") == []
    report = import_lm_eval(warehouse, [x, y], allow_missing=True)
    assert report.missing == (("t", "y", 1),)
    z = write([choice_row(0, target="1"), *rows[1:]], model="z")
    before = warehouse.snapshot()
    with pytest.raises(InputError, match="document 0 of t/t differs from the one in the warehouse: label"):
        import_lm_eval(warehouse, [z])
    assert warehouse.snapshot() == before


WORDED = [[["-1", "True"]], [["x", "False"]], [["-2", "False"]]]
BAD: dict[str, tuple[Any, str]] = {
    "no number": (choice_row(1, resps=WORDED), "not a sam"),
    "not a number": (choice_row(1, logprobs=[float("nan"), 0.0, 0.0]), ".*not all finite"),
    "too few": (choice_row(1, resps=[[["-1", "True"]]]), ".*1 resps for 3 requests"),
    "another file": ({"doc_id": 1, "colour": "red", "filter": "none"}, ".*no 'arguments'"),
    "a list": ([1, 2], "not a JSON object"),
    "twice": (choice_row(0), "duplicate row for document 0 of t/t, model m"),
    "half a pair": (choice_row(1, doc_hash="\ud800"), "not valid JSON .*surrogates"),
    "no whole number": (choice_row(1, doc_id=1.5), ".*doc_id 1.5 is not a whole"),
    "too large": (choice_row(1, doc_id=2**63), ".*is not a whole"),
    "a truth value": (choice_row(1, doc_id=True), ".*doc_id True is not a whole"),
    "a hash of numbers": (choice_row(1, doc_hash=[1]), r".*doc_hash \[1\] is not text"),
    "a huge score": (choice_row(1, acc=10**400), ".*too large"),
    "a score that is none": (choice_row(1, acc=float("nan")), ".*score nan is not a number"),
    "a changed score": (choice_row(1, acc=1.0), ".*acc is 1.0, but the most likely choice is 'ça'"),
}
"""By fault: the second row of a log, and what is said of it."""


@pytest.mark.parametrize("fault", BAD)
def test_refused_whole(write: Write, unwritten: Warehouse, fault: str) -> None:
    bad, message = BAD[fault]
    path = write([choice_row(0), bad])
    before = unwritten.snapshot()
    with pytest.raises(InputError, match=f"{path}, line 2: {message}"):
        import_lm_eval(unwritten, [path])
    assert unwritten.snapshot() == before


def test_chats_may_lack_the_delimiter(write: Write, warehouse: Warehouse) -> None:
    row = choice_row(0)
    for request in row["arguments"].values():
        request["arg_1"] = request["arg_1"].strip()
    import_lm_eval(warehouse, [write([row])])
    assert warehouse.rows("SELECT choices FROM docs") == [(["no", "yes, really", "ça"],)]


def test_refused_folders_and_runs(write: Write, warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder"):
        import_lm_eval(warehouse, [tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="--log_samples"):
        import_lm_eval(warehouse, [tmp_path / "empty"])
    path = write([choice_row(0)], model=None)
    with pytest.raises(InputError, match="give --model"):
        import_lm_eval(warehouse, [path])
    assert import_lm_eval(warehouse, [path], model="m").n_written == 1
    path = write([choice_row(0)])
    (path.parent / f"results_{DATE}.json").write_text("{")
    with pytest.raises(InputError, match=r"results_.*JSON"):
        import_lm_eval(warehouse, [path])
    for wrong in ({"versions": {"t": "\udfff"}}, {"model_name": ["m"]}):
        path = write([choice_row(0)])
        edit_run(path, **wrong)
        with pytest.raises(InputError, match=r"JSON|model_name"):
            import_lm_eval(warehouse, [path])
    with pytest.raises(InputError, match="has no rows"):
        import_lm_eval(warehouse, [write([], "empty")])


def test_templates_cannot_reach_out(write: Write, warehouse: Warehouse) -> None:
    """A log's template is somebody else's: what it cannot format harmlessly is not formatted."""
    path = write([choice_row(0)])
    template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    edit_run(path, configs={"t": {"doc_to_text": template, "target_delimiter": " "}})
    import_lm_eval(warehouse, [path])
    assert warehouse.rows("SELECT question FROM docs") == [("A preamble.\n\nquestion 0",)]

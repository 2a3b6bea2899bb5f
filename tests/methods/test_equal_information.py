"""A task's name is an input like any other: hidden from every method that does not say that it reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.datasets import answers, choices
from support.rival_data import accuracy, brief, fitted, telling

from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import HIDDEN_TASK, Dataset
from rlfocal.data.policy import Policy, decide
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.fitting import decide_groups, fit_groups
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.planning import group_rows
from rlfocal.methods import Entry, entries, every_method, make_method, reads_task, register
from rlfocal.methods import registry as of_register
from rlfocal.methods._by_task import MIN_TASK_DOCUMENTS, PerTaskMethod
from warehouse import open_warehouse

PLUS = sorted(name for name in entries() if reads_task(name) and isinstance(make_method(name), PerTaskMethod))
SEEN: list[set[str]] = []


@dataclass(frozen=True)
class Spy:
    """Asks the model that was best on the document's task, and remembers which tasks it was shown."""

    best: tuple[tuple[str, int], ...] = ()
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Spy]:
        SEEN.append(set(train.tasks.tolist()))
        right = {task: int(rows.correct.sum(axis=0).argmax()) for task, rows in train.split_by_task()}
        return [Spy(tuple(right.items()))]

    def decide(self, calls: Calls) -> Answers:
        SEEN.append(set(calls.tasks.tolist()))
        asked = np.array([dict(self.best).get(task, 0) for task in calls.tasks.tolist()])
        said = calls.call(asked[:, None] == np.arange(len(calls.models)))
        return Answers(said.predictions[np.arange(len(calls)), asked])


@pytest.fixture
def spy() -> Iterator[None]:
    SEEN.clear()
    register(Entry("spy", "the best of the task", "what it answers", with_task="as an input"))(Spy)
    yield
    for name in ("spy", "spy+task"):
        del of_register._ENTRIES[name]


def specialists(T: int = 400, seed: int = 0) -> Dataset:
    """Two tasks, in turn: m00 is right on one and m01 on the other, both always sure; the question is the
    same everywhere, so that only the task's name tells them apart."""
    data, rng = telling(T, seed), np.random.default_rng(seed)
    tasks = np.where(rng.random(T) < 0.5, "one", "other")
    wrong = (data.labels + rng.integers(1, 4, T)) % 4
    at_one = tasks == "one"
    said = np.stack(
        [np.where(at_one, data.labels, wrong), np.where(at_one, wrong, data.labels), rng.integers(0, 4, T)], 1
    )
    probs = np.where(np.arange(4) == said[..., None], 0.7, 0.1)
    return replace(
        data,
        tasks=tasks,
        probs=probs,
        logprobs=np.log(probs),
        predictions=probs.argmax(axis=2),
        questions=tuple(f"which number {n}" for n in rng.integers(0, 9, T)),
    )


def put(path: Path, data: Dataset) -> None:
    keys = {"benchmark": ["b"] * len(data), "task": data.tasks.tolist(), "doc_id": list(range(len(data)))}
    about = {
        "label": pa.array(data.labels, pa.int32()),
        "split": np.where(data.is_train, "train", "test").tolist(),
        "question": list(data.questions),
    }
    with open_warehouse(path) as warehouse, warehouse.transaction("fill"):
        warehouse.append("docs", pa.table(keys | about))
        warehouse.append("models", pa.table({"model": list(data.models)}))
        for at, model in enumerate(data.models):
            for choice in range(data.probs.shape[2]):
                row = {"model": [model] * len(data), "choice": [choice] * len(data)}
                warehouse.append(
                    "choice_logprobs", pa.table(keys | row | {"logprob": data.logprobs[:, at, choice]})
                )


@pytest.mark.usefixtures("spy")
@pytest.mark.parametrize("protocol", ["frozen", pytest.param("online", marks=pytest.mark.slow)])
def test_a_method_that_would_read_tasks_cannot(tmp_path: Path, protocol: Protocol) -> None:
    data = specialists()
    put(tmp_path / "w", data)
    with open_warehouse(tmp_path / "w") as warehouse:
        [hidden, *_] = evaluate(warehouse, "b", methods=["spy"], protocol=protocol).rows
        assert [{HIDDEN_TASK}] * len(SEEN) == SEEN
        SEEN.clear()
        [shown, *_] = evaluate(warehouse, "b", methods=["spy+task"], protocol=protocol).rows
        assert {"one", "other"} in SEEN
        assert hidden.accuracy < 0.7
        assert shown.accuracy == 1.0
        [fitted_to_each, *_] = evaluate(warehouse, "b", methods=["spy"], per="task", protocol=protocol).rows
        assert fitted_to_each.accuracy == 1.0


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "name", [n for n in every_method(choices())[0] if not n.startswith(("rl_focal", "rlae"))]
)
def test_other_tasks_change_no_answer(name: str) -> None:
    data = replace(choices(), tasks=np.array(["a", "b", "c"])[np.arange(len(choices())) % 3])
    other = replace(data, tasks=np.random.default_rng(1).permutation(data.tasks))
    decided = []
    for one in (data, other):
        groups = group_rows(one, "benchmark")
        [policies] = fit_groups(brief(name), one, groups, [0])
        decided.append(decide_groups(one, groups, policies).predictions)
    np.testing.assert_array_equal(decided[0], decided[1])


@pytest.mark.parametrize("name", PLUS)
def test_the_tasks_name_helps_among_specialists(name: str) -> None:
    data = specialists()
    alone = decide(fitted(name.removesuffix("+task"), data.train.hide_tasks()), data.test.hide_labels())
    beside = decide(fitted(name, data.train), data.test.hide_labels())
    assert accuracy(data.test, beside) == 1.0
    assert accuracy(data.test, alone) < 0.8


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("name", PLUS)
def test_with_the_tasks_name_is_one_fit_a_task_and_new_tasks_take_the_shared_one(
    name: str, kind: str
) -> None:
    data = choices(240) if kind == "choices" else answers(40)
    if kind not in entries()[name].kinds:
        pytest.skip("not for such data")
    tasks = np.array(["a", "b"])[np.arange(len(data)) % 2]
    tasks[-20:] = "c"
    data = replace(data, tasks=tasks)
    plus = fitted(name, data.train)
    decided = decide(plus, data.test.hide_labels())
    own = make_method(name.removesuffix("+task"))
    for task in ("a", "b", "c"):
        of_task = data.tasks == task
        rows = data.rows(data.is_train & of_task) if task != "c" else data.train.hide_tasks()
        assert len(rows) >= MIN_TASK_DOCUMENTS
        [policy] = own.fit(rows, [0])
        assert isinstance(policy, Policy)
        expected = decide(policy, data.rows(~data.is_train & of_task).hide_labels())
        here = data.test.tasks == task
        np.testing.assert_array_equal(decided.predictions[here], expected.predictions)
        np.testing.assert_array_equal(decided.pools[here], expected.pools)
        assert decided.rounds is not None
        np.testing.assert_array_equal(decided.rounds[here], expected.rounds)


def test_tables_do_not_mix_what_methods_read(tmp_path: Path) -> None:
    put(tmp_path / "w", specialists(80))
    names = ["best_single", "log_linear", "best_single+task", "log_linear+task"]
    with open_warehouse(tmp_path / "w") as warehouse:
        evaluate(warehouse, "b", methods=names)
        hidden, shown = leaderboard(warehouse)
    assert (hidden.reads_task, shown.reads_task) == (False, True)
    assert {s.method for s in hidden.rows} == {"best_single", "log_linear", "best_single+task"}
    assert hidden.rival is not None
    assert not reads_task(hidden.rival.method)
    assert {s.method for s in shown.rows} == {"best_single+task", "log_linear+task"}
    for board in (hidden, shown):
        compared = {s.method: s.against_baseline for s in board.rows}
        assert compared.pop(board.baseline) is None
        assert None not in compared.values()


def test_what_cannot_read_a_task_is_refused(tmp_path: Path) -> None:
    data = specialists(40)
    put(tmp_path / "w", data)
    with open_warehouse(tmp_path / "w") as warehouse:
        with pytest.raises(InputError, match=r"'log_linear\+task' needs several tasks in one fit"):
            evaluate(warehouse, "b", methods=["log_linear+task"], per="task")
        with pytest.raises(InputError, match=r"plurality\+task"):
            evaluate(warehouse, "b", methods=["plurality+task"])
    _, left_out = every_method(replace(data, tasks=np.full(40, "one")))
    assert {name for name in left_out if reads_task(name)} >= set(PLUS)


def test_method_names_show_whether_tasks_are_read() -> None:
    for name in ("quiet", "loud+task"):
        reads = ("task",) if name == "quiet" else ()
        with pytest.raises(ValueError, match="if and only if the method reads task"):
            register(Entry(name, "all", "anything", reads=reads))(Spy)  # type: ignore[arg-type]


@pytest.mark.slow
def test_scaled_scores_and_single_passes_are_no_distributions() -> None:
    data = choices()
    assert "more_agents" in every_method(data)[0]
    exists = np.isfinite(data.logprobs)
    least = data.logprobs.min(axis=(0, 2), initial=np.inf, where=exists)[:, None]
    most = data.logprobs.max(axis=(0, 2), initial=-np.inf, where=exists)[:, None]
    scaled = np.where(exists, (data.logprobs - least) / (most - least), -np.inf)
    scaled = scaled - np.log(np.exp(scaled).sum(axis=2, keepdims=True))
    for unfit in (replace(data, logprobs=scaled, probs=np.exp(scaled)), answers()):
        named, left_out = every_method(unfit)
        assert "more_agents" not in named
        assert left_out["more_agents"].startswith("needs several samples per document or log-probs")

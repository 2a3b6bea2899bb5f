"""Where answers are only graded there is nothing to fuse: agents ask one model, by the question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.datasets import make_answers

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.knn import GuardedKNN
from rlfocal.methods.learning.routed import RoutedAgents
from rlfocal.methods.reference import BestSingleModel
from rlfocal.methods.trained import configure, load_checkpoint, save_checkpoint, train_agents
from rlfocal.serving import Router
from warehouse import open_warehouse

OURS = ("rl_focal", "rl_focal_sequential", "gated_log_linear")
SUBJECTS = {"chemistry": ["acid", "salt", "base"], "history": ["king", "war", "treaty"]}


def graded(n: int = 400, seed: int = 0, *, skills: tuple[tuple[float, float], ...] = ()) -> Dataset:
    """Models that are right this often on questions of chemistry and of history; wrong answers are alike."""
    skills = skills or ((0.9, 0.3), (0.3, 0.9), (0.65, 0.5))
    rng = np.random.default_rng(seed)
    subject = rng.integers(0, 2, n)
    words = list(SUBJECTS.values())
    questions = tuple(f"{' '.join(rng.permutation(words[at]))} number {i}?" for i, at in enumerate(subject))
    right = rng.random((n, len(skills))) < np.array(skills)[:, subject].T
    said = [("".join("r" if one else "w" for one in row), "r") for row in right.tolist()]
    made = make_answers(*said)
    return replace(made, questions=questions, is_train=np.arange(n) < n // 2)


def accuracy(policy: object, documents: Dataset) -> float:
    decided = decide(policy, documents)  # type: ignore[arg-type]
    return float(documents.is_right(decided.predictions).mean())


def fit(method: str, train: Dataset, seed: int = 0) -> RoutedAgents:
    [agents] = train_agents(method, train, configure(method, len(train)), [seed])
    assert isinstance(agents, RoutedAgents)
    return agents


@pytest.mark.parametrize("method", OURS)
def test_each_question_is_routed_to_the_model_that_knows(method: str) -> None:
    data = graded()
    agents = fit(method, data.train)
    [best] = BestSingleModel().fit(data.train, [0])
    [guarded] = GuardedKNN().fit(data.train, [0])
    assert agents.deciding_policies == ("best single per question",)
    assert accuracy(agents, data.test) > accuracy(best, data.test) + 0.2
    assert accuracy(agents, data.test) >= accuracy(guarded, data.test) - 0.01
    assert (decide(agents, data.test).pools.sum(axis=1) == 1).all()


def test_one_model_alone_where_routing_is_not_ahead() -> None:
    data = graded(80, skills=((0.9, 0.9), (0.5, 0.5), (0.5, 0.5)))
    agents = fit("rl_focal_sequential", data.train)
    assert agents.deciding_policies == ("best single",)
    assert decide(agents, data.test).pools[:, 0].all()


def test_wrong_answers_that_differ_tell_more_than_a_grade() -> None:
    assert make_answers(("rww", "r"), ("wrw", "r"), ("rrr", "r")).is_only_graded
    assert make_answers(("r-r", "r"), ("--r", "r")).is_only_graded, "no answer is a wrong one"
    assert not make_answers(("rxy", "r"), ("wrx", "r")).is_only_graded
    assert not make_answers(("yyn", "y"), ("nny", "n"), ("yyn", "y")).is_only_graded, "yes or no"
    assert not make_answers(("rrw", "r"), ("rrr", "r")).is_only_graded, "one failure is alike by chance"


def test_a_checkpoint_and_a_router_decide_alike(tmp_path: Path) -> None:
    data = graded(120)
    agents = fit("rl_focal", data.train, seed=3)
    save_checkpoint(agents, tmp_path / "seed.safetensors")
    loaded = load_checkpoint(tmp_path / "seed.safetensors")
    expected = decide(agents, data.test)
    assert (decide(loaded, data.test).pools == expected.pools).all()
    router = Router.load(tmp_path / "seed.safetensors", online=False)
    for row, question in enumerate(data.test.questions[:20]):
        [model] = router.choose(question)
        assert model == data.models[int(expected.pools[row].argmax())]
        [next_best] = router.choose(question, {model: None})
        assert router.fuse({model: None, next_best: "r"}) == "r"
        assert expected.probability is not None
        assert router.fuse({model: "r"}) == "r"
        assert router.probability == pytest.approx(expected.probability[row]) or expected.predictions[row] < 0


def test_a_budget_in_cents_leaves_dear_models_out() -> None:
    data = graded(200)
    agents = replace(fit("rl_focal", data.train), prices=(1.0, 5.0, 2.0))
    cheap = agents.hold_to_budget(Budget(2.0, "cents"))
    assert cheap is not None
    assert not decide(cheap, data.test).pools[:, 1].any()
    assert agents.hold_to_budget(Budget(0.5, "cents")) is None


def test_models_that_are_down_are_replaced() -> None:
    data = graded(200)
    agents = fit("rl_focal", data.train)
    calls = Calls(data.test, np.array([True, False, False]))
    agents.account(calls)
    assert not calls.called[:, 0].any()
    assert (calls.called.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("benchmark", "n_train", "gain"),
    [pytest.param("mmlu", 1_200, 0.0, marks=pytest.mark.slow), ("bbh", 1_200, 0.005)],
)
def test_real_models_known_by_their_grades_alone(
    real_warehouse: Path, benchmark: str, n_train: int, gain: float
) -> None:
    """Above best single on BBH; on MMLU, 1,200 documents are too few to tell, and best single answers.

    `guarded_knn` asks for less evidence. The mean of two draws of train."""
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        whole = load_dataset(warehouse, benchmark).hide_tasks()
    said = [("".join("r" if right else "w" for right in row), "r") for row in whole.correct.tolist()]
    data = replace(make_answers(*said), questions=whole.questions, models=whole.models)
    gains = []
    for seed in range(2):
        drawn = np.random.default_rng(seed).permutation(len(data))
        train, test = data.take(np.sort(drawn[:n_train])), data.take(np.sort(drawn[n_train:3_700]))
        [guarded], [best] = GuardedKNN().fit(train, [0]), BestSingleModel().fit(train, [0])
        own = accuracy(fit("rl_focal_sequential", train), test)
        gains.append((own - accuracy(guarded, test), own - accuracy(best, test)))
    over_guarded, over_single = np.mean(gains, axis=0)
    assert over_guarded > -0.015
    assert over_single >= gain

"""`rl_focal_sequential` on many tasks: what it learns of each, its fallback, and that nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets import make_dataset
from support.sequential_data import SMALL, right

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import make_method
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.fitting import fit_stage, mixture, task_counts
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, Rows, fit_groups, fit_many
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.variants import load_checkpoint, save_checkpoint
from rlfocal.serving import Router

TASKS = 12


def experts(T: int = 1_440, seed: int = 3) -> Dataset:
    """One of three models, as sure of everything as the others, knows a task's answers; of every third task
    another one. Questions have two to nine words, documents two to four choices.
    """
    rng = np.random.default_rng(seed)
    task = np.arange(T) % TASKS
    n_choices = 2 + task % 3
    labels = rng.integers(0, n_choices)
    says = rng.integers(0, n_choices[:, None], size=(T, 3))
    knows = rng.random(T) < 0.95
    says[np.arange(T), task // 4] = np.where(knows, labels, says[np.arange(T), task // 4])
    weights = np.where(np.arange(4) == says[..., None], 7.0, rng.uniform(0.5, 1.5, size=(T, 3, 4)))
    weights = np.where(np.arange(4) < n_choices[:, None, None], weights, 0.0)
    probs = weights / weights.sum(axis=2, keepdims=True)
    data = make_dataset(np.maximum(probs, 1e-300), labels, n_train=T * 2 // 3)
    return replace(
        data,
        tasks=np.array([f"task-{t}" for t in task]),
        questions=tuple(" ".join(["word"] * n) for n in rng.integers(2, 10, size=T)),
        probs=probs,
        logprobs=np.where(probs > 0, np.log(np.maximum(probs, 1e-300)), -np.inf),
        n_choices=n_choices,
    )


@cache
def trained() -> SequentialAgents:
    return train(experts().train, replace(SMALL, mean_pool=3.0), [0])[0]


@pytest.mark.slow
def test_one_pair_for_many_tasks_follows_the_right_model_of_each_task() -> None:
    data, agents = experts(), trained()
    assert right(agents, data.test).mean() > 0.93
    general = replace(agents, task_fusions=())
    assert right(general, data.test).mean() < 0.8


def test_an_unseen_task_uses_the_estimate_over_all_tasks() -> None:
    test, agents = experts().test, trained()
    strange = replace(test, tasks=np.full(len(test), "unheard-of"))
    bare = replace(agents, task_fusions=(), task_decider=agents.task_decider[:0])
    once, again = decide(agents, strange), decide(bare, strange)
    assert once.predictions.tobytes() == again.predictions.tobytes()
    assert once.pools.tobytes() == again.pools.tobytes()
    # Beside documents of known tasks, too.
    mixed = replace(test, tasks=np.where(np.arange(len(test)) % 2, test.tasks, "unheard-of"))
    beside, known = decide(agents, mixed), decide(agents, test)
    odd = np.arange(len(test)) % 2 == 1
    assert (beside.predictions == np.where(odd, known.predictions, once.predictions)).all()
    assert (beside.pools == np.where(odd[:, None], known.pools, once.pools)).all()


@pytest.mark.parametrize("unheard_of", [False, True])
def test_a_router_answers_as_decide_does(unheard_of: bool) -> None:
    test, agents = experts().test, trained()
    if unheard_of:
        test = replace(test, tasks=np.full(len(test), "unheard-of"))
    decided = decide(agents, test)
    assert len(set(decided.pools.sum(axis=1))) > 1 or unheard_of
    router = Router(agents, online=False)
    for row in range(0, len(test), 3):
        about = {"question": test.questions[row], "task": str(test.tasks[row])}
        said: dict[str, NDArray[np.float64]] = {}
        while models := router.choose(about, said):
            said |= {m: test.logprobs[row, test.models.index(m), : test.n_choices[row]] for m in models}
        assert [m in said for m in test.models] == decided.pools[row].tolist()
        assert router.fuse(said) == decided.predictions[row]


@pytest.mark.slow
def test_what_is_learned_of_tasks_is_in_the_checkpoint(tmp_path: Path) -> None:
    test, agents, file = experts().test, trained(), tmp_path / "seed-0.safetensors"
    save_checkpoint(agents, file)
    loaded = load_checkpoint(file, agents.models)
    assert decide(loaded, test).predictions.tobytes() == decide(agents, test).predictions.tobytes()
    save_checkpoint(train(experts().train, replace(SMALL, mean_pool=3.0), [0])[0], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_seeds_trained_together_are_as_trained_alone() -> None:
    data, config = experts(T=720), replace(SMALL, mean_pool=3.0, recipes=SMALL.recipes[:1])
    together = train(data.train, config, [0, 1])
    [alone] = train(data.train, config, [1])
    assert together[0].task_fusions[2].shares.tobytes() != alone.task_fusions[2].shares.tobytes()
    np.testing.assert_allclose(together[1].task_fusions[2].shares, alone.task_fusions[2].shares, atol=1e-9)


def test_groups_padded_to_one_length_are_solved_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    sizes, C, G, F = (40, 25, 33), 3, 2, 4
    longest = max(sizes)
    is_open = torch.from_numpy(np.arange(C) < rng.integers(2, C + 1, size=(3, longest))[..., None])
    rows = Rows(
        torch.from_numpy(rng.normal(size=(3, longest, C, G))),
        torch.from_numpy(rng.normal(size=(3, longest, F))),
        is_open,
        torch.from_numpy(rng.integers(0, 2, size=(3, longest))),
    )
    real = torch.arange(longest) < torch.tensor(sizes)[:, None]
    taken = torch.stack([real, real & (torch.arange(longest) % 2 == 0)], 1).double()
    priors = Priors(
        torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double(), torch.tensor([[1.0] * F, [0.0] * F]).double()
    )
    found = fit_groups(rows, taken, priors, biased=True, tolerance=1e-6)
    for group, size in enumerate(sizes):
        at = torch.arange(size)
        one = Rows(rows.shared[group], rows.own[group], rows.open[group], rows.labels[group]).take(at)
        alone = fit_many(one, taken[group, :, :size], priors, biased=True, tolerance=1e-6)
        for name in ("shared", "bias", "own"):
            expected, got = getattr(alone, name), getattr(found.at(group), name)
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def test_nothing_of_a_held_out_row_reaches_what_is_fitted_without_it() -> None:
    """Numbers enough to learn labels by heart, which are random: held out, they are not guessed."""
    rng = np.random.default_rng(0)
    T, F = 200, 150
    rows = Rows(
        torch.from_numpy(rng.normal(size=(T, 2, 1))),
        torch.from_numpy(rng.normal(size=(T, F))),
        torch.ones((T, 2), dtype=torch.bool),
        torch.from_numpy(rng.integers(0, 2, size=T)),
    )
    priors = Priors(torch.ones((1, 1)).double(), torch.full((1, F), 5.0).double())
    part = np.arange(T)[None] % 5
    stage = fit_stage(rows, priors, part, np.ones(T), biased=True)
    known = rows.labels.numpy()
    assert (stage.weights.probabilities(rows)[0].numpy().argmax(axis=1) == known).mean() > 0.95
    assert abs((stage.out_of_fold[0].argmax(axis=1) == known).mean() - 0.5) < 0.1
    other = rows.labels.clone()
    other[part[0] == 2] = 1 - other[part[0] == 2]
    flipped = fit_stage(Rows(rows.shared, rows.own, rows.open, other), priors, part, np.ones(T), biased=True)
    assert (flipped.out_of_fold[0][part[0] == 2] == stage.out_of_fold[0][part[0] == 2]).all()


def test_a_document_counts_for_as_many_as_its_tasks_size_asks() -> None:
    at_label = np.random.default_rng(0).dirichlet([1, 1, 1], size=30)
    counts = np.repeat([3.0, 1.0], 15)
    repeated = np.concatenate([at_label[:15]] * 3 + [at_label[15:]])
    np.testing.assert_allclose(mixture(at_label, counts=counts), mixture(repeated))
    data = experts().train
    many = replace(data, tasks=np.where(np.arange(len(data)) < 500, "task-0", data.tasks))
    of_task = {task: task_counts(many)[many.tasks == task].sum() for task in set(many.tasks.tolist())}
    np.testing.assert_allclose(list(of_task.values()), len(data) / len(of_task))
    few = replace(data, tasks=data.tasks.astype("<U5"))
    assert (task_counts(few) == 1).all()


def test_what_a_model_says_of_one_choice_tells_about_another() -> None:
    """It always says the choice before the right one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=500)
    before, guess = (labels - 1) % 4, rng.integers(0, 4, size=500)
    says = np.stack([before, guess], axis=1)
    probs = np.where(np.arange(4) == says[..., None], 0.7, 0.1)
    data = make_dataset(probs, labels, n_train=350)
    [agents] = train(data.train, SequentialConfig(), [0])
    assert right(agents, data.test).mean() > 0.95
    alone = replace(SequentialConfig(), recipes=(Recipe(0, shared=0.2),))
    assert right(train(data.train, alone, [0])[0], data.test).mean() < 0.5


def test_curves_see_what_is_neither_more_nor_less() -> None:
    """Questions of middling length have one answer, short and long ones the other; nobody knows."""
    rng = np.random.default_rng(0)
    words = rng.integers(2, 40, size=600)
    labels = ((words > 8) & (words < 20)).astype(np.int64)
    data = make_dataset(rng.dirichlet([1, 1], size=(600, 2)), labels, n_train=400)
    data = replace(data, questions=tuple(" ".join(["word"] * n) for n in words))
    blind, seeing = (
        train(data.train, SequentialConfig(recipes=(Recipe(100, surface=30, curves=c),)), [0])[0]
        for c in (0.0, 0.3)
    )
    assert right(seeing, data.test).mean() > 0.9 > right(blind, data.test).mean() + 0.05


def noisy(skills: list[float], T: int, n_train: int, seed: int) -> Dataset:
    """Four choices; wrong answers are as confident as right ones."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=T)
    wrong = (labels[:, None] + rng.integers(1, 4, size=(T, len(skills)))) % 4
    says = np.where(rng.random((T, len(skills))) < skills, labels[:, None], wrong)
    top = rng.uniform(0.4, 0.99, size=(T, len(skills), 1))
    return make_dataset(
        np.where(np.arange(4) == says[..., None], top, (1 - top) / 3), labels, n_train=n_train
    )


@pytest.mark.slow
def test_where_wrong_answers_are_as_confident_as_right_ones_it_is_no_worse_than_a_vote() -> None:
    gains = []
    for seed in range(5):
        data = noisy([0.62, 0.6, 0.58, 0.57, 0.56], T=1_300, n_train=300, seed=seed)
        [agents] = train(data.train, SequentialConfig(mean_pool=5.0), [0])
        [votes] = make_method("plurality").fit(data.train, [0])
        voted = decide(votes, data.test).predictions == data.test.labels
        gains.append(right(agents, data.test).mean() - voted.mean())
    assert np.mean(gains) > -0.01


@pytest.mark.slow
@pytest.mark.parametrize("n_train", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 100))])
def test_with_few_labels_it_is_no_worse_than_the_best_model_by_them(n_train: int) -> None:
    gains = []
    for seed in range(8):
        data = noisy([0.8, 0.7, 0.65, 0.5, 0.45, 0.4], T=n_train + 600, n_train=n_train, seed=seed)
        [agents] = train(data.train, SequentialConfig(), [0])
        [single] = make_method("best_single").fit(data.train, [0])
        best = decide(single, data.test).predictions == data.test.labels
        gains.append(right(agents, data.test).mean() - best.mean())
    assert np.mean(gains) > -0.02


@pytest.mark.slow
def test_labels_that_mean_nothing_teach_it_nothing() -> None:
    data = noisy([0.8, 0.7, 0.65, 0.5], T=2_000, n_train=1_000, seed=0)
    rng = np.random.default_rng(1)
    shuffled = replace(data.train, labels=rng.permutation(data.train.labels))
    [agents] = train(shuffled, SequentialConfig(), [0])
    assert abs(agents.held_out_accuracy - 0.25) < 0.06
    assert right(agents, data.test).mean() <= data.test.correct[:, 0].mean()

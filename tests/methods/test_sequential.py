"""`rl_focal_sequential`: its solvers against independent ones, and what its decisions may depend on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from support.datasets import make_answers, make_dataset, make_logits, texts
from support.sequential_data import ANSWERS, CHOICES, SMALL, asked_in_words, letters, right, trained
from threadpoolctl import threadpool_limits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset, Kind, load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import evaluate
from rlfocal.methods import CheckpointStore, RLFocal, make_method
from rlfocal.methods.rl_focal_sequential import training
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.asking import asking_order
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig, sequential_config
from rlfocal.methods.rl_focal_sequential.decider import (
    N_FEATURES,
    StageView,
    fit_decider,
    fit_within,
    stop_stages,
)
from rlfocal.methods.rl_focal_sequential.fitting import Stage, fit_stage, mixture
from rlfocal.methods.rl_focal_sequential.observations import (
    About,
    Outputs,
    about,
    best_slots,
    outputs,
    real_slots,
    silence,
    stage_rows,
)
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, Rows, fit_many, minimise
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.trained.checkpoint import load_checkpoint, save_checkpoint
from rlfocal.serving.router import Router
from warehouse import Warehouse, open_warehouse


def random_rows(T: int = 60, C: int = 4, G: int = 3, F: int = 5) -> Rows:
    """Some slots closed, some rows without a right slot."""
    rng = np.random.default_rng(0)
    exists = np.arange(C) < rng.integers(2, C + 1, size=T)[:, None]
    labels = np.where(rng.random(T) < 0.1, -1, rng.integers(0, exists.sum(axis=1)))
    shared, own = rng.normal(size=(T, C, G)), rng.normal(size=(T, F))
    return Rows(*(torch.from_numpy(part) for part in (shared, own, exists, labels)))


@pytest.mark.parametrize("biased", [True, False])
def test_regressions_side_by_side_equal_scipys_one_by_one(biased: bool) -> None:
    rows = random_rows(F=5 if biased else 0)
    T, C, G = rows.shared.shape
    F = rows.own.shape[1]
    rng = np.random.default_rng(1)
    taken = (rng.random((3, T)) < 0.7).astype(float)
    scales = np.array([[1.0] * 5, [0.3, 0, 1, 0, 0.1], [0.0] * 5])[:, :F]
    shared_scales = np.array([[0.7] * G, [1.0, 0.0, 0.5], [0.2, 1.0, 0.0]])
    priors = Priors(torch.from_numpy(shared_scales), torch.from_numpy(scales))
    found = fit_many(rows, torch.from_numpy(taken), priors, biased=biased, tolerance=1e-5)
    shared, own, exists, labels = (part.numpy() for part in (rows.shared, rows.own, rows.open, rows.labels))

    def distributions(x: NDArray[np.float64], problem: int) -> NDArray[np.float64]:
        a, b = x[:G] * shared_scales[problem], x[G : G + C] * biased
        w = x[G + C :].reshape(F, C) * scales[problem][:, None]
        logits = np.where(exists, shared @ a + b + own @ w, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    for problem in range(3):
        keep = (taken[problem] > 0) & (labels >= 0)

        def loss(x: NDArray[np.float64], keep: NDArray[np.bool_] = keep, problem: int = problem) -> float:
            p = distributions(x, problem)[keep, labels[keep]]
            ridge = x[:G] @ x[:G] + 10 * x[G : G + C] @ x[G : G + C] + x[G + C :] @ x[G + C :]
            return float(-np.log(p).sum() + ridge / 2)

        solved = minimize(
            loss, np.zeros(G + C + F * C), method="L-BFGS-B", options={"ftol": 1e-15, "maxfun": 10**6}
        )
        got = found.probabilities(rows)[problem].numpy()
        np.testing.assert_allclose(got, distributions(solved.x, problem), atol=1e-4)
        assert (got[~exists] == 0).all()


def test_minimise_solves_each_problem_of_a_batch() -> None:
    """Rosenbrock's valley from three places, beside a badly scaled quadratic."""
    scale = torch.tensor([1.0, 300.0], dtype=torch.float64)

    def loss(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        valley = (1 - x[:3, 0]) ** 2 + 100 * (x[:3, 1] - x[:3, 0] ** 2) ** 2
        bowl = (scale * (x[3:] - 2) ** 2).sum(1)
        value = torch.cat([valley, bowl])
        return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    start = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [2.0, -1.0], [50.0, -7.0]], dtype=torch.float64)
    found = minimise(loss, start, tolerance=1e-7)
    expected = torch.tensor([[1.0, 1.0]] * 3 + [[2.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_shares_of_recipes_are_the_likeliest() -> None:
    at_label = np.random.default_rng(0).dirichlet([0.5, 1, 2], size=40)
    grid = np.array([(a, b, 100 - a - b) for a in range(1, 99) for b in range(1, 100 - a)]) / 100
    objective = np.log(at_label @ grid.T).sum(axis=0) + np.log(grid).sum(axis=1) / 3
    shares = mixture(at_label, iterations=2_000)
    np.testing.assert_allclose(shares, grid[objective.argmax()], atol=0.011)
    assert np.log(at_label @ shares).sum() + np.log(shares).sum() / 3 >= objective.max() - 1e-9


@given(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.sampled_from([0.0, 0.02, 0.06, 0.3]))
def test_the_decider_is_the_best_of_all_ways_to_stop(chances: list[int], penalty: float) -> None:
    """Certainty walks between two levels through three stages: as dynamic programming would."""
    levels = np.array([(0.35, 0.7), (0.4, 0.8), (0.5, 0.95)])
    up = [quarters / 4 for quarters in chances]
    every = np.array(list(product((0, 1), repeat=3)))
    share = [
        np.prod([q if s else 1 - q for q, s in zip((up[0], up[1 + a], up[3 + b]), (a, b, c), strict=True)])
        for a, b, c in every
    ]
    walks = every.repeat(np.round(np.array(share) * 25_600).astype(int), axis=0)
    reward = levels[np.arange(3), walks]
    views = []
    for stage in range(3):
        features = np.zeros((len(walks), N_FEATURES))
        features[:, 0], features[:, 1] = 1, reward[:, stage]
        views.append(StageView(features, stage + 1))
    earned = reward - penalty * np.arange(1, 4)

    def worth(stage: NDArray[np.int64]) -> float:
        return float(earned[np.arange(len(walks)), stage].mean())

    best = -np.inf
    for go in product((False, True), repeat=4):
        goes = np.array(go).reshape(2, 2)
        best = max(best, worth(np.where(~goes[0][walks[:, 0]], 0, np.where(~goes[1][walks[:, 1]], 1, 2))))
    weights = fit_decider(views, penalty)
    assert worth(stop_stages(weights, [v.features for v in views])) >= best - 4e-3


@given(st.integers(0, 50), st.floats(1, 6))
def test_train_asks_no_more_than_the_mean_pool(seed: int, mean_pool: float) -> None:
    rng = np.random.default_rng(seed)
    views = []
    for at, size in enumerate((1, 2, 4, 6)):
        features = rng.random((80, N_FEATURES))
        features[:, 0] = 1
        features[:, 1] += 0.1 * at
        views.append(StageView(features, size))
    deployed = [v.features + 0.05 * rng.random(v.features.shape) for v in views]
    weights, penalty = fit_within(views, deployed, mean_pool, 0.0)

    def asked(weights: NDArray[np.float64]) -> float:
        sizes = np.array([1, 2, 4, 6])
        return max(
            float(sizes[stop_stages(weights, f)].mean()) for f in ([v.features for v in views], deployed)
        )

    assert asked(weights) <= mean_pool
    if penalty > 0:
        assert asked(fit_decider(views, penalty - 1e-5)) > mean_pool


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
def test_a_seed_is_a_checkpoint_to_the_byte_and_test_labels_reach_neither_it_nor_decisions(
    data: Dataset, tmp_path: Path
) -> None:
    permuted = data.labels.copy()
    permuted[~data.is_train] = (data.test.labels + 1) % 3
    left = []
    for name, labels in (("once", data.labels), ("twice", data.labels), ("permuted", permuted)):
        seen = replace(data, labels=labels)
        method = RLFocal("rl_focal_sequential", SMALL, CheckpointStore(tmp_path / name))
        [policy] = method.fit(seen.train, [3])
        decided = decide(policy, seen.test)
        file = method.checkpoint(seen.train, 3)
        left.append((file.relative_to(tmp_path / name), file.read_bytes(), decided))
        [again] = method.fit(seen.train, [3])
        loaded = decide(again, seen.test)
        assert (loaded.pools == decided.pools).all()
        assert (loaded.predictions == decided.predictions).all()
    for path, content, decided in left[1:]:
        assert (path, content) == left[0][:2]
        assert decided.pools.tobytes() == left[0][2].pools.tobytes()
        assert decided.predictions.tobytes() == left[0][2].predictions.tobytes()


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    """On train rows enough that products would be shared out, torch's and numpy's."""
    data = replace(
        asked_in_words(make_logits(0, T=2_300, N=4)),
        is_train=np.arange(2_300) < 2_200,
        labels=np.arange(2_300) % 3,
    )
    written = []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            for agents in train(data.train, SMALL, [0, 1]):
                save_checkpoint(agents, tmp_path / "seed.safetensors")
                written.append((tmp_path / "seed.safetensors").read_bytes())
    torch.set_num_threads(before)
    assert written[:2] == written[2:]
    assert written[0] != written[1]


@pytest.mark.slow
def test_the_callers_number_of_threads_is_put_back() -> None:
    """In a process of its own: engines and libraries that other tests ran set theirs."""
    script = (
        "import torch\nfrom rlfocal.methods.agents.threads import one_thread\n"
        "torch.set_num_threads(3)\n"
        "with one_thread():\n    print(torch.get_num_threads())\n"
        "print(torch.get_num_threads())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_killed_training_goes_on_after_the_last_stage_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    rows = asked_in_words(make_logits(0, T=4_000, N=4)).train
    assert len(rows) >= 2_000
    save_checkpoint(train(rows, SMALL, [3])[0], tmp_path / "whole")
    told: list[float] = []

    def kill(share: float) -> None:
        told.append(share)
        if len(told) == killed_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(rows, SMALL, [3], kill, tmp_path / "kept")
    sizes: list[int] = []

    def noted(rows: Rows, *args: Any, **named: Any) -> Stage:
        sizes.append(rows.shared.shape[2])
        return fit_stage(rows, *args, **named)

    monkeypatch.setattr(training, "fit_stage", noted)
    [agents] = train(rows, SMALL, [3], None, tmp_path / "kept")
    assert len(sizes) == 4 - killed_after
    save_checkpoint(agents, tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
@given(st.data())
def test_a_document_is_decided_on_its_own(data: Dataset, drawn: st.DataObject) -> None:
    test, agents = data.test, trained(data.kind)
    at = np.array(drawn.draw(st.lists(st.integers(0, len(test) - 1), min_size=1, unique=True)))
    every, some = decide(agents, test), decide(agents, test.take(at))
    assert (some.pools == every.pools[at]).all()
    assert (some.predictions == every.predictions[at]).all()


@given(st.integers(0, 10_000))
def test_choices_of_models_that_were_not_asked_do_not_matter(seed: int) -> None:
    test, agents = CHOICES.test, trained("choices")
    decided = decide(agents, test)
    other = make_logits(seed, T=len(CHOICES), N=5).test
    given_by = decided.pools[:, :, None]
    changed = replace(
        test,
        probs=np.where(given_by, test.probs, other.probs),
        logprobs=np.where(given_by, test.logprobs, other.logprobs),
        predictions=np.where(decided.pools, test.predictions, other.predictions),
    )
    assert not decided.pools.all()
    after = decide(agents, changed)
    assert (after.pools == decided.pools).all()
    assert (after.predictions == decided.predictions).all()


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_failed_call_counts_as_no_answer(kind: Kind) -> None:
    agents = trained(kind)
    data = (CHOICES if kind == "choices" else ANSWERS).test
    known = about(data, agents.queries, agents.surfaces, agents.tasks)

    def seen(documents: Dataset) -> Outputs:
        return outputs(documents, known, agents.scales, agents.order, agents.n_slots)

    silent = np.array([False, True, False, False, True])
    expected = silence(seen(data), silent[list(agents.order)])
    failed = np.where(silent, 0.0, 1.0)[:, None]
    got = seen(
        replace(
            data,
            probs=data.probs * failed,
            logprobs=np.where(np.isfinite(data.logprobs) & (failed == 0), 0.0, data.logprobs),
            predictions=np.where(silent, -1, data.predictions),
        )
    )
    for name in ("shared", "own", "votes"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), atol=1e-12)
    assert kind == "answers" or expected.votes[:, ~silent[list(agents.order)]].sum() == 3 * len(data)


@given(st.integers(0, 10_000))
def test_answers_of_models_that_were_not_asked_do_not_matter(seed: int) -> None:
    """Though they change which answers there are, and their order."""
    test, agents = ANSWERS.test, trained("answers")
    decided = decide(agents, test)
    documents, others = letters()[len(ANSWERS.train) :], letters(seed)
    changed = make_answers(
        *[
            ("".join(np.where(pool, list(said), list(other))), gold)
            for pool, (said, gold), (other, _) in zip(
                decided.pools, documents, others[: len(test)], strict=True
            )
        ],
    )
    assert not decided.pools.all()
    after = decide(agents, changed)
    assert (after.pools == decided.pools).all()
    assert texts(changed, after) == texts(test, decided)


def test_ties_between_answers_go_to_the_model_that_was_asked_first() -> None:
    """And then to the alphabet, wherever models that were not asked put the answers."""
    probabilities = np.array([[0.4, 0.2, 0.4], [0.3, 0.3, 0.0], [0.0, 0.0, 0.0]])
    shares = np.array(
        [[[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], [[0, 0, 0]] * 3]
    )
    nothing = np.zeros((3, 0))
    labels = np.zeros(3, dtype=np.int64)
    seen = Outputs(
        shares, np.zeros((3, 3, 0)), shares > 0, shares[:, :0], labels, About(nothing, nothing, nothing)
    )
    assert best_slots(probabilities, seen, 3, [("7", "8", "9"), ("8", "7"), ()]).tolist() == [2, 1, -1]
    assert best_slots(probabilities, seen, 3, [("7", "8", "9"), ("7", "8"), ()]).tolist() == [2, 0, -1]


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
def test_the_order_of_the_models_does_not_matter(data: Dataset) -> None:
    assert len(set(data.train.correct.sum(axis=0))) == len(data.models)
    at = np.array([3, 0, 4, 1, 2])
    moved = replace(
        data,
        models=tuple(f"other-{i}" for i in range(5)),
        probs=data.probs[:, at],
        logprobs=data.logprobs[:, at],
        predictions=data.predictions[:, at],
    )
    [agents] = train(moved.train, SMALL, [0])
    before, after = decide(trained(data.kind), data.test), decide(agents, moved.test)
    assert (after.pools == before.pools[:, at]).all()
    assert (after.predictions == before.predictions).all()


def test_free_answers_beat_the_best_model_and_unanswered_documents_are_wrong() -> None:
    data = make_answers(*letters(T=600))
    [agents] = train(data.train, replace(SMALL, mean_pool=3.0), [0])
    assert right(agents, data.test).mean() > data.test.correct[:, agents.order[0]].mean() + 0.03
    unknown = make_answers(*[("bbcd-", "z"), ("-----", "z")] * 4)
    assert not right(agents, unknown).any()
    silent = decide(agents, unknown).predictions
    assert (silent[np.array([not row for row in unknown.slots])] == -1).all()


def test_an_undisputed_answer_is_not_certain() -> None:
    """One model's single answer is all there is to choose from, and is still wrong at times."""
    data = make_answers(*[("a", "a"), ("a", "z"), ("a", "a")] * 40)
    data = replace(
        data, models=("m00", "m01"), probs=data.probs.repeat(2, 1), predictions=data.predictions.repeat(2, 1)
    )
    [agents] = train(data.train, SMALL, [0])
    assert agents.history[0].accuracy == pytest.approx(2 / 3, abs=0.05)
    seen = outputs(
        data.test,
        about(data.test, agents.queries, agents.surfaces, ()),
        agents.scales,
        agents.order,
        agents.n_slots,
    )
    said = real_slots(agents.fusions[0].probabilities(stage_rows(seen, 1, "answers")), "answers")
    np.testing.assert_allclose(said[:, 0], 2 / 3, atol=0.07)


def specialists(T: int = 300) -> tuple[Dataset, NDArray[np.int64]]:
    """One model knows every second document, another the rest, both as sure of everything; whose each is."""
    rng = np.random.default_rng(3)
    about = np.arange(T) % 2
    labels = rng.integers(0, 4, size=T)
    says = rng.integers(0, 4, size=(T, 2))
    says[np.arange(T), about] = labels
    probs = np.where(np.arange(4) == says[..., None], 0.7, 0.1)
    return make_dataset(probs, labels, n_train=200), about


def test_fusion_weights_depend_on_the_task() -> None:
    data, about = specialists()
    data = replace(data, tasks=np.array(["planets", "trains"])[about])
    [agents] = train(data.train, SMALL, [0])
    decided = decide(agents, data.test)
    assert right(agents, data.test).mean() > 0.9
    router = Router(agents, online=False)
    for row in range(len(data.test)):
        said = dict(zip(data.models, data.test.logprobs[row], strict=True))
        about_row = {"task": str(data.test.tasks[row])}
        router.choose(about_row)
        router.choose(about_row, said)
        assert router.fuse(said) == decided.predictions[row]


def test_fusion_weights_depend_on_the_question() -> None:
    data, about = specialists()
    words = ("planets and their moons", "trains that leave stations")
    data = replace(data, questions=tuple(words[a] for a in about))
    blind, gated = (
        train(data.train, replace(SMALL, recipes=(Recipe(100, gates=ridge),)), [0])[0] for ridge in (0, 5)
    )
    assert right(blind, data.test).mean() < 0.75
    assert right(gated, data.test).mean() > 0.95


def test_a_task_that_train_did_not_have_and_questions_without_text() -> None:
    tasks = np.array([f"task-{i % 12}" for i in range(len(CHOICES))])
    many = replace(CHOICES, tasks=tasks)
    [agents] = train(many.train, SMALL, [0])
    strange = decide(agents, replace(many.test, tasks=np.full(len(many.test), "unheard-of")))
    assert strange.predictions.min() >= 0
    assert right(agents, many.test).mean() > 0.5
    bare = replace(CHOICES, questions=())
    [agents] = train(bare.train, SMALL, [0])
    blank = replace(bare.test, questions=("",) * len(bare.test))
    assert (decide(agents, bare.test).predictions == decide(agents, blank).predictions).all()
    assert right(agents, bare.test).mean() > 0.5


@pytest.mark.slow
def test_a_hundred_models() -> None:
    data = make_logits(0, T=200, N=100)
    [agents] = train(data.train, SequentialConfig(mean_pool=5.0, folds=3), [0])
    assert decide(agents, data.test).pools.sum(axis=1).max() <= 20
    assert right(agents, data.test).mean() > data.test.correct.mean()


def test_copies_and_models_that_are_never_right_come_last_and_one_choice_is_chosen() -> None:
    wrong = ANSWERS.predictions.copy()
    wrong[:, 0] = -1
    assert asking_order(replace(ANSWERS, predictions=wrong), SMALL)[-1] == 0
    noisy = CHOICES.probs + 1e-3 * np.random.default_rng(0).random(CHOICES.probs.shape)
    best = int(CHOICES.correct.sum(axis=0).argmax())
    requantised = replace(
        CHOICES,
        models=(*CHOICES.models, "m99"),
        probs=np.concatenate([CHOICES.probs, noisy[:, [best]]], axis=1),
        logprobs=np.concatenate([CHOICES.logprobs, np.log(noisy[:, [best]])], axis=1),
        predictions=np.concatenate([CHOICES.predictions, CHOICES.predictions[:, [best]]], axis=1),
    )
    assert asking_order(requantised, SMALL) == (*asking_order(CHOICES, SMALL), len(CHOICES.models))
    lone = make_dataset(np.ones((20, 3, 1)), np.zeros(20, dtype=np.int64), n_train=10)
    [agents] = train(lone.train, SMALL, [0])
    assert (decide(agents, lone.test).predictions == 0).all()


def test_what_cannot_be_trained_on_is_named() -> None:
    alone = replace(
        CHOICES,
        models=("m00",),
        **{n: getattr(CHOICES, n)[:, :1] for n in ("probs", "logprobs", "predictions")},
    )
    with pytest.raises(InputError, match="one model"):
        train(alone, SMALL, [0])
    with pytest.raises(InputError, match="1 train documents"):
        train(CHOICES.take(np.array([0])), SMALL, [0])
    probs = CHOICES.probs.copy()
    probs[3, 1, 0] = np.nan
    with pytest.raises(InputError, match="'m01' has NaN or infinite probabilities on document 3"):
        train(replace(CHOICES, probs=probs).train, SMALL, [0])
    with pytest.raises(InputError, match="mean_pool is 0"):
        SequentialConfig(mean_pool=0)
    with pytest.raises(InputError, match=r"recipes.0.outputs is -1; it should be greater than or equal to 0"):
        SequentialConfig(recipes=(Recipe(-1),))
    with pytest.raises(InputError, match=r"recipes is .*at least 1 item"):
        SequentialConfig(recipes=())


def test_checkpoints_of_another_pool_or_cut_short_are_refused(tmp_path: Path) -> None:
    agents, file = trained("choices"), tmp_path / "seed-0.safetensors"
    save_checkpoint(agents, file)
    loaded = load_checkpoint(file, agents.models)
    assert isinstance(loaded, SequentialAgents)
    assert (loaded.config, loaded.history, loaded.sizes) == (agents.config, agents.history, agents.sizes)
    with pytest.raises(InputError, match="not for other"):
        load_checkpoint(file, ["other"])
    with pytest.raises(InputError, match="trained on choices of m00"):
        decide(loaded, ANSWERS)
    content = file.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(InputError, match="train again"):
            load_checkpoint(file)


@pytest.mark.parametrize("copied", [[0, 1, 2], pytest.param([0, 0, 0], marks=pytest.mark.slow)])
def test_a_redundant_half_is_not_asked(copied: list[int]) -> None:
    """Copies of good models, and copies of a bad one."""
    data = make_logits(0, T=2_000, N=3)
    at = np.array([*range(3), *copied])
    doubled = replace(
        data,
        models=tuple(f"m{i}" for i in range(6)),
        probs=data.probs[:, at],
        logprobs=data.logprobs[:, at],
        predictions=data.predictions[:, at],
    )
    [agents] = train(doubled.train, SequentialConfig(folds=3, size_penalty=0.1), [0])
    asked = decide(agents, doubled.test).pools.mean(axis=0)
    assert asked[3:].mean() < 0.02
    assert asked[:3].mean() > 0.3


@pytest.fixture(scope="module")
def real(real_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The three real data sets, in a copy to write to."""
    copy = shutil.copytree(real_warehouse, tmp_path_factory.mktemp("sequential") / "warehouse")
    with open_warehouse(copy) as warehouse:
        yield warehouse


@pytest.mark.slow
def test_accuracy_on_real_log_probs_of_bbh5(real: Warehouse) -> None:
    """Above a log-linear pool (61.4) and stacking (60.25) of the same rows; mmlu16 is in test_evaluation."""
    rows = evaluate(real, "bbh", methods=["rl_focal_sequential"], seeds=1, per="task").rows
    found = [row for row in rows if row.method == "rl_focal_sequential"]
    assert np.mean([row.accuracy for row in found if row.task != "*"]) >= 0.62


@pytest.mark.slow
def test_free_answers_of_half_the_models_are_as_good_as_a_vote_of_all(real: Warehouse) -> None:
    known = load_dataset(real, "gsm8k")
    accuracy = known.correct.mean(axis=0)
    twelve = [m for m, a in zip(known.models, accuracy, strict=True) if 0.7 <= a <= 0.92][:12]
    data = load_dataset(real, "gsm8k", twelve)
    [votes] = make_method("plurality").fit(data.train, [0])
    voted = decide(votes, data.test).predictions == data.test.labels
    for agents in train(data.train, sequential_config(len(data.train)), range(5)):
        assert decide(agents, data.test).pools.sum(axis=1).mean() <= 6
        gain = right(agents, data.test) - (voted & (data.test.labels >= 0)).astype(float)
        draws = np.random.default_rng(0).integers(0, len(gain), (2_000, len(gain)))
        assert np.percentile(gain[draws].mean(axis=1), 2.5) > -0.01

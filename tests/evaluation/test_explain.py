"""What is explained: what agents do as they are, and what they do without a model, as a Router would."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.datasets import make_answers, make_dataset

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import Output
from rlfocal.data.policy import decide
from rlfocal.evaluation.explain import Explanation, load, save
from rlfocal.evaluation.explaining import Observed, observe, summarise
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.rl_focal.agents import RLFocalAgents, stand_ins
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.variants import VARIANTS
from rlfocal.report.explained import tables
from rlfocal.serving import Router
from rlfocal.statistics.intervals import Interval

SEQUENTIAL = SequentialConfig(
    mean_pool=2.5, folds=3, word_directions=0, recipes=(Recipe(100), Recipe(0, shared=0.2, votes=5))
)
RL_FOCAL = RLFocalConfig(window=60, decider_episodes=10, fusion_episodes=20, mean_pool=3.0)
CONFIGS: dict[str, Any] = {"rl_focal": RL_FOCAL, "rl_focal_sequential": SEQUENTIAL}
METHODS = tuple(CONFIGS)


@cache
def told() -> Dataset:
    """Two tasks of 300 documents, a third of each test. m00 copies m01, m02 knows task `law` alone, m03 knows
    nothing, m04 is middling."""
    rng = np.random.default_rng(3)
    T, N, C = 600, 5, 4
    tasks = np.array(["law", "sea"])[np.arange(T) % 2]
    labels = rng.choice(C, T, p=[0.55, 0.15, 0.15, 0.15])
    skill = np.array([0.0, 0.65, 0.25, 0.25, 0.55]) + np.outer(tasks == "law", [0, 0, 0.72, 0, 0])
    right = rng.random((T, N)) < skill
    said = np.where(right, labels[:, None], (labels[:, None] + rng.integers(1, C, (T, N))) % C)
    logits = rng.normal(0, 0.3, (T, N, C)) + 2.0 * (np.arange(C) == said[..., None])
    logits[:, 0] = logits[:, 1]
    probs = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return replace(make_dataset(probs, labels, n_train=400), tasks=tasks)


@cache
def spoken() -> Dataset:
    """Free answers of three letters and no answer."""
    rng = np.random.default_rng(4)
    gold = rng.choice(list("abc"), 240)
    right = rng.random((240, 4)) < [0.8, 0.7, 0.6, 0.4]
    said = np.where(right, gold[:, None], rng.choice(list("abcd-"), (240, 4)))
    return make_answers(*(("".join(row), g) for row, g in zip(said.tolist(), gold.tolist(), strict=True)))


@cache
def agents(method: str, kind: str) -> TrainedAgents:
    data = told() if kind == "choices" else spoken()
    [one] = VARIANTS[method].train(data.train, CONFIGS[method], [0], None, None)
    assert isinstance(one, TrainedAgents)
    return one


@cache
def seen(method: str, kind: str = "choices") -> Observed:
    data = told() if kind == "choices" else spoken()
    return observe(data, [np.ones(len(data), dtype=np.bool_)], [agents(method, kind)])


def explained(of: Observed, method: str = "rl_focal_sequential", **changes: Any) -> Explanation:
    given: dict[str, Any] = {"per": "benchmark", "split": "given", "seed": 0, "data": "d", "n_train": 1}
    return summarise(of, **({"method": method} | given | changes))


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_an_account_is_what_is_decided(method: str, kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    decided, calls = decide(agents(method, kind), data), Calls(data)
    account = agents(method, kind).account(calls)
    assert (calls.stored_slots(account.slots) == decided.predictions).all()
    assert (calls.called == decided.pools).all()
    top = account.distribution.max(axis=1)
    assert decided.probability is not None
    np.testing.assert_allclose(top, decided.probability, atol=1e-6)
    of = seen(method, kind)
    assert (of.slots[0] == decided.predictions).all()
    np.testing.assert_allclose(of.chance[0, of.right], decided.probability[of.right], atol=1e-6)
    assert (of.chance[0] <= decided.probability + 1e-6).all()
    if kind == "answers":
        told_right = (of.pools & data.correct).any(axis=1)
        assert ((of.chance[0] > 0) == told_right).all()


@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_without_a_model_the_agents_do_what_a_router_does_whose_model_is_down(method: str, kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    router = Router(agents(method, kind), online=False)
    n_models, checked = len(data.models), 0
    for down in range(n_models):
        calls = Calls(data)
        slots = calls.stored_slots(agents(method, kind).account(calls, np.arange(n_models) == down).slots)
        assert not calls.called[:, down].any()
        for row in range(0, len(data), 3):
            outputs: dict[str, Output] = {}
            question = {"question": "", "task": str(data.tasks[row])}
            while names := router.choose(question, outputs):
                for name in names:
                    at = data.models.index(name)
                    outputs[name] = None if at == down else output(data, row, at)
            said = router.fuse(outputs)
            own = data.slots[row][slots[row]] if kind == "answers" and slots[row] >= 0 else slots[row]
            # Where the first asked say nothing, a Router goes on, which the agents did not learn.
            if (data.predictions[row] >= 0).all():
                heard = [data.models.index(name) for name, one in outputs.items() if one is not None]
                assert sorted(heard) == np.flatnonzero(calls.called[row]).tolist()
                assert said == own or is_tie(data, row, calls)
                checked += 1
    assert checked > n_models * len(data) / 12


def output(data: Dataset, row: int, at: int) -> Output:
    if data.kind == "choices":
        logprobs: Output = data.logprobs[row, at]
        return logprobs
    slot = data.predictions[row, at]
    return [data.slots[row][slot] if slot >= 0 else None]


def is_tie(data: Dataset, row: int, calls: Calls) -> bool:
    """Whether two answers have equally many votes: a Router and a dataset order free answers apart."""
    votes = data.predictions[row][calls.called[row]]
    counts = np.sort(np.bincount(votes[votes >= 0], minlength=2))
    return data.kind == "answers" and counts[-1] == counts[-2]


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_where_a_model_is_not_asked_its_loss_changes_nothing(method: str, kind: str) -> None:
    of = seen(method, kind)
    unasked = ~of.pools.T
    assert unasked.any()
    assert (of.slots[1:] == of.slots[0])[unasked].all()
    assert (of.chance[1:] == of.chance[0])[unasked].all()
    for one in explained(of, method).models:
        if one.asked == 0:
            assert one.accuracy_without == one.log_score_without == Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_frequencies_add_up(method: str, kind: str) -> None:
    of = seen(method, kind)
    found = explained(of, method)
    assert sum(one.asked for one in found.models) == pytest.approx(found.mean_pool_size)
    assert sum(stop.documents for stop in found.stops) == found.n == len(of.test)
    mean = sum(int(stop.name) * stop.documents for stop in found.stops) / found.n
    assert mean == pytest.approx(found.mean_pool_size)
    for parts in (found.stops, found.tasks):
        assert sum(part.documents * part.accuracy for part in parts) == pytest.approx(
            found.n * found.accuracy
        )
    assert sum(task.documents * task.mean_pool_size for task in found.tasks) / found.n == pytest.approx(mean)
    for one in found.models:
        beliefs = [part for task in found.tasks if (part := dict(task.beliefs).get(one.model)) is not None]
        assert (one.belief is None) == (one.asked == 0) == (not beliefs)
        if one.belief is not None:
            assert sum(part.disputed for part in beliefs) == one.belief.disputed
            followed = sum(part.disputed * part.followed for part in beliefs)
            assert followed == pytest.approx(one.belief.disputed * one.belief.followed)
    decided = decide(agents(method, kind), of.test)
    right = (decided.predictions == of.test.labels) & (of.test.labels >= 0)
    assert found.accuracy == pytest.approx(right.mean())


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_pulls_and_biases_add_up_to_the_logits(kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    one = agents("rl_focal", kind)
    assert isinstance(one, RLFocalAgents)
    calls = Calls(data)
    account = one.account(calls)
    assert account.pulls is not None
    assert (account.pulls[~calls.called] == 0).all()
    core = one.networks.fusion.core
    assert core is not None
    known = one.known(calls)
    with torch.no_grad():
        bias = core.biases(known[None])[0].expand(len(data), -1).numpy() if kind == "choices" else None
    checked = 0
    for row in range(len(data)):
        open_slots = np.flatnonzero(account.distribution[row])
        others = open_slots[open_slots != account.slots[row]]
        if len(others) == 0:
            continue
        # Logits are logs of probabilities, but for a constant that differences do not know.
        chance = account.distribution[row]
        margin = np.log(chance[account.slots[row]]) - np.log(chance[others]).mean()
        of_bias = 0.0 if bias is None else bias[row, account.slots[row]] - bias[row, others].mean()
        assert account.pulls[row].sum() + of_bias == pytest.approx(margin, abs=1e-3)
        checked += 1
    assert checked > len(data) / 3


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_noise_and_a_specialist_are_called_what_they_are(method: str) -> None:
    found = explained(seen(method), method)
    of = {one.model: one for one in found.models}
    law, sea = found.tasks
    assert (law.name, law.beliefs[0][0]) == ("law", "m02")
    # Where both are asked, copies share one belief.
    assert sea.beliefs[0][0] in ("m00", "m01", "m04")
    # Of the two that say the same, one can go; who knows the law alone cannot.
    without = of["m02"].accuracy_without
    assert (without.mean if method == "rl_focal_sequential" else without.high) < 0
    assert found.accuracy - 0.02 > of["m01"].accuracy
    assert not of["m02"].is_free
    assert max(of["m00"].accuracy_without.high, of["m01"].accuracy_without.high) >= 0
    noise = of["m03"].belief
    assert noise is None or noise.followed < noise.votes


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_best_stand_in(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    team = rng.random((8, n_models)) < 0.5
    down, accuracy = rng.random(n_models) < 0.3, rng.random(n_models).round(1)
    found = stand_ins(team, down, accuracy)
    for before, after in zip(team, found, strict=True):
        missing = int((before & down).sum())
        others = [
            at for at in np.argsort(-accuracy, kind="stable").tolist() if not before[at] and not down[at]
        ]
        assert set(np.flatnonzero(after)) == set(np.flatnonzero(before & ~down)) | set(others[:missing])


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    for method in METHODS:
        found = explained(seen(method), method)
        save(found, tmp_path / "e" / "x.json")
        assert load(tmp_path / "e" / "x.json") == found
    (tmp_path / "y.json").write_text('{"benchmark": 3}')
    assert load(tmp_path / "y.json") is None
    assert load(tmp_path / "missing.json") is None


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_the_tables_have_every_model_and_fit_a_terminal(method: str, kind: str) -> None:
    found = explained(seen(method, kind), method)
    asked, losses, groups = tables(found)
    for table in (asked, losses):
        assert [row[0] for row in table.rows] == [one.model for one in found.models]
    assert len(groups.rows) == len(found.tasks) + len(found.stops)
    for table in (asked, losses, groups):
        screen = StringIO()
        Console(file=screen, width=80).print(table)
        assert "…" not in screen.getvalue()

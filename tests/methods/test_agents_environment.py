"""The vectorised environment against a slow, literal reading of the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.agents_data import LiteralEnvironment, random_dataset
from torch import Tensor

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Kind
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.environment import (
    MODELS_TABULATED,
    Choose,
    Environment,
    Fuse,
    train_environment,
    train_stream,
)
from rlfocal.statistics.diversity import pool_diversity
from rlfocal.statistics.metrics import METRICS
from rlfocal.statistics.windows import MODELS_RANKED, Outcomes


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("fusing", [False, True])
@pytest.mark.parametrize(("window", "past_rewards"), [(7, 3), (60, 0)])
@pytest.mark.parametrize("n_models", [4, MODELS_TABULATED + 1, MODELS_RANKED + 1])
def test_environment_is_the_papers(
    kind: Kind, fusing: bool, window: int, past_rewards: int, n_models: int
) -> None:
    """Two rollouts one after the other, by every way in which metrics and pluralities are worked out."""
    data = random_dataset(3, kind, n_models=n_models)
    config = RLFocalConfig(
        past_rewards=past_rewards, size_penalty=0.6, answer_slots=3, sees_questions=False, log_linear=False
    )
    copies, stretches = (3, 4) if n_models == 4 else (2, 2)
    first, length, n_samples = 6, 13, 2
    stream = train_stream(data, replace(config, window=window))
    environment = Environment(stream, config, stretches=stretches, copies=copies, first=first, length=length)
    literal = [
        LiteralEnvironment(data, config, window, first + g * length)
        for _ in range(copies)
        for g in range(stretches)
    ]
    rng = np.random.default_rng(0)
    shape = (length, copies * stretches)
    pools = rng.random((*shape, n_models)) < 0.5
    pools[rng.random(shape) < 0.1] = False
    answers = rng.integers(0, stream.n_slots, size=(*shape, n_samples))
    for part in (slice(0, 5), slice(5, length)):
        steps = range(length)[part]
        chosen, answered = torch.tensor(pools[part]).float(), torch.tensor(answers[part])
        choose, fuse = _script(chosen, answered)
        rollout = environment.rollout(len(steps), choose, fuse if fusing else None)
        for b, one in enumerate(literal):
            for at, t in enumerate(steps):
                _see(rollout.decider[at, b], one.decider_observation())
                one.pool = np.flatnonzero(pools[t, b]).tolist()
                assert rollout.rows[at, b] == one.t
                assert np.flatnonzero(rollout.pools[at, b]).tolist() == one.pool
                _see(rollout.fusion[at, b], one.fusion_observation(stream.n_slots))
                is_open = [c < len(one.slots()) for c in range(stream.n_slots)]
                assert rollout.open[at, b].tolist() == is_open
                rewards = one.step(answers[t, b].tolist() if fusing else None)
                _see(rollout.rewards[at, b], rewards)
                assert (rollout.right[at, b] > 0).tolist() == [r == 1 for r in rewards]
            _see(rollout.decider[len(steps), b], one.decider_observation())


def _script(pools: Tensor, answers: Tensor) -> tuple[Choose, Fuse]:
    """Agents that read out what they do: pools (L, B, N) and answers (L, B, Q)."""
    return lambda t, *_: pools[t], lambda *_: lambda t, _: answers[t]


def _see(seen: Tensor, expected: list[float]) -> None:
    np.testing.assert_allclose(seen, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("metric", METRICS)
def test_window_metrics_equal_their_numpy_twins(kind: Kind, metric: str) -> None:
    """For every pool, over windows that start before the stream and inside it."""
    data = random_dataset(5, kind, n_docs=40)
    pools = np.array(list(np.ndindex(2, 2, 2, 2)), dtype=np.bool_)
    window, stride, end = 15, 11, 9
    outcomes = Outcomes(torch.tensor(data.predictions), torch.tensor(data.labels), 5, kind, window)
    of_each = torch.tensor(pools).float().expand(3, -1, -1)
    looked = METRICS[metric](outcomes.window(of_each, end, window, stride))
    for g in range(3):
        rows = slice(max(0, end + g * stride - window), end + g * stride)
        predictions, labels = data.predictions[rows], data.labels[rows]
        twin = getattr(pool_diversity(predictions, labels, pools, kind=kind), metric)
        asked = pools.sum(axis=1) > 1
        np.testing.assert_allclose(looked[g][asked], twin[asked], atol=1e-6)


def test_every_document_of_the_stream_is_walked_once() -> None:
    data = random_dataset(0, "choices", n_docs=50)
    config = RLFocalConfig(stretches=4, copies=1)
    stream = train_stream(data, config)
    environment = train_environment(stream, config)
    last = environment.first + 4 * environment.length
    assert environment.first == 0
    assert last == 48  # of 49 transitions, four equal stretches


@pytest.mark.parametrize(("n_docs", "n_models"), [(1, 4), (20, 1)])
def test_too_little_to_learn_from(n_docs: int, n_models: int) -> None:
    data = random_dataset(0, "choices", n_docs=n_docs, n_models=n_models)
    with pytest.raises(InputError, match="at least 2"):
        train_stream(data, RLFocalConfig())

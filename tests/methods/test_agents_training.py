"""Training: determinism, learning on pools whose best play is known, checkpoints."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.agents_data import JOINT, TINY, asked_about, parameters, random_dataset, skilled, stream
from support.sequential_data import SMALL

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Kind
from rlfocal.data.outputs import QueryOutputs, make_empty_outputs
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.learning.networks import Adam
from rlfocal.methods.rl_focal.agents import PoolDriver
from rlfocal.methods.rl_focal.config import RLFocalConfig, literal_config, rl_focal_config
from rlfocal.methods.rl_focal.networks import MIN_LOGPROB, Networks, Sizes
from rlfocal.methods.rl_focal.training import train
from rlfocal.statistics.metrics import METRICS

WAYS = {"algorithm 1": TINY, "joint": JOINT}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_all_networks_descend_as_by_torchs_adam(scale: float) -> None:
    """Each network by its own gradient norm."""
    agents = Networks(Sizes(3, 2, 1, 0), TINY, torch.Generator().manual_seed(0), "choices")
    assert agents.critic is not None
    networks: tuple[torch.nn.Module, ...] = agents.fusion, agents.critic
    copies = [[torch.nn.Parameter(p.detach().clone()) for p in n.parameters()] for n in networks]
    every = [p for own in copies for p in own]
    adam, optimiser = torch.optim.Adam(every, lr=1e-2), Adam(networks, 1e-2, max_norm=2.0)
    for step in range(4):
        noise = torch.Generator().manual_seed(step)
        gradients = [torch.randn(p.shape, generator=noise) * scale for p in optimiser.parameters]
        norms = optimiser.step(gradients)
        for p, g in zip(every, gradients, strict=True):
            p.grad = g.clone()
        for own, norm in zip(copies, norms, strict=True):
            torch.testing.assert_close(torch.nn.utils.clip_grad_norm_(own, 2.0), norm)
        adam.step()
    for ours, p in zip(optimiser.parameters, every, strict=True):
        torch.testing.assert_close(ours.detach(), p.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("log_linear", [False, True])
def test_what_acted_is_what_is_learned(log_linear: bool) -> None:
    """Fusion's logits step by step are those of the whole observation."""
    sizes = Sizes(models=3, slots=4, metrics=2, past_rewards=2, question=3 * log_linear)
    config = replace(TINY, actor_gain=1.0, log_linear=log_linear, sees_questions=log_linear)
    fusion = Networks(sizes, config, torch.Generator().manual_seed(0), "choices").fusion
    fusion.standardiser.learn(torch.rand(50, 3, 4))
    if fusion.core is not None:
        for p in fusion.core.parameters():
            torch.nn.init.normal_(p)
    outputs, past = torch.rand(5, 6, 12), torch.rand(5, 6, 2)
    question = torch.rand(5, 6, sizes.question)
    outputs[:, :3, :4] = 0
    is_open = torch.rand(5, 6, 4) < 0.7
    by_step = fusion.make_step_function(outputs, is_open, question)
    for t in range(5):
        whole = fusion(torch.cat([outputs[t], past[t], question[t]], -1), is_open[t])
        torch.testing.assert_close(by_step(t, past[t]), whole)


@pytest.mark.slow
def test_decider_drops_the_redundant_half_of_a_pool() -> None:
    """Three models that err on their own, and three copies of one that is worse and outvotes them."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=600)
    right = rng.random((600, 4)) < [0.8, 0.8, 0.8, 0.55]
    answers = np.where(right, labels[:, None], (labels[:, None] + rng.integers(1, 4, size=right.shape)) % 4)
    data = stream(answers[:, [0, 1, 2, 3, 3, 3]], labels, 4)
    for agents in train(
        data.train,
        replace(literal_config(480), fusion_episodes=0, stretches=8, copies=2, gae_lambda=0.5),
        [0, 1],
    ):
        np.testing.assert_array_equal(decide(agents, data.test).pools.mean(axis=0), [1, 1, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("method", "config"),
    [*(("rl_focal", config) for config in WAYS.values()), ("rl_focal_sequential", SMALL)],
    ids=[*WAYS, "sequential"],
)
@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
def test_a_seed_is_a_checkpoint_to_the_byte_and_test_labels_do_not_reach_it(
    tmp_path: Path, method: str, config: Any, kind: Kind
) -> None:
    """Trained again, loaded again and with other test labels, all is decided byte for byte as it was."""
    data = skilled([0.9, 0.5, 0.3], n_docs=150, kind=kind)
    data = replace(data, slots=(("1", "2", "3", "4"),) * len(data) if kind == "answers" else ())
    permuted = data.labels.copy()
    permuted[~data.is_train] = np.random.default_rng(2).permutation(data.test.labels)
    assert (permuted != data.labels).sum() > 10
    left = []
    for name, labels in (("once", data.labels), ("twice", data.labels), ("permuted", permuted)):
        seen = replace(data, labels=labels)
        agents = RLFocal(method, config, CheckpointStore(tmp_path / name))
        for _ in range(2):  # trained, then found trained
            decided = [decide(policy, seen.test) for policy in agents.fit(seen.train, [0, 1])]
            files = [path.read_bytes() for path in sorted((tmp_path / name).rglob("*.safetensors"))]
            assert len(files) == 2
            left.append((files, [(d.pools.tobytes(), d.predictions.tobytes()) for d in decided]))
    assert all(one == left[0] for one in left[1:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
def test_models_that_are_never_or_always_right_leave_no_nan(kind: Kind, way: str) -> None:
    for skills in ([0.0, 1.0, 0.5], [0.0, 0.0], [1.0, 1.0]):
        data = skilled(skills, n_docs=60, kind=kind)
        config = replace(WAYS[way], metrics=tuple(METRICS))
        for agents in train(data.train, config, [0]):
            assert all(torch.isfinite(value).all() for value in parameters(agents).values())
            assert decide(agents, data.test).pools.any(axis=1).all()


def test_a_distribution_that_is_not_one_is_named() -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=100)
    agents = train(data.train, TINY, [0])[0]
    probs = data.probs.copy()
    probs[[7, 95], 1, 2] = np.nan
    broken = replace(data, probs=probs)
    with pytest.raises(InputError, match=r"'model-1' has NaN .* document 7 of task 'task'"):
        train(broken.train, TINY, [0])
    called = int(decide(agents, data.test).pools.sum(axis=0).argmax())
    probs = data.probs.copy()
    probs[95, called, 2] = np.nan
    with pytest.raises(InputError, match=rf"'model-{called}' has NaN .* document 95"):
        decide(agents, replace(data, probs=probs).test)


@pytest.mark.slow
def test_a_single_branch_learns_too_one_move_at_a_time() -> None:
    data = skilled([0.9, 0.0, 0.9, 0.0, 0.9, 0.0], n_docs=400)
    config = replace(TINY, decider_episodes=40, fusion_episodes=0, past_rewards=0, branching=False)
    [agents] = train(data.train, config, [0])
    assert (agents.history[-1].reward or 0) > (agents.history[0].reward or 0) + 0.5
    pools = decide(agents, data.test).pools
    assert pools.any(axis=1).all()
    assert (np.abs(np.diff(pools.astype(int), axis=0)).sum(axis=1) <= 1).all()


@pytest.mark.parametrize("way", WAYS)
def test_seeds_train_side_by_side_and_fail_together(way: str) -> None:
    data, config = skilled([0.9, 0.5, 0.3], n_docs=60), WAYS[way]
    seeds = range(11)
    told: list[float] = []
    trained = train(data.train, config, seeds, told.append)
    assert [agents.seed for agents in trained] == list(seeds)
    assert told == sorted(told)
    assert told[-1] == 1
    [alone] = train(data.train, config, seeds[-1:])
    assert all(torch.equal(value, parameters(alone)[n]) for n, value in parameters(trained[-1]).items())

    def fail(share: float) -> None:
        raise RuntimeError("told too much")

    with pytest.raises(RuntimeError, match="told too much"):
        train(data.train, config, seeds, fail)


@pytest.mark.slow
def test_fusion_unlearns_what_plurality_cannot() -> None:
    """All models are always wrong by one: no vote is ever right, a learned fusion always."""
    data = skilled([0.0] * 4, n_docs=400)
    config = replace(
        TINY, decider_episodes=0, fusion_episodes=20, fusion_hidden=(32,), learning_rate=1e-2, vote_weight=0.0
    )
    [agents] = train(data.train, config, [0])
    assert agents.history[0].accuracy < 0.5
    assert (decide(agents, data.test).predictions == data.test.labels).mean() > 0.95


@pytest.mark.parametrize("way", [*WAYS, "both"])
@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_one_query_at_a_time_is_decided_as_all_together(kind: Kind, way: str) -> None:
    data = asked_about(random_dataset(4, kind, n_docs=120))
    rows = np.arange(120) < 90
    config = WAYS.get(
        way, replace(JOINT, fusion_episodes=2, fusion_hidden=(6,), past_rewards=2, actor_gain=1.0)
    )
    agents = train(data.rows(rows), replace(config, vote_weight=0.3, answer_slots=3), [0])[0]
    test = data.rows(~rows)
    together, one_by_one = decide(agents, test), PoolDriver(agents)
    chance = together.probability
    assert chance is not None
    for t in range(len(test)):
        one_by_one.begin(test.questions[t], str(test.tasks[t]))
        asked = one_by_one.choose_models(make_empty_outputs(len(test.models)))
        assert asked.tolist() == together.pools[t].tolist()
        said = np.where(asked[:, None], test.probs[t], 0)[:, : test.n_choices[t]]
        fused = one_by_one.fuse(QueryOutputs(asked, ~asked & False, said, said, said.argmax(axis=1), []))
        assert fused.slot == together.predictions[t]
        assert (fused.probability or 0.0) == pytest.approx(chance[t], abs=1e-5)


def test_choices_that_train_never_had_are_not_answered() -> None:
    data = skilled([0.9, 0.5], n_docs=100)
    agents = train(data.train, TINY, [0])[0]
    wider = replace(
        data.test,
        probs=np.pad(data.test.probs, ((0, 0), (0, 0), (0, 2))),
        n_choices=np.full(len(data.test), 6),
    )
    np.testing.assert_array_equal(decide(agents, wider).predictions, decide(agents, data.test).predictions)


def test_two_documents_are_enough_and_progress_is_reported() -> None:
    data = skilled([0.9, 0.5], n_docs=3)
    told: list[float] = []
    agents = train(data.train, TINY, [0], told.append)[0]
    assert told == [0.25, 0.5, 0.75, 1.0]
    assert len(decide(agents, data.test).predictions) == len(data.test)


def test_short_streams_take_all_history_and_the_papers_settings_are_its_own() -> None:
    short, long = rl_focal_config(160), rl_focal_config(8_000)
    assert (short.window, long.window) == (160, 500)
    paper = literal_config(160)
    assert (paper.size_penalty, paper.update_period, paper.fusion_episodes) == (0.6, 10, 150)
    assert (literal_config(8_000).size_penalty, literal_config(8_000).update_period) == (1.0, 100)
    assert not any((paper.joint_episodes, paper.log_linear, paper.sees_questions, paper.vote_weight))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metrics": ("focal",)}, "did you mean 'focal_diversity'"),
        ({"window": 1}, "window is 1"),
        ({"clip": math.nan}, "clip is nan"),
        ({"sees_questions": False}, "log_linear needs sees_questions"),
        ({"widow": 3}, "widow is 3"),
    ],
)
def test_settings_that_cannot_work(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(RLFocalConfig(), **wrong)


def test_scales_are_those_of_all_train_rows_and_of_no_test_row() -> None:
    data = asked_about(random_dataset(3, "choices", n_docs=150))
    data = replace(data, is_train=np.arange(150) < 100)
    [agents] = train(data.train, replace(JOINT, fusion_hidden=(4,)), [0])
    fusion, probs = agents.networks.fusion, data.train.probs[:, agents.places]
    np.testing.assert_allclose(fusion.standardiser.mean[0], probs.mean(0), atol=1e-5)
    scale = 1 / (probs.std(0) + 1e-3)
    np.testing.assert_allclose(fusion.standardiser.scale[0], scale, rtol=1e-4, atol=1e-5)
    exists = np.arange(5) < data.train.n_choices[:, None]
    logs = np.maximum(np.log(np.maximum(probs, 1e-37)), MIN_LOGPROB)
    mean = (logs * exists[:, None]).sum(-1) / exists.sum(-1)[:, None]
    centred = np.where(exists[:, None], logs - mean[..., None], 0)
    assert fusion.core is not None
    np.testing.assert_allclose(fusion.core.mean[0], centred.mean(0), atol=1e-4)
    np.testing.assert_allclose(fusion.core.scale[0], 1 / centred.std(0), rtol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_decided_with_a_document_does_not_matter(way: str) -> None:
    """Nothing is scaled by the rows that are decided on; only the pool before is remembered."""
    data = asked_about(random_dataset(3, "choices", n_docs=150))
    data = replace(data, is_train=np.arange(150) < 100)
    [agents] = train(data.train, replace(WAYS[way], fusion_hidden=(4,)), [0])
    test = data.test
    whole, first = decide(agents, test), decide(agents, test.rows(np.arange(50) < 7))
    np.testing.assert_array_equal(first.pools, whole.pools[:7])
    np.testing.assert_array_equal(first.predictions, whole.predictions[:7])
    assert first.probability is not None
    assert whole.probability is not None
    np.testing.assert_allclose(first.probability, whole.probability[:7], rtol=1e-5)
    scrambled = replace(test, probs=np.concatenate([test.probs[:7], test.probs[:6:-1] ** 3]))
    np.testing.assert_array_equal(decide(agents, scrambled).predictions[:7], whole.predictions[:7])

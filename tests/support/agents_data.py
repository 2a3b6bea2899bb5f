"""Data of models with given skills, short trainings, and Algorithm 1's environment in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig, literal_config
from support.datasets import make_dataset

TINY = replace(
    literal_config(80),
    decider_episodes=2, fusion_episodes=2, stretches=3, copies=2, window=500, fusion_hidden=(8, 8),
    vote_weight=1.0, size_penalty=1.0, gae_lambda=0.5,
)  # fmt: skip
"""Algorithm 1, in short."""


JOINT = RLFocalConfig(
    has_floor=False,
    decider_episodes=1,
    fusion_episodes=1,
    joint_episodes=2,
    stretches=3,
    update_period=10,
    samples=4,
)
"""The default way to train, in short."""


def stream(predictions: np.ndarray, labels: np.ndarray, n_slots: int, kind: Kind = "choices") -> Dataset:
    """Models that are sure of what they predict; the last fifth is test."""
    n_docs, n_models = predictions.shape
    probs = np.full((n_docs, n_models, n_slots), 0.1 / (n_slots - 1) if kind == "choices" else 0.0)
    np.put_along_axis(probs, predictions[..., None], 0.9, axis=2)
    return replace(
        make_dataset(np.maximum(probs, 1e-9), labels, n_train=int(0.8 * n_docs)),
        benchmark="made-up",
        kind=kind,
        tasks=np.full(n_docs, "task"),
        models=tuple(f"model-{i}" for i in range(n_models)),
        prices=np.ones(n_models),
        probs=probs,
        predictions=predictions,
        snapshot=7,
    )


def skilled(skills: list[float], n_docs: int = 200, kind: Kind = "choices", seed: int = 0) -> Dataset:
    """Independent models that are right this often, else wrong by one."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=n_docs)
    right = rng.random((n_docs, len(skills))) < skills
    return stream(np.where(right, labels[:, None], (labels[:, None] + 1) % 4), labels, 4, kind)


def asked_about(data: Dataset) -> Dataset:
    """The same documents of three tasks, with questions of random words."""
    rng = np.random.default_rng(5)
    words = [" ".join(rng.choice(["red", "green", "blue", "black"], size=6)) for _ in range(len(data))]
    return replace(
        data, questions=tuple(words), tasks=np.array(["one", "two", "three"])[np.arange(len(data)) % 3]
    )


def killed_after(episodes: int) -> Callable[[float], None]:
    """What is told of progress, and kills a training after so many episodes."""
    told: list[float] = []

    def kill(share: float) -> None:
        told.append(share)
        if len(told) == episodes:
            raise KeyboardInterrupt

    return kill


def parameters(trained: RLFocalAgents) -> dict[str, torch.Tensor]:
    return trained.networks.state_dict() | trained.memory._asdict()


def random_dataset(seed: int, kind: Kind, n_docs: int = 60, n_models: int = 4, n_slots: int = 5) -> Dataset:
    """Documents with fewer slots than others, models without answers, documents nobody can get right."""
    rng = np.random.default_rng(seed)
    n_choices = rng.integers(2, n_slots + 1, size=n_docs)
    probs = np.zeros((n_docs, n_models, n_slots))
    for t, n in enumerate(n_choices):
        if kind == "choices":
            probs[t, :, :n] = rng.dirichlet(np.full(n, 0.5), size=n_models)
        else:
            probs[t, :, :n] = rng.multinomial(10, np.full(n + 1, 1 / (n + 1)), size=n_models)[:, :n] / 10
    if kind == "answers":
        order = np.argsort(-probs.sum(axis=1), axis=1, kind="stable")
        probs = np.take_along_axis(probs, order[:, None], axis=2)
        probs[rng.random((n_docs, n_models)) < 0.1] = 0
    predictions = np.where(probs.any(axis=2), probs.argmax(axis=2), -1)
    labels = rng.integers(0, n_choices)
    if kind == "answers":
        labels[rng.random(n_docs) < 0.2] = -1
    made = make_dataset(np.maximum(probs, 1e-300), labels, n_train=n_docs)
    return replace(
        made,
        benchmark="random",
        kind=kind,
        tasks=np.full(n_docs, "task"),
        models=tuple("abcdefghijklmnopqrstuvwxyz"[:n_models]),
        prices=np.ones(n_models),
        probs=probs,
        logprobs=made.logprobs if kind == "choices" else np.empty((0, n_models, n_slots)),
        n_choices=n_choices,
        predictions=predictions,
        snapshot=1,
    )


@dataclass
class LiteralEnvironment:
    """One environment of Algorithm 1 in plain Python: lists, loops, one pool at a time."""

    data: Dataset
    config: RLFocalConfig
    window: int
    t: int
    pool: list[int] = field(init=False)
    past: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.pool = list(range(len(self.data.models)))
        self.past = [0.0] * self.config.past_rewards

    def metric(self, name: str) -> float:
        rows = range(max(0, self.t - self.window), self.t)
        if not rows:
            return 0.0
        fails = [[j for j in self.pool if not self.data.correct[row, j]] for row in rows]
        size = len(self.pool)
        if name == "plurality_accuracy":
            right = [self.plurality(row) == self.data.labels[row] >= 0 for row in rows]
            return sum(right) / len(right) if self.pool else 0.0
        assert name == "focal_diversity"
        diversities = []
        for focal in self.pool:
            joint = [len(f) for f in fails if focal in f]
            if joint and size > 1:
                p1 = sum(j / size for j in joint) / len(joint)
                p2 = sum(j * (j - 1) / (size * (size - 1)) for j in joint) / len(joint)
                diversities.append(1 - p2 / p1)
        return sum(diversities) / len(diversities) if diversities else 0.0

    def plurality(self, row: int) -> int:
        votes = [int(self.data.predictions[row, j]) for j in self.pool if self.data.predictions[row, j] >= 0]
        if not votes:
            return -1
        tied = [v for v in votes if votes.count(v) == max(map(votes.count, votes))]
        return min(tied) if self.data.kind == "choices" else tied[0]

    def slots(self) -> list[int]:
        if self.data.kind == "choices":
            return list(range(int(self.data.n_choices[self.t])))
        probs = self.data.probs[self.t]
        given = [
            (-round(sum(probs[j, c] for j in self.pool), 6), min(j for j in self.pool if probs[j, c]), c)
            for c in range(probs.shape[1])
            if any(probs[j, c] for j in self.pool)
        ]
        return [c for _, _, c in sorted(given)][: self.config.answer_slots]

    def decider_observation(self) -> list[float]:
        bits = [float(j in self.pool) for j in range(len(self.data.models))]
        return bits + [self.metric(name) for name in self.config.metrics] + [len(self.pool) / len(bits)]

    def fusion_observation(self, n_slots: int) -> list[float]:
        slots = self.slots()
        seen: list[float] = []
        for j in range(len(self.data.models)):
            given = [float(self.data.probs[self.t, j, c]) if j in self.pool else 0.0 for c in slots]
            seen += given + [0.0] * (n_slots - len(slots))
        return seen + self.past

    def step(self, answers: list[int] | None) -> list[float]:
        """Eq (6) of the plurality, or of each sampled answer; then the next document comes."""
        label = self.data.labels[self.t]
        if answers is None:
            given = [self.plurality(self.t)]
        else:
            slots = self.slots()
            given = [slots[c] if c < len(slots) else -1 for c in answers]
        penalty = self.config.size_penalty * len(self.pool) / len(self.data.models)
        rewards = [1.0 if one == label and label >= 0 else -1 - penalty for one in given]
        if self.past:
            self.past = [*self.past[1:], 1.0 if rewards[0] == 1 else -1.0]
        self.t += 1
        return rewards

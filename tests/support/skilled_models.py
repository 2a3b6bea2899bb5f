"""Shared by tests: skilled models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig, literal_config

TINY = replace(
    literal_config(80),
    decider_episodes=2, fusion_episodes=2, stretches=3, copies=2, window=500, fusion_hidden=(8, 8),
    vote_weight=1.0, size_penalty=1.0, gae_lambda=0.5,
)  # fmt: skip
"""Algorithm 1, in short."""


JOINT = RLFocalConfig(
    decider_episodes=1, fusion_episodes=1, joint_episodes=2, stretches=3, update_period=10, samples=4
)
"""The default way to train, in short."""


def stream(predictions: np.ndarray, labels: np.ndarray, n_slots: int, kind: Kind = "choices") -> Dataset:
    """Models that are sure of what they predict; the last fifth is test."""
    n_docs, n_models = predictions.shape
    probs = np.full((n_docs, n_models, n_slots), 0.1 / (n_slots - 1) if kind == "choices" else 0.0)
    np.put_along_axis(probs, predictions[..., None], 0.9, axis=2)
    return Dataset(
        benchmark="made-up",
        kind=kind,
        models=tuple(f"model-{i}" for i in range(n_models)),
        prices=np.ones(n_models),
        tasks=np.full(n_docs, "task"),
        doc_ids=np.arange(n_docs),
        probs=probs,
        logprobs=np.log(np.maximum(probs, 1e-9)),
        n_choices=np.full(n_docs, n_slots),
        predictions=predictions,
        labels=labels,
        is_train=np.arange(n_docs) < int(0.8 * n_docs),
        slots=(),
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


def parameters(trained: RLFocalAgents) -> dict[str, torch.Tensor]:
    return trained.networks.state_dict() | trained.memory._asdict()

"""How the released agents go on learning at test: both, from each answer's reward, every T_u questions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from rlfocal.agents.released.networks import ReleasedAgents
from rlfocal.agents.released.policy import ReleasedPolicy
from rlfocal.agents.released.stream import Steps, Walk
from rlfocal.agents.released.training import Learner, act
from rlfocal.agents.training import one_thread
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Decisions

WEIGHTS = {"focal_diversity": 0.5, "plurality_accuracy": 0.5}
"""What the released code weighs at test, whatever it was trained with."""


def decide_online(policy: ReleasedPolicy, documents: Dataset) -> Decisions:
    """Answer T documents in order; the label of each is revealed after its answer. The policy stays as it is.

    The window is all of the test's history, there is no size penalty, and the walk starts with all models.
    """
    config = policy.config
    if config.artefacts.metrics_as_one_scalar:
        config = replace(config, metrics=tuple(WEIGHTS), weights=tuple(WEIGHTS.values()))
    agents = ReleasedAgents(policy.sizes, config, [torch.Generator()])
    agents.load_state_dict(policy.agents.state_dict())
    n = len(documents)
    walk = Walk(documents, config, 1, window=n, first=0, last=n, n_slots=policy.sizes.slots)
    generators = [torch.Generator().manual_seed(policy.seed)]
    learners = [Learner(agents, config, phase) for phase in ("decider", "fusion")]
    parts = []
    with one_thread():
        while walk.at < walk.last:
            parts.append(act(walk, learners[1], min(config.update_period, n - walk.at), generators))
            for learner in learners:
                learner.waiting.append(parts[-1])
                if parts[-1].rewards.shape[1] == config.update_period:
                    learner.update()
    steps = Steps(*(torch.cat(part, 1)[0] for part in zip(*parts, strict=True)))
    return Decisions(steps.pools.numpy() > 0, steps.predictions.numpy().astype(np.int64))

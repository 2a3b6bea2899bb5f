"""The variant `sequential` along a stream whose labels are revealed one by one."""

from __future__ import annotations

import numpy as np

from rlfocal.agents.sequential.agents import SequentialAgents
from rlfocal.agents.sequential.tracking import Tracker
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Decisions


def tracker(agents: SequentialAgents) -> Tracker:
    """Where online learning starts from, after train."""
    promised = max(episode.accuracy for episode in agents.history)
    size = min(len(agents.models), max(3, round(agents.config.mean_pool / 2)))
    return Tracker(np.array(agents.train_accuracy), promised, size, agents.seed)


def decide_online(agents: SequentialAgents, documents: Dataset) -> Decisions:
    """Answer T documents in order; each label is revealed after its answer, and teaches.

    Only answers of models that were asked are learned from.
    """
    frozen = agents.decide(documents)
    state = tracker(agents)
    correct = documents.correct
    pools = np.zeros_like(frozen.pools)
    predictions = np.full(len(documents), -1, dtype=np.int64)
    for row in range(len(documents)):
        team, trained = state.team(), frozen.pools[row]
        probing = state.probes()
        asked = trained | team if probing else (team if state.leads else trained)
        voted = state.vote(documents.probs[row], team & asked) if probing or state.leads else -1
        answer = voted if state.leads else int(frozen.predictions[row])
        label = documents.labels[row]
        compared = None
        if probing and label >= 0:
            compared = (bool(frozen.predictions[row] == label), bool(voted == label))
        pools[row], predictions[row] = asked, answer
        state.learn(asked, correct[row], bool(answer == label and label >= 0), compared)
    return Decisions(pools, predictions)

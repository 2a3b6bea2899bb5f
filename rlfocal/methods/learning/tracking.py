"""Which models are good now: accuracies that forget old labels, and a weighted vote of the best models.

What Fusion learned on train is worth nothing once the stream changes; `rl_focal_sequential` then falls back
on this vote, and is compared with it as labels come in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlfocal.base.arrays import Bools, Floats

MEMORY = 100.0
"""Number of labels after which an observation counts 1/e."""
COMPARED = 20.0
"""Number of comparisons of agents and team after which one counts 1/e."""
CLEARLY = 1.5
"""Standard errors of those comparisons by which the team has to be ahead.

On 16 constructed streams, a margin of 0 lost 0.2 points to noise where the stream does not turn; with 2,
answers just after a turn were 3 points worse.
"""
PROBE = 0.1
"""Share of queries on which both agents and team are asked, to compare them."""
ALARM = 0.5
"""The same while rewards are clearly below what train promised."""
_BONUS = 0.5
_PRIOR = 20.0


class Tracker:
    """Learns from every label; N models, teams of `size`. `train_accuracy` (N,) is where it starts."""

    def __init__(self, train_accuracy: Floats, expected: float, size: int, seed: int) -> None:
        self._seen = np.full(len(train_accuracy), _PRIOR)
        self._hits = _PRIOR * train_accuracy
        self._expected, self._size = expected, size
        self._recent = expected
        self._gain = self._spread = 0.0
        self._draw = np.random.default_rng(seed)

    @property
    def accuracy(self) -> Floats:
        """(N,) as of now."""
        accuracy: Floats = self._hits / self._seen
        return accuracy

    @property
    def leads(self) -> bool:
        """Whether the vote of the team has lately been right clearly more often than the trained agents."""
        return self._gain > CLEARLY * math.sqrt(self._spread)

    def team(self, down: Sequence[int] = ()) -> Bools:
        """(N,) the models with the highest upper confidence bounds; never those that are down."""
        bound = self.accuracy + _BONUS / np.sqrt(self._seen)
        bound[list(down)] = -np.inf
        chosen = np.argsort(-bound, kind="stable")[: self._size]
        team = np.zeros(len(bound), dtype=np.bool_)
        team[chosen[np.isfinite(bound[chosen])]] = True
        return team

    def probes(self) -> bool:
        """Whether to ask both agents and team this time; more often while rewards fall short."""
        alarmed = self._recent < self._expected - 0.1
        return bool(self._draw.random() < (ALARM if alarmed else PROBE))

    def vote(self, probs: Floats, team: Bools) -> int:
        """The slot with the most of the team's votes, weighted by the log-odds of being right; -1 for none.

        `probs` (N, C) has rows of zeros for models without an answer; probabilities break ties.
        """
        members = team & probs.any(axis=1)
        if not members.any():
            return -1
        n_slots = max(probs.shape[1], 2)
        right = np.clip(self.accuracy[members], 0.02, 0.98)
        weight = np.maximum(np.log(right * (n_slots - 1) / (1 - right)), 1e-3)
        votes = np.bincount(probs[members].argmax(axis=1), weights=weight, minlength=probs.shape[1])
        return int((votes + 1e-6 * probs[members].mean(axis=0)).argmax())

    def learn(
        self, asked: Bools, right: Bools, answered_right: bool, compared: tuple[bool, bool] | None
    ) -> None:
        """One label: who was asked, who was right, whether the answer was, and, if `compared`, whether agents
        and team were right."""
        keep = np.exp(-1 / MEMORY)
        self._seen = self._seen * keep + asked
        self._hits = self._hits * keep + (asked & right)
        # A model not asked for long is as uncertain as one with two answers, not more.
        scale = np.maximum(2.0 / np.maximum(self._seen, 1e-9), 1.0)
        self._seen, self._hits = self._seen * scale, self._hits * scale
        self._recent += (float(answered_right) - self._recent) / 50
        if compared is not None:
            fade = np.exp(-1 / COMPARED)
            self._gain = self._gain * fade + float(compared[1]) - float(compared[0])
            self._spread = self._spread * fade + float(compared[1] != compared[0])

"""The algorithm of the paper's released code: one environment, one query at a time, autograd throughout.

It is a slow, literal reference for `make bench WHAT=training`, and shares no code with the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Draw = Callable[[int], Tensor]
"""A function from n to a tensor (n,) of uniform draws from 0 to 1."""


@dataclass(frozen=True)
class ReleasedSettings:
    """The default settings of the released code."""

    window: int = 500
    update_period: int = 100
    size_penalty: float = 1.0
    decider_gamma: float = 0.99
    fusion_gamma: float = 0.8
    learning_rate: float = 1e-3
    clip: float = 0.2
    all_terms: bool = True
    """Whether metrics of weight 0 are computed, too."""


METRIC_WEIGHTS = (0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The weights of the metrics in an observation. They are focal diversity, plurality accuracy, Fleiss' kappa,
Q, correlation, disagreement, kappa, entropy."""


def contingency(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """The numbers of documents on which both are right, both wrong, only `a` right, and only `b` right."""
    return int((a & b).sum()), int((~a & ~b).sum()), int((a & ~b).sum()), int((~a & b).sum())


def ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


def q_statistic(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    n11, n00, n10, n01 = contingency(a, b)
    return ratio(n11 * n00 - n01 * n10, n11 * n00 + n01 * n10)


def correlation(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    n11, n00, n10, n01 = contingency(a, b)
    below = (n11 + n10) * (n01 + n00) * (n11 + n01) * (n10 + n00)
    return ratio(n11 * n00 - n01 * n10, float(np.sqrt(below)))


def disagreement(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    _, _, n10, n01 = contingency(a, b)
    return (n01 + n10) / len(a)


def kappa(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    n11, n00, n10, n01 = contingency(a, b)
    below = (n11 + n10) * (n01 + n00) + (n11 + n01) * (n10 + n00)
    return ratio(2 * (n11 * n00 - n01 * n10), below)


class ReleasedDecider(nn.Module):
    """The Decider's network: a shared layer, then for each model a head that asks it or not."""

    def __init__(self, n_models: int) -> None:
        super().__init__()
        self.shared = nn.Linear(n_models + 2, 128)
        self.heads = nn.ModuleList([nn.Linear(128, 2) for _ in range(n_models)])

    def forward(self, observation: Tensor) -> list[Tensor]:
        hidden = torch.relu(self.shared(observation))
        return [torch.softmax(head(hidden), -1) for head in self.heads]


class ReleasedFusion(nn.Module):
    """The Fusion agent's network: two sigmoid layers of a hundred units, and a softmax over the choices."""

    def __init__(self, n_models: int, n_choices: int) -> None:
        super().__init__()
        sizes = [n_models * n_choices, 100, 100, n_choices]
        self.layers = nn.ModuleList([nn.Linear(*pair) for pair in pairwise(sizes)])
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.constant_(layer.bias, 0.01)

    def forward(self, observation: Tensor) -> Tensor:
        hidden = observation
        for layer in self.layers[:-1]:
            hidden = torch.sigmoid(layer(hidden))
        return torch.softmax(self.layers[-1](hidden), -1)


@dataclass
class ReleasedMemory:
    """The log-probs of actions, and the rewards, of the queries since the last update."""

    log_probs: list[Tensor] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)


@dataclass
class ReleasedLoop:
    """The training of one seed on T documents: `probs` (T, N, C) and `labels` (T,)."""

    probs: NDArray[np.float64]
    labels: NDArray[np.int64]
    decider: ReleasedDecider
    fusion: ReleasedFusion
    settings: ReleasedSettings
    draw: Draw
    pool: list[int] = field(init=False)
    memory: ReleasedMemory = field(default_factory=ReleasedMemory)

    def __post_init__(self) -> None:
        self.predictions = self.probs.argmax(axis=2)
        self.optimisers = {
            "decider": torch.optim.Adam(self.decider.parameters(), lr=self.settings.learning_rate),
            "fusion": torch.optim.Adam(self.fusion.parameters(), lr=self.settings.learning_rate),
        }

    def documents(self) -> range:
        """The documents of an episode: all but the first `window` + 2 and the last `window`."""
        window = self.settings.window
        return range(window + 2, len(self.labels) - window)

    def start(self) -> None:
        """Begins a new phase of training, with an empty memory."""
        self.memory = ReleasedMemory()

    def episode(self, phase: str, documents: range | None = None) -> list[float]:
        """Runs one episode of the phase "decider" or "fusion"; returns the reward of every query."""
        self.pool = [1] * self.probs.shape[1]
        rewards = []
        for at, query in enumerate(documents or self.documents(), start=1):
            rewards.append(self.query(phase, query))
            if at % self.settings.update_period == 0:
                self.update(phase)
        return rewards

    def query(self, phase: str, query: int) -> float:
        """Chooses a pool for a document, answers, and stores and returns the reward."""
        heads = self.decider(torch.tensor(self.observation(query), dtype=torch.float32))
        draws = self.draw(len(heads))
        self.pool = [int(draw < head[1]) for draw, head in zip(draws.tolist(), heads, strict=True)]
        if phase == "decider":
            right = self.plurality(query) == self.labels[query]
            reward = 1.0 if right else -1 - self.settings.size_penalty * sum(self.pool) / len(self.pool)
            chosen = [head[asked] for head, asked in zip(heads, self.pool, strict=True)]
            self.memory.log_probs.append(torch.log(torch.stack(chosen)))
        else:
            seen = np.exp(self.probs[query]) * np.array(self.pool)[:, None]
            answers = self.fusion(torch.tensor(seen.ravel(), dtype=torch.float32))
            answer = int(answers.argmax())
            reward = 1.0 if answer == self.labels[query] else -1.0
            self.memory.log_probs.append(answers[answer])  # not its logarithm
        self.memory.rewards.append(reward)
        return reward

    def observation(self, query: int) -> list[float]:
        """(N + 2,) the last pool, its weighted metric in the window, and its size. As in the released code,
        the window ends one query too early."""
        size = sum(self.pool)
        if size < 2:
            return [*self.pool, -99.0, size]
        rows = range(query - 1 - self.settings.window, query - 1)
        terms = [self.focal_diversity(rows), self.plurality_accuracy(rows)]
        if self.settings.all_terms:
            terms += [self.fleiss_kappa(rows), *self.pairwise(rows), self.binary_entropy(rows)]
        value = sum(w * term for w, term in zip(METRIC_WEIGHTS, terms, strict=False))
        return [*self.pool, value, size]

    def focal_diversity(self, rows: range) -> float:
        members = [model for model, asked in enumerate(self.pool) if asked]
        fails = self.predictions[rows.start : rows.stop, members] != self.labels[rows.start : rows.stop, None]
        size, total = len(members), 0.0
        for focal in range(size):
            joint = fails[fails[:, focal]].sum(axis=1)
            if len(joint) == 0:
                total += 1.0
                continue
            shares = np.bincount(joint, minlength=size + 1) / len(joint)
            one = sum(j / size * shares[j] for j in range(1, size + 1))
            two = sum(j * (j - 1) / (size * (size - 1)) * shares[j] for j in range(1, size + 1))
            total += 1 - two / one
        return total / size

    def plurality_accuracy(self, rows: range) -> float:
        return sum(float(self.plurality(row) == self.labels[row]) for row in rows) / len(rows)

    def fleiss_kappa(self, rows: range) -> float:
        votes = self.predictions[rows.start : rows.stop, np.array(self.pool, dtype=bool)]
        n, size = votes.shape
        counts = np.array([np.bincount(row, minlength=self.probs.shape[2]) for row in votes])
        agreement = ((counts**2).sum(axis=1) - size).mean() / (size * (size - 1))
        chance = ((counts.sum(axis=0) / (n * size)) ** 2).sum()
        return float((agreement - chance) / (1 - chance)) if chance < 1 else 0.0

    def pairwise(self, rows: range) -> list[float]:
        """Means over pairs of Yule's Q, the correlation, the disagreement and the pairwise kappa."""
        right = self.predictions[rows.start : rows.stop] == self.labels[rows.start : rows.stop, None]
        members = [model for model, asked in enumerate(self.pool) if asked]
        terms = []
        for term in (q_statistic, correlation, disagreement, kappa):
            values = [term(right[:, a], right[:, b]) for a, b in combinations(members, 2)]
            terms.append(float(np.nan_to_num(np.mean(values))))
        return terms

    def binary_entropy(self, rows: range) -> float:
        members = [model for model, asked in enumerate(self.pool) if asked]
        right = self.predictions[rows.start : rows.stop, members] == self.labels[rows.start : rows.stop, None]
        share = float(right.mean())
        return -sum(p * float(np.log2(p)) for p in (share, 1 - share) if p > 0)

    def plurality(self, row: int) -> int:
        """The slot that most members of the pool predict, ties: the lowest; -1 for an empty pool."""
        votes = self.predictions[row, np.array(self.pool, dtype=bool)]
        return int(np.bincount(votes).argmax()) if len(votes) else -1

    def update(self, phase: str) -> None:
        """Makes one gradient step of PPO on standardised returns; the ratio is 1, so nothing is clipped."""
        gamma = self.settings.decider_gamma if phase == "decider" else self.settings.fusion_gamma
        returns: list[float] = []
        running = 0.0
        for reward in reversed(self.memory.rewards):
            running = reward + gamma * running
            returns.insert(0, running)
        advantages = torch.tensor(returns)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-9)
        log_probs = torch.stack(self.memory.log_probs)
        ratio = torch.exp(log_probs - log_probs.detach())
        weights = advantages[:, None] if phase == "decider" else advantages
        clipped = torch.clamp(ratio, 1 - self.settings.clip, 1 + self.settings.clip)
        gain = torch.min(ratio * weights, clipped * weights)
        loss = -gain.mean() if phase == "decider" else -gain.sum()
        self.optimisers[phase].zero_grad()
        torch.autograd.backward(loss)
        self.optimisers[phase].step()
        self.memory = ReleasedMemory()

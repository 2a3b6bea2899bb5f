"""Open-ended questions: no choice is right, but every model's answer has a score (paper, appendix D).

A Decider sends each document of a stream to one model, by past rewards. Unlike in the appendix, the Decider
learns from the scores of all models on a train document, not only of the sampled model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.exchange.imports.reading.tables import load_table
from rlfocal.methods.learning.networks import Adam, gumbel_noise, mlp
from rlfocal.statistics.intervals import Difference, paired_difference
from warehouse.scripts import script

COLUMN_TYPES = {
    "task": "VARCHAR",
    "doc_id": "BIGINT",
    "model": "VARCHAR",
    "score": "DOUBLE",
    "split": "VARCHAR",
}
REQUIRED_COLUMNS = ("task", "doc_id", "model", "score")
HIDDEN_SIZES, LEARNING_RATE, MAX_NORM = (100, 100), 1e-3, 10.0
"""The sizes of a Decider's hidden layers, its learning rate, and the largest norm of a gradient."""
N_EPISODES, UPDATE_EVERY = 25, 10
"""The number of passes over the stream, and of documents in each update."""
_DOCUMENTS_QUERY = """
SELECT
  list(score ORDER BY model),
  coalesce(
    any_value(split) = 'train',
    row_number() OVER (PARTITION BY task ORDER BY min(row)) <= 4 * count(*) OVER (PARTITION BY task) // 5
  )
FROM scores GROUP BY task, doc_id ORDER BY min(row)
"""


@dataclass(frozen=True)
class ScoreTable:
    """The scores of N models on T documents, in the order of the stream."""

    models: tuple[str, ...]
    """The N models in alphabetical order."""
    scores: Floats
    """(T, N) each model's score on each document; the higher the better"""
    is_train: Bools
    """(T,) whether the document is a train document"""


def read_scores(path: str | Path) -> ScoreTable:
    """Reads a Parquet, CSV or JSONL file with a row per document and model, and the columns of COLUMN_TYPES.

    The stream is the order in which documents first appear. Without the column `split`, the first 80 % of
    each task are train. Raises InputError with row and reason for a faulty row or a missing score. It also
    does for fewer than two models and an empty split.
    """
    path = Path(path)
    with closing(duckdb.connect()) as scratch:
        load_table(scratch, "scores", path, COLUMN_TYPES, REQUIRED_COLUMNS)
        fault = scratch.execute(script("imports/score_faults")).fetchone()
        named = scratch.execute("SELECT DISTINCT model FROM scores ORDER BY model").fetchall()
        rows = scratch.execute(_DOCUMENTS_QUERY).fetchall()
    if fault is not None:
        raise InputError(f"{path}, row {fault[0]}: {fault[1]}")
    models = tuple(model for (model,) in named)
    if len(models) < 2:
        scored = count_noun(len(models), "model")
        raise InputError(f"{path} has scores of {scored}; a Decider chooses among at least two")
    is_train = np.array([train for _, train in rows], dtype=np.bool_)
    if is_train.all() or not is_train.any():
        lacking = "test" if is_train.all() else "train"
        raise InputError(f"{path} has no {lacking} documents; mark some in a column split, or add documents")
    return ScoreTable(models, np.array([scores for scores, _ in rows]), is_train)


@dataclass(frozen=True)
class OpenEndedDecider:
    """A trained Decider for each of S seeds."""

    networks: tuple[nn.Sequential, ...]
    """One network for each seed: from (B, 2N) observations to (B, N) logits."""
    mean: float
    """The mean of the train scores."""
    deviation: float
    """The standard deviation of the train scores; 1 where they are all equal."""

    @torch.no_grad()
    def choose(self, scores: Floats) -> Ints:
        """(S, T) the model to which each seed's Decider routes each document: the one it finds likeliest.

        `scores` (T, N): a document's scores enter only the observations after it. At the start there is no
        current model, and all earlier scores count as average.
        """
        seen = _make_observations(_standardise(scores, self.mean, self.deviation))
        return np.stack([_follow(_compute_logits(network, seen).argmax(-1))[0] for network in self.networks])


def train_decider(
    scores: Floats,
    seeds: Sequence[int],
    episodes: int = N_EPISODES,
    on_progress: Callable[[float], None] | None = None,
) -> OpenEndedDecider:
    """Trains one Decider per seed on a stream of scores (T, N), which it passes once per episode.

    The observation is [one-hot of the current model; all models' scores of the document before]. The action
    is the model for this document, and the reward its score. An episode ascends the expected reward of the
    documents in random order, at the states that the policy reaches. Scores are standardised over train, so
    that their unit does not matter.
    """
    mean, deviation = float(scores.mean()), float(scores.std()) or 1.0
    rewards = _standardise(scores, mean, deviation)

    def train_seed(number: int) -> nn.Sequential:
        def report(share: float) -> None:
            if on_progress is not None:
                on_progress((number + share) / len(seeds))

        return _train_network(rewards, seeds[number], episodes, report)

    return OpenEndedDecider(tuple(map(train_seed, range(len(seeds)))), mean, deviation)


def _train_network(
    rewards: Tensor, seed: int, episodes: int, on_progress: Callable[[float], None]
) -> nn.Sequential:
    """Trains one seed's network on standardised scores (T, N)."""
    generator, n_models = torch.Generator().manual_seed(seed), rewards.shape[1]
    network = mlp([2 * n_models, *HIDDEN_SIZES, n_models], generator)
    advantages, observations = rewards - rewards.mean(1, keepdim=True), _make_observations(rewards)
    optimiser = Adam([network], LEARNING_RATE, MAX_NORM)
    for episode in range(episodes):
        seen = _sample_observations(network, observations, generator)
        for rows in torch.split(torch.randperm(len(rewards), generator=generator), UPDATE_EVERY):
            policy = torch.softmax(network(seen[rows]), -1)
            optimiser.descend(-(policy * advantages[rows]).sum(-1).mean())
        on_progress((episode + 1) / episodes)
    return network


@torch.no_grad()
def _sample_observations(network: nn.Sequential, observations: Tensor, generator: torch.Generator) -> Tensor:
    """(T, 2N) the observations along the stream of a policy that samples its actions."""
    T, n_states, _ = observations.shape
    draws = torch.rand(T, 1, n_states - 1, generator=generator)
    _, states = _follow((_compute_logits(network, observations) + gumbel_noise(draws)).argmax(-1))
    return observations[torch.arange(T), torch.from_numpy(states)]


def _compute_logits(network: nn.Sequential, observations: Tensor) -> Tensor:
    """(T, N+1, N) logits for each model that may be current, from observations (T, N+1, 2N)."""
    logits: Tensor = network(observations.flatten(0, 1))
    return logits.view(*observations.shape[:2], -1)


def _standardise(scores: Floats, mean: float, deviation: float) -> Tensor:
    return torch.as_tensor((scores - mean) / deviation, dtype=torch.float32)


def _make_observations(rewards: Tensor) -> Tensor:
    """(T, N+1, 2N) the observation o_t for each model that may be current at t; the last is for no model."""
    T, n_models = rewards.shape
    before = torch.cat([torch.zeros(1, n_models), rewards[:-1]])[:, None].expand(-1, n_models + 1, -1)
    current = one_hot(torch.arange(n_models + 1), n_models + 1)[:, :-1].float().expand(T, -1, -1)
    return torch.cat([current, before], -1)


def _follow(choices: Tensor) -> tuple[Ints, Ints]:
    """(T,) the model chosen for each document, and (T,) the model that was current before the choice.

    `choices` (T, N+1): the choice for each model that may be current; the last column is for no model.
    """
    chosen: list[int] = []
    states, state = [], choices.shape[1] - 1
    for leads_to in choices.tolist():
        states.append(state)
        state = leads_to[state]
        chosen.append(state)
    return np.array(chosen, dtype=np.int64), np.array(states, dtype=np.int64)


@dataclass(frozen=True)
class OpenEndedReport:
    """Mean scores over test documents, of the Decider, single models, a random choice and the oracle."""

    n_train: int
    n_test: int
    decider: float
    """The Decider's mean score over seeds."""
    decider_seeds: tuple[float, ...]
    stderr_seeds: float | None
    """The standard error over seeds; None with one seed."""
    above_best_single: Difference
    """The Decider's mean score minus that of the best single model, paired over seeds and documents."""
    picked: dict[str, float]
    """For each model, the share of (document, seed) pairs that the Decider routed to it."""
    best_single: str
    """The model with the highest mean train score; ties: the alphabetically first."""
    singles: dict[str, float]
    """For each model, its mean score alone."""
    random: float
    """The expected mean score of a model drawn anew for every document."""
    oracle: float
    """The mean score of the best model for every document, which is a ceiling."""


def evaluate_scores(
    table: ScoreTable,
    n_seeds: int = 5,
    episodes: int = N_EPISODES,
    on_progress: Callable[[float], None] | None = None,
) -> OpenEndedReport:
    """Trains a Decider for each seed on the train documents, and runs it frozen along the test documents.

    The scores of a test document are revealed after its model is chosen, because the Decider observes past
    rewards.
    """
    train, test = table.scores[table.is_train], table.scores[~table.is_train]
    picks = train_decider(train, range(n_seeds), episodes, on_progress).choose(test)
    earned = test[np.arange(len(test)), picks]
    best, of_seeds = int(train.mean(axis=0).argmax()), earned.mean(axis=1)
    share = np.bincount(picks.ravel(), minlength=len(table.models)) / picks.size
    return OpenEndedReport(
        n_train=len(train),
        n_test=len(test),
        decider=float(of_seeds.mean()),
        decider_seeds=tuple(of_seeds.tolist()),
        stderr_seeds=float(of_seeds.std(ddof=1) / n_seeds**0.5) if n_seeds > 1 else None,
        above_best_single=paired_difference(earned, test[None, :, best]),
        picked=dict(zip(table.models, share.tolist(), strict=True)),
        best_single=table.models[best],
        singles=dict(zip(table.models, test.mean(axis=0).tolist(), strict=True)),
        random=float(test.mean()),
        oracle=float(test.max(axis=1).mean()),
    )

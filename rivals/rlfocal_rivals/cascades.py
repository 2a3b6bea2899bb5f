"""Rivals that ask one model several times, or several models in turn until they are sure or agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.cascade import (
    MAX_CANDIDATE_MODELS,
    MAX_CHAIN_MODELS,
    N_THRESHOLDS,
    Cascade,
    RightByOutput,
    fit_cascade,
    top_probability_of,
)
from rlfocal.methods.checking import Range
from rlfocal.methods.reference import best_on_train
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.votes import plurality

DYLAN_TEAM_SIZE = 4
"""The number of models in DyLAN's team, unless a size is given."""
N_SAMPLES = 40


@answer_policy(
    "self_consistency_cascade",
    f"up to {MAX_CHAIN_MODELS} models in turn, until enough of the last one's samples agree",
    "what the last one answers",
    has_budgets=True,
    kinds=("answers",),
    needs=("passes",),
    source="LLM cascades by answer consistency (arXiv 2310.03094)",
    differs="the share of stored passes that give the model's answer, uncalibrated; order and thresholds "
    "as in `cascade`; a model counts as one call, however many passes it took",
)
@dataclass(frozen=True)
class SelfConsistencyCascade(MethodBase):
    """Asks models in turn, until the share of a model's samples that give its answer reaches a threshold."""

    points: Annotated[int, Range(3, 80, log=True)] = N_THRESHOLDS
    """The number of thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        return [fit_cascade(train, top_probability_of, self.points)]


@answer_policy(
    "frugalgpt",
    f"up to {MAX_CHAIN_MODELS} models in turn, until the last one's answer scores high enough",
    "what the last one answers",
    has_budgets=True,
    source="FrugalGPT (arXiv 2305.05176)",
    differs="the score g is one logistic regression per model on its top probability, margin and "
    f"entropy, not a DistilBERT on the texts; orders of up to {MAX_CHAIN_MODELS} of the "
    f"{MAX_CANDIDATE_MODELS} models that are best on train "
    f"or cheaper than all better ones; {N_THRESHOLDS} thresholds per model, then Nelder-Mead",
)
@dataclass(frozen=True)
class FrugalGPT(MethodBase):
    """Accepts model k's answer where g_k >= 1 - τ_k, else asks the next model; the last is always accepted.

    g_k(x, a) is the probability that k's answer a is right. All orders of up to three models, with
    a grid of thresholds, are searched for the highest train accuracy at a mean cost within the budget.
    Nelder-Mead refines the best.
    """

    points: Annotated[int, Range(3, 80, log=True)] = N_THRESHOLDS
    """The number of thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        scorer = RightByOutput.fit(train, answer_features)
        return [fit_cascade(train, scorer, self.points, polish=True)]


def answer_features(documents: Dataset, model: int) -> Floats:
    """(T, 3) features of a model's answers: top probability, margin, entropy."""
    parts = [measure(documents, model) for measure in (top_probability_of, margin_of, entropy_of)]
    return np.column_stack(parts)


def margin_of(documents: Dataset, model: int) -> Floats:
    """(T,) the likeliest slot's probability minus the next one's."""
    ranked = np.sort(documents.probs[:, model], axis=1)
    return ranked[:, -1] - ranked[:, -2] if ranked.shape[1] > 1 else ranked[:, -1]


def entropy_of(documents: Dataset, model: int) -> Floats:
    """(T,) the entropy of a model's distribution, in nats."""
    p = documents.probs[:, model]
    nats: Floats = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    return nats


# ---- DyLAN's first round


@answer_policy(
    "dylan",
    f"the {DYLAN_TEAM_SIZE} most important models in turn, until more than two thirds of the team agree",
    "what they agree on, else the plurality",
    has_budgets=True,
    source="DyLAN (arXiv 2310.02170)",
    differs="round 1 only (DyLAN-round1): later rounds, peer ratings and the LLM ranker need texts "
    "generated from what the others said; importance by agreement with the final answer, not by ratings",
    argument="size",
    make=lambda making: Dylan(making.size or DYLAN_TEAM_SIZE),
)
@dataclass(frozen=True)
class Dylan(MethodBase):
    """Asks the models with the highest importance on train, in an order drawn anew for each document.

    A model's importance is a sum over train documents: 1 / the number of models in the plurality if it is one
    of them, else 0. This is the paper's backward pass through a single round. It reads no labels.
    """

    size: int = DYLAN_TEAM_SIZE
    order: Annotated[str, ("random", "importance")] = "random"
    """The order of the calls: "random", or "importance", which calls the most important model first."""

    @property
    def seeded(self) -> bool:
        return self.order == "random"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FirstRound]:
        ranked = np.argsort(-importance(train).round(9), kind="stable")
        team = min(self.size, len(ranked))
        return [FirstRound(ranked, team, seed if self.seeded else None, train) for seed in seeds]


def importance(documents: Dataset) -> Floats:
    """(N,) each model's importance: the sum over documents of its share of the plurality's votes."""
    everybody = np.ones(len(documents.models), dtype=np.bool_)
    final = plurality(documents.predictions, everybody, documents.kind)
    agrees = (documents.predictions == final[:, None]) & (final[:, None] >= 0)
    shares: Floats = (agrees / np.maximum(agrees.sum(axis=1, keepdims=True), 1)).sum(axis=0)
    return shares


@dataclass(frozen=True)
class FirstRound:
    """Asks the n models of a team in turn, until more than ⌊2n/3⌋ of their answers are equal."""

    ranking: Ints
    """(N,) positions of all models, the most important first."""
    size: int
    seed: int | None
    """The seed of the random order; None: the most important model first."""
    train: Dataset
    """The train documents on which the mean number of models asked is counted, for budgets."""

    def decide(self, calls: Calls) -> Answers:
        T, n = len(calls), self.size
        turns = np.tile(self.ranking[:n], (T, 1))
        if self.seed is not None:
            turns = np.random.default_rng(self.seed).permuted(turns, axis=1)
        models = np.arange(len(calls.models))
        needed, agreed = 2 * n // 3, np.zeros(T, dtype=np.bool_)
        slots = np.full(T, -1, dtype=np.int64)
        for turn in range(n):
            outputs = calls.call(~agreed[:, None] & (turns[:, turn, None] == models))
            slots = plurality(outputs.predictions, calls.called, calls.kind)
            same = (outputs.predictions == slots[:, None]) & (slots[:, None] >= 0)
            agreed |= same.sum(axis=1) > needed
        return Answers(slots)

    def hold_to_budget(self, budget: Budget) -> FirstRound | None:
        """The largest team that keeps to the budget on average over train."""
        cost = budget.costs(self.train.prices)
        for size in range(len(self.ranking), 0, -1):
            team = replace(self, size=size)
            if np.isfinite(cost[self.ranking[:size]]).all():
                pools = decide(team, self.train).pools
                if np.where(pools, cost, 0.0).sum(axis=1).mean() <= budget.amount + 1e-9:
                    return team
        return None


# ---- More Agents


@answer_policy(
    "more_agents",
    "the model with the best train accuracy",
    f"the majority of {N_SAMPLES} draws from what it said",
    needs=("samples",),
    source="More Agents Is All You Need (arXiv 2402.05120)",
    differs="samples are drawn with replacement from the model's stored passes, or from its distribution "
    "over the choices, as new ones need generation; the model counts as one call",
)
@dataclass(frozen=True)
class MoreAgents(MethodBase):
    """Answers with the most frequent of N samples from one model. Ties: the lowest slot.

    With many samples, this tends to the model's own likeliest answer.
    """

    samples: int = N_SAMPLES
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[SampledVote]:
        model = int(best_on_train(train, 1)[0])
        return [SampledVote(model, self.samples, seed) for seed in seeds]


@dataclass(frozen=True)
class SampledVote:
    """Answers by the majority of samples from one model's distribution."""

    model: int
    """The position of the model that is asked."""
    samples: int
    seed: int

    def decide(self, calls: Calls) -> Answers:
        shares = calls.call(np.arange(len(calls.models)) == self.model).probs[:, self.model]
        return majority_of(shares, self.samples, np.random.default_rng(self.seed))


def majority_of(shares: Floats, samples: int, rng: np.random.Generator) -> Answers:
    """The slot drawn most often in `samples` draws from the distributions `shares` (T, C); ties: the lowest.

    If probabilities sum to less than 1, the rest is the probability of a draw without an answer. Such draws
    do not vote, and without a vote there is no answer. An answer's probability is its share of all draws.
    """
    missing = np.maximum(1 - shares.sum(axis=1, keepdims=True), 0)
    chances = np.hstack([shares, missing])
    chances /= chances.sum(axis=1, keepdims=True)
    votes = rng.multinomial(samples, chances)[:, :-1]
    slots = np.where(votes.any(axis=1), votes.argmax(axis=1), -1).astype(np.int64)
    return Answers(slots, votes.max(axis=1, initial=0) / samples)

"""The simpler policies of agents that choose one pool per document: one model alone, and constant pools.

A constant pool holds the first models in the asking order of `rl_focal_sequential`. Its Fusion is the
start's, which weights members by their odds of being right, or a trained one. The trained Fusion is the
log-linear core with the highest posterior probability under a Gaussian prior centred at the start. The
gradient is the expectation of MAPPO's with `success_weighting`, so the optimum is solved without sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.methods.constant_pools import MAX_POOL_SIZE
from rlfocal.methods.fallback import MIN_TRAIN_DOCUMENTS, PolicyName
from rlfocal.methods.rl_focal.config import PoolConfig
from rlfocal.methods.rl_focal.environment import build_slots, slot_inputs
from rlfocal.methods.rl_focal.networks import LogLinearCore, Sizes, accuracies
from rlfocal.methods.rl_focal.questions import FeatureColumns, Questions
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import asking_order
from rlfocal.methods.rl_focal_sequential.softmax_regression import (
    MIN_PROBABILITY,
    Priors,
    RegressionRows,
    Weights,
    fit_many,
)

PRIOR_STRENGTHS = (1.0, 8.0, 64.0)
"""Factors on the ridge penalties to try, the weakest prior first. An infinite factor gives the start."""
N_FOLDS, N_FOLDS_OF_MANY = 5, 3
MIN_SPLIT_DOCUMENTS = 2_000
"""The number of train documents above which N_FOLDS_OF_MANY folds suffice."""
MAX_NESTED_DOCUMENTS = 1_000
"""The most train documents with which each fold also finds its own asking order."""
TASK_PRIOR_DOCUMENTS = 30.0
"""The number of a task's documents as which a model's accuracy over all tasks counts."""
_LOGIT_SCALES = np.logspace(-1.5, 1.5, 49)
FIT_TOLERANCE, HELD_OUT_TOLERANCE = 0.02, 0.1
"""The gradient's norm at which a fit ends, divided by the root of the number of documents.

The gradient's noise grows with that root.
"""


class SimplePolicies(NamedTuple):
    """The constant policies of one seed's agents, at K places: one for each budget, and last without one."""

    singles: Tensor
    """(1 + tasks, N) above 0 for the most accurate model on all of train, and on each task"""
    pools: Tensor
    """(K, N) above 0 for the members of each place's pool"""
    deciding_policies: tuple[PolicyName, ...]
    """(K,) the policy that decides at each place"""
    start: Tensor | None = None
    """(K, N) Fusion's weights at the start; None in agents of earlier versions, which use learned ones"""
    weight: Tensor | None = None
    """(K, G, N) the trained Fusion's weight of each model, by question feature"""
    slots: Tensor | None = None
    """(K, N·C, C) the weight of each model's slot for the other slots; (K, 0, C) for free answers"""
    bias: Tensor | None = None
    """(K, G, C) the trained Fusion's biases, by question feature; (K, 0, C) for free answers"""

    def logits(self, policy_name: PolicyName, place: int, tasks: Tensor) -> Tensor:
        """(T, N) branch logits of a constant policy, for one-hot `tasks` (T, tasks)."""
        if policy_name in ("start", "constant pool"):
            return self.pools[place].expand(len(tasks), -1)
        if policy_name == "best single" or not tasks.shape[1]:
            return self.singles[0].expand(len(tasks), -1)
        return self.singles[torch.where(tasks.any(1), 1 + tasks.argmax(1), 0)]

    def fusion(self, policy_name: PolicyName, place: int) -> dict[str, Tensor] | None:
        """The parameters of the log-linear core that fuses the pool of a place; None for the learned core."""
        if self.start is None or policy_name not in ("start", "constant pool"):
            return None
        assert self.weight is not None
        assert self.slots is not None
        assert self.bias is not None
        if policy_name == "constant pool":
            return {"weight": self.weight[place], "slots": self.slots[place], "bias": self.bias[place]}
        weight = torch.zeros_like(self.weight[place])
        weight[0] = self.start[place]
        nothing = torch.zeros_like(self.slots[place]), torch.zeros_like(self.bias[place])
        return {"weight": weight, "slots": nothing[0], "bias": nothing[1]}


class SimpleCandidates(NamedTuple):
    """The simple policies fitted to train rows, with their rewards."""

    policies: SimplePolicies
    strength: float
    """The factor on the ridge penalties of the trained Fusion without a budget."""
    names: tuple[PolicyName, ...]
    """(J,) the policies, from the simplest"""
    rewards: Floats
    """(K, J, T) the reward of each policy out of fold at each place; (K, J, 0) with too few documents.

    A right answer earns 1, less the penalty for each model asked.
    """
    selection: SelectedPools
    """The size and the prior strengths of the constant pools among the policies."""
    selection_rewards: Floats
    """(K, T) the out-of-fold reward of the trained pool by this selection, which all documents have chosen;
    (K, 0) with too few documents"""


def fit_simple(
    train: Dataset, config: PoolConfig, questions: Questions, sizes: Sizes,
    selection: SelectedPools | None = None,
) -> SimpleCandidates:  # fmt: skip
    """Fits the simple policies to train rows.

    Pool sizes and priors' strengths are chosen out of fold, unless `selection` gives them.
    """
    n, about = len(train.models), questions.numbers(train)
    most = min(int(config.mean_pool) or MAX_POOL_SIZE, n)
    trials = _PoolTrials(config, questions.columns, sizes, most)
    whole_order = np.array(asking_order(train, SequentialConfig()))
    order = whole_order[:most]
    held_out = _hold_out(trials, train, about, order) if selection is None else None
    chosen = selection or SelectedPools(1, ())
    if held_out is not None:
        chosen = _choose(held_out.score.sum(-1), held_out.right.sum(-1), len(train), config)
    places = [*questions.budgets, chosen.size]
    pools = np.stack([size - 0.5 - np.argsort(whole_order) for size in places])
    singles = 0.5 - np.stack([_rank(score) for score in _measure_accuracies(train, questions.tasks)])
    core = _make_core(sizes, train)
    fusions = [
        trials.fit_place(train, about, core, order[:size], chosen.strength[size - 1]) for size in places
    ]
    start, weight, slots, bias = (torch.stack(parts).float() for parts in zip(*fusions, strict=True))
    single: PolicyName = "best single per task" if questions.tasks else "best single"
    policies = SimplePolicies(
        torch.tensor(singles, dtype=torch.float32),
        torch.tensor(pools, dtype=torch.float32),
        (single,) * len(places), start, weight, slots, bias,
    )  # fmt: skip
    strength = chosen.strength[chosen.size - 1]
    earned, selection_rewards = np.zeros((len(places), 3, 0)), np.zeros((len(places), 0))
    if held_out is not None:
        earned = _reward_candidates(held_out, questions.budgets, config)
        selection_rewards = _reward_as_selected(held_out, places, chosen, config)
    return SimpleCandidates(
        policies, min(strength, 4 * PRIOR_STRENGTHS[-1]), (single, "start", "constant pool"), earned, chosen,
        selection_rewards,
    )  # fmt: skip


class _PoolTrials(NamedTuple):
    """Fits constant pools of 1 to `most` models, each with priors of every strength."""

    config: PoolConfig
    columns: FeatureColumns
    sizes: Sizes
    most: int

    def fit_place(
        self, train: Dataset, features: Tensor, core: LogLinearCore, members: Ints, strength: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(N,) the start's weights, and the trained Fusion of one pool: (G, N), (N·C, C) and (G, C)."""
        sizes, size = self.sizes, len(members)
        examples = self.examples(train, features, core, members)
        scale = _scale(examples, core.weight[0, members].double())
        start = core.weight[0] * scale
        weight = torch.zeros(sizes.question, sizes.models, dtype=torch.float64)
        slots = torch.zeros(sizes.models, sizes.slots, sizes.slots, dtype=torch.float64)
        bias = torch.zeros(sizes.question, sizes.slots, dtype=torch.float64)
        is_biased = train.kind == "choices"
        if np.isfinite(strength):
            offset = (examples.rows.shared[..., :size] @ start[members].double())[None]
            fitted = self.fit(examples, [size], [strength], offset, is_biased)
            n_about = features.shape[1] - self.columns.budgets
            weight[:n_about, members] = fitted.shared[0].view(n_about, size)
            if is_biased:
                own = fitted.own[0]
                slots[members] = own[: size * sizes.slots].view(size, sizes.slots, sizes.slots)
                bias[:n_about] = torch.cat([fitted.bias[:1], own[size * sizes.slots :]])
        weight[0] += start
        if not is_biased:
            return start, weight, slots.flatten(0, 1)[:0], bias[:0]
        return start, weight, slots.flatten(0, 1), bias

    def examples(
        self, rows: Dataset, features: Tensor, core: LogLinearCore, members: Ints
    ) -> _FusionExamples:
        """The documents as Fusion sees them if the members are asked, in this order."""
        probs, n_choices = slot_inputs(rows, self.sizes.slots)
        pool = torch.zeros(len(rows.models))
        pool[members] = 1
        slots = build_slots(probs, n_choices, pool.expand(len(rows), -1), rows.kind, self.sizes.slots)
        labels = torch.from_numpy(rows.labels)
        is_right = (slots.numbers == labels[:, None]) & slots.open
        gold = torch.where(is_right.any(-1), is_right.float().argmax(-1), -1)
        seen = core.evidence(slots.distributions, slots.open)
        shared = seen.shared[:, members].transpose(1, 2).double()  # (T, C, m)
        told = features[:, : features.shape[1] - self.columns.budgets].double()
        own = shared.new_zeros(len(rows), 0)
        if rows.kind == "choices":
            own = torch.cat([seen.own[:, members].flatten(1).double(), told[:, 1:]], 1)
        by_question = (told[:, None, :, None] * shared[:, :, None]).flatten(2)
        return _FusionExamples(RegressionRows(by_question, own, slots.open, gold), is_right)

    def fit(
        self, examples: _FusionExamples, sizes: Sequence[int], strengths: Sequence[float], offset: Tensor,
        is_biased: bool, tolerance: float = FIT_TOLERANCE,
    ) -> Weights:  # fmt: skip
        """The weights to add to the start's logits `offset` (sizes, T, C), for each size and strength."""
        rows, config, columns = examples.rows, self.config, self.columns
        told = columns._replace(budgets=0)
        ridges = told.expand(config.weight_ridge, config.task_ridge, config.words_ridge, 0.0)
        of_question = torch.tensor(ridges, dtype=torch.float64)
        m = rows.shared.shape[2] // len(ridges)
        shared, own, bias = [], [], []
        n_own = rows.own.shape[1]
        for size in sizes:
            is_member = (torch.arange(m) < size).double()
            of_shared = (of_question[:, None].rsqrt() * is_member).flatten()
            of_slots = config.slots_ridge**-0.5 * is_member.repeat_interleave(self.sizes.slots)
            of_own = torch.cat([of_slots, of_question[1:].rsqrt()])[:n_own]
            for strength in strengths:
                shared.append(of_shared * strength**-0.5)
                own.append(of_own * strength**-0.5)
                bias.append(config.weight_ridge * strength)
        priors = Priors(torch.stack(shared), torch.stack(own), torch.tensor(bias, dtype=torch.float64))
        taken = rows.shared.new_ones(len(shared), len(rows.labels))
        return fit_many(
            rows, taken, priors, has_biases=is_biased, offset=offset.repeat_interleave(len(strengths), 0),
            tolerance=tolerance * max(len(rows.labels), 25) ** 0.5,
        )  # fmt: skip


class _FusionExamples(NamedTuple):
    """T documents as Fusion sees them."""

    rows: RegressionRows
    """The documents' features; the first of `shared` are the members' outputs."""
    is_right: Tensor
    """(T, C) whether the slot is right"""


class _HeldOutPools(NamedTuple):
    """The out-of-fold results of constant pools of each size with each prior, the strongest first."""

    fold: Ints
    """(T,) the fold in which each document is held out"""
    right: Bools
    """(sizes, strengths, T) whether each pool is right; the first strength is the start"""
    score: Floats
    """(sizes, strengths, T) the log-probability of the right answer; 0 where no member gave it"""
    single: Bools
    """(T,) whether the most accurate model, or that of the document's task, is right"""


class SelectedPools(NamedTuple):
    """The size of the constant pool without a budget, and the prior strength for each size."""

    size: int
    """The number of models of the pool without a budget."""
    strength: tuple[float, ...]
    """The prior's strength for each size; infinite for the start."""


def _hold_out(trials: _PoolTrials, train: Dataset, features: Tensor, order: Ints) -> _HeldOutPools:
    """The results of all pools on each fold, by fits to the others; `order`: the asking order."""
    n, strengths = len(train), (np.inf, *PRIOR_STRENGTHS[::-1])
    shape = (trials.most, len(strengths), n)
    held_out = _HeldOutPools(np.zeros(n, dtype=np.int64), np.zeros(shape, dtype=np.bool_), np.zeros(shape),
                   np.zeros(n, dtype=np.bool_))  # fmt: skip
    if n < MIN_TRAIN_DOCUMENTS:
        return held_out._replace(fold=np.zeros(0, dtype=np.int64))
    fold = folds(train, N_FOLDS if n <= MIN_SPLIT_DOCUMENTS else N_FOLDS_OF_MANY)
    held_out = held_out._replace(fold=fold)
    tasks = tuple(dict.fromkeys(train.tasks.tolist())) if trials.columns.tasks else ()
    for rest, out in split_folds(fold):
        fitted, tested = train.take(rest), train.take(out)
        if n <= MAX_NESTED_DOCUMENTS:
            order = np.array(asking_order(fitted, SequentialConfig(), trials.most))[: trials.most]
        singles = _measure_accuracies(fitted, tasks).argmax(axis=1)
        place = {task: 1 + at for at, task in enumerate(tasks)}
        asked = singles[[place.get(task, 0) for task in tested.tasks.tolist()]]
        held_out.single[out] = tested.correct[np.arange(len(out)), asked]
        core = _make_core(trials.sizes, fitted)
        is_biased = train.kind == "choices"
        # With choices, smaller pools are the same features with fewer weights.
        groups = [range(1, trials.most + 1)] if is_biased else [[s] for s in range(1, trials.most + 1)]
        for sizes in groups:
            members = order[: max(sizes)]
            m = len(members)
            learned = trials.examples(fitted, features[rest], core, members)
            unseen = trials.examples(tested, features[out], core, members)
            starts = [core.weight[0, members].double() * (torch.arange(m) < size) for size in sizes]
            weights = torch.stack([start * _scale(learned, start) for start in starts])
            offset, offset_out = (
                torch.einsum("tcm,sm->stc", part.rows.shared[..., :m], weights) for part in (learned, unseen)
            )
            solved = trials.fit(learned, sizes, strengths[1:], offset, is_biased, HELD_OUT_TOLERANCE)
            by_start = torch.softmax(offset_out.masked_fill(~unseen.rows.open, -torch.inf), -1).nan_to_num(
                0.0
            )
            trained = solved.probabilities(
                unseen.rows, offset_out.repeat_interleave(len(PRIOR_STRENGTHS), 0)
            ).view(len(sizes), len(PRIOR_STRENGTHS), *by_start.shape[1:])
            chances = torch.cat([by_start[:, None], trained], 1)  # (sizes, strengths, T, C)
            rows = np.array(sizes) - 1
            held_out.right[rows[:, None, None], np.arange(len(strengths))[:, None], out] = _is_right(
                chances, unseen
            )
            held_out.score[rows[:, None, None], np.arange(len(strengths))[:, None], out] = _score(
                chances, unseen
            )
    return held_out


def _is_right(chances: Tensor, examples: _FusionExamples) -> Bools:
    """(..., T) whether the slot with the highest probability is right."""
    likeliest = chances.argmax(-1, keepdim=True)
    right = examples.is_right.expand_as(chances).gather(-1, likeliest)[..., 0]
    return np.asarray(right.numpy())


def _score(chances: Tensor, examples: _FusionExamples) -> Floats:
    """(..., T) the log-probability of the right slot; 0 where there is none."""
    gold = examples.rows.labels.clamp(min=0)
    of_gold = chances.gather(-1, gold[:, None].expand(*chances.shape[:-1], 1))[..., 0]
    score = of_gold.clamp(min=MIN_PROBABILITY).log()
    return np.asarray(torch.where(examples.rows.labels >= 0, score, 0.0).numpy())


def _choose(score: Floats, right: Floats, n: int, config: PoolConfig) -> SelectedPools:
    """The prior strength with the best score for each size, and the size that then has the highest reward.

    `score` and `right` (sizes, strengths) are totals over n documents. Ties go to the stronger prior and the
    smaller pool.
    """
    strengths = (np.inf, *PRIOR_STRENGTHS[::-1])
    best = score.argmax(axis=1)
    sizes = np.arange(len(score))
    earned = right[sizes, best] - config.call_penalty * n * sizes
    return SelectedPools(int(earned.argmax()) + 1, tuple(strengths[at] for at in best))


def _reward_candidates(held_out: _HeldOutPools, budgets: Sequence[int], config: PoolConfig) -> Floats:
    """(K, 3, T) the rewards of the best single model, the start and the trained pool at each place.

    Sizes and strengths are chosen on the other folds.
    """
    n = len(held_out.fold)
    earned = np.zeros((len(budgets) + 1, 3, n))
    earned[:, 0] = held_out.single[:n] - config.call_penalty
    for number in range(int(held_out.fold.max(initial=-1)) + 1):
        out = held_out.fold == number
        chosen = _choose(
            held_out.score[..., ~out].sum(-1), held_out.right[..., ~out].sum(-1), int((~out).sum()), config
        )
        for at, size in enumerate((*budgets, chosen.size)):
            strength = (np.inf, *PRIOR_STRENGTHS[::-1]).index(chosen.strength[size - 1])
            for policy, prior in ((1, 0), (2, strength)):
                earned[at, policy, out] = held_out.right[size - 1, prior, out] - config.call_penalty * size
    return earned


def _reward_as_selected(
    held_out: _HeldOutPools, places: Sequence[int], selection: SelectedPools, config: PoolConfig
) -> Floats:
    """(K, T) the out-of-fold rewards of trained pools of the sizes `places` (K), at selected strengths."""
    n, strengths = len(held_out.fold), (np.inf, *PRIOR_STRENGTHS[::-1])
    priors = [strengths.index(selection.strength[size - 1]) for size in places]
    return np.stack(
        [
            held_out.right[size - 1, prior, :n] - config.call_penalty * size
            for size, prior in zip(places, priors, strict=True)
        ]
    )


def _make_core(sizes: Sizes, rows: Dataset) -> LogLinearCore:
    """Fusion's log-linear core before training, with scales and initial weights from the rows."""
    core = LogLinearCore(sizes, rows.kind)
    probs, n_choices = slot_inputs(rows, sizes.slots)
    everyone = build_slots(probs, n_choices, probs.new_ones(probs.shape[:2]), rows.kind, sizes.slots)
    core.learn(everyone.distributions, everyone.open, accuracies(torch.tensor(rows.correct)), 1.0)
    return core.requires_grad_(False)


def _scale(examples: _FusionExamples, start: Tensor) -> float:
    """The factor on the start's weights (m,) that gives the right slots the highest likelihood.

    A prior around the factor 3 counts as one document.
    """
    rows = examples.rows
    logits = (rows.shared[..., : len(start)] @ start).masked_fill(~rows.open, -torch.inf)
    taught = rows.labels >= 0
    logits, gold = logits[taught], rows.labels[taught]
    scores = [
        float(torch.log_softmax(scale * logits, -1).gather(1, gold[:, None]).sum())
        - 0.5 * np.log(scale / 3.0) ** 2
        for scale in 3.0 * _LOGIT_SCALES
    ]
    return float(3.0 * _LOGIT_SCALES[int(np.argmax(scores))])


def _measure_accuracies(rows: Dataset, tasks: Sequence[str]) -> Floats:
    """(1 + tasks, N) each model's accuracy on all rows, and on each task with a prior.

    The accuracy on all rows counts as `TASK_PRIOR_DOCUMENTS` documents of each task.
    """
    usual = rows.correct.mean(axis=0)
    of_tasks = [rows.correct[rows.tasks == task] for task in tasks]
    shrunk = [
        (own.sum(axis=0) + TASK_PRIOR_DOCUMENTS * usual) / (len(own) + TASK_PRIOR_DOCUMENTS)
        for own in of_tasks
    ]
    return np.stack([usual, *shrunk])


def _rank(score: Floats) -> Ints:
    """(N,) ranks from 0 for the highest score; ties: the first."""
    return np.asarray(np.argsort(np.argsort(-score, kind="stable"), kind="stable"))

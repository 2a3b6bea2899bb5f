"""The train stream as many parallel environments of two agents (paper, sections 1.2-1.4 and 1.9).

Fusion chooses among slots: a document's choices, or the answers that the selected models gave.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.learning.agents import check_train, refuse_broken
from rlfocal.methods.rl_focal.config import PoolConfig, RLFocalConfig
from rlfocal.methods.rl_focal.networks import Sizes
from rlfocal.methods.rl_focal.questions import Questions, to_decider
from rlfocal.statistics.windows import Outcomes, Window, observed_metrics

MODELS_TABULATED = 8
"""The most models for which every pool's metrics are computed beforehand."""
TABLE_ENTRIES = 1 << 22
"""The most positions × pools for which metrics are computed beforehand (32 MB with two metrics)."""
_CHUNK_ENTRIES = 1 << 22
"""The most rows × pools in one block while the table is computed (some 16 MB)."""
STRETCHES_PER_BUDGET = 3
"""The number of stretches of which one has a budget: the best of 2, 3 and 4 on train rows."""
Choose = Callable[[int, Tensor, Tensor], Tensor]
"""A function of step t, o^Dec_t (B, N+K+1+G) and the last pools (B, N) that returns the next pools (B, N)."""
Fuse = Callable[[Tensor, Tensor, Tensor], Callable[[int, Tensor], Tensor]]
"""A function of outputs (L, B, N·C), which slots exist (L, B, C) and question features (L, B, G).

It returns a function of step t and the past rewards (B, k), which returns sampled answers (B, Q) as slots.
"""


class Slots(NamedTuple):
    """The slots of G documents, each for the pool that is asked; for P pools, shapes are (P, G, ...)."""

    distributions: Tensor
    """(G, N, C) the probabilities of the pool's models; 0 for other models."""
    open: Tensor
    """(G, C) whether the slot exists."""
    numbers: Tensor
    """(G, C) the dataset's slot that each slot stands for; -1 where it does not exist."""


class Memory(NamedTuple):
    """The state of the stream at the end of train, which frozen agents store."""

    predictions: Tensor
    """(w, N) the models' answers to the last w documents, int64"""
    labels: Tensor
    """(w,) the labels of the last documents, int64"""
    past_rewards: Tensor
    """(k,) the last rewards"""
    pool: Tensor
    """(N,) the last pool, 0 or 1 for each model"""


class Rollout(NamedTuple):
    """L joint actions of B parallel environments: for each document a pool and an answer."""

    decider: Tensor
    """(L+1, B, N+K+1+G) o^Dec: the observations from which pools are chosen, up to the document after L"""
    pools: Tensor
    """(L, B, N) the Decider's actions: the models asked, 0 or 1"""
    fusion: Tensor
    """(L, B, N·C+k+G) o^Fus: the observation from which each document is answered"""
    open: Tensor
    """(L, B, C) whether the slot exists"""
    answers: Tensor
    """(L, B, Q) Fusion's actions, Q independent samples; empty where the plurality answered"""
    rewards: Tensor
    """(L, B, Q) rewards by Eq (6); Q is 1 where the plurality answered"""
    right: Tensor
    """(L, B, Q) whether each sampled answer is right, 0 or 1"""
    rows: Tensor
    """(L, B) the positions of the documents"""

    @property
    def sizes(self) -> Tensor:
        """(L, B) the number of models asked"""
        return self.pools.sum(-1)


class DocumentStream:
    """T documents in order, without any agent's state.

    `measure` is a function from a Window of E windows and P pools to metrics (E, P, K).
    """

    def __init__(
        self,
        train: Dataset,
        measure: Callable[[Window], Tensor],
        *,
        n_slots: int,
        window: int,
        questions: Tensor | None = None,
    ) -> None:
        self.kind, self.window, self.n_slots = train.kind, window, n_slots
        self.n_documents, self.n_models = len(train), len(train.models)
        self.probs, self.n_choices = slot_inputs(train, n_slots)
        self.questions = torch.zeros(len(train), 0) if questions is None else questions
        """(T, G) features of each question, known before any model is asked"""
        self.labels = torch.tensor(train.labels)
        self.predictions = torch.tensor(train.predictions)
        self._outcomes = Outcomes(self.predictions, self.labels, self.probs.shape[2], train.kind, window)
        self.measure = measure
        self._table: Tensor | None = None
        if self.n_models <= MODELS_TABULATED and len(train) << self.n_models <= TABLE_ENTRIES:
            self._bits = 2.0 ** torch.arange(self.n_models)
            self._table = self._tabulate()

    def metrics(self, pools: Tensor, end: int, stride: int = 1) -> Tensor:
        """(G, P, K) metrics of the pools (G, P, N), over the windows before documents `end + g * stride`."""
        if self._table is None:
            return self.measure(self._outcomes.window(pools, end, self.window, stride))
        ends = self._table[end : end + (len(pools) - 1) * stride + 1 : stride]
        index = (pools @ self._bits).long()[..., None].expand(-1, -1, ends.shape[-1])
        return ends.gather(1, index)

    def note(self, rows: Tensor, pools: Tensor) -> None:
        """A hook for subclasses, called after pools (B, N) are chosen for the documents `rows` (B,)."""

    def slots(self, pools: Tensor, rows: Tensor) -> Slots:
        """The slots of the documents `rows` (D,) if the models of `pools` (D, N) or (P, D, N) are asked."""
        return build_slots(self.probs[rows], self.n_choices[rows], pools, self.kind, self.n_slots)

    def mark_right(self, pools: Tensor, rows: Tensor) -> Tensor:
        """(D, P) whether the plurality of `pools` (D, P, N) is right on its document, `rows` (D,)."""
        return self._outcomes.right_on(pools, rows)

    def outputs(self) -> Slots:
        """The slots if every model were asked about every document."""
        everyone = self.probs.new_ones(self.probs.shape[:2])
        return self.slots(everyone, torch.arange(self.n_documents))

    def _tabulate(self) -> Tensor:
        """(T+1, 2^N, K) the metrics of every pool over the window before every position."""
        codes = torch.arange(2**self.n_models)
        pools = (codes[:, None] // self._bits.long() % 2).to(self._bits.dtype)
        parts: list[Tensor] = []
        together = max(1, _CHUNK_ENTRIES // (len(pools) * self.window))
        for end in range(1, self.n_documents + 1, together):
            of_each = pools.expand(min(together, self.n_documents + 1 - end), -1, -1)
            looked_back = self._outcomes.window(of_each, end, self.window, 1)
            parts.append(self.measure(looked_back))
        nothing_yet = torch.zeros_like(parts[0][:1])
        return torch.cat([nothing_yet, *parts])


class Environment:
    """B = copies × stretches parallel environments; each stretch of the stream is passed by every copy.

    All move together: at step t, stretch g is at document `first + g * length + t`.
    """

    def __init__(
        self, stream: DocumentStream, config: RLFocalConfig, *, stretches: int, copies: int, first: int,
        length: int, n_budgets: int = 0,
    ) -> None:  # fmt: skip
        self.stream, self.config = stream, config
        self.stretches, self.copies, self.n_parallel = stretches, copies, stretches * copies
        self.first, self.length, self.n_budgets = first, length, n_budgets
        self._starts = first + length * torch.arange(stretches)
        self.reset()

    def reset(self, episode: int = 0) -> None:
        """Puts every environment at its start, with the full pool and past rewards of 0.

        One stretch in three has a budget. The stretches and their budgets change with every episode.
        """
        turn = (torch.arange(self.stretches) + episode) % max(STRETCHES_PER_BUDGET * self.n_budgets, 1)
        is_free = turn % STRETCHES_PER_BUDGET > 0 if self.n_budgets else turn == 0
        self.is_free = is_free.repeat(self.copies) if is_free.any() else torch.ones(self.n_parallel) > 0
        """(B,) which environments have no budget; if all have one, all are true"""
        told = turn[:, None] == STRETCHES_PER_BUDGET * torch.arange(self.n_budgets)
        self._budget_features = told.to(self.stream.questions.dtype)
        self._t = 0
        self._pools = torch.ones((self.n_parallel, self.stream.n_models))
        self._past = torch.zeros((self.n_parallel, self.config.past_rewards))

    def resume_from(self, pool: Tensor, past_rewards: Tensor) -> None:
        """Puts every environment at its start, but with this pool (N,) and these past rewards (k,)."""
        self.reset()
        self._pools = pool.expand_as(self._pools).clone()
        self._past = past_rewards.expand_as(self._past).clone()

    def rollout(self, length: int, choose: Choose, fuse: Fuse | None) -> Rollout:
        """Plays `length` steps: `choose` chooses pools and `fuse` answers, or without it, the plurality.

        Rewards follow Eq (6). For an empty pool, only Fusion's biases decide. Fusion's answers do not change
        what the Decider sees, so that the pools of all steps are chosen first.
        """
        decider, pools = self._choose(length, choose)
        rows = self._starts + torch.arange(self._t, self._t + length)[:, None]
        slots = self.stream.slots(self._group_by_document(pools), rows.flatten())
        outputs = self._group_by_environment(slots.distributions.flatten(2))
        is_open = self._group_by_environment(slots.open)
        question = self._read_question_features(rows)
        if fuse is None:
            asked = self._group_by_document(pools).transpose(0, 1)
            right = self._group_by_environment(self.stream.mark_right(asked, rows.flatten()).T[..., None])
            answers = right.new_zeros(0)
            past = torch.cat([self._past, (2 * right[..., 0] - 1).T], -1)
        else:
            labels = self.stream.labels[rows].view(-1, 1)
            is_right = self._group_by_environment(
                ((slots.numbers == labels) & (slots.numbers >= 0)).to(outputs.dtype)
            )
            answers, past = self._answer(is_right, fuse(outputs, is_open, question))
            right = is_right.gather(-1, answers)
        k = self._past.shape[-1]
        ends = torch.arange(length)[:, None] + torch.arange(k)
        seen = past[:, ends].transpose(0, 1)
        self._t += length
        self._pools, self._past = pools[-1], past[:, past.shape[1] - k :]
        return Rollout(
            decider, pools, torch.cat([outputs, seen, question], -1), is_open, answers,
            self._compute_rewards(right, pools), right, rows.repeat(1, self.copies),
        )  # fmt: skip

    def _compute_rewards(self, right: Tensor, pools: Tensor) -> Tensor:
        """(L, B, Q) rewards by Eq (6)."""
        wrong = -1 - self.config.size_penalty * pools.mean(-1)
        return torch.where(right > 0, 1.0, wrong[..., None])

    def memory(self) -> Memory:
        """The state of the last environment, for frozen agents."""
        window = slice(-self.stream.window, None)
        return Memory(
            self.stream.predictions[window], self.stream.labels[window], self._past[-1], self._pools[-1]
        )

    def _choose(self, length: int, choose: Choose) -> tuple[Tensor, Tensor]:
        """(length+1, B, ...) the Decider's observations, and (length, B, N) the pools from `choose`."""
        pools, observed = [self._pools], [self._observe(self._pools, self._t)]
        for t in range(length):
            pools.append(choose(t, observed[-1], pools[-1]))
            self.stream.note(self._starts + self._t + t, pools[-1])
            observed.append(self._observe(pools[-1], self._t + t + 1))
        return torch.stack(observed), torch.stack(pools[1:])

    def _observe(self, pools: Tensor, t: int) -> Tensor:
        """(B, N+K+1+G) o^Dec before the t-th document of each stretch, after the pools (B, N)."""
        by_stretch = pools.reshape(-1, self.stretches, pools.shape[-1]).transpose(0, 1)
        looked_back = self.stream.metrics(by_stretch, self.first + t, self.length)
        observed = decider_observation(by_stretch, looked_back)
        observed = observed.transpose(0, 1).reshape(self.n_parallel, -1)
        # No action depends on what follows the last document.
        rows = (self._starts + t).clamp(max=self.stream.n_documents - 1)
        question = to_decider(self._read_question_features(rows[None])[0], self.n_budgets)
        return torch.cat([observed, question], -1)

    def _read_question_features(self, rows: Tensor) -> Tensor:
        """(L, B, G) question features of the documents `rows` (L, stretches), the same for every copy."""
        about = self.stream.questions[rows]
        if self.n_budgets:
            told = self._budget_features.expand(len(rows), -1, -1)
            about = torch.cat([about[..., : -self.n_budgets], told], -1)
        return about.repeat(1, self.copies, 1)

    def _answer(self, is_right: Tensor, answer: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """(L, B, Q) Fusion's slots; (B, k+L) k past rewards, then ±1 for the first sample of each step."""
        length, k = len(is_right), self._past.shape[1]
        earned = torch.cat([self._past, self._past.new_empty((self.n_parallel, length))], -1)
        worth = 2 * is_right - 1
        answers = []
        for t in range(length):
            answers.append(answer(t, earned[:, t : t + k]))
            earned[:, t + k] = worth[t].gather(-1, answers[-1][:, :1])[:, 0]
        return torch.stack(answers), earned

    def _group_by_document(self, by_environment: Tensor) -> Tensor:
        """Reshapes (L, B, ...) to (copies, L·stretches, ...)."""
        shape = (-1, self.copies, self.stretches, *by_environment.shape[2:])
        return by_environment.view(shape).transpose(0, 1).flatten(1, 2)

    def _group_by_environment(self, by_document: Tensor) -> Tensor:
        """Reshapes (copies, L·stretches, ...) to (L, B, ...)."""
        shape = (self.copies, -1, self.stretches, *by_document.shape[2:])
        return by_document.reshape(shape).transpose(0, 1).flatten(1, 2)


def decider_observation(pools: Tensor, looked_back: Tensor) -> Tensor:
    """(..., N+K+1) o^Dec = [pool; metrics; m/N] for m models, from pools (..., N) and metrics (..., K)."""
    return torch.cat([pools, looked_back, pools.mean(-1, keepdim=True)], -1)


def slot_inputs(documents: Dataset, n_slots: int) -> tuple[Tensor, Tensor]:
    """(T, N, C) probabilities, and (T,) how many slots exist; for choices, C is cut or padded to `n_slots`.

    Raises InputError for a probability that is not a finite number.
    """
    refuse_broken(documents)
    probs = torch.tensor(documents.probs, dtype=torch.float32)
    if documents.kind == "choices":
        probs = pad(probs[..., :n_slots], (0, max(0, n_slots - probs.shape[2])))
    return probs, torch.tensor(documents.n_choices)


def build_slots(probs: Tensor, n_choices: Tensor, pools: Tensor, kind: Kind, keep: int) -> Slots:
    """The slots of G documents, in which only the outputs of the pools' models are visible.

    `probs` (G, N, C), `n_choices` (G,), `pools` (G, N) or (P, G, N) of 0 and 1. Free answers are ordered by
    their total probability in the pool, and the first `keep` have slots. Ties go to the answer of the first
    model in the pool.
    """
    masked = probs * pools[..., None]
    index = torch.arange(probs.shape[2])
    if kind == "choices":
        exists = (index < n_choices[:, None]).expand(*pools.shape[:-1], -1)
        return Slots(masked, exists, torch.where(exists, index, -1))
    order = _answer_order(masked)[..., :keep]
    ranked = masked.gather(-1, order[..., None, :].expand(*masked.shape[:-1], -1))
    exists = ranked.sum(-2) > 0
    missing = keep - order.shape[-1]
    return Slots(
        pad(ranked, (0, missing)),
        pad(exists, (0, missing)),
        pad(torch.where(exists, order, -1), (0, missing), value=-1),
    )


def _answer_order(probs: Tensor) -> Tensor:
    """(..., G, C) slots by falling total of `probs` (..., G, N, C), then by first model, then by index."""
    n_models, n_slots = probs.shape[-2:]
    # Shares are inexact in binary; whole millionths make equal totals equal, whatever the order of the sum.
    total = (probs.sum(-2, dtype=torch.float64) * 1e6).round().long()
    first_giver = (probs > 0).float().argmax(-2)
    key = (total * n_models + (n_models - 1 - first_giver)) * n_slots
    key += n_slots - 1 - torch.arange(n_slots)
    return key.argsort(-1, descending=True)


def _count_slots(documents: Dataset, answer_slots: int) -> int:
    """C, the number of slots that agents see: the most choices of a document, or `answer_slots`."""
    return answer_slots if documents.kind == "answers" else int(documents.n_choices.max())


def network_sizes(train: Dataset, config: PoolConfig, questions: Questions | None) -> Sizes:
    """The dimensions of the agents' networks on this data."""
    n_slots = _count_slots(train, config.answer_slots)
    n_features = 0 if questions is None else questions.columns.size
    shape = config.shape
    return Sizes(len(train.models), n_slots, len(shape.metrics), shape.past_rewards, n_features)


def train_stream(train: Dataset, config: RLFocalConfig, questions: Questions | None = None) -> DocumentStream:
    """The stream of the train documents. Raises InputError for one model or fewer than two documents."""
    check_train(train)
    return DocumentStream(
        train,
        partial(observed_metrics, names=config.metrics),
        n_slots=_count_slots(train, config.answer_slots),
        window=min(config.window, len(train)),
        questions=None if questions is None else questions.numbers(train),
    )


def train_environment(stream: DocumentStream, config: RLFocalConfig, n_budgets: int = 0) -> Environment:
    """An environment of the train stream with the configured number of stretches, or somewhat fewer.

    Fewer stretches are made if they leave out fewer documents.
    """
    first = _find_first_document(stream)
    room = stream.n_documents - first
    most = min(config.stretches, room)
    stretches = max(range(-(-3 * most // 4), most + 1), key=lambda n: (n * (room // n), n))
    return Environment(
        stream, config, stretches=stretches, copies=config.copies,
        first=first, length=room // stretches, n_budgets=n_budgets,
    )  # fmt: skip


def tail_environment(stream: DocumentStream, config: RLFocalConfig) -> Environment:
    """An environment of the last T_u train documents, from whose end frozen agents start."""
    first = max(_find_first_document(stream), stream.n_documents - config.update_period)
    length = stream.n_documents - first
    return Environment(stream, config, stretches=1, copies=1, first=first, length=length)


def _find_first_document(stream: DocumentStream) -> int:
    """The position of the first document with a full window before it; 0 if there is none."""
    return stream.window if stream.window < stream.n_documents else 0

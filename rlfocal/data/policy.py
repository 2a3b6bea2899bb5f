"""The protocol of all methods: `fit` on train rows, then `decide` for each document, even where models
fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.calls import Answers, Calls, Stream
from rlfocal.data.dataset import Dataset


class FailingModels(NamedTuple):
    """Models that fail whenever they are called, and the model that stands in for them."""

    down: Bools
    """(N,) which models fail"""
    best: int
    """The position of the best model that does not fail."""

    def stand_in(self, calls: Calls, answered: Answers) -> Answers:
        """The answers (T,); that of the model `best` where all calls failed, or some failed and there is no
        answer."""
        lost = calls.failed & (~calls.called.any(axis=1) | (answered.slots < 0))
        is_best = np.arange(len(self.down)) == self.best
        slots = calls.call(lost[:, None] & is_best).predictions[:, self.best]
        probability = None if answered.probability is None else np.where(lost, np.nan, answered.probability)
        return Answers(np.where(lost, slots, answered.slots), probability)


def find_down_models(
    models: Sequence[str], down: Sequence[str], what: str = "--down", only: Sequence[str] | None = None
) -> Bools:
    """(N,) which models are down: the named ones, and all that are not in `only`, if it is given.

    Raises InputError, which names the option `what`, for an unknown model, and if no model is left.
    """
    for option, names in ((what, down), ("--models", only or ())):
        for name in names:
            if name not in models:
                raise unknown_name("model", name, models, f"the policy's pool ({option})")
    mask = np.array([name in down or (only is not None and name not in only) for name in models])
    if mask.all():
        raise InputError(
            f"{what}: no model of {len(models)} is left to answer; leave one out, say {models[0]}"
        )
    return mask


def parse_swaps(models: Sequence[str], swaps: Sequence[str]) -> dict[str, str]:
    """By model A, the model B of each `A=B`, which answers under the name of A; `A=A` is left out.

    Raises InputError for other text, an unknown A, and an A that is swapped twice.
    """
    swapped: dict[str, str] = {}
    for text in swaps:
        model, _, other = (part.strip() for part in text.partition("="))
        if not (model and other):
            raise InputError(
                f"--swap {text!r} is not A=B: name a model of the pool, and whose answers it gives"
            )
        if model not in models:
            raise unknown_name("model", model, models, f"the policy's pool (--swap {text})")
        if model in swapped:
            raise InputError(f"--swap {text}: {model!r} is swapped twice; give each model one other")
        swapped[model] = other
    return {model: other for model, other in swapped.items() if model != other}


@dataclass(frozen=True)
class Decisions:
    """The models that a method asked on T documents, and its answers."""

    pools: Bools
    """(T, N) which models the method asked."""
    predictions: Ints
    """(T,) the answered slot; -1 for no answer."""
    rounds: Ints | None = None
    """(T, N) the round of calls, from 1, in which the method asked a model; 0 where it did not.

    None: one round.
    """
    probability: Floats | None = None
    """(T,) the method's probability that its answer is right; None if it estimates none."""
    updates: tuple[Episode, ...] = ()
    """What the method learned from labels while it decided: one item per update of its agents."""


@runtime_checkable
class Policy(Protocol):
    """A fitted method, which decides on documents."""

    def decide(self, calls: Calls) -> Answers:
        """Calls models and answers. It sees neither labels nor the outputs of models that it did not call."""
        ...


@runtime_checkable
class OmniscientPolicy(Protocol):
    """A policy that openly reads outputs of models that it did not ask: the ceiling."""

    def decide_seeing_all(self, documents: Dataset) -> Decisions: ...


Fitted = Policy | OmniscientPolicy


def decide(policy: Fitted, documents: Dataset, failing: FailingModels | None = None) -> Decisions:
    """A policy's decisions on documents. `Calls` counts the calls, not the policy."""
    if isinstance(policy, OmniscientPolicy):
        if failing is None:
            return policy.decide_seeing_all(documents)
        decided = policy.decide_seeing_all(documents.drop_answers(failing.down))
        predictions = np.where(
            decided.predictions < 0, documents.predictions[:, failing.best], decided.predictions
        )
        return replace(decided, pools=decided.pools & ~failing.down, predictions=predictions)
    calls = Calls(documents, None if failing is None else failing.down)
    answered = policy.decide(calls)
    slots, probability = answered if failing is None else failing.stand_in(calls, answered)
    return Decisions(calls.called, calls.stored_slots(slots), calls.rounds, probability)


@runtime_checkable
class OnlineLearner(Protocol):
    """A policy that can keep learning during test: each label is revealed after its document's answer."""

    def decide_along(self, stream: Stream) -> None:
        """Answers the documents of a stream as they come.

        What the policy learns there is forgotten at the end.
        """
        ...


@runtime_checkable
class OnlineAgents(Protocol):
    """Agents that are given a whole stream, because they learn from it in batches.

    No label may reach the answer to its own document or to an earlier one. Tests check that.
    """

    def decide_online(self, documents: Dataset) -> Decisions: ...


def decide_online(policy: OnlineLearner | OnlineAgents, documents: Dataset) -> Decisions:
    """A policy's decisions on documents, if each label is revealed after its document's answer."""
    if isinstance(policy, OnlineAgents):
        return policy.decide_online(documents)
    stream = Stream(documents)
    policy.decide_along(stream)
    return Decisions(stream.rounds > 0, stream.answers, stream.rounds)


PHASES = ("decider", "fusion", "joint", "stage", "online")
"""The phases of training, in order.

decider, fusion, joint: the Decider learns, then Fusion, then both. stage: Fusion is fitted once for each
number of models that have answered. online: both learn on a stream.
"""


class Episode(NamedTuple):
    """One step of training: a pass over train, as a mean over parallel environments; or one stage."""

    phase: str
    """The phase of training, one of `PHASES`."""
    episode: int
    """The number of the pass or stage, from 0 in each phase."""
    reward: float | None
    """The mean reward of a document; None for a stage, which is fitted without rewards."""
    accuracy: float
    """The accuracy on the pass; for a stage, on train documents that Fusion was not fitted on."""
    mean_pool_size: float
    policy_loss: float | None = None
    """The loss of the policy, as a mean over the episode's updates.

    This and the fields below are None if training has no such loss.
    """
    value_loss: float | None = None
    entropy: float | None = None
    approx_kl: float | None = None
    clip_fraction: float | None = None
    explained_variance: float | None = None
    actor_grad_norm: float | None = None
    critic_grad_norm: float | None = None


@runtime_checkable
class TrainedPolicy(Protocol):
    """A policy that was trained in episodes, with their history."""

    @property
    def history(self) -> Sequence[Episode]: ...


@runtime_checkable
class PolicyWithFallback(Protocol):
    """A trained policy that holds simpler policies, one of which may decide in its place."""

    @property
    def kept(self) -> Sequence[str]:
        """The names of the policies that decide: one for each budget, and last the one without a budget.

        Empty: the trained policy decides.
        """
        ...


def find_fallback(policy: Fitted) -> str | None:
    """The name of the policy that decides without a budget, as in `rlfocal.methods.fallback`; None if
    `policy` is not trained."""
    if not isinstance(policy, PolicyWithFallback):
        return None
    return policy.kept[-1] if policy.kept else "learned"


class Method(Protocol):
    """A rule of whom to ask and how to fuse, before it is fitted."""

    @property
    def seeded(self) -> bool:
        """Whether a seed changes the result. If not, `fit` is called with one seed."""
        ...

    def recipe(self, n_train: int) -> str:
        """A text that changes whenever the method would fit `n_train` documents differently than before."""
        ...

    def fit(self, train: Dataset, seeds: Sequence[int]) -> Sequence[Fitted]:
        """One policy per seed, fitted on train rows alone."""
        ...


@runtime_checkable
class OwnSettings(Protocol):
    """A method whose settings are not the fields of its class."""

    def list_settings(self) -> dict[str, Any]:
        """The method's settings with their defaults."""
        ...

    def with_settings(self, settings: Mapping[str, Any]) -> Method:
        """The method with these settings."""
        ...


@runtime_checkable
class RecipeOnline(Protocol):
    """A method whose online decisions have a version of their own, apart from its fit."""

    @property
    def online_recipe(self) -> str:
        """A text that changes whenever the online decisions would."""
        ...


@dataclass(frozen=True)
class Budget:
    """How much a document may cost on average."""

    amount: float
    unit: Literal["models", "cents"] = "models"
    """models called, or cents per 1,000 queries"""

    def __str__(self) -> str:
        return f"{self.amount:g}" + ("c" if self.unit == "cents" else "")

    def costs(self, prices: Floats) -> Floats:
        """(N,) what one call of each model uses of the budget, by `prices` (N,); infinite where the price is
        unknown."""
        return np.ones(len(prices)) if self.unit == "models" else np.where(np.isnan(prices), math.inf, prices)

    def covers(self, pools: Bools, prices: Floats) -> Bools:
        """(P,) whether it pays for each of the pools (P, N); false where a member's price is unknown."""
        each = np.ones(len(prices)) if self.unit == "models" else prices
        # Sums of prices are inexact in binary, and a budget may equal one of them.
        return np.asarray(np.where(pools, each, 0.0).sum(axis=1) <= self.amount + 1e-9)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Reads a budget: "4" or "all" in models, "120c" in cents per 1,000 queries.

        Raises InputError for other text.
        """
        if text == "all":
            return cls(math.inf)
        number, unit = (text[:-1], "cents") if text.endswith("c") else (text, "models")
        try:
            amount = float(number)
        except ValueError:
            amount = math.nan
        if not amount > 0:
            raise InputError(f"{text!r} is not a budget; give a number of models (4, all) or of cents (120c)")
        return cls(amount, "cents" if unit == "cents" else "models")


@runtime_checkable
class BudgetedPolicy(Protocol):
    """A policy that is fitted once, and can then decide within any budget."""

    def hold_to_budget(self, budget: Budget) -> Policy | None:
        """The policy that keeps to the budget on average over train.

        None if it always asks more, or if a price is unknown.
        """
        ...


_RENAMED_HOOKS = {"within": "hold_to_budget", "settable": "list_settings"}
"""Optional methods of a method's or a policy's class, by the names that they had."""


def refuse_renamed_hooks(made: type) -> None:
    """Raises InputError for a class with a hook by its earlier name alone: it would never be called."""
    for was, now in _RENAMED_HOOKS.items():
        if callable(getattr(made, was, None)) and not hasattr(made, now):
            raise InputError(f"{made.__name__} defines `{was}`, which is called `{now}` now; rename it")


def least_enough(
    is_enough: Callable[[float], bool], too_little: float, enough: float, halvings: int
) -> float:
    """The least bound that is enough, found by bisection in so many halvings.

    The bound lies between `too_little` and `enough`, neither of which is tried. `enough` may be the smaller
    number.
    """
    for _ in range(halvings):
        middle = (too_little + enough) / 2
        if is_enough(middle):
            enough = middle
        else:
            too_little = middle
    return enough

"""The protocol of all methods, which `fit` policies on train rows, and of policies, which `decide`."""

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

    def stand_in(self, calls: Calls, answers: Answers) -> Answers:
        """The answers (T,), replaced by those of the model `best` where a call failed and left no answer."""
        lost = calls.failed & (~calls.called.any(axis=1) | (answers.slots < 0))
        is_best = np.arange(len(self.down)) == self.best
        slots = calls.call(lost[:, None] & is_best).predictions[:, self.best]
        probability = None if answers.probability is None else np.where(lost, np.nan, answers.probability)
        return Answers(np.where(lost, slots, answers.slots), probability)


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
            f"{what}: no model of {len(models)} is left to answer; name fewer, for example not {models[0]}"
        )
    return mask


def parse_swaps(models: Sequence[str], swaps: Sequence[str]) -> dict[str, str]:
    """From texts `A=B`, a dict of A to B: model B answers in the place of model A. `A=A` is left out.

    Raises InputError for any other text, an unknown model A, and a model A that is swapped twice.
    """
    swapped: dict[str, str] = {}
    for text in swaps:
        model, _, other = (part.strip() for part in text.partition("="))
        if not (model and other):
            raise InputError(
                f"--swap {text!r} is not A=B: name a model A of the pool, and a model B that answers for it"
            )
        if model not in models:
            raise unknown_name("model", model, models, f"the policy's pool (--swap {text})")
        if model in swapped:
            raise InputError(f"--swap {text}: {model!r} is swapped twice; swap each model for one other")
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
    """(T,) the method's probability that its answer is right; None if the method estimates none."""
    updates: tuple[Episode, ...] = ()
    """What the method learned from labels while it decided: an `Episode` for each update of its agents."""


@runtime_checkable
class Policy(Protocol):
    """A fitted method, which decides on documents."""

    def decide(self, calls: Calls) -> Answers:
        """Calls models and answers, without a look at labels or at outputs of models that it did not call."""
        ...


@runtime_checkable
class OmniscientPolicy(Protocol):
    """A policy that may read the outputs of models that it did not ask, such as the oracle."""

    def decide_seeing_all(self, documents: Dataset) -> Decisions: ...


Fitted = Policy | OmniscientPolicy


def decide(policy: Fitted, documents: Dataset, failing: FailingModels | None = None) -> Decisions:
    """A policy's decisions on documents. With `failing`, some models are down, and another stands in."""
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
        """Answers a stream's documents as they come, and forgets at its end what labels have taught."""
        ...


@runtime_checkable
class OnlineAgents(Protocol):
    """Agents that are given a whole stream, because they learn from it in batches.

    No label may reach the answer to its own document or to an earlier one. Tests check that.
    """

    def decide_online(self, documents: Dataset) -> Decisions: ...


def decide_online(policy: OnlineLearner | OnlineAgents, documents: Dataset) -> Decisions:
    """A policy's decisions on documents, where each label is revealed after its document's answer."""
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
    """The figures of one step of training: a pass over train by parallel environments, or one stage."""

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
    """The loss of the policies, as a mean over the episode's updates; None if training has no such loss."""
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
class _PolicyWithFallback(Protocol):
    """A trained policy that holds simpler policies, one of which may decide in its place."""

    @property
    def deciding_policies(self) -> Sequence[str]:
        """The names of the policies that decide: one for each budget, and last the one without a budget.

        Empty: the trained policy decides.
        """
        ...


def find_fallback(policy: Fitted) -> str | None:
    """The name of the policy that decides without a budget, as in `rlfocal.methods.fallback`.

    None if `policy` is no PolicyWithFallback.
    """
    if not isinstance(policy, _PolicyWithFallback):
        return None
    return policy.deciding_policies[-1] if policy.deciding_policies else "learned"


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
        """Fits one policy per seed on train rows alone."""
        ...


@runtime_checkable
class OwnSettings(Protocol):
    """A method whose settings are not the fields of its class."""

    def list_settings(self) -> dict[str, Any]:
        """The method's settings with their defaults."""
        ...

    def with_settings(self, settings: Mapping[str, Any]) -> Method:
        """The same method with these settings."""
        ...


@runtime_checkable
class RecipeOnline(Protocol):
    """A method with a second recipe, for its decisions on a stream with labels."""

    @property
    def online_recipe(self) -> str:
        """A text that changes whenever the method would decide on a stream differently than before."""
        ...


@dataclass(frozen=True)
class Budget:
    """How much a document may cost on average."""

    amount: float
    unit: Literal["models", "cents"] = "models"
    """The unit of `amount`: models called per document, or cents per 1,000 queries."""

    def __str__(self) -> str:
        return f"{self.amount:g}" + ("c" if self.unit == "cents" else "")

    def costs(self, prices: Floats) -> Floats:
        """(N,) the cost of a call of each model in the budget's unit, from `prices` (N,) in cents.

        It is infinite where the price is unknown.
        """
        return np.ones(len(prices)) if self.unit == "models" else np.where(np.isnan(prices), math.inf, prices)

    def covers(self, pools: Bools, prices: Floats) -> Bools:
        """(P,) whether the budget pays for each pool (P, N); false where a member's price is unknown."""
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

        None if the policy cannot ask so little, or if a price is unknown.
        """
        ...


_RENAMED_HOOKS = {"within": "hold_to_budget", "settable": "list_settings"}
"""Optional functions of the classes of methods and policies: the earlier name, and the present one."""


def refuse_renamed_hooks(owner: type) -> None:
    """Raises InputError for a class that defines an optional function by its earlier name alone."""
    for was, now in _RENAMED_HOOKS.items():
        if callable(getattr(owner, was, None)) and not hasattr(owner, now):
            raise InputError(f"{owner.__name__} defines `{was}`, which is called `{now}` now; rename it")


def least_enough(
    is_enough: Callable[[float], bool], too_little: float, enough: float, halvings: int
) -> float:
    """The bound nearest to `too_little` for which `is_enough` holds, found by bisection in `halvings` steps.

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

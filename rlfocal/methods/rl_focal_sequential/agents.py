"""The trained agents of `rl_focal_sequential`: their decisions, a driver for a Router, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import NO_ANSWER, FusedAnswer, QueryOutputs
from rlfocal.data.policy import Decisions, decide
from rlfocal.methods.fallback import PolicyName
from rlfocal.methods.learning.agents import FusionAttribution, Tracker, TrainedAgents, refuse_broken
from rlfocal.methods.learning.queries import QueryFeatures, query_tensors, read_queries
from rlfocal.methods.learning.store import Header, UnfinishedTraining, UnusableError, select_tensors
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import Order, asks_more, view
from rlfocal.methods.rl_focal_sequential.observations import (
    QuestionFeatures,
    Scales,
    best_slots,
    make_outputs,
    read_question_features,
    real_slots,
    silence,
    stage_rows,
)
from rlfocal.methods.rl_focal_sequential.softmax_regression import Mixture, Stage, Weights
from rlfocal.methods.rl_focal_sequential.start import StartingPool
from rlfocal.statistics.calibration import apply_temperature


class StageFeatures(NamedTuple):
    """Fusion's answers to T documents, and the Decider's decisions, after one stage of asking."""

    slots: Ints
    """(T,) Fusion's answered slots; -1 where no slot is open"""
    distribution: Floats
    """(T, C) Fusion's probability of each slot, after temperature scaling"""
    goes_on: Bools
    """(T,) whether the Decider asks the models of the next stage; false after the last stage"""


@dataclass(frozen=True, kw_only=True)
class SequentialAgents(TrainedAgents):
    """The Decider and Fusion of one seed."""

    method: str = "rl_focal_sequential"
    config: SequentialConfig
    n_slots: int
    order: tuple[int, ...]
    """Positions of the models, in the order in which they are asked."""
    sizes: tuple[int, ...]
    """(K,) the number of models that have answered at each stage."""
    scales: Scales
    queries: QueryFeatures
    fusions: tuple[Mixture, ...]
    """(K,) the mixture of regressions that fuses outputs at each stage."""
    decider: Floats
    """(K-1, 5) the Decider's weights at each stage but the last"""
    temperature: float
    """The temperature that maximises the likelihood of train labels under out-of-fold Fusion."""
    train_accuracy: tuple[float, ...]
    """(N,) the train accuracy of each model, in the order of `models`."""
    held_out_accuracy: float
    """Fusion's out-of-fold accuracy at its best stage, which a Tracker compares recent accuracy with."""
    penalty: float
    """The cost of asking one model, where a right answer has a reward of 1."""
    deciding_policies: tuple[PolicyName, ...]
    """(K,) for each last stage that a budget allows, the policy that decides; empty: always the learned one.

    The start or the most accurate model decides where the learned policy was not ahead of them on held-out
    train documents.
    """
    start: StartingPool | None = None
    """The best constant pool; None in agents of earlier versions, which have no start."""

    @property
    def most_choices(self) -> float:
        return self.n_slots

    def starts(self, last: int, down: Bools) -> Bools | None:
        """(N,) the models that the start asks, in asking order; None if the start does not decide.

        Stages up to `last` may be asked, and models `down` (N,) are left out.
        """
        if self.start is None or not self.deciding_policies or self.deciding_policies[last] != "start":
            return None
        members = self.start.members(down[list(self.order)])
        return members if members.any() else None

    def fuse_start(
        self, documents: Dataset, question_features: QuestionFeatures, members: Bools
    ) -> StageFeatures:
        """The start's answers to T documents, after its `members` (N,) have answered."""
        assert self.start is not None
        outputs = make_outputs(documents, question_features, self.scales, self.order, self.n_slots)
        distribution = self.start.fuse(outputs, members, self.kind)
        slots = best_slots(distribution, outputs, len(members), documents.slots)
        return StageFeatures(slots, distribution, np.zeros(len(documents), dtype=np.bool_))

    def choose_single_model(self, last: int, down: Bools) -> int | None:
        """The position of the model that decides alone, where stages up to `last` may be asked; else None.

        It is the most accurate model; if all models of these stages are `down` (N,), the best other model.
        """
        if down[list(self.order[: self.sizes[last]])].all() and not down.all():
            return self._find_most_accurate(down)
        is_earned = bool(self.deciding_policies) and self.deciding_policies[last] == "best single"
        return self.best if is_earned and not down[self.best] else None

    @property
    def best(self) -> int:
        """The position of the model with the highest accuracy on train."""
        return self._find_most_accurate(np.zeros(len(self.models), dtype=np.bool_))

    def _find_most_accurate(self, down: Bools) -> int:
        """The position of the most accurate model that is not `down` (N,); ties: the first to be asked."""
        order = np.array(self.order)
        return int(order[np.where(down, -1.0, self.train_accuracy)[order].argmax()])

    def least_cost(self, costs: Floats | None) -> float:
        return self.sizes[0] if costs is None else float(costs[list(self.order[: self.sizes[-1]])].min())

    def decide(self, calls: Calls, most: float = np.inf, costs: Floats | None = None) -> Answers:
        """Decides stage after stage, until the Decider stops or the next stage exceeds `most` models.

        With `costs`, models that `most` no longer pays for are skipped. Raises InputError for documents of
        another pool.
        """
        unpaid = None
        if costs is not None:
            unpaid = self._find_unaffordable(costs, most)
            last = max((place for place, model in enumerate(self.order) if not unpaid[model]), default=0)
            most = min(size for size in self.sizes if size > last)
        slots, distribution = self._answers(calls, most, unpaid)
        return Answers(slots, distribution.max(axis=1, initial=0.0))

    def account(self, calls: Calls) -> FusionAttribution:
        return FusionAttribution(*self._answers(calls), pulls=None)

    def _find_unaffordable(self, costs: Floats, most: float) -> Bools:
        """(N,) the models that are skipped if, in asking order, each that `most` still pays for is asked."""
        unpaid = np.ones(len(self.models), dtype=np.bool_)
        for model in self.order[: self.sizes[-1]]:
            if costs[model] <= most:
                unpaid[model], most = False, most - costs[model]
        return unpaid

    def _answers(
        self, calls: Calls, most: float = np.inf, unpaid: Bools | None = None
    ) -> tuple[Ints, Floats]:
        """(T,) slots, and (T, C) distributions after temperature scaling, at the stage where asking stops.

        Asking never stops at a stage that adds a model that is down or `unpaid`, unless it is the last stage.
        """
        self.check(calls)
        last = max((number for number, size in enumerate(self.sizes) if size <= most), default=0)
        down = calls.down if unpaid is None else calls.down | unpaid
        asked = np.ones(len(down), dtype=np.bool_) if unpaid is None else ~unpaid
        if (alone := self.choose_single_model(last, down)) is not None:
            documents = calls.call(np.arange(len(self.models)) == alone)
            refuse_broken(documents)
            return documents.predictions[:, alone], documents.probs[:, alone]
        about_rows = self.read_question_features(calls)
        place = np.argsort(self.order)
        if (members := self.starts(last, down)) is not None:
            documents = calls.call(members[place])
            refuse_broken(documents)
            return self.fuse_start(documents, about_rows, members)[:2]
        going = np.ones(len(calls), dtype=np.bool_)
        slots = np.full(len(calls), -1, dtype=np.int64)
        final = np.zeros((len(calls), 1))
        for stage, size in enumerate(self.sizes):
            if stage and size > most:
                break
            documents = calls.call(going[:, None] & (place < size) & asked)
            refuse_broken(documents)
            look = self.observe_stage(stage, documents, about_rows, down if down.any() else None)
            slots = np.where(going, look.slots, slots)
            final = np.where(going[:, None], look.distribution, final)
            going &= look.goes_on | down[self.list_added_models(stage)].any()
        return slots, final

    def read_question_features(self, documents: Dataset | Calls) -> QuestionFeatures:
        """The features of the questions that are known before any model is asked."""
        return read_question_features(documents, self.queries)

    def list_added_models(self, stage: int) -> list[int]:
        """Positions of the models that this stage adds."""
        return list(self.order[self.sizes[stage - 1] if stage else 0 : self.sizes[stage]])

    def observe_stage(
        self, stage: int, documents: Dataset, question_features: QuestionFeatures, down: Bools | None = None
    ) -> StageFeatures:
        """Fusion's answers to T documents after all models up to a stage but those `down` (N,) answered."""
        size, order = self.sizes[stage], list(self.order)
        outputs = make_outputs(documents, question_features, self.scales, self.order, self.n_slots)
        if down is not None:
            outputs = silence(outputs, down[order])
        distributions = self.fusions[stage].probabilities(stage_rows(outputs, size, self.kind))
        sure = real_slots(apply_temperature(distributions, self.temperature), self.kind)
        distributions = real_slots(distributions, self.kind)
        answers = best_slots(distributions, outputs, size, documents.slots)
        going = np.zeros(len(documents), dtype=np.bool_)
        if stage < len(self.decider):
            votes = documents.predictions[:, order[:size]]
            going = asks_more(self.decider[stage], view(distributions, answers, votes, self.n_slots))
        return StageFeatures(answers, sure, going)

    def decide_online(self, documents: Dataset) -> Decisions:
        """Answers by the frozen agents, or by a vote of the models that labels so far show to be best.

        The vote answers once it has lately been right clearly more often. Models that were not asked about a
        document teach nothing.
        """
        frozen, tracker = decide(self, documents), self.tracker()
        correct = documents.correct
        pools = np.zeros_like(frozen.pools)
        predictions = np.full(len(documents), -1, dtype=np.int64)
        for row in range(len(documents)):
            team, trained = tracker.team(), frozen.pools[row]
            probing = tracker.probes()
            asked = trained | team if probing else (team if tracker.leads else trained)
            voted = tracker.vote(documents.probs[row], team & asked) if probing or tracker.leads else -1
            answer = voted if tracker.leads else int(frozen.predictions[row])
            label = documents.labels[row]
            compared = None
            if probing and label >= 0:
                compared = (bool(frozen.predictions[row] == label), bool(voted == label))
            pools[row], predictions[row] = asked, answer
            tracker.learn(asked, correct[row], bool(answer == label and label >= 0), compared)
        return Decisions(pools, predictions)

    def tracker(self) -> Tracker:
        """A new tracker for these agents, before any label."""
        size = min(len(self.models), max(3, round(self.config.budget(len(self.models)) / 2)))
        return Tracker(np.array(self.train_accuracy), self.held_out_accuracy, size, self.seed)


class StageDriver:
    """A driver that asks stage after stage.

    A model that is down counts as asked, and the next stage, if any, is then asked.
    """

    def __init__(self, agents: SequentialAgents) -> None:
        self._agents = agents
        self._stage_features: dict[int, StageFeatures] = {}
        self.begin("", "")

    def tracker(self) -> Tracker:
        return self._agents.tracker()

    def begin(self, question: str, task: str) -> None:
        self.forget()
        self._question, self._task = question, task
        self._features = self._agents.read_question_features(self._agents.document(question, task))

    def forget(self) -> None:
        self._stage_features = {}

    def choose_models(self, outputs: QueryOutputs) -> Bools:
        if (alone := self._agents.choose_single_model(-1, outputs.is_down)) is not None:
            return np.asarray(np.arange(len(self._agents.models)) == alone)
        if (members := self._agents.starts(-1, outputs.is_down)) is not None:
            return members[np.argsort(self._agents.order)]
        stage = self._find_stage(outputs)
        nobody = not outputs.probs[list(self._agents.order[: self._agents.sizes[stage]])].any()
        if stage < 0 or (stage < len(self._agents.sizes) - 1 and (nobody or self._asks_more(stage, outputs))):
            stage += 1
        mask = np.zeros(len(self._agents.models), dtype=np.bool_)
        mask[list(self._agents.order[: self._agents.sizes[stage]])] = True
        return mask

    def fuse(self, outputs: QueryOutputs) -> FusedAnswer:
        stage = self._find_stage(outputs)
        if not outputs.probs.any():
            return NO_ANSWER
        alone = self._agents.choose_single_model(-1, outputs.is_down)
        if alone is not None and outputs.is_asked[alone]:
            slot = int(outputs.slots[alone])
            return FusedAnswer(slot, float(outputs.probs[alone, slot])) if slot >= 0 else NO_ANSWER
        members = self._agents.starts(-1, outputs.is_down)
        if members is not None and outputs.is_asked[list(self._agents.order)][members].all():
            document = self._agents.document(self._question, self._task, outputs)
            return _fuse_answer(self._agents.fuse_start(document, self._features, members))
        if stage < 0:  # not even the first was asked
            return FusedAnswer(int(outputs.probs.sum(axis=0).argmax()), None)
        # Models asked only for a comparison do not count as a stage that the Decider has reached.
        for earlier in range(stage):
            if self._observe_stage(earlier, outputs).slots[0] >= 0 and not self._asks_more(earlier, outputs):
                stage = earlier
                break
        return _fuse_answer(self._observe_stage(stage, outputs))

    def _asks_more(self, stage: int, outputs: QueryOutputs) -> bool:
        """Whether the Decider goes on after this stage, or the stage added a model that is down."""
        return bool(
            self._observe_stage(stage, outputs).goes_on[0]
            or outputs.is_down[self._agents.list_added_models(stage)].any()
        )

    def _observe_stage(self, stage: int, outputs: QueryOutputs) -> StageFeatures:
        if stage not in self._stage_features:
            document = self._agents.document(self._question, self._task, outputs)
            self._stage_features[stage] = self._agents.observe_stage(stage, document, self._features)
        return self._stage_features[stage]

    def _find_stage(self, outputs: QueryOutputs) -> int:
        """The last stage all of whose models were asked; -1 if there is none."""
        asked = outputs.is_asked[list(self._agents.order)]
        whole = len(asked) if asked.all() else int(asked.argmin())
        return int(np.searchsorted(self._agents.sizes, whole, side="right")) - 1


# ---- in files: trained agents, and the finished stages of a killed training


def _fuse_answer(features: StageFeatures) -> FusedAnswer:
    """The answer to the only document of `features`."""
    slot = int(features.slots[0])
    return FusedAnswer(slot, float(features.distribution[0, slot])) if slot >= 0 else NO_ANSWER


class SequentialHeader(Header):
    """The header in a checkpoint of `rl_focal_sequential`."""

    config: SequentialConfig
    n_slots: int
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    penalty: float
    temperature: float
    train_accuracy: tuple[float, ...]
    held_out_accuracy: float
    deciding_policies: tuple[PolicyName, ...] = Field((), alias="kept")
    start: StartingPool | None = None


def to_parts(agents: SequentialAgents) -> dict[str, Tensor]:
    """The tensors of the agents, by their names in a checkpoint."""
    tensors = {f"scales.{name}": torch.from_numpy(value) for name, value in agents.scales._asdict().items()}
    tensors |= query_tensors(agents.queries)
    tensors["decider"] = torch.from_numpy(agents.decider)
    for number, fusion in enumerate(agents.fusions):
        tensors |= _name_mixture(f"fusion.{number}.", fusion.weights, fusion.shares)
    return tensors


def from_parts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The agents, from a checkpoint's header and the tensors that `to_parts` returned."""
    if header.start is None and "start" in header.deciding_policies:
        raise UnusableError("the file says that the start decides, but has no starting pool")
    stages = range(len(header.sizes))
    return SequentialAgents(
        scales=Scales(**{name: value.numpy() for name, value in select_tensors("scales.", tensors).items()}),
        queries=read_queries(tensors),
        fusions=tuple(Mixture(*_read_mixture(f"fusion.{number}.", tensors)) for number in stages),
        decider=tensors["decider"].numpy(),
        **header.fields(),
    )


def _name_mixture(prefix: str, weights: Weights, shares: Floats) -> dict[str, Tensor]:
    """The weights and shares of a mixture of regressions as tensors, whose names begin with `prefix`."""
    tensors = {"shared": weights.shared, "bias": weights.bias, "own": weights.own}
    return {
        f"{prefix}{name}": value for name, value in (tensors | {"shares": torch.from_numpy(shares)}).items()
    }


def _read_mixture(prefix: str, tensors: Mapping[str, Tensor]) -> tuple[Weights, Floats]:
    """The weights and shares, from the tensors that `_name_mixture` returned."""
    own = select_tensors(prefix, tensors)
    return Weights(own["shared"], own["bias"], own["own"]), own["shares"].numpy()


def write_stages(
    file: UnfinishedTraining, order: Order, recipes: Sequence[Ridges], stages: Sequence[Stage]
) -> None:
    """Writes the finished stages, the asking order, and the recipes that all stages mix."""
    tensors: dict[str, Tensor] = {}
    for number, stage in enumerate(stages):
        tensors |= _name_mixture(f"{number}.", stage.weights, stage.shares)
        tensors[f"{number}.out_of_fold"] = torch.from_numpy(stage.out_of_fold)
    file.write(tensors, {"order": order, "recipes": recipes, "stages": len(stages)})


def read_stages(
    file: UnfinishedTraining, order: Order, recipes: tuple[Ridges, ...]
) -> tuple[tuple[Ridges, ...], list[Stage]]:
    """The recipes and the stages that `write_stages` wrote.

    There are no stages if nothing was written, or if the asking order has changed since, with prices.
    """
    stored = file.read()
    if stored is None or stored[0]["order"] != list(order):
        return recipes, []
    about, tensors = stored

    stages = [
        Stage(*_read_mixture(f"{number}.", tensors), tensors[f"{number}.out_of_fold"].numpy())
        for number in range(about["stages"])
    ]
    return tuple(Ridges(*recipe) for recipe in about["recipes"]), stages

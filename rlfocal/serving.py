"""Asks your own models as RL-Focal decides: which models to ask next, what to answer, what to learn from
labels."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.outputs import ObservedOutputs, Output, QueryOutputs, are_like_probabilities
from rlfocal.data.policy import find_down_models
from warehouse.comparison import Rule, with_unit

if TYPE_CHECKING:
    from rlfocal.data.loading import Prompt
    from rlfocal.methods.learning.agents import TrainedAgents
    from warehouse import Warehouse

Context = str | Mapping[str, str]
"""The question, or `{"question": ..., "task": ...}`."""
Names = Sequence[str]

_log = logging.getLogger(__name__)


class Router:
    """One query at a time: `choose` until it names no more models, `fuse`, and `learn` if the label is known.

        outputs = {}
        while models := router.choose(question, outputs):
            outputs |= {model: ask(model, question) for model in models}
        answer = router.fuse(outputs)

    Concurrent streams need a Router each. With `online`, some queries also go to a vote of the models that
    are best by the labels so far. It answers while it is right clearly more often than the trained agents.
    Without `online`, `learn` changes nothing. `comparison`: how answers are compared, as in the column
    `benchmarks.comparison`. `down`: models that are never asked. `threshold`: `abstains` is true below this
    probability.
    """

    def __init__(
        self,
        agents: TrainedAgents,
        *,
        online: bool = True,
        comparison: str = "default",
        down: Names = (),
        threshold: float = 0.0,
    ) -> None:
        from rlfocal.methods.trained import driver_of

        self.models, self.kind, self.online = agents.models, agents.kind, online
        find_down_models(agents.models, down, "down")
        self._down = frozenset(down)
        self._rule = Rule(comparison)
        self._driver = driver_of(agents)
        self._tracker = self._driver.tracker()
        self._last: tuple[QueryOutputs, int, int, int] | None = None
        self._threshold = threshold
        self.probability: float | None = None
        """The trained agents' probability that the last fused answer is right.

        None if no model gave an answer, or if labels have shown that a vote does better than the agents.
        """
        self.notes: list[str] = []
        """Sentences on the current query's models that were down, and on outputs that look like
        probabilities."""
        self._begin("", "")

    @classmethod
    def load(
        cls,
        checkpoint: str | Path,
        *,
        online: bool = True,
        comparison: str = "default",
        down: Names = (),
        target_error: str | float | None = None,
    ) -> Router:
        """Makes a router of the agents in one checkpoint of `rlfocal train`.

        `target_error` ("5%"): `abstains` then says which answers are outside the promise that at most this
        share is wrong. `rlfocal evaluate --target-error` makes that promise, for frozen agents; so `online`
        is off. Raises InputError for a file that is no checkpoint, and without that promise. `down` may name
        neither an unknown model nor all.
        """
        from rlfocal.methods.trained import load_checkpoint
        from rlfocal.statistics.selective import promised_threshold, share

        agents, threshold = load_checkpoint(Path(checkpoint)), 0.0
        if target_error is not None:
            threshold, online = promised_threshold(Path(checkpoint), share(target_error)), False
        return cls(agents, online=online, comparison=comparison, down=down, threshold=threshold)

    @property
    def abstains(self) -> bool:
        """Whether the last fused answer is less probable than the promise asks, or has no probability.

        Without a promise: whether it has no probability.
        """
        return self.probability is None or self.probability < self._threshold

    def prompts(self, warehouse: Warehouse, benchmark: str) -> dict[str, list[Prompt]]:
        """For each model, the prompts behind its stored answers, one a document; your calls can use the same.

        Raises InputError where the warehouse has no prompts of the benchmark.
        """
        from rlfocal.data.loading import load_prompts

        return {model: load_prompts(warehouse, benchmark, model) for model in self.models}

    def choose(self, context: Context = "", outputs: Mapping[str, Output] | None = None) -> list[str]:
        """The models to ask next, given the outputs so far; empty once enough models have answered.

        A call without outputs, or with another context, begins a new query. A model whose output is None is
        down. Then the next best model stands in, as `notes` and the log report.
        """
        if not outputs or (context and _read_context(context) != self._context):
            self._begin(*_read_context(context))
        names = self._choose_models(outputs or {})
        while failing := self._down.intersection(names):
            self._failed |= dict.fromkeys(failing)
            names = self._choose_models(outputs or {})
        return names

    def _choose_models(self, outputs: Mapping[str, Output]) -> list[str]:
        given = self._read(outputs)
        wanted = self._driver.choose_models(given)
        if self.online and (self._probing or self._tracker.leads):
            team = self._tracker.team(given.down)
            wanted = wanted | team if self._probing else team
        live = wanted & ~given.is_asked
        if not live.any() and not (given.is_asked & ~given.is_down).any():
            live = self._tracker.team([*given.down])  # all that were chosen are down
        return [self.models[place] for place in np.flatnonzero(live)]

    def fuse(self, outputs: Mapping[str, Output]) -> int | str | None:
        """The agents' answer: the index of a choice, or a free answer; None if no model gave an answer."""
        given = self._read(outputs)
        fused = self._driver.fuse(given)
        voted = -1
        if self.online and (self._probing or self._tracker.leads):
            voted = self._tracker.vote(given.probs, self._tracker.team(given.down) & given.is_asked)
        if voted >= 0 and self._tracker.leads:
            slot, self.probability = voted, None
        else:
            slot, self.probability = fused
        self._last = (given, fused.slot, voted, slot)
        if slot < 0:
            return None
        return given.answers[slot] if self.kind == "answers" else slot

    def learn(self, label: int | str) -> None:
        """Learns from the label of the last fused query: the right choice's index, or the right answer.

        Raises InputError if no fused query waits for its label, and if `label` cannot be one.
        """
        if self._last is None:
            raise InputError("Router.learn needs a query that waits for its label: call fuse first")
        given, trained, voted, slot = self._last
        right_slot = _find_slot(label, given, self.kind, self._rule)
        self._last = None
        if not self.online or not (given.is_asked & ~given.is_down).any():
            return
        right = (given.slots == right_slot) & (given.slots >= 0) & (right_slot >= 0)
        compared = (trained == right_slot, voted == right_slot) if self._probing and right_slot >= 0 else None
        self._tracker.learn(given.is_asked & ~given.is_down, right, slot == right_slot >= 0, compared)

    def _begin(self, question: str, task: str) -> None:
        self.notes = []
        self._failed: dict[str, None] = {}
        self._context = (question, task)
        self._last = self.probability = None
        self._probing = self.online and self._tracker.probes()
        self._observed_outputs = ObservedOutputs(self.models, self.kind, self._rule)
        self._driver.begin(question, task)

    def _read(self, outputs: Mapping[str, Output]) -> QueryOutputs:
        given, adds = self._observed_outputs.update({**outputs, **self._failed})
        if not adds:
            self._driver.forget()
        notes = [f"{self.models[at]} is down; the next best models of the pool stand in" for at in given.down]
        notes += [
            f"the output of {name} adds up as probabilities do; give their logarithms"
            for name, output in outputs.items()
            if self.kind == "choices" and output is not None and are_like_probabilities(output)
        ]
        for note in notes:
            if note not in self.notes:
                self.notes.append(note)
                _log.warning(note)
        return given


def _read_context(context: Context) -> tuple[str, str]:
    """The question and task of a context.

    Raises InputError for a context that is neither a text nor a mapping of the two.
    """
    if isinstance(context, str):
        return context, ""
    if not isinstance(context, Mapping):
        raise InputError(f'a context is the question or {{"question": ..., "task": ...}}, not {context!r}')
    for name, text in context.items():
        if name not in ("question", "task"):
            raise unknown_name("part", str(name), ["question", "task"], "the context")
        if not isinstance(text, str):
            raise InputError(f"the context's {name} is {text!r}; give a text, or leave it out")
    return context.get("question", ""), context.get("task", "")


def _find_slot(label: int | str, outputs: QueryOutputs, kind: str, rule: Rule) -> int:
    """The slot of `label`; -1 if no model gave that answer. Raises InputError if `label` cannot be one."""
    if kind == "answers":
        answer = rule.canonical(str(label)) if isinstance(label, str | int | float | np.number) else None
        if answer is None or isinstance(label, bool):
            raise InputError(f"Router.learn: {label!r} is not an answer; give the right one as text")
        named = [answer, with_unit(answer, str(label))]  # as where equal numbers came in different units
        return next((outputs.answers.index(form) for form in named if form in outputs.answers), -1)
    width = outputs.probs.shape[1]
    whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
    if not whole or int(label) < 0 or int(label) >= width > 0:  # without an output, any number may be right
        allowed = f", 0 to {width - 1}" * (width > 0)
        raise InputError(f"Router.learn: {label!r} is not the index of a choice{allowed}")
    return int(label)

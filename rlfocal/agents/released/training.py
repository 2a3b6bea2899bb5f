"""Training as released: two REINFORCE learners, the Decider on plurality's rewards, then Fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from rlfocal.agents.environment import Memory, check_train
from rlfocal.agents.gae import advantages
from rlfocal.agents.losses import mappo
from rlfocal.agents.networks import Sizes
from rlfocal.agents.optimiser import StackedAdam
from rlfocal.agents.policies import gumbel_noise, sample_slot
from rlfocal.agents.released.config import REVISION, ReleasedConfig
from rlfocal.agents.released.networks import ReleasedAgents
from rlfocal.agents.released.policy import ReleasedPolicy
from rlfocal.agents.released.stream import Steps, Walk, is_answerable
from rlfocal.agents.resuming import Kept, Position, Unfinished
from rlfocal.agents.stream import slots_kept
from rlfocal.agents.tensorfiles import under
from rlfocal.agents.training import one_thread
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Episode

STEPS_PER_BUFFER = 4
"""Gradient steps where `one_step_per_buffer` is off."""


def train(
    train_rows: Dataset,
    config: ReleasedConfig,
    seeds: Sequence[int],
    on_progress: Callable[[float], None] | None = None,
    kept: Path | None = None,
) -> list[ReleasedPolicy]:
    """One pair of agents per seed, trained side by side; a killed training goes on from the folder `kept`.

    Raises InputError for a pool of one model, fewer than two train documents, or too few for the window.
    """
    check_train(train_rows)
    if not seeds:
        return []
    rows = train_rows
    if config.artefacts.unanswerable_left_out:
        rows = train_rows.rows(is_answerable(train_rows, config).numpy())
    walk = Walk.of_train(rows, config, len(seeds))
    metrics = 1 if config.artefacts.metrics_as_one_scalar else len(config.metrics)
    sizes = Sizes(len(rows.models), slots_kept(train_rows, config.answer_slots), metrics, config.past_rewards)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    agents = ReleasedAgents(sizes, config, generators)
    saved: Kept | None = None
    if kept is not None:
        saved = Kept(Unfinished.beside(kept, REVISION, train_rows, seeds, [config]), len(seeds))
    position = Position.start(len(seeds)) if saved is None else saved.position()
    total = max(config.decider_episodes + config.fusion_episodes, 1)
    with one_thread():
        for phase, episodes in (("decider", config.decider_episodes), ("fusion", config.fusion_episodes)):
            learner = Learner(agents, config, phase)
            best = Best(learner)
            if saved is not None and position.phase == phase and position.episode:
                rest = saved.restore(agents, learner.optimiser, generators)
                best.restore_state(under("best.", rest))
                learner.restore_waiting(under("waiting.", rest))
            for episode in range(position.episodes_of(phase), episodes):
                steps = run_episode(walk, learner, generators)
                means = [part.mean(1) for part in (steps.rewards, steps.right, steps.pools.sum(-1))]
                best.note(means[0])
                rows_of_seeds = zip(*(part.tolist() for part in means), strict=True)
                position = position.after(phase, [Episode(phase, episode, *row) for row in rows_of_seeds])
                done = len(position.history[0])
                if saved is not None and saved.is_due(position) and done < total:
                    rest = {f"best.{name}": value for name, value in best.state().items()}
                    rest |= {f"waiting.{name}": value for name, value in learner.waiting_state().items()}
                    saved.save(position, agents, learner.optimiser, generators, rest)
                if on_progress is not None:
                    on_progress(done / total)
            if not config.artefacts.live_best_weights:
                best.restore()
    if saved is not None:
        saved.file.forget()
    seen = (walk.stream.predictions[-config.window :], walk.stream.labels[-config.window :])
    return [
        ReleasedPolicy.of(
            agents, at, Memory(*seen, walk.past[at], walk.pools[at]), train_rows, config, seed,
            position.history[at],
        )
        for at, seed in enumerate(seeds)
    ]  # fmt: skip


class Learner:
    """The acting agent of one phase, and what it has seen since its last update."""

    def __init__(self, agents: ReleasedAgents, config: ReleasedConfig, phase: str) -> None:
        self.agents, self.config, self.phase = agents, config, phase
        actor = agents.decider if phase == "decider" else agents.fusion
        self.critic = None if config.artefacts.no_critic else agents.critics[phase]
        networks = [actor] if self.critic is None else [actor, self.critic]
        n_seeds = len(next(actor.parameters()))
        rates, unlimited = torch.full((n_seeds,), config.learning_rate), torch.full((n_seeds,), torch.inf)
        self.optimiser = StackedAdam(networks, rates, unlimited)
        self.waiting: list[Steps] = []

    def update(self) -> None:
        """One gradient step (or four) on what is waiting."""
        steps = Steps(*(torch.cat(parts, 1) for parts in zip(*self.waiting, strict=True)))
        self.waiting = []
        seen = steps.decider if self.phase == "decider" else steps.fusion
        gamma = self.config.decider_gamma if self.phase == "decider" else self.config.fusion_gamma
        with torch.no_grad():
            expected = torch.zeros_like(steps.rewards) if self.critic is None else self.critic(seen)[..., 0]
            values = torch.nn.functional.pad(expected, (0, 1)).T
            above = advantages(steps.rewards.T, values, gamma, 1.0).T
            weights = (above - above.mean(1, keepdim=True)) / (above.std(1, keepdim=True) + 1e-9)
            old = self.log_probs(steps)
        for _ in range(1 if self.config.artefacts.one_step_per_buffer else STEPS_PER_BUFFER):
            now = self.log_probs(steps)
            gain = mappo.clipped_surrogate(
                now, old, weights[..., None] if now.dim() == 3 else weights, self.config.clip
            )
            # The Decider's loss is a mean over steps and heads, Fusion's a sum over steps.
            loss = -(gain.mean((1, 2)) if now.dim() == 3 else gain.sum(1))
            if self.critic is not None:
                loss = loss + (self.critic(seen)[..., 0] - (above + expected)).square().mean(1)
            self.optimiser.descend(loss.sum())

    def waiting_state(self) -> dict[str, Tensor]:
        """The steps that no update has seen yet, by name."""
        if not self.waiting:
            return {}
        return {
            name: torch.cat(parts, 1)
            for name, parts in zip(Steps._fields, zip(*self.waiting, strict=True), strict=True)
        }

    def restore_waiting(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `waiting_state`."""
        self.waiting = [Steps(**state)] if state else []

    def log_probs(self, steps: Steps) -> Tensor:
        """(S, M, N) of the Decider's heads, or (S, M) of Fusion's answers, which may be probabilities."""
        if self.phase == "decider":
            heads = self.agents.pool_log_probs(steps.decider)
            return heads.gather(-1, steps.pools.long()[..., None])[..., 0]
        log_probs = mappo.choice_log_probs(self.agents.slot_logits(steps.fusion), steps.answers)
        return log_probs.exp() if self.config.artefacts.probability_as_log_prob else log_probs


class Best:
    """The acting agent's weights before the episode in which they earned most, seed by seed."""

    def __init__(self, learner: Learner) -> None:
        self._live = learner.optimiser.values
        self._kept, self._now = self._live.clone(), self._live.clone()
        self._reward = torch.full((len(self._live),), -torch.inf)

    def note(self, rewards: Tensor) -> None:
        """After an episode that earned (S,)."""
        better = rewards > self._reward
        self._kept[better], self._reward[better] = self._now[better], rewards[better]
        self._now.copy_(self._live)

    def restore(self) -> None:
        self._live.copy_(self._kept)

    def state(self) -> dict[str, Tensor]:
        """What a later `restore` depends on, beside the live weights."""
        return {"kept": self._kept, "now": self._now, "reward": self._reward}

    def restore_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for name, value in self.state().items():
            value.copy_(state[name])


def run_episode(walk: Walk, learner: Learner, generators: Sequence[torch.Generator]) -> Steps:
    """One walk of the train stream, with an update after every T_u steps of it."""
    walk.reset()
    parts = []
    period = learner.config.update_period
    while walk.at < walk.last:
        parts.append(act(walk, learner, min(period, walk.last - walk.at), generators))
        learner.waiting.append(parts[-1])
        if parts[-1].rewards.shape[1] == period:
            learner.update()
    if not learner.config.artefacts.returns_across_episodes:
        learner.waiting = []
    return Steps(*(torch.cat(part, 1) for part in zip(*parts, strict=True)))


@torch.no_grad()
def act(walk: Walk, learner: Learner, length: int, generators: Sequence[torch.Generator]) -> Steps:
    """`length` steps: the Decider samples in both phases, Fusion answers in the second."""
    agents, config = learner.agents, learner.config
    draws = _draws((length, walk.stream.n_models), generators)

    def choose(t: int, observed: Tensor) -> Tensor:
        asked = agents.pool_log_probs(observed[:, None])[:, 0, :, 1].exp()
        return (draws[:, t] < asked).to(asked.dtype)

    if learner.phase == "decider":
        return walk.walk(length, choose, None)
    greedy = config.artefacts.fusion_acts_greedily
    noise = None if greedy else gumbel_noise(_draws((length, agents.sizes.slots), generators))

    def fuse(steps: slice, observed: Tensor) -> Tensor:
        logits = agents.slot_logits(observed)
        return logits.argmax(-1) if noise is None else sample_slot(logits, noise[:, steps])

    return walk.walk(length, choose, fuse)


def _draws(shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Tensor:
    return torch.stack([torch.rand(shape, generator=generator) for generator in generators])

"""Training as in the released code: REINFORCE, first for the Decider on the plurality's rewards, then for
Fusion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rlfocal.agents.rl_focal_released.agents import ReleasedAgents
from rlfocal.agents.rl_focal_released.config import REVISION, ReleasedConfig
from rlfocal.agents.rl_focal_released.environment import Environment, is_answerable
from rlfocal.agents.rl_focal_released.learning import Best, Learner, run_episode
from rlfocal.agents.rl_focal_released.networks import ReleasedNetworks
from rlfocal.agents.shared.networks import Sizes
from rlfocal.agents.shared.stream import Memory, slots_kept
from rlfocal.agents.shared.threads import one_thread
from rlfocal.agents.shared.variant import Progress, check_train
from rlfocal.agents.storage.resuming import Kept, Position, Unfinished
from rlfocal.agents.storage.tensorfiles import under
from rlfocal.dataset import Dataset
from rlfocal.policy import Episode


def train(
    train_rows: Dataset,
    config: ReleasedConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[ReleasedAgents]:
    """One pair of agents per seed, trained side by side; a killed training resumes from the folder `kept`.

    Raises InputError for a pool of one model, fewer than two train documents, or too few for the window.
    """
    check_train(train_rows)
    if not seeds:
        return []
    rows = train_rows
    if config.artefacts.unanswerable_left_out:
        rows = train_rows.rows(is_answerable(train_rows, config).numpy())
    environment = Environment.of_train(rows, config, len(seeds))
    n_slots = slots_kept(train_rows, config.answer_slots)
    sizes = Sizes(len(rows.models), n_slots, config.n_observed, config.past_rewards)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    networks = ReleasedNetworks(sizes, config, generators)
    saved: Kept | None = None
    if kept is not None:
        saved = Kept(Unfinished.beside(kept, REVISION, train_rows, seeds, config), len(seeds))
    position = Position.start(len(seeds)) if saved is None else saved.position()
    total = max(config.decider_episodes + config.fusion_episodes, 1)
    with one_thread():
        for phase, episodes in (("decider", config.decider_episodes), ("fusion", config.fusion_episodes)):
            learner = Learner(networks, config, phase)
            best = Best(learner)
            if saved is not None and position.phase == phase and position.episode:
                rest = saved.restore(networks, learner.optimiser, generators)
                best.restore_state(under("best.", rest))
                learner.restore_waiting(under("waiting.", rest))
            for episode in range(position.episodes_of(phase), episodes):
                steps = run_episode(environment, learner, generators)
                means = [part.mean(1) for part in (steps.rewards, steps.right, steps.pools.sum(-1))]
                best.note(means[0])
                rows_of_seeds = zip(*(part.tolist() for part in means), strict=True)
                position = position.after(phase, [Episode(phase, episode, *row) for row in rows_of_seeds])
                done = len(position.history[0])
                if saved is not None and saved.is_due(position) and done < total:
                    rest = {f"best.{name}": value for name, value in best.state().items()}
                    rest |= {f"waiting.{name}": value for name, value in learner.waiting_state().items()}
                    saved.save(position, networks, learner.optimiser, generators, rest)
                if on_progress is not None:
                    on_progress(done / total)
            if not config.artefacts.live_best_weights:
                best.restore()
    if saved is not None:
        saved.file.forget()
    seen = (environment.stream.predictions[-config.window :], environment.stream.labels[-config.window :])
    memories = [Memory(*seen, *ends) for ends in zip(environment.past, environment.pools, strict=True)]
    return [
        ReleasedAgents.of(networks, at, memories[at], train_rows, config, seed, position.history[at])
        for at, seed in enumerate(seeds)
    ]

"""Measures how fast agents train on generated logits, compared with the released algorithm's loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.speed import peak_megabytes
from rlfocal.data.dataset import Dataset

if TYPE_CHECKING:
    from rlfocal.methods.rl_focal.config import RLFocalConfig

SETTINGS = ((5, 50), (16, 500))
"""Pairs of a number of models and a window, for which training is compared with the released loop."""
N_CHOICES = 4
MODEL_COUNTS = (12, 24, 48, 96)
"""The numbers of models for which the growth of training time is measured."""


@dataclass(frozen=True)
class TrainingSpeed:
    """The speed of one way to train, for one number of models and one window."""

    models: int
    window: int
    way: str
    seeds: int
    steps: int
    """The number of environment steps; their seconds include the updates."""
    seconds: float
    times_faster: float
    """The steps per second over those of the released loop."""


@dataclass(frozen=True)
class Growth:
    """The seconds of a training of fixed length with so many models."""

    models: int
    seconds: float
    steps_per_second: float


@dataclass(frozen=True)
class TrainingBench:
    """The speeds of training and their growth with the number of models, measured in one run."""

    documents: int
    speeds: list[TrainingSpeed]
    growth: list[Growth]
    exponent: float | None
    """The least-squares p of seconds ~ models^p; None for fewer than two numbers of models."""
    peak_mb: float
    """The peak memory of this process in MB, torch included."""


def bench_training(
    documents: int = 2_000,
    seeds: Sequence[int] = (1, 10),
    scales: Sequence[int] = MODEL_COUNTS,
    queries: int = 200,
    episodes: int | None = None,
    *,
    on_progress: Callable[[str], None] = lambda line: None,
) -> TrainingBench:
    """Measures training on `documents` generated train documents, for each number of seeds.

    The reference trains on `queries` documents in each phase. `episodes`: the number of joint episodes,
    without any of one agent alone; None: those of a usual training.
    """
    speeds = []
    _time_growth(generate_rows(100, 2, N_CHOICES, seed=0))  # torch's own start is nobody's training
    for models, window in SETTINGS:
        rows = generate_rows(documents, models, N_CHOICES, seed=0)
        looked_back = min(window, documents // 4)
        on_progress(f"{models} models, window {looked_back}: the released loop")
        reference = _reference(rows, looked_back, queries, all_terms=True)
        fewer = _reference(rows, looked_back, queries, all_terms=False)
        speeds += [reference, replace(fewer, times_faster=reference.seconds / fewer.seconds)]
        for n in seeds:
            on_progress(f"{models} models, window {looked_back}: {n} seed{'s' if n > 1 else ''}")
            speeds.append(_time_our_training(rows, looked_back, n, episodes, reference))
    growth = []
    for models in scales:
        on_progress(f"{models} models")
        growth.append(_time_growth(generate_rows(1_000, models, N_CHOICES, seed=0)))
    return TrainingBench(documents, speeds, growth, _exponent(growth), peak_megabytes())


def generate_rows(documents: int, models: int, choices: int, seed: int) -> Dataset:
    """Generated train documents, on which models are right about half the time and tend to err together."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, choices, size=documents)
    logits = rng.normal(size=(documents, models, choices)) + rng.normal(size=(documents, 1, choices))
    logits[np.arange(documents), :, labels] += rng.uniform(0.5, 2.0, size=models)
    logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return Dataset(
        benchmark="generated",
        kind="choices",
        models=tuple(f"model-{at:03d}" for at in range(models)),
        prices=np.ones(models),
        tasks=np.full(documents, "task"),
        doc_ids=np.arange(documents),
        probs=np.exp(logprobs),
        logprobs=logprobs,
        n_choices=np.full(documents, choices),
        predictions=logits.argmax(axis=-1),
        labels=labels,
        is_train=np.ones(documents, dtype=np.bool_),
        slots=(),
        snapshot=0,
    )


def _reference(rows: Dataset, window: int, queries: int, *, all_terms: bool) -> TrainingSpeed:
    """Times both phases of the released loop, on one thread because its matrix products are small."""
    import torch

    from benchmarks.speed.released_loop import ReleasedDecider, ReleasedFusion, ReleasedLoop, ReleasedSettings
    from rlfocal.methods.learning.networks import use_one_thread

    n_models, choices = rows.probs.shape[1:]
    with use_one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = ReleasedDecider(n_models), ReleasedFusion(n_models, choices)
        settings = ReleasedSettings(window=window, all_terms=all_terms)
        loop = ReleasedLoop(rows.probs, rows.labels, *networks, settings, torch.rand)
        documents = loop.documents()[:queries]
        started = time.perf_counter()
        for phase in ("decider", "fusion"):
            loop.start()
            loop.episode(phase, documents)
        seconds = time.perf_counter() - started
    way = "released loop" if all_terms else "released loop, two terms"
    return TrainingSpeed(n_models, window, way, 1, 2 * len(documents), seconds, 1.0)


def _time_our_training(
    rows: Dataset, window: int, n_seeds: int, episodes: int | None, reference: TrainingSpeed
) -> TrainingSpeed:
    from rlfocal.methods.rl_focal.config import rl_focal_config

    config = replace(rl_focal_config(len(rows)), window=window)
    if episodes is not None:
        config = replace(config, decider_episodes=0, fusion_episodes=0, joint_episodes=episodes)
    steps, seconds = _train(rows, config, n_seeds)
    one_step = reference.seconds / reference.steps
    return TrainingSpeed(
        len(rows.models), window, "rl_focal", n_seeds, steps, seconds, steps * one_step / seconds
    )


def _time_growth(rows: Dataset) -> Growth:
    """The time of training four seeds, with one episode of each phase."""
    from rlfocal.methods.rl_focal.config import RLFocalConfig

    config = RLFocalConfig(
        window=min(500, len(rows)), decider_episodes=1, fusion_episodes=1, joint_episodes=1
    )
    steps, seconds = _train(rows, config, n_seeds=4)
    return Growth(len(rows.models), seconds, steps / seconds)


def _train(rows: Dataset, config: RLFocalConfig, n_seeds: int) -> tuple[int, float]:
    """The number of environment steps of a training, and its seconds."""
    from rlfocal.methods.rl_focal.environment import train_environment, train_stream
    from rlfocal.methods.rl_focal.training import train

    environment = train_environment(train_stream(rows, config), config)
    episodes = config.decider_episodes + config.fusion_episodes + config.joint_episodes
    started = time.perf_counter()
    train(rows, config, range(n_seeds))
    return environment.length * environment.n_parallel * n_seeds * episodes, time.perf_counter() - started


def _exponent(growth: Sequence[Growth]) -> float | None:
    if len(growth) < 2:
        return None
    sizes, seconds = np.log([row.models for row in growth]), np.log([row.seconds for row in growth])
    return float(np.polyfit(sizes, seconds, 1)[0])

"""What a model of the embedded pool believes: the truth, except for facts it gets wrong or never saw."""

from __future__ import annotations

from random import Random

from rlfocal.lab.question import Facts, Task


def believed_facts(task: Task, ignorance: float, seed: str) -> Facts:
    """The task's facts with a share `ignorance` of them wrong (or, in `memory` tasks, half of those missing).

    Many models get hard facts wrong: a fact's difficulty counts as much as `seed`.
    """
    truth, rng = task.truth(), Random(f"beliefs {seed} {task.name}")
    doubts = {key: Random(f"difficulty {task.name} {key}").random() + rng.random() for key in truth}
    doubted = sorted(truth, key=doubts.__getitem__)[len(truth) - round(ignorance * len(truth)) :]
    rng.shuffle(doubted)
    missing = doubted[::2] if task.memory else []
    mistaken = [key for key in doubted if key not in missing]
    beliefs = {key: value for key, value in truth.items() if key not in missing}
    if task.bijective:
        return {**beliefs, **_rotated(truth, mistaken)}
    return beliefs | {key: _misconception(truth, key, rng) for key in mistaken}


def _rotated(truth: Facts, keys: list[str]) -> Facts:
    return {key: truth[other] for key, other in zip(keys, [*keys[1:], *keys[:1]], strict=True)}


def _misconception(truth: Facts, key: str, rng: Random) -> str:
    """A wrong value of the key's group: half of the time the one that models generally take for right."""
    group = key.rpartition("/")[0]
    values = sorted(
        {value for other, value in truth.items() if other.rpartition("/")[0] == group} - {truth[key]}
    )
    common = Random(f"misconception {key}").choice(values)
    return common if rng.random() < 0.5 else rng.choice(values)

"""Probes of newcomers to synthetic pools: do a few answers lead to the verdict of all answers?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from benchmarks.probes import redraw
from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.new_model.batches import VERDICT_ERROR_RATE
from rlfocal.new_model.probing import SMALLEST_GAIN, Design, design_probe, judge_gains, plan_looks
from rlfocal.new_model.team import TeamEvidence, leave_out
from rlfocal.statistics.sampling import StratifiedSample

N_DOCUMENTS = 2000
COPY_GAIN_SHARE = 0.01
"""The share of documents, drawn at random, on which a copy of the best member is made right."""


class SyntheticPool(NamedTuple):
    """A synthetic pool: the skills of its members, and of newcomers that are probed one at a time."""

    name: str
    members: tuple[float, ...]
    newcomers: tuple[float, ...] = (0.0, 0.5, 1.1, 1.5)
    is_free: bool = False
    """Whether answers are free, each one of six; if not, each is one of four choices."""


SYNTHETIC_POOLS = (
    SyntheticPool("5 models", (1.5, 1.2, 1.0, 0.8, 1.4)),
    SyntheticPool("5 weak models", (0.3, 0.2, 0.1, 0.4, 0.3), (0.0, 0.3, 0.6)),
    SyntheticPool("12 models", tuple(np.linspace(0.5, 1.6, 12)), (0.0, 0.8, 1.5)),
    SyntheticPool("60 models", tuple(np.linspace(0.02, 0.2, 60)), (0.1, 0.4)),
    SyntheticPool("8 models' free answers", tuple(np.linspace(0.8, 1.8, 8)), (0.5, 1.3, 2.2), is_free=True),
)


@dataclass(frozen=True)
class NewcomerProbes:
    """The outcomes of many probes of one newcomer."""

    pool: str
    newcomer: str
    gain: float
    """The newcomer's true gain, measured on all documents, as a fraction."""
    draws: int
    n_covering: int
    """The number of probes whose interval contains the true gain."""
    n_clear: int
    """The number of probes with a clear verdict."""
    n_wrong: int
    """The number of clear verdicts that contradict the gains measured on all documents."""


def probe_pool(pool: SyntheticPool, draws: int, seed: int) -> list[NewcomerProbes]:
    """Probes each newcomer `draws` times, and a copy of the best member that is right a little more often. A
    probe ends at a clear verdict."""
    rng = np.random.default_rng(seed)
    found = []
    for skill in pool.newcomers:
        scores, labels = _score(rng, (*pool.members, skill), 6 if pool.is_free else 4)
        found.append(_probe(pool.name, f"skill {skill:g}", _dataset(scores, labels, pool.is_free), draws))
    scores, labels = _score(rng, pool.members, 6 if pool.is_free else 4)
    best = scores[:, int(np.argmax(pool.members))].copy()
    known = rng.random(len(labels)) < COPY_GAIN_SHARE
    best[known, labels[known]] += 20
    scores = np.concatenate([scores, best[:, None]], axis=1)
    found.append(
        _probe(pool.name, "a copy that knows 1 % more", _dataset(scores, labels, pool.is_free), draws)
    )
    return found


def probe_members(name: str, data: Dataset, only: int, draws: int) -> list[NewcomerProbes]:
    """Probes each of the first `only` members of a benchmark's pool as the newcomer to the others."""
    return [_probe(name, member, data, draws, member) for member in data.models[:only]]


def _probe(pool: str, name: str, data: Dataset, draws: int, member: str | None = None) -> NewcomerProbes:
    others, answers = leave_out(data, member or data.models[-1])
    design = design_probe(others, seed=1)
    rows = np.arange(len(data))
    whole = design.estimate_gains(StratifiedSample(design.strata, rows), answers)
    gain, most = whole[0].value, max(one.value for one in whole)
    n_covering = n_clear = n_wrong = 0
    for seed in range(draws):
        low, high, verdict = _ask(redraw(design, seed), answers)
        n_covering += low - 1e-9 <= gain <= high + 1e-9
        n_clear += verdict != "unclear"
        n_wrong += most >= SMALLEST_GAIN if verdict == "do not join" else verdict == "join" and most <= 0
    return NewcomerProbes(pool, name, gain, draws, n_covering, n_clear, n_wrong)


def _ask(design: Design, answers: TeamEvidence) -> tuple[float, float, str]:
    """The lower and upper limit of the newcomer's gain at the probe's last look, and the verdict."""
    looks = plan_looks(len(design.dataset))
    for n in looks:
        rows = design.strata.draw(n)
        gains = design.estimate_gains(StratifiedSample(design.strata, rows), answers.take(rows))
        verdict = judge_gains(gains, VERDICT_ERROR_RATE / len(looks))
        if verdict != "unclear":
            break
    return *gains[0].interval(), verdict


def _score(rng: np.random.Generator, skills: tuple[float, ...], n_choices: int) -> tuple[Floats, Ints]:
    """(T, N, C) the models' scores and (T,) labels: skill on the right choice, plus noise. Half of the
    noise's variance is the same for all models."""
    labels = rng.integers(0, n_choices, N_DOCUMENTS)
    common = rng.normal(size=(N_DOCUMENTS, 1, n_choices))
    noise = rng.normal(size=(N_DOCUMENTS, len(skills), n_choices))
    right = np.eye(n_choices)[labels][:, None]
    return np.array(skills)[:, None] * right + 0.7 * common + 0.7 * noise, labels


def _dataset(scores: Floats, labels: Ints, is_free: bool) -> Dataset:
    n, n_models, n_choices = scores.shape
    logprobs = log_softmax(scores, axis=2)
    data = Dataset(
        benchmark="planted",
        kind="choices",
        models=tuple(f"m{i:02}" for i in range(n_models)),
        prices=np.full(n_models, np.nan),
        tasks=np.array([f"t{i % 3}" for i in range(n)]),
        doc_ids=np.arange(n) // 3,
        probs=np.exp(logprobs),
        logprobs=logprobs,
        n_choices=np.full(n, n_choices),
        predictions=logprobs.argmax(axis=2),
        labels=labels,
        is_train=np.arange(n) < 0.8 * n,
        slots=(),
        snapshot=0,
    )
    if not is_free:
        return data
    # Slots are the answers that some model gave, by falling votes; the label is -1 if nobody is right.
    votes = np.eye(n_choices)[data.predictions]
    order = np.argsort(-votes.sum(axis=1), axis=1, kind="stable")
    probs = np.take_along_axis(votes, order[:, None], axis=2)
    place = (order == labels[:, None]).argmax(axis=1)
    given = probs.sum(axis=1)[np.arange(n), place] > 0
    return replace(
        data,
        kind="answers",
        probs=probs,
        logprobs=np.empty((0, n_models, n_choices)),
        n_choices=(probs.sum(axis=1) > 0).sum(axis=1),
        predictions=probs.argmax(axis=2),
        labels=np.where(given, place, -1),
    )

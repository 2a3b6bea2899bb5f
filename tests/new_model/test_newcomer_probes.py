"""What a probe says of a model: by all documents exactly what is so, by few what all say, in most cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from support.agents_data import random_dataset
from support.datasets import make_dataset

from benchmarks.probes import redraw
from rlfocal.data.dataset import Dataset
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.new_model.probe import spread_documents
from rlfocal.new_model.probing import SMALLEST_GAIN, Assessment, Design, design_probe, plan_looks
from rlfocal.new_model.team import TeamEvidence, leave_out
from rlfocal.statistics.diversity import pairwise_diversity, pool_diversity
from rlfocal.statistics.sampling import StratifiedSample

ERROR = 0.05


def simulate(skills: list[float], n: int = 1500, seed: int = 0, n_tasks: int = 3) -> Dataset:
    """Models that see the right one of four choices through noise, half of it in common to all."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    common = rng.normal(size=(n, 1, 4))
    noise = rng.normal(size=(n, len(skills), 4))
    scores = np.array(skills)[None, :, None] * np.eye(4)[labels][:, None] + 0.7 * common + 0.7 * noise
    return of_scores(scores, labels, n_tasks)


def of_scores(scores: np.ndarray, labels: np.ndarray, n_tasks: int = 3) -> Dataset:
    n, n_models, _ = scores.shape
    return replace(
        make_dataset(softmax(scores, axis=2), labels, n_train=int(0.7 * n)),
        prices=np.full(n_models, np.nan),
        tasks=np.array([f"t{i % n_tasks}" for i in range(n)]),
        doc_ids=np.arange(n) // n_tasks,
    )


def assess(data: Dataset, newcomer: int, n: int, seed: int = 0) -> Assessment:
    """A probe of n documents of one of the dataset's models, for the others."""
    others, answers = leave_out(data, data.models[newcomer])
    design = redraw(design_probe(others, seed=1), seed)
    rows = design.strata.draw(n)
    return design.assess(rows, answers.take(rows), ERROR)


def with_newcomer(data: Dataset, scores: np.ndarray) -> Dataset:
    """The dataset with one model more, its last."""
    old = np.where(np.isfinite(data.logprobs), data.logprobs, -50.0)
    return of_scores(np.concatenate([old, scores[:, None]], axis=1), data.labels)


def answers_of_last(data: Dataset) -> TeamEvidence:
    return leave_out(data, data.models[-1])[1]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return simulate([1.5, 1.2, 1.0, 0.8, 1.4])


@pytest.fixture(scope="module")
def whole(data: Dataset) -> Assessment:
    """All documents asked of the last model."""
    return assess(data, 4, len(data))


def test_all_documents_give_the_accuracy_exactly(data: Dataset, whole: Assessment) -> None:
    truth = data.correct[:, 4].mean()
    assert whole.accuracy[0] == pytest.approx(truth, abs=1e-9)
    assert whole.n == whole.n_docs == len(data)
    assert whole.accuracy[1] == whole.accuracy[0] == whole.accuracy[2]
    assert whole.gain[1] == whole.gain[0] == whole.gain[2]
    assert whole.verdict != "unclear"


def test_all_documents_give_the_diversity_of_pairs_exactly(data: Dataset, whole: Assessment) -> None:
    pairs = pairwise_diversity(data.correct)
    pools = np.zeros((4, 5), dtype=np.bool_)
    pools[np.arange(4), np.arange(4)] = pools[:, 4] = True
    focal = pool_diversity(data.predictions, data.labels, pools, wanted=["focal_diversity"])
    for at, pair in enumerate(whole.pairs):
        assert pair.member == data.models[at]
        assert pair.correlation[0] == pytest.approx(pairs.correlation[at, 4], abs=1e-9)
        assert pair.focal_diversity[0] == pytest.approx(focal.focal_diversity[at], abs=1e-9)
        assert pair.correlation[1] == pytest.approx(pair.correlation[0]) == pytest.approx(pair.correlation[2])


def test_all_documents_give_nearly_the_gain_of_fitting_all_weights_anew(data: Dataset) -> None:
    for newcomer, least in ((4, 0.9), (0, 0.9)):
        rest, answers = leave_out(data, data.models[newcomer])
        team = design_probe(rest, seed=1).team
        effects, _ = team.effects(np.arange(len(data)), np.ones(len(data)), answers)
        everyone = np.ones(5, dtype=np.bool_)
        anew = np.zeros(len(data), dtype=np.bool_)
        for fold in range(5):
            fit = fit_log_linear(data.rows(team.folds != fold), everyone)
            here = team.folds == fold
            logits = np.einsum("tmc,m->tc", data.logprobs[here], fit.weights) + fit.biases
            anew[here] = logits.argmax(axis=1) == data.labels[here]
        exact = anew.astype(np.float64) - team.right
        assert np.corrcoef(exact, effects)[0, 1] > least
        assert effects.mean() == pytest.approx(exact.mean(), abs=0.004)


def test_one_step_without_a_member_is_nearly_the_fit_without_it(data: Dataset) -> None:
    team = design_probe(data, seed=1).team
    flips = np.zeros(len(data))
    for member in data.models:
        rest = design_probe(leave_out(data, member)[0], seed=1).team
        flips += rest.right != team.right
    assert np.corrcoef(flips / 5, team.upsets)[0, 1] > 0.85
    assert team.upsets.mean() == pytest.approx(flips.mean() / 5, rel=0.2)


def test_documents_that_say_nothing_are_asked_least(data: Dataset) -> None:
    design = design_probe(data, seed=1)
    chances = design.strata.probabilities(300)
    close = np.abs(design.team.lead) < np.quantile(np.abs(design.team.lead), 0.2)
    agreed = data.correct.all(axis=1) & ~close
    assert chances[close].mean() > 2 * chances[agreed].mean()
    assert chances.min() > 0


def test_few_documents_err_less_than_random_ones_and_intervals_hold() -> None:
    data = simulate([1.5, 1.2, 1.0, 0.8, 1.1, 1.3], n=3000)
    others, answers = leave_out(data, data.models[5])
    design = design_probe(others, seed=1)
    effects, _ = design.team.effects(np.arange(3000), np.ones(3000), answers)
    gain, accuracy = effects.mean(), data.correct[:, 5].mean()
    errors, plain, hits, hits_gain = [], [], [], []
    for seed in range(100):
        one = redraw(design, seed)
        drawn = one.strata.draw(200)
        found = one.assess(drawn, answers.take(drawn), ERROR)
        at_random = np.sort(np.random.default_rng(seed).choice(3000, 200, replace=False))
        by_chance, _ = design.team.effects(at_random, np.ones(200), answers.take(at_random))
        errors.append((found.gain[0] - gain, found.accuracy[0] - accuracy))
        plain.append((by_chance.mean() - gain, data.correct[at_random, 5].mean() - accuracy))
        hits.append(found.accuracy[1] <= accuracy <= found.accuracy[2])
        hits_gain.append(found.gain[1] <= gain <= found.gain[2])
    ratio = np.sqrt(np.mean(np.square(errors), axis=0) / np.mean(np.square(plain), axis=0))
    assert ratio[0] < 0.9
    assert ratio[1] < 0.95
    assert np.mean(hits) >= 0.88
    assert np.mean(hits_gain) >= 0.92


def verdicts(scores: np.ndarray, data: Dataset) -> list[str]:
    """Of five probes of up to 400 documents."""
    found: list[str] = []
    both = with_newcomer(data, scores)
    design = design_probe(data, seed=1)
    answers = answers_of_last(both)
    for seed in range(5):
        one = redraw(design, seed)
        for n in (100, 200, 400):
            rows = one.strata.draw(n)
            last = one.assess(rows, answers.take(rows), ERROR / 3)
            if last.verdict != "unclear":
                break
        found.append(last.leaning)
    return found


def test_who_brings_nothing_does_not_join_and_who_brings_much_does() -> None:
    data = simulate([1.5, 1.2, 1.0, 0.8, 1.4], n=3000)
    rng = np.random.default_rng(1)
    right = np.eye(4)[data.labels]
    own = data.logprobs[:, 0]
    of_one_task = (data.tasks == "t0")[:, None]
    guesses = rng.normal(size=own.shape)
    assert verdicts(own, data).count("do not join") == 5
    assert verdicts(own + rng.normal(0, 0.1, own.shape), data).count("do not join") >= 4
    assert verdicts(guesses, data).count("do not join") >= 3
    assert verdicts(guesses + 2.5 * right, data).count("join") == 5
    assert verdicts(guesses + 8 * right * of_one_task, data).count("join") >= 4


def test_the_gain_of_leaving_it_a_task_is_that_of_all_documents() -> None:
    data = simulate([1.5, 1.2, 1.0, 0.8, 1.4], n=3000)
    guesses = np.random.default_rng(1).normal(size=(3000, 4))
    knows = data.tasks == "t0"
    both = with_newcomer(data, guesses + 9 * np.eye(4)[data.labels] * knows[:, None])
    design = design_probe(data, seed=1)
    rows = design.strata.draw(400)
    found = design.assess(rows, answers_of_last(both).take(rows), ERROR)
    truth = ((both.correct[:, 5] - 1.0 * design.best_by_task) * knows).mean()
    assert truth > 0.03
    assert found.gain_by_task[1] <= truth <= found.gain_by_task[2]
    assert found.gain_by_task[1] > 0


def test_a_copy_of_who_is_best_at_a_task_brings_no_task() -> None:
    data = simulate([1.5, 1.2, 1.0, 0.8, 1.4], n=3000)
    knows = (data.tasks == "t0")[:, None] * np.eye(4)[data.labels]
    scores = np.where(np.isfinite(data.logprobs), data.logprobs, -50.0)
    scores[:, 1] = np.random.default_rng(1).normal(size=(3000, 4)) + 9 * knows
    data = of_scores(scores, data.labels)
    design = design_probe(data, seed=1)
    rows = design.strata.draw(400)
    copy = design.assess(rows, answers_of_last(with_newcomer(data, scores[:, 1])).take(rows), ERROR)
    assert copy.gain_by_task[0] == 0
    assert copy.leaning == "do not join"
    assert design.best_by_task[data.tasks == "t0"].mean() > 0.99


def test_guesses_do_not_look_good_by_the_documents_that_they_were_fitted_on() -> None:
    data = simulate([1.5, 1.2, 1.0, 0.8, 1.4], n=3000)
    design = design_probe(data, seed=1)
    gains = []
    for seed in range(100):
        scores = 3 * np.random.default_rng(seed).normal(size=(3000, 4))
        rows = redraw(design, seed).strata.draw(30)
        answers = answers_of_last(with_newcomer(data, scores)).take(rows)
        effects, _ = design.team.effects(rows, np.ones(30), answers)
        gains.append(effects.mean())
    assert np.mean(gains) < -0.002  # a weight that was fitted on noise harms on other documents


def test_an_interval_holds_what_the_fit_on_few_does_not_know() -> None:
    """A good newcomer of weak members: its weight, fitted on 100 documents, is lower than on all."""
    data = simulate([0.3, 0.2, 0.1, 0.4, 0.3, 0.2, 0.3, 0.1, 0.6], n=2000)
    others, answers = leave_out(data, data.models[8])
    design = design_probe(others, seed=1)
    truth = design.estimate_gains(StratifiedSample(design.strata, np.arange(2000)), answers)[0]
    assert truth.stderr == 0
    held = []
    for seed in range(40):
        strata = redraw(design, seed).strata
        rows = strata.draw(100)
        low, high = design.estimate_gains(StratifiedSample(strata, rows), answers.take(rows))[0].interval()
        held.append(low <= truth.value <= high)
    assert np.mean(held) >= 0.9


def test_a_verdict_needs_its_interval(data: Dataset) -> None:
    others, answers = leave_out(data, data.models[4])
    design = design_probe(others, seed=1)
    rows = design.strata.draw(100)
    answers = answers.take(rows)
    found = design.assess(rows, answers, 1e-12)
    assert found.verdict == "unclear"
    assert found.leaning in ("join", "do not join")
    assert found.more > 0
    assert design.judge(rows, answers, 1e-12) == "unclear"


def test_the_best_pools_are_those_of_train_documents(data: Dataset) -> None:
    design = design_probe(data, seed=1)
    train = data.train
    for pool in design.best_pools:
        votes = train.predictions[:, pool]
        assert pool.sum() in (2, 3, 4)
        assert votes.shape[1] == pool.sum()
    both = with_newcomer(data, 20 * np.eye(4)[data.labels])
    rows = np.arange(len(data))
    found = design.assess(rows, answers_of_last(both), ERROR)
    for one in found.pools:
        assert one.leaves in one.models
        assert one.gain[0] >= 0
    assert found.pools[0].gain[0] > SMALLEST_GAIN


def test_free_answers_of_its_own_can_be_right() -> None:
    data = random_dataset(3, "answers", n_docs=200, n_models=5)
    found = assess(data, 2, 120)
    assert found.accuracy[1] <= found.accuracy[0] <= found.accuracy[2]
    everything = assess(data, 2, len(data))
    assert everything.accuracy[0] == pytest.approx(data.correct[:, 2].mean())


def test_one_member_is_enough() -> None:
    data = simulate([1.2, 1.5])
    found = assess(data, 1, 300)
    assert found.pools == ()
    assert found.gain[0] > 0


def test_an_order_of_documents_is_for_its_seed_alone(data: Dataset) -> None:
    one, again, other = (design_probe(data, seed).strata for seed in (1, 1, 2))
    assert (one.place == again.place).all()
    assert (one.stratum_of == again.stratum_of).all()
    assert not (one.draw(200) == other.draw(200)).all()


@pytest.mark.parametrize(
    ("n", "asked", "is_open", "expected"),
    [
        (300, [0, 0, 0], [True] * 3, [50, 125, 125]),  # the first has 50 in all
        (301, [0, 0, 0], [True] * 3, [50, 125, 126]),
        (400, [50, 100, 100], [False, True, False], [50, 250, 100]),
        (300, [50, 100, 100], [False, False, False], [50, 125, 125]),
        (100, [50, 100, 100], [True] * 3, [50, 100, 100]),  # they were asked already
        (9999, [0, 0, 0], [True] * 3, [50, 1000, 1000]),
    ],
)
def test_documents_are_spread_over_what_is_not_clear(
    n: int, asked: list[int], is_open: list[bool], expected: list[int]
) -> None:
    assert spread_documents(n, asked, [50, 1000, 1000], is_open) == expected


def test_looks_double_up_to_a_tenth() -> None:
    assert plan_looks(14_042) == (100, 200, 400, 800, 1405)
    assert plan_looks(1000) == (100, 200)
    assert plan_looks(150) == (100, 150)
    assert plan_looks(60) == (60,)


def test_scores_that_are_no_log_probs_are_evidence_too(data: Dataset) -> None:
    scaled = (data.logprobs - data.logprobs.min()) / -data.logprobs.min()
    found = assess(replace(data, logprobs=log_softmax(scaled, axis=2)), 4, 300)
    assert found.gain[1] <= found.gain[0] <= found.gain[2]
    assert isinstance(design_probe(data, 0), Design)

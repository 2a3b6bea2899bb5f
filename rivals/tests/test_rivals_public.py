"""Tests of routers that have public code: scikit-learn, loops and hand-computed values give the same
scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from support.topics import answered, by_topic, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import decide
from rlfocal.data.text import TFIDF, fit_encoder
from rlfocal.methods.knn import vectors_of
from rlfocal_rivals.clusters import fit_clusters, mapped_means
from rlfocal_rivals.question import best_k
from rlfocal_rivals.towers import TowerScorer, pass_messages


@pytest.mark.parametrize(
    ("name", "setting", "wrong"),
    [
        ("mlp", "hidden", 0), ("svm", "willingness", -1), ("svm", "epsilon", -0.1), ("knn", "k", 0),
        ("carrot_knn", "mu", 1), ("uniroute", "map", "magic"), ("graph_router", "hidden_share", 1),
        ("avengers_pro", "alpha", 1.5), ("hier_shrink", "strength", 0.0), ("hedge", "share", 1.0),
        ("discounted_linucb", "gamma", 0.0),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(name: str, setting: str, wrong: float | str) -> None:
    given: dict[str, Any] = {setting: wrong}
    with pytest.raises(InputError, match=rf"^{name}\.{setting} is {wrong!r}(\.0)?; it should be "):
        policy_of(name, by_topic(0, T=40).train, **given)


# ---- RouterBench and CARROT


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_mlp_and_svm_are_those_of_scikit_learn() -> None:
    from sklearn.neural_network import MLPRegressor
    from sklearn.svm import LinearSVR

    data = by_topic(1, T=120)
    vectors = vectors_of(fit_encoder(TFIDF, data.train.questions), data.train.questions)
    asked = vectors_of(fit_encoder(TFIDF, data.train.questions), data.test.questions)
    network = MLPRegressor(hidden_layer_sizes=(100,), max_iter=9, random_state=5)
    for name, made in [("mlp", network), ("svm", LinearSVR(random_state=1234))]:
        given = {"epochs": 9} if name == "mlp" else {}
        scorer = policy_of(name, data.train, seed=5, **given).scorer
        for model, scores in enumerate(scorer.scores(data.test.questions).T):
            right = data.train.correct[:, model].astype(float)
            assert scores == pytest.approx(made.fit(vectors, right).predict(asked))


def test_a_right_answers_worth_weighs_prices() -> None:
    data = by_topic(1, prices=[9.0, 1.0, 5.0, 5.0])
    for name in ("mlp", "svm"):
        asked = decide(policy_of(name, data.train, willingness=1.0), data.test).pools
        assert asked[:, 1].all()
        asked = decide(policy_of(name, data.train, willingness=100.0), data.test).pools
        assert asked[:, 0].any()


def test_carrot_predicts_as_scikit_learn_does() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    data = by_topic(2, T=200)
    costs = np.random.default_rng(0).uniform(1, 9, data.predictions.shape)
    data = replace(data, token_costs=costs)
    train, test = data.train, data.test
    encoder = fit_encoder(TFIDF, train.questions)
    e, asked = vectors_of(encoder, train.questions), vectors_of(encoder, test.questions)
    near = policy_of("carrot_knn", train)
    for means, values in ((near.scorer, train.correct), (near.costs, train.costs)):
        nearest = KNeighborsRegressor(means.k, metric="cosine").fit(e, values)
        # Where questions are equally near, which of them are taken is a convention.
        assert (np.abs(nearest.predict(asked) - means.scores(test.questions)) < 1e-9).mean() > 0.9
    linear = policy_of("carrot_linear", train)
    accuracy, cost = (scorer.scores(test.questions) for scorer in (linear.scorer, linear.costs))
    for model in (0, 1, 2):
        logistic = LogisticRegression(max_iter=1000).fit(e, train.correct[:, model])
        assert accuracy[:, model] == pytest.approx(logistic.predict_proba(asked)[:, 1], abs=1e-6)
        assert cost[:, model] == pytest.approx(Ridge().fit(e, train.costs[:, model]).predict(asked))
    assert accuracy[:, 3] == pytest.approx(0.0, abs=1e-9)  # never right


@pytest.mark.parametrize("most", [3, 512])
def test_numbers_of_neighbours_are_those_that_scikit_learn_validates(most: int) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(120, 3))
    close = rng.random((120, 4)) < 1 / (1 + np.exp(-3 * vectors[:, :1]))
    values = close.astype(float), 5 * vectors[:, 1:2] + rng.normal(size=(120, 4))
    tried = [k for k in (2, 4, 8, 16, 32, 64) if k <= most]
    best = []
    for part in values:
        made = [KNeighborsRegressor(k, metric="cosine") for k in tried]
        quality = [cross_val_score(one, vectors, part, cv=5, scoring="r2").mean() for one in made]
        best.append(tried[int(np.argmax(quality))])
    assert [best_k(vectors, part, most) for part in values] == best
    assert most == 3 or best[0] != best[1]
    assert best_k(vectors[:9], values[0][:9], most) == 2


def test_carrot_asks_by_what_a_question_costs() -> None:
    """Models m00 and m01 are always right; m00 is dear on the first topic, and cheap on the others."""
    data = by_topic(3)
    right = np.ones_like(data.correct)
    is_first = data.correct[:, 0]
    data = answered(right, data.questions, n_train=len(data.train), prices=[3.0, 3.0, 9.0, 9.0])
    tokens = np.full(right.shape, 9.0)
    tokens[:, 0], tokens[:, 1] = np.where(is_first, 8.0, 1.0), 3.0
    data = replace(data, token_costs=tokens)
    for name in ("carrot_knn", "carrot_linear"):
        asked = decide(policy_of(name, data.train, mu=0.5), data.test).pools
        assert (asked[:, 1] == is_first[~data.is_train]).mean() > 0.95, name
        assert (asked[:, 0] == ~is_first[~data.is_train]).mean() > 0.95, name


# ---- UniRoute and MODEL-SAT


def test_error_vectors_by_brute_force_and_the_map_from_them() -> None:
    train = by_topic(4).train
    vectors = vectors_of(fit_encoder(TFIDF, train.questions), train.questions)
    clusters = fit_clusters(vectors, train.correct.astype(float), 5)
    label = ((vectors[:, None] - clusters.centres) ** 2).sum(axis=2).argmin(axis=1)
    for k in range(5):
        assert clusters.means[k] == pytest.approx(train.correct[label == k].mean(axis=0))
    logits = np.random.default_rng(0).normal(size=(3, 5))
    shares = np.exp(logits)
    for row, found in enumerate(mapped_means(clusters, logits)):
        of_model = [
            sum(shares[row, k] * train.correct[label == k, m].mean() for k in range(5)) / shares[row].sum()
            for m in range(4)
        ]
        assert found == pytest.approx(of_model)
    by_centre = policy_of("uniroute", train, map="kmeans", clusters=5).scorer.train_scores()
    assert by_centre == pytest.approx(clusters.means[clusters.find_nearest(vectors).positions[:, 0]])


def test_a_learned_map_is_likelier_than_where_it_starts() -> None:
    data = by_topic(5)

    def loss(**given: Any) -> float:
        chances = policy_of("uniroute", data.train, clusters=4, **given).scorer.scores(data.test.questions)
        chances = np.clip(chances, 1e-6, 1 - 1e-6)
        return float(-np.log(np.where(data.test.correct, chances, 1 - chances)).mean())

    assert loss() < loss(rate=1e-9) - 0.01


def test_model_sat_by_hand_and_a_model_is_its_accuracies_alone() -> None:
    weights, models = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [-5.0, 0.0]])
    matched = TowerScorer(weights, models, np.array([1.0, -1.0]), np.array([0.5]))
    # relu(3, 2 + 1) and relu(-2, 2), against (1, -1).
    expected = 1 / (1 + np.exp(-np.array([3 - 3 + 0.5, 0 - 2 + 0.5])))
    assert matched.chances(np.array([[3.0, 1.0]]))[0] == pytest.approx(expected)
    data = by_topic(6)
    twins = replace(data, predictions=data.predictions[:, [0, 1, 2, 1]])
    scores = policy_of("model_sat", twins.train).scorer.scores(data.test.questions)
    assert scores[:, 1] == pytest.approx(scores[:, 3])


# ---- GraphRouter


def test_messages_in_loops() -> None:
    rng = np.random.default_rng(0)
    x, models = rng.normal(size=(7, 4)), rng.normal(size=(3, 4))
    right, visible = rng.random((7, 3)) < 0.5, rng.random((7, 3)) < 0.6
    visible[:, 2] = False  # nothing is known of the last model
    layers = [rng.normal(size=(5, 4)) for _ in range(2)]
    nodes, after = x.copy(), models.copy()
    for depth, weights in enumerate(layers):
        gained = np.zeros((3, 4))
        for m in range(3):
            sent = [np.append(nodes[q], right[q, m]) @ weights for q in range(7) if visible[q, m]]
            gained[m] = np.mean(sent, axis=0) if sent else 0.0
        every = np.vstack([nodes, after + gained])
        every = (every - every.mean(axis=0)) / np.sqrt(every.var(axis=0) + 1e-5)
        every = np.maximum(every, 0.0) if depth == 0 else every
        nodes, after = every[:7], every[7:]
    of = torch.tensor
    found = pass_messages(
        of(x), of(models), of(right, dtype=torch.float64), of(visible), [of(w) for w in layers]
    )
    assert found.numpy() == pytest.approx(after, abs=1e-5)


@pytest.mark.usefixtures("few_steps")
def test_clusters_without_words_have_the_means_of_train() -> None:
    data = replace(by_topic(0, T=40), questions=("",) * 40)
    for name in ("uniroute", "graph_router", "model_sat"):
        asked = decide(policy_of(name, data.train), data.test).pools.argmax(axis=1)
        assert (asked == asked[0]).all()

"""Tests of both rankers: by features of votes, and LLM-Blender's cross-encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.datasets import answers, make_answers, make_dataset, make_logits, sampled
from support.rival_data import CHOICES, accuracy, best_single, fitted, shuffled
from support.rows import put_choices

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import evaluate
from rlfocal.methods import check_methods, every_method
from rlfocal_rivals.ranking import (
    FeatureRanker,
    LLMBlender,
    PairEncoder,
    RankedPolicy,
    candidates_of,
    features,
    fit_features,
    fit_pair_encoder,
    right_and_wrong,
    texts_of,
)
from warehouse import Warehouse


def test_candidates_and_pairs_by_hand() -> None:
    data = make_answers(("aab", "a"), ("abc", "b"), ("bbb", "a"), ("---", "a"), ("aaa", "a"))
    assert candidates_of(data).sum(axis=1).tolist() == [2, 3, 1, 0, 1]
    told = [
        (row, data.slots[row][right], data.slots[row][wrong])
        for row, right, wrong in right_and_wrong(data).tolist()
    ]
    # Where nobody is right, or everybody, nothing can be compared.
    assert sorted(told) == [(0, "a", "b"), (1, "b", "a"), (1, "b", "c")]


def test_features_by_hand() -> None:
    probs = np.array([[[0.75, 0.25], [0.5, 0.5]]])
    found = features(make_dataset(probs, np.zeros(1, dtype=np.int64), n_train=1))
    assert found[0, 0] == pytest.approx([1.0, 0.625, 0.75, 1, 1, np.log(0.75), np.log(0.5)])
    assert found[0, 1] == pytest.approx([0.0, 0.375, 0.5, 0, 0, np.log(0.25), np.log(0.5)])


def test_maxlogits_are_sums_over_all_comparisons() -> None:
    data = make_logits(11, T=20, N=4)
    ranker = FeatureRanker(np.random.default_rng(0).normal(size=3 + 2 * 4))
    candidates, f = candidates_of(data), features(data)
    totals = ranker.totals(data, candidates)
    for t in range(20):
        slots = np.flatnonzero(candidates[t])
        for i in slots:
            s = [ranker.weights @ (f[t, i] - f[t, j]) for j in slots if j != i]
            back = [ranker.weights @ (f[t, j] - f[t, i]) for j in slots if j != i]
            assert totals[t, i] == pytest.approx(sum(s) - sum(back))


def test_the_ranker_is_the_minimum_of_its_loss() -> None:
    train = make_logits(12, T=200, N=3)
    found = fit_features(train).weights
    row, right, wrong = right_and_wrong(train).T
    difference = features(train)[row, right] - features(train)[row, wrong]
    scale = difference.std(axis=0)

    def loss(w: np.ndarray) -> float:
        # Each pair counts twice, as it is learnt both ways round.
        return float(2 * np.log1p(np.exp(-difference @ w)).sum() + ((w * scale) ** 2).sum() / 2)

    for step in 0.01 * np.vstack([np.eye(len(found)), -np.eye(len(found))]):
        assert loss(found) < loss(found + step / scale)


def test_the_ranker_learns_which_answers_are_right() -> None:
    # m00 is always right, m01 and m02 always agree on something else.
    data = make_answers(*[("abb", "a")] * 4, *[("cdd", "c")] * 4)
    decided = decide(fitted("pairwise_log_linear", data.train), data.test)
    assert accuracy(data.test, decided) == 1.0
    assert decided.pools.all()
    logits = make_logits(13, T=2000, N=4)
    taught, untaught = (
        accuracy(logits.test, decide(fitted("pairwise_log_linear", part.train), logits.test))
        for part in (logits, shuffled(logits))
    )
    assert taught > best_single(logits) + 0.02
    assert untaught < best_single(logits) + 0.02


def test_ties_between_free_answers_go_to_the_first_model() -> None:
    data = sampled(("aab", "bbb"), gold=["a"])
    even = RankedPolicy(FeatureRanker(np.zeros(3 + 2 * 2)))
    assert data.slots == (("b", "a"),)
    assert decide(even, data).predictions.tolist() == [1]


# The cross-encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny random BERT with a tokenizer of words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    own = [f"{word}{i}" for word in ("good", "bad") for i in range(4)]
    words = ["[PAD]", "[UNK]", "which", "is", "it", *own]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("encoder")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        folder
    )
    torch.manual_seed(0)
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 40}
    config = BertConfig(vocab_size=len(words), hidden_size=32, intermediate_size=32, **heads)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def told_by_text(T: int = 240, seed: int = 0) -> Dataset:
    """T documents whose right choice begins with "good", and three models that guess."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, T)
    made = make_dataset(rng.dirichlet([1, 1, 1], size=(T, 3)), labels, n_train=T // 2)
    words = rng.integers(0, 4, (T, 3))
    choices = tuple(
        tuple(f"{'good' if c == label else 'bad'}{word}" for c, word in enumerate(row))
        for label, row in zip(labels, words.tolist(), strict=True)
    )
    return replace(made, questions=("which is it",) * T, choices=choices)


def test_a_cross_encoder_reads_which_answer_is_good(encoder: str) -> None:
    data = told_by_text()
    given: dict[str, Any] = {"model": encoder, "epochs": 4, "learning_rate": 0.003}
    policy = fitted("llm_blender", data.train, **given)
    decided = decide(policy, data.test)
    # Right wherever some model is: the ceiling of a ranker of candidates.
    ceiling = data.test.correct.any(axis=1).mean()
    assert accuracy(data.test, decided) >= ceiling - 0.02
    assert accuracy(data.test, decide(fitted("pairwise_log_linear", data.train), data.test)) < ceiling - 0.1
    again = decide(fitted("llm_blender", data.train, **given), data.test)
    assert (again.predictions == decided.predictions).all()


def test_a_cross_encoder_compares_all_pairs_both_ways(encoder: str) -> None:
    data = told_by_text(12)
    how = LLMBlender(encoder, batch=4, learning_rate=0.01)
    ranker = fit_pair_encoder(how, data.train, right_and_wrong(data.train))
    assert isinstance(ranker, PairEncoder)
    candidates = candidates_of(data)
    totals = ranker.totals(data, candidates)
    ranker.encoder.eval().requires_grad_(False)
    ranker.head.requires_grad_(False)

    def s(row: int, i: int, j: int) -> float:
        return float(ranker.logits(texts_of(data, np.array([[row, i, j]])))[0])

    import torch

    [text] = texts_of(data, np.array([[0, 0, 1]]))
    states = ranker.encoder(**ranker.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    one, other = (ranker.head(torch.cat([states[4], states[mark]])) for mark in (0, 2))
    assert s(0, 0, 1) == pytest.approx(float(one - other), abs=1e-5)
    for row in range(len(data)):
        slots = np.flatnonzero(candidates[row]).tolist()
        for i in slots:
            expected = sum(s(row, i, j) - s(row, j, i) for j in slots if j != i)
            assert totals[row, i] == pytest.approx(expected, abs=1e-4)
    first, other = texts_of(data, np.array([[0, 1, 2], [0, 2, 1]]))
    assert (
        first == f"<candidate1> {data.choices[0][1]} <candidate2> {data.choices[0][2]} <source> which is it"
    )
    assert other.split()[1] == first.split()[3]


def test_a_cross_encoder_reads_free_answers(encoder: str) -> None:
    data = replace(answers(), questions=("which is it " * 40,) * len(answers()))
    decided = decide(fitted("llm_blender", data.train, model=encoder), data.test)
    assert (decided.predictions < data.test.n_choices).all()


def test_an_unsuitable_cross_encoder_is_refused_with_the_reason(encoder: str, tmp_path: Path) -> None:
    texts = told_by_text(12)
    for data in (CHOICES, replace(texts, choices=((),) * 12), replace(texts, questions=("",) * 12)):
        with pytest.raises(InputError, match="lacks; use pairwise_log_linear"):
            LLMBlender(model=encoder).fit(data.train, [0])
    with pytest.raises(InputError, match="cannot be loaded"):
        LLMBlender(model=str(tmp_path)).fit(texts.train, [0])


def test_a_model_must_be_named() -> None:
    texts = told_by_text(12)
    with pytest.raises(InputError, match="no encoder is named"):
        fitted("llm_blender", texts.train)
    assert "llm_blender" in every_method(texts)[1]
    for given in ({"llm_blender": {"model": "DIR"}}, {"": {"model": "DIR"}}):
        assert "llm_blender" in every_method(texts, settings=given)[0]
        check_methods(["llm_blender"], texts, settings=given)
    with pytest.raises(InputError, match="llm_blender"):
        check_methods(["llm_blender"], texts, settings={"llm_blender": {"model": ""}, "": {"steps": "1"}})


def test_the_named_model_is_no_other_setting(encoder: str, warehouse: Warehouse) -> None:
    put_choices(warehouse, {"k": [True] * 4, "m": [False] * 4})
    warehouse.connection.execute("UPDATE docs SET question = 'which is it', choices = ['good1', 'bad1']")
    for more, study in (([], None), (["llm_blender.epochs=2"], "settings")):
        settings = [f"llm_blender.model={encoder}", *more]
        found = evaluate(warehouse, "b", methods=["llm_blender"], seeds=1, settings=settings)
        assert {row.study for row in found.rows} == {study}

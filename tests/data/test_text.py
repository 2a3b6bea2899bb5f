"""Questions as vectors: TF-IDF against scikit-learn by hand, a sentence encoder from a local directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlfocal.base.errors import InputError
from rlfocal.data.text import TFIDF, fit_encoder
from rlfocal.methods._neighbours import vectors_of

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


@pytest.mark.slow
def test_a_sentence_encoder_from_a_directory(tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "how",
        "many",
        "apples",
        "pears",
        "planet",
        "which",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    bert = Transformer(str(tmp_path / "bert"))
    modules = [bert, Pooling(bert.get_word_embedding_dimension())]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "encoder"))
    encoder = fit_encoder(str(tmp_path / "encoder"), QUESTIONS)
    vectors = encoder.encode(["how many apples", "which planet", "how many apples"])
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    assert abs(vectors[0] @ vectors[1]) < 0.999

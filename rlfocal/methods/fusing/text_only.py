"""Predicts the right choice from the question alone, without asking any LLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._text import questions_of
from rlfocal.methods.fusing._regression import TextRegression, fit_text_regression
from rlfocal.methods.registry import Entry, MethodBase, register


@register(
    Entry(
        "text_only",
        "none",
        "logistic regression from the question's text features to the right choice",
        kinds=("choices",),
        role="reference",
        needs=("questions",),
        is_default=False,
        source="a control: what text features are worth without any model",
        reads=("question",),
    )
)
@dataclass(frozen=True)
class TextOnly(MethodBase):
    """Multinomial regression on text features, with a ridge cross-validated on train; asks no model."""

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ReadsOnly]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        text = encoder.encode(questions_of(train))
        nothing = np.zeros((len(train), 0))
        return [ReadsOnly(encoder, fit_text_regression(nothing, text, train.labels, 1.0))]


@dataclass(frozen=True)
class ReadsOnly:
    """Answers the likeliest choice given the text."""

    encoder: Encoder
    regression: TextRegression

    def decide(self, calls: Calls) -> Answered:
        text = self.encoder.encode(questions_of(calls))
        return self.regression.answer(np.zeros((len(calls), 0)), text, calls.n_choices)

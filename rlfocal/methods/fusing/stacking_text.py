"""Stacking with the question's text features beside the models' log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._text import questions_of
from rlfocal.methods.fusing._regression import TextRegression, fit_text_regression
from rlfocal.methods.fusing.stacking import INVERSE_RIDGE, log_prob_features
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "stacking+text",
        "all",
        "as `stacking`, with the question's text features beside the log-probs",
        kinds=("choices",),
        needs=("questions",),
        is_default=False,
        source="`stacking`, given the same text as the methods that read questions",
        reads=("question", "outputs"),
        space={"inverse_ridge": Range(1e-4, 10.0, log=True)},
    )
)
@dataclass(frozen=True)
class StackingText(MethodBase):
    """`stacking` whose regression also sees text features; their ridge is cross-validated on train."""

    encoder: str = TFIDF
    inverse_ridge: float = INVERSE_RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[StackedText]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        text = encoder.encode(questions_of(train))
        said = log_prob_features(train)
        return [StackedText(encoder, fit_text_regression(said, text, train.labels, self.inverse_ridge))]


@dataclass(frozen=True)
class StackedText:
    """Answers the likeliest choice, as `stacking` does."""

    encoder: Encoder
    regression: TextRegression

    def decide(self, calls: Calls) -> Answered:
        documents = calls.call_all()
        text = self.encoder.encode(questions_of(calls))
        return self.regression.answer(log_prob_features(documents), text, documents.n_choices)

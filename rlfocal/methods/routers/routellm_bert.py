"""RouteLLM's BERT classifier: strong wins, tie, or weak wins, from the text of the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.methods._text import questions_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routers._language import Language, Tuning, fine_tune, in_batches, load, parts_of, seeded
from rlfocal.methods.routers._pairs import Calibration, PairRouter, pair_of, route
from rlfocal.methods.spaces import Range

STRONG, TIE, WEAK = range(3)


@register(
    Entry(
        "routellm_bert",
        "the cheapest model or the best of the dearer, by a fine-tuned encoder",
        "what it answers",
        fewest_models=2,
        has_budgets=True,
        chooses_pair=True,
        is_default=False,
        needs=("questions", "prices"),
        needs_setting="model",
        source="RouteLLM (arXiv 2406.18665), BERT classifier",
        differs="battles are between right and wrong answers of train; any encoder of transformers; a tenth "
        "of train sets the threshold, by accuracy unless a share of strong calls is given",
        reads=("question",),
        space={"steps": Range(500, 4000, log=True), "rate": Range(1e-6, 1e-4, log=True)},
    )
)
@dataclass(frozen=True)
class BertRouter(MethodBase):
    """Asks the strong model where 1 - (p_tie + p_weak) reaches a threshold; p: a fine-tuned classifier's."""

    model: str = ""
    """A directory or a name on the hub, for AutoModelForSequenceClassification."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    steps: int = 2000
    batch: int = 16
    """documents per step"""
    rate: float = 1e-5
    max_tokens: int = 512
    seeded = True
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter]:
        return [self._fitted(train, seed) for seed in seeds]

    def _fitted(self, train: Dataset, seed: int) -> PairRouter:
        pair, (learnt, held) = pair_of(train), parts_of(train)
        questions, outcome = questions_of(train), outcomes(train, pair.strong, pair.weak)
        with seeded(seed):
            language = load("routellm_bert", self.model, "AutoModelForSequenceClassification", num_labels=3)
            worth = StrongWins(language, self.max_tokens, self.batch)
            tuning = Tuning(self.steps, self.batch, self.rate)
            worth.learn([questions[i] for i in learnt], outcome[learnt], tuning)
        values = worth.values(tuple(questions[i] for i in held))
        calibration = Calibration.of(values, train.take(held), pair)
        return route(worth, pair, train, calibration, self.strong_share)


def outcomes(train: Dataset, strong: int, weak: int) -> Ints:
    """(n,) STRONG or WEAK where that model alone was right, else TIE."""
    strong_right, weak_right = train.correct[:, strong], train.correct[:, weak]
    return np.where(strong_right == weak_right, TIE, np.where(strong_right, STRONG, WEAK)).astype(np.int64)


@dataclass(frozen=True)
class StrongWins:
    """The classifier's probability that the strong model alone is right."""

    language: Language
    max_tokens: int
    batch: int

    def values(self, questions: tuple[str, ...]) -> Floats:
        import torch

        found: list[float] = []
        with torch.no_grad():
            for part in in_batches(self.language.tokens(questions, self.max_tokens), self.batch):
                chances = self.language.model(**self.language.padded(part)).logits.double().softmax(dim=1)
                found += chances[:, STRONG].tolist()
        return np.array(found, dtype=np.float64)

    def learn(self, questions: Sequence[str], outcome: Ints, tuning: Tuning) -> None:
        """Fine-tunes by cross-entropy on the outcomes (n,)."""
        import torch

        tokens = self.language.tokens(questions, self.max_tokens)
        labels = torch.tensor(outcome, device=self.language.model.device)

        def loss(batch: Ints) -> torch.Tensor:
            logits = self.language.model(**self.language.padded([tokens[i] for i in batch])).logits
            return torch.nn.functional.cross_entropy(logits, labels[batch])

        fine_tune(self.language.model, loss, len(tokens), tuning)

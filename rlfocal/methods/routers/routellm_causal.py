"""RouteLLM's causal-LM classifier: how well the weak model would answer, as a score from 1 to 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.methods._text import questions_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routers._language import (
    Language,
    Tokens,
    Tuning,
    fine_tune,
    in_batches,
    load,
    parts_of,
    seeded,
)
from rlfocal.methods.routers._pairs import Calibration, PairRouter, pair_of, route
from rlfocal.methods.spaces import Range

if TYPE_CHECKING:
    from torch import Tensor


SCORES = tuple(f"[[{score}]]" for score in range(1, 6))
GOOD = 3
"""Position of the lowest score that means a good answer: 4."""
ASKED = "\nHow good is the weak model's answer, from 1 to 5? Score: "


@register(
    Entry(
        "routellm_causal",
        "the cheapest model or the best of the dearer, by a fine-tuned causal LM",
        "what it answers",
        fewest_models=2,
        has_budgets=True,
        chooses_pair=True,
        is_default=False,
        needs=("questions", "prices"),
        needs_setting="model",
        source="RouteLLM (arXiv 2406.18665), causal LLM classifier",
        differs="scores are 5 where the weak model is right and 1 where not; any causal LM of transformers; "
        "probabilities are over the five scores only, so no output is invalid; a tenth of train sets the "
        "threshold, by accuracy unless a share of strong calls is given",
        reads=("question",),
        space={"steps": Range(500, 4000, log=True), "rate": Range(1e-7, 1e-5, log=True)},
    )
)
@dataclass(frozen=True)
class CausalRouter(MethodBase):
    """Asks the strong model where 1 - P(score >= 4) of the weak model's answer reaches a threshold.

    The scores are five new tokens; a causal LM is fine-tuned to write one of them after the question.
    """

    model: str = ""
    """A directory or a name on the hub, for AutoModelForCausalLM."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    steps: int = 2000
    batch: int = 8
    """documents per step"""
    rate: float = 1e-6
    max_tokens: int = 2048
    seeded = True
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter]:
        return [self._fitted(train, seed) for seed in seeds]

    def _fitted(self, train: Dataset, seed: int) -> PairRouter:
        pair, (learnt, held) = pair_of(train), parts_of(train)
        questions, is_good = questions_of(train), train.correct[learnt, pair.weak]
        with seeded(seed):
            language = load("routellm_causal", self.model, "AutoModelForCausalLM")
            language.tokenizer.add_tokens(list(SCORES), special_tokens=True)
            language.model.resize_token_embeddings(len(language.tokenizer), mean_resizing=False)
            worth = WeakScores(language, self.max_tokens, self.batch)
            worth.learn([questions[i] for i in learnt], is_good, Tuning(self.steps, self.batch, self.rate))
        values = worth.values(tuple(questions[i] for i in held))
        calibration = Calibration.of(values, train.take(held), pair)
        return route(worth, pair, train, calibration, self.strong_share)


@dataclass(frozen=True)
class WeakScores:
    """A causal LM that scores the weak model's answer to a question."""

    language: Language
    max_tokens: int
    batch: int

    def values(self, questions: tuple[str, ...]) -> Floats:
        """(T,) 1 - P(score >= 4), with probabilities over the five scores."""
        import torch

        found: list[float] = []
        with torch.no_grad():
            for part in in_batches(self.prompts(questions), self.batch):
                chances = self._next(part)[:, self._scores()].double().softmax(dim=1)
                found += (1 - chances[:, GOOD:].sum(dim=1)).tolist()
        return np.array(found, dtype=np.float64)

    def learn(self, questions: Sequence[str], is_good: Bools, tuning: Tuning) -> None:
        """Fine-tunes by cross-entropy of score 5 or 1 over the whole vocabulary."""
        import torch

        prompts, scores = self.prompts(questions), self._scores()
        labels = torch.tensor(np.where(is_good, scores[-1], scores[0]), device=self.language.model.device)

        def loss(batch: Ints) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self._next([prompts[i] for i in batch]), labels[batch])

        fine_tune(self.language.model, loss, len(prompts), tuning)

    def prompts(self, questions: Sequence[str]) -> Tokens:
        """Each question, truncated if too long, followed by ASKED."""
        [asked] = self.language.tokenizer([ASKED], add_special_tokens=False)["input_ids"]
        limit = getattr(self.language.model.config, "max_position_embeddings", None) or self.max_tokens
        room = max(1, min(self.max_tokens, limit) - len(asked))
        return [ids + asked for ids in self.language.tokens(questions, room)]

    def _scores(self) -> list[int]:
        ids: list[int] = self.language.tokenizer.convert_tokens_to_ids(list(SCORES))
        return ids

    def _next(self, prompts: Tokens) -> Tensor:
        """(T, V) logits of the token after each prompt."""
        import torch

        given = self.language.padded(prompts)
        logits = self.language.model(**given).logits
        last = given["attention_mask"].sum(dim=1) - 1
        following: Tensor = logits[torch.arange(len(prompts), device=logits.device), last]
        return following

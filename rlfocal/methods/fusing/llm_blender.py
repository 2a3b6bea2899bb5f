"""LLM-Blender's PairRanker (Jiang et al., 2023): a cross-encoder compares candidate answers in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods.fusing._candidates import Ranked, right_and_wrong
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "llm_blender",
        "all",
        "the candidate answer that wins its comparisons with the others, by a PairRanker",
        is_default=False,
        needs=("questions",),
        needs_setting="model",
        source="LLM-Blender (arXiv 2306.02561)",
        differs="trained on right against wrong answers. No GenFuser: it writes a new text from candidates' "
        "texts, which are not stored. Without a model to fine-tune: `pairwise_log_linear`",
        reads=("question", "outputs"),
        space={
            "epochs": Range(1, 4),
            "learning_rate": Range(1e-6, 1e-4, log=True),
        },
    )
)
@dataclass(frozen=True)
class LLMBlender(MethodBase):
    """Each distinct answer of the models is a candidate; s_ij scores how much better i is than j.

    Trained by binary cross-entropy of σ(s_ij) on pairs of a right and a wrong candidate of one document, in
    both orders. Answers the candidate with the highest Σ_j (s_ij - s_ji), the paper's MaxLogits.
    """

    model: str = ""
    """A transformers encoder, by directory or hub name, which reads question and answers."""
    epochs: int = 1
    batch: int = 16
    learning_rate: float = 1e-5
    seed: int = 0
    """Seed of the encoder's training."""
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Ranked]:
        """Raises InputError without a model, for one that cannot be loaded, or texts that are missing."""
        if not self.model:
            raise InputError(
                "llm_blender reads texts, and no encoder is named; name one, --set llm_blender.model=DIR, or "
                "use pairwise_log_linear"
            )
        from rlfocal.methods.fusing._pair_encoder import fit_pair_encoder

        ranker = fit_pair_encoder(
            self.model,
            train,
            right_and_wrong(train),
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            seed=self.seed,
        )
        return [Ranked(ranker)]

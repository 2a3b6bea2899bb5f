"""Rankers of a document's candidates, which are the distinct answers of the models, by comparing pairs.

A ranker compares two candidates by the models' votes and probabilities, or by texts (LLM-Blender, Jiang et
al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import questions_of
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.votes import find_earliest_slots

if TYPE_CHECKING:
    from torch import Tensor

_MIN_PROBABILITY = 1e-6  # lower bound on probabilities, so that their logarithm is finite


class Ranker(Protocol):
    """A ranker of candidates: its scores s_ij say how much better candidate i of a document is than j."""

    def totals(self, outputs: Dataset, candidates: Bools) -> Floats:
        """(T, C) each candidate's total Σ_j (s_ij - s_ji); `candidates` (T, C) marks the slots i and j."""
        ...


@dataclass(frozen=True)
class RankedPolicy:
    """Calls all models, and answers the candidate with the highest total of its ranker's comparisons."""

    ranker: Ranker

    def decide(self, calls: Calls) -> Answers:
        outputs = calls.call_all()
        candidates = candidates_of(outputs)
        totals = np.where(candidates, self.ranker.totals(outputs, candidates).round(9), -np.inf)
        top = candidates & (totals == totals.max(axis=1, keepdims=True))
        winner = (
            find_earliest_slots(top, mark_predictions(outputs))
            if calls.kind == "answers"
            else top.argmax(axis=1)
        )
        return Answers(np.where(candidates.any(axis=1), winner, -1).astype(np.int64))


def candidates_of(documents: Dataset) -> Bools:
    """(T, C) the slots that some model predicts."""
    return np.asarray(mark_predictions(documents).any(axis=1))


def right_and_wrong(train: Dataset) -> Ints:
    """(P, 3) all pairs of a right and a wrong candidate: document, right slot, wrong slot."""
    candidates, labels = candidates_of(train), train.labels
    has_right = (labels >= 0) & candidates[np.arange(len(labels)), np.maximum(labels, 0)]
    wrong = candidates & has_right[:, None] & (np.arange(candidates.shape[1]) != labels[:, None])
    row, slot = np.nonzero(wrong)
    return np.stack([row, labels[row], slot], axis=1).astype(np.int64)


def mark_predictions(documents: Dataset) -> Bools:
    """(T, N, C) which slot each model predicts."""
    return np.asarray(documents.predictions[:, :, None] == np.arange(documents.probs.shape[2]))


@answer_policy(
    "pairwise_log_linear",
    "all",
    "the candidate answer that wins its comparisons, by a logistic regression on who gave it how surely",
    source="ours, after LLM-Blender's PairRanker (arXiv 2306.02561)",
    differs="reads no text: votes and log-probs alone",
    with_task="fitted per task",
)
@dataclass(frozen=True)
class PairwiseLogLinear(MethodBase):
    """Ranks candidates by s_ij = w · (f_i - f_j); f_i are features of candidate i's votes and log-probs.

    w minimises the binary cross-entropy of σ(s_ij) on pairs of a right and a wrong candidate, in both orders.
    """

    inverse_ridge: Annotated[float, Range(1e-4, 100.0, log=True)] = 1.0
    """The inverse strength of the ridge, scikit-learn's C."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[RankedPolicy]:
        return [RankedPolicy(fit_features(train, self.inverse_ridge))]


@dataclass(frozen=True)
class FeatureRanker:
    """A ranker with s_ij = w · (f_i - f_j), so that the candidate with the highest w · f wins."""

    weights: Floats
    """(3 + 2N,) w, the weight of each feature"""

    def totals(self, outputs: Dataset, candidates: Bools) -> Floats:
        score = features(outputs) @ self.weights
        n = candidates.sum(axis=1, keepdims=True)
        totals: Floats = 2 * (n * score - np.where(candidates, score, 0.0).sum(axis=1, keepdims=True))
        return totals


def fit_features(train: Dataset, inverse_ridge: float = 1.0) -> FeatureRanker:
    """A ranker by logistic regression on right minus wrong candidates' features, standardised in scale."""
    from sklearn.linear_model import LogisticRegression

    numbers = features(train)
    row, right, wrong = right_and_wrong(train).T
    difference = numbers[row, right] - numbers[row, wrong]
    scale = difference.std(axis=0) if len(row) else np.zeros(numbers.shape[2])
    scale = np.where(scale > 1e-12, scale, 1.0)
    if not len(row):
        # Nothing to learn from: rank by how many models give a candidate.
        return FeatureRanker(np.eye(numbers.shape[2])[0])
    x = np.vstack([difference, -difference]) / scale
    wins = np.arange(len(x)) < len(difference)
    regression = LogisticRegression(C=inverse_ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)
    fitted = regression.fit(x, wins)
    return FeatureRanker(fitted.coef_[0] / scale)


def features(documents: Dataset) -> Floats:
    """(T, C, 3 + 2N) features of every slot.

    The first three are the share of models that predict the slot, its mean and its highest probability. N
    votes follow, which say which models predict the slot, and N log-probabilities, one per model.
    """
    votes = mark_predictions(documents).astype(np.float64).transpose(0, 2, 1)
    probs = documents.probs.transpose(0, 2, 1)
    shared = np.stack([votes.mean(axis=2), probs.mean(axis=2), probs.max(axis=2)], axis=2)
    return np.concatenate([shared, votes, np.log(np.maximum(probs, _MIN_PROBABILITY))], axis=2)


# ---- LLM-Blender's PairRanker: a cross-encoder reads the question and two answers


Pairs = Ints

PAIR_MARKS = ("<source>", "<candidate1>", "<candidate2>")
MAX_TOKENS = 512
"""The most tokens of a text of two answers and a question; longer texts lose the end of the question."""


@dataclass(frozen=True)
class PairEncoder:
    """A ranker by texts: s_ij is the score of candidate i minus that of j, which an encoder reads together. A
    score comes from the hidden states at <source> and at the candidate's own mark."""

    tokenizer: Any
    encoder: Any
    head: Any
    """A linear layer from the two hidden states to a score."""
    batch: int

    def totals(self, outputs: Dataset, candidates: Bools) -> Floats:
        import torch

        rows, first, second = np.nonzero(candidates[:, :, None] & candidates[:, None, :])
        pairs = np.stack([rows, first, second], axis=1)[first != second]
        totals = np.zeros(candidates.shape)
        self.encoder.eval()
        with torch.inference_mode():
            for start in range(0, len(pairs), self.batch):
                part = pairs[start : start + self.batch]
                s = self.logits(texts_of(outputs, part)).double().cpu().numpy()
                np.add.at(totals, (part[:, 0], part[:, 1]), s)
                np.add.at(totals, (part[:, 0], part[:, 2]), -s)
        return totals

    def logits(self, texts: list[str]) -> Tensor:
        """(P,) s_ij for each of P texts, in which `PAIR_MARKS` precede question and candidates."""
        import torch

        batch = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self._max_tokens(), return_tensors="pt"
        ).to(self.encoder.device)
        states = self.encoder(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).last_hidden_state
        states_at = [
            states[torch.arange(len(texts)), (batch["input_ids"] == mark).int().argmax(dim=1)]
            for mark in self.tokenizer.convert_tokens_to_ids(list(PAIR_MARKS))
        ]
        scores = [self.head(torch.cat([states_at[0], candidate], dim=1))[:, 0] for candidate in states_at[1:]]
        difference: Tensor = scores[0] - scores[1]
        return difference

    def _max_tokens(self) -> int:
        return min(MAX_TOKENS, getattr(self.encoder.config, "max_position_embeddings", MAX_TOKENS))


def texts_of(documents: Dataset, pairs: Pairs) -> list[str]:
    """A text of two candidates and their question for each of `pairs` (P, 3): document, slot i, slot j. The
    question comes last, so that truncation cuts it."""
    answers = documents.choices if documents.kind == "choices" else documents.slots
    questions = questions_of(documents)
    question, first, second = PAIR_MARKS
    return [
        f"{first} {answers[row][i]} {second} {answers[row][j]} {question} {questions[row]}"
        for row, i, j in pairs.tolist()
    ]


def fit_pair_encoder(how: LLMBlender, train: Dataset, pairs: Pairs) -> PairEncoder:
    """The encoder, fine-tuned by AdamW on `pairs` (P, 3) of document, right slot and wrong slot.

    Each pair is used in both orders. Raises InputError if the model cannot be loaded, or if questions or
    choice texts are missing.
    """
    if not any(train.questions) or (train.kind == "choices" and not all(train.choices)):
        raise InputError(
            f"llm_blender with model={how.model!r} reads the texts of questions and choices, which "
            f"{train.benchmark!r} lacks; use pairwise_log_linear"
        )
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(how.seed)
        ranker = _load_encoder(how.model, how.batch)
        _train(ranker, train, pairs, how)
    return ranker


def _train(ranker: PairEncoder, train: Dataset, pairs: Pairs, how: LLMBlender) -> None:
    import torch

    both = np.vstack([pairs, pairs[:, [0, 2, 1]]])
    wins = np.arange(len(both)) < len(pairs)
    learned = [*ranker.encoder.parameters(), *ranker.head.parameters()]
    optimiser = torch.optim.AdamW(learned, lr=how.learning_rate)
    ranker.encoder.train()
    for part in _draw_batches(len(both), how.epochs, how.batch, how.seed):
        target = torch.tensor(wins[part], dtype=torch.float32, device=ranker.encoder.device)
        logits = ranker.logits(texts_of(train, both[part]))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _load_encoder(name: str, batch: int) -> PairEncoder:
    import torch
    from transformers import AutoModel, AutoTokenizer

    try:
        tokenizer, encoder = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name)
    except Exception as error:
        raise InputError(
            f"model {name!r} of llm_blender cannot be loaded ({error}); give a directory of a transformers "
            "encoder, or its name on the hub"
        ) from error
    tokenizer.add_special_tokens({"additional_special_tokens": list(PAIR_MARKS)})
    tokenizer.truncation_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or PAIR_MARKS[0]
    encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = encoder.float().to(device)
    head = torch.nn.Linear(2 * encoder.config.hidden_size, 1).to(device)
    return PairEncoder(tokenizer, encoder, head, batch)


def _draw_batches(n: int, epochs: int, batch: int, seed: int) -> Iterator[Ints]:
    shuffle = np.random.default_rng(seed)
    for _ in range(epochs):
        order = shuffle.permutation(n)
        for start in range(0, n, batch):
            yield order[start : start + batch]


@answer_policy(
    "llm_blender",
    "all",
    "the candidate answer that wins its comparisons with the others, by a PairRanker",
    needs=("questions",),
    needs_setting="model",
    source="LLM-Blender (arXiv 2306.02561)",
    differs="trained on right against wrong answers. No GenFuser: it writes a new text from candidates' "
    "texts, which are not stored. Without a model to fine-tune: `pairwise_log_linear`",
    reads=("question", "outputs"),
)
@dataclass(frozen=True)
class LLMBlender(MethodBase):
    """Ranks the candidates, the models' distinct answers, by texts; s_ij scores how much better i is than j.

    It is trained by the binary cross-entropy of σ(s_ij) on pairs of a right and a wrong candidate of one
    document, in both orders. It answers the candidate with the highest Σ_j (s_ij - s_ji), the paper's
    MaxLogits.
    """

    model: str = ""
    """The transformers encoder that reads questions and answers, by directory or hub name."""
    epochs: Annotated[int, Range(1, 4)] = 1
    batch: int = 16
    learning_rate: Annotated[float, Range(1e-6, 1e-4, log=True)] = 1e-5
    seed: int = 0
    """The seed of the encoder's training."""
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[RankedPolicy]:
        """One policy, by an encoder fine-tuned on train.

        Raises InputError if `model` is not set, cannot be loaded, or if texts are missing.
        """
        if not self.model:
            raise InputError(
                "llm_blender reads texts, and no encoder is named; name one, --set llm_blender.model=DIR, or "
                "use pairwise_log_linear"
            )
        return [RankedPolicy(fit_pair_encoder(self, train, right_and_wrong(train)))]

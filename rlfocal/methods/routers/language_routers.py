"""RouteLLM's fine-tuned language models: an encoder tells who wins, a causal LM scores answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routers._pairs import Pair, PairRouter, pair_of, parts_of, route

if TYPE_CHECKING:
    from torch import Tensor

Tokens = list[list[int]]
STRONG, TIE, WEAK = range(3)
SCORES = tuple(f"[[{score}]]" for score in range(1, 6))
GOOD = 3
"""Position of the lowest score that means a good answer: 4."""
ASKED = "\nHow good is the weak model's answer, from 1 to 5? Score: "


@dataclass(frozen=True)
class Judge(ABC):
    """A language model, with its tokenizer, that says how much a question calls for the strong model."""

    tokenizer: Any
    model: Any
    max_tokens: int
    batch: int

    @abstractmethod
    def prompts(self, questions: Sequence[str]) -> Tokens: ...

    @abstractmethod
    def logits(self, prompts: Tokens) -> Tensor:
        """(T, V) what it says after each prompt."""

    @abstractmethod
    def need(self, logits: Tensor) -> Tensor:
        """(T,) how much the strong model is needed."""

    def values(self, questions: tuple[str, ...]) -> Floats:
        import torch

        found: list[float] = []
        with torch.no_grad():
            prompts = self.prompts(questions)
            for start in range(0, len(prompts), self.batch):
                found += self.need(self.logits(prompts[start : start + self.batch])).tolist()
        return np.array(found, dtype=np.float64)

    def learn(self, questions: Sequence[str], labels: Ints, steps: int, rate: float) -> None:
        """Fine-tunes by the cross-entropy of the labels (n,), by AdamW with a rate that falls linearly to 0.

        Draws from torch's own seed.
        """
        import torch

        prompts, target = self.prompts(questions), torch.tensor(labels, device=self.model.device)
        optimiser = torch.optim.AdamW(self.model.parameters(), lr=rate)
        order = np.empty(0, dtype=np.int64)
        self.model.train()
        for step in range(steps):
            if not len(order):
                order = torch.randperm(len(prompts)).numpy()
            batch, order = order[: self.batch], order[self.batch :]
            optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimiser.zero_grad()
            logits = self.logits([prompts[i] for i in batch])
            torch.nn.functional.cross_entropy(logits, target[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        self.model.eval()

    def tokens(self, texts: Sequence[str], most: int) -> Tokens:
        """The first tokens of each text: up to `most` or the model's limit, and at least one."""
        limit = min(most, self.limit or most)
        cut = self.tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
        return [ids or [self.tokenizer.pad_token_id] for ids in cut]

    @property
    def limit(self) -> int | None:
        """Tokens that the model can read."""
        return getattr(self.model.config, "max_position_embeddings", None)

    def pad(self, tokens: Tokens) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`, padded on the right."""
        import torch

        width, device = max(map(len, tokens)), self.model.device
        ids = [row + [self.tokenizer.pad_token_id] * (width - len(row)) for row in tokens]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in tokens]
        return {
            "input_ids": torch.tensor(ids, device=device),
            "attention_mask": torch.tensor(mask, device=device),
        }


class StrongWins(Judge):
    """A classifier: the probability that the strong model alone is right."""

    def prompts(self, questions: Sequence[str]) -> Tokens:
        return self.tokens(questions, self.max_tokens)

    def logits(self, prompts: Tokens) -> Tensor:
        logits: Tensor = self.model(**self.pad(prompts)).logits
        return logits

    def need(self, logits: Tensor) -> Tensor:
        return logits.double().softmax(dim=1)[:, STRONG]


class WeakScores(Judge):
    """A causal LM: 1 - P(score >= 4) of the weak model's answer, with probabilities over the five scores."""

    def prompts(self, questions: Sequence[str]) -> Tokens:
        """Each question, truncated if too long, followed by ASKED."""
        [asked] = self.tokenizer([ASKED], add_special_tokens=False)["input_ids"]
        room = max(1, min(self.max_tokens, self.limit or self.max_tokens) - len(asked))
        return [ids + asked for ids in self.tokens(questions, room)]

    def logits(self, prompts: Tokens) -> Tensor:
        import torch

        given = self.pad(prompts)
        logits = self.model(**given).logits
        last = given["attention_mask"].sum(dim=1) - 1
        following: Tensor = logits[torch.arange(len(prompts), device=logits.device), last]
        return following

    def need(self, logits: Tensor) -> Tensor:
        chances = logits[:, self.scores()].double().softmax(dim=1)
        return 1 - chances[:, GOOD:].sum(dim=1)

    def scores(self) -> list[int]:
        """The tokens of the five scores."""
        ids: list[int] = self.tokenizer.convert_tokens_to_ids(list(SCORES))
        return ids


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Makes torch's draws inside depend on the seed alone, without changing those outside."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def load(method: str, name: str, auto: str, **options: Any) -> tuple[Any, Any]:
    """Tokenizer and model of a directory or a name on the hub, read by the class `auto` of transformers.

    On the GPU if there is one. Raises InputError if no model is named, or it cannot be loaded.
    """
    if not name:
        raise InputError(
            f"{method} fine-tunes a language model and none is named; name its directory, or its name on the "
            f"hub: --set {method}.model=DIR"
        )
    import torch
    import transformers

    # A new head is untrained on purpose, so no warning is needed.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        model = getattr(transformers, auto).from_pretrained(name, **options).float()
    except Exception as error:
        raise InputError(
            f"{method}: model {name!r} cannot be loaded ({error}); give a directory of transformers' format, "
            "or a name on the hub"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token_id is None:
        raise InputError(f"{method}: the tokenizer of {name!r} has no token to pad with; name another model")
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class LanguageRouter(MethodBase):
    """Asks the strong model where a fine-tuned language model's value reaches a threshold."""

    model: str = ""
    """A directory or a name on the hub."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    steps: int = 2000
    batch: int = 16
    """documents per step"""
    rate: float = 1e-5
    max_tokens: int = 512
    seeded = True
    revision = "2"

    @abstractmethod
    def judge(self) -> Judge:
        """The model before it is fine-tuned."""

    @abstractmethod
    def labels(self, judge: Judge, train: Dataset, pair: Pair) -> Ints:
        """(n,) what it learns to say."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter]:
        return [self._fit_seed(train, seed) for seed in seeds]

    def _fit_seed(self, train: Dataset, seed: int) -> PairRouter:
        pair, (learnt, held) = pair_of(train), parts_of(train)
        questions = questions_of(train)
        with seeded(seed):
            judge = self.judge()
            labels = self.labels(judge, train, pair)[learnt]
            judge.learn([questions[i] for i in learnt], labels, self.steps, self.rate)
        values = judge.values(tuple(questions[i] for i in held))
        return route(judge, pair, train.take(held), values, self.strong_share)


def _entry(name: str, by: str, source: str, differs: str, rate: Range) -> Entry:
    return Entry(
        name,
        f"the cheapest model or the best of the dearer, by a fine-tuned {by}",
        "what it answers",
        fewest_models=2,
        has_budgets=True,
        chooses_pair=True,
        is_default=False,
        needs=("questions", "prices"),
        needs_setting="model",
        source=f"RouteLLM (arXiv 2406.18665), {source}",
        differs=f"{differs} sets the threshold, by accuracy unless a share of strong calls is given",
        reads=("question",),
        space={"steps": Range(500, 4000, log=True), "rate": rate},
    )


@register(
    _entry(
        "routellm_bert",
        "encoder",
        "BERT classifier",
        "battles are between right and wrong answers of train; any encoder of transformers; a tenth of train",
        Range(1e-6, 1e-4, log=True),
    )
)
@dataclass(frozen=True)
class BertRouter(LanguageRouter):
    """Asks the strong model where 1 - (p_tie + p_weak) reaches a threshold; p: a fine-tuned classifier's."""

    def judge(self) -> Judge:
        made = load("routellm_bert", self.model, "AutoModelForSequenceClassification", num_labels=3)
        return StrongWins(*made, self.max_tokens, self.batch)

    def labels(self, judge: Judge, train: Dataset, pair: Pair) -> Ints:
        return outcomes(train, pair.strong, pair.weak)


def outcomes(train: Dataset, strong: int, weak: int) -> Ints:
    """(n,) STRONG or WEAK where that model alone was right, else TIE."""
    strong_right, weak_right = train.correct[:, strong], train.correct[:, weak]
    return np.where(strong_right == weak_right, TIE, np.where(strong_right, STRONG, WEAK)).astype(np.int64)


@register(
    _entry(
        "routellm_causal",
        "causal LM",
        "causal LLM classifier",
        "scores are 5 where the weak model is right and 1 where not; any causal LM of transformers; "
        "probabilities are over the five scores only, so no output is invalid; a tenth of train",
        Range(1e-7, 1e-5, log=True),
    )
)
@dataclass(frozen=True)
class CausalRouter(LanguageRouter):
    """Asks the strong model where 1 - P(score >= 4) of the weak model's answer reaches a threshold.

    The scores are five new tokens; a causal LM is fine-tuned to write one of them after the question.
    """

    batch: int = 8
    """documents per step"""
    rate: float = 1e-6
    max_tokens: int = 2048

    def judge(self) -> Judge:
        tokenizer, model = load("routellm_causal", self.model, "AutoModelForCausalLM")
        tokenizer.add_tokens(list(SCORES), special_tokens=True)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        return WeakScores(tokenizer, model, self.max_tokens, self.batch)

    def labels(self, judge: Judge, train: Dataset, pair: Pair) -> Ints:
        assert isinstance(judge, WeakScores)
        scores = judge.scores()
        return np.where(train.correct[:, pair.weak], scores[-1], scores[0]).astype(np.int64)

"""Language models that are fine-tuned on train questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlfocal.base.arrays import Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset

if TYPE_CHECKING:
    from torch import Tensor

Tokens = list[list[int]]

HELD_OUT = 10
"""One in this many train documents is held out, to set the threshold."""


@dataclass(frozen=True)
class Tuning:
    """How a model is fine-tuned: by AdamW, with a learning rate that decays linearly to 0."""

    steps: int
    batch: int
    """documents per step"""
    rate: float


@dataclass(frozen=True)
class Language:
    """A model of transformers with its tokenizer."""

    tokenizer: Any
    model: Any

    def tokens(self, texts: Sequence[str], most: int) -> Tokens:
        """The first tokens of each text: up to `most` or the model's limit, and at least one."""
        limit = min(most, getattr(self.model.config, "max_position_embeddings", None) or most)
        cut = self.tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
        return [ids or [self.tokenizer.pad_token_id] for ids in cut]

    def padded(self, tokens: Tokens) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask`, padded on the right."""
        import torch

        width = max(map(len, tokens))
        ids = [row + [self.tokenizer.pad_token_id] * (width - len(row)) for row in tokens]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in tokens]
        device = self.model.device
        return {
            "input_ids": torch.tensor(ids, device=device),
            "attention_mask": torch.tensor(mask, device=device),
        }


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Makes torch's draws inside depend on the seed alone, without changing those outside."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def load(method: str, name: str, auto: str, **options: Any) -> Language:
    """A model by its directory or its name on the hub, as the class `auto` of transformers reads it.

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
    return Language(tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu"))


def parts_of(train: Dataset) -> tuple[Ints, Ints]:
    """Positions to learn from and to set the threshold on; with fewer than ten, all for both."""
    positions = np.arange(len(train))
    held = positions % HELD_OUT == HELD_OUT - 1
    return (positions[~held], positions[held]) if held.any() else (positions, positions)


def fine_tune(model: Any, loss: Callable[[Ints], Tensor], n: int, tuning: Tuning) -> None:
    """Minimises, in place, the mean loss over n documents, given by position. Draws from torch's own seed."""
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=tuning.rate)
    order = np.empty(0, dtype=np.int64)
    model.train()
    for step in range(tuning.steps):
        if not len(order):
            order = torch.randperm(n).numpy()
        batch, order = order[: tuning.batch], order[tuning.batch :]
        optimiser.param_groups[0]["lr"] = tuning.rate * (1 - step / tuning.steps)
        optimiser.zero_grad()
        loss(batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.eval()


def in_batches(tokens: Tokens, size: int) -> Iterator[Tokens]:
    return (tokens[start : start + size] for start in range(0, len(tokens), size))

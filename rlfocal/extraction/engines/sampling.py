"""Samples tokens. A document, seed and sample number give the same text, whatever else is in the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

LOGITS_AT_ONCE = 2**21
"""The most logits that texts are sampled from at once: some eight copies in double precision take 128 MiB."""
NUCLEUS_TOKENS = 64  # tokens that are searched for the nucleus first


def uniforms(seed: int, doc_ids: Sequence[int], passes: int, steps: int) -> Tensor:
    """Float64 numbers in [0, 1), one for every token that may be sampled: (documents, passes, steps).

    A document's numbers depend on its doc_id and the seed alone. Those of sample p do not depend on how many
    samples follow.
    """
    drawn = [np.random.default_rng([seed, doc_id]).random((passes, steps)) for doc_id in doc_ids]
    return torch.from_numpy(np.stack(drawn))


def draw(logits: Tensor, rows: Tensor, uniform: Tensor, temperature: float, top_p: float) -> Tensor:
    """The next token of each of T texts: (T,).

    Each token inverts its text's distribution function; at temperature 0, it is the likeliest. `logits`:
    (rows, vocabulary). `rows`: (T,) the row of each text, ascending, where several texts may have the same
    row. `uniform`: (T,). The nucleus is the smallest set of likeliest tokens whose probabilities sum to
    `top_p` or more.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)[rows]
    at_once = max(1, LOGITS_AT_ONCE // logits.shape[-1])
    drawn = []
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        first, last = int(some[0]), int(some[-1])
        numbers = uniform[start : start + at_once]
        drawn.append(_draw_tokens(logits[first : last + 1], some - first, numbers, temperature, top_p))
    return torch.cat(drawn)


def _draw_tokens(logits: Tensor, rows: Tensor, uniform: Tensor, temperature: float, top_p: float) -> Tensor:
    # Double precision, so that rounding rarely moves a boundary past a drawn number.
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    uniform = uniform.to(probabilities)[:, None]
    if top_p >= 1:
        return _draw_inverse(probabilities[rows], uniform).squeeze(-1)
    likely, tokens = probabilities.topk(min(NUCLEUS_TOKENS, logits.shape[-1]))
    drawn = tokens[rows].gather(-1, _draw_inverse(_keep_nucleus(likely, top_p)[rows], uniform))
    flat = likely.sum(dim=-1) < top_p
    if flat.any():
        of_flat, place = flat[rows], flat.cumsum(dim=0) - 1
        nuclei = _keep_wide_nucleus(probabilities[flat], top_p)[place[rows[of_flat]]]
        drawn[of_flat] = _draw_inverse(nuclei, uniform[of_flat])
    return drawn.squeeze(-1)


def _keep_wide_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities with zeros outside the nucleus, for rows in the order of the vocabulary."""
    nucleus = _keep_nucleus(_sort_descending(probabilities), top_p)
    size = (nucleus > 0).sum(dim=-1, keepdim=True)
    least = nucleus.gather(-1, size - 1)
    level = probabilities == least
    room = size - (probabilities > least).sum(dim=-1, keepdim=True)
    kept = (probabilities > least) | (level & (level.cumsum(dim=-1) <= room))
    return probabilities.where(kept, 0.0)


def _sort_descending(values: Tensor) -> Tensor:
    """Rows sorted in descending order. On a CPU, numpy takes a tenth of the time of torch, which also sorts
    indices."""
    if values.device.type != "cpu":
        return values.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)[:, ::-1].copy())


def _keep_nucleus(ordered: Tensor, top_p: float) -> Tensor:
    """Probabilities in descending order, with zeros for tokens after those that reach `top_p`."""
    before = ordered.cumsum(dim=-1) - ordered
    return ordered.where(before < top_p, 0.0)


def _draw_inverse(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the running sum of `weights` passes the share `uniform` of their total."""
    reached = weights.cumsum(dim=-1)
    chosen = torch.searchsorted(reached, uniform * reached[:, -1:], right=True)
    return chosen.clamp(max=weights.shape[-1] - 1)


class StopStrings:
    """Finds stop strings in sampled texts. It decodes a text only after tokens that can complete a stop
    string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._stop = [s for s in stop if s]
        self.may_end = self._may_end(vocabulary)

    def _may_end(self, vocabulary: int) -> Tensor:
        """Whether each token of the vocabulary may hold the last character of a stop string:
        (vocabulary,)."""
        if not self._stop:
            return torch.zeros(vocabulary, dtype=torch.bool)
        last = {s[-1] for s in self._stop}
        if any((c.isspace() and c != "\n") or not c.isascii() for c in last):
            # Decoders drop a lone token's spaces, and a character of several bytes may span tokens.
            return torch.ones(vocabulary, dtype=torch.bool)
        n_pieces = min(vocabulary, len(self._tokenizer))
        pieces = self._tokenizer.batch_decode([[i] for i in range(n_pieces)])
        mask = torch.zeros(vocabulary, dtype=torch.bool)
        mask[:n_pieces] = torch.tensor([not last.isdisjoint(piece) for piece in pieces])
        return mask

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def is_stopped(self, tokens: Sequence[int]) -> bool:
        text = self.text(tokens)
        return any(s in text for s in self._stop)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        return text[: min((i for s in self._stop if (i := text.find(s)) >= 0), default=len(text))]


MIN_TOLERANCE = 1e-4
"""The difference between two log-probabilities that is tolerated in any precision."""
ROUNDING_STEPS = 3
"""The tolerated difference in rounding steps of the value. SmolLM2, with 30 layers, differs by 1.1 steps in
bfloat16 and 1.3 in float16."""


class LogprobComparison(NamedTuple):
    """A comparison of log-probabilities from lm-eval's way to compute them with those from a faster one."""

    difference: float
    """The largest absolute difference; NaN if a value is not finite."""
    tolerance: float

    @property
    def is_close(self) -> bool:
        return self.difference <= self.tolerance


def compare(expected: Sequence[float], scored: Sequence[float], dtype: torch.dtype) -> LogprobComparison:
    """Compares two lists of log-probabilities, with the tolerance that rounding in `dtype` explains."""
    differences = [abs(a - b) for a, b in zip(expected, scored, strict=True)]
    if not all(math.isfinite(difference) for difference in differences):
        return LogprobComparison(math.nan, MIN_TOLERANCE)
    tolerance = max(MIN_TOLERANCE, ROUNDING_STEPS * torch.finfo(dtype).eps * max(map(abs, expected)))
    return LogprobComparison(max(differences), tolerance)

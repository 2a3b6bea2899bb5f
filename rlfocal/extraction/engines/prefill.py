"""Runs a transformers model on each prefix once, and continues from its key-value cache.

With a vocabulary of 256,000 tokens, the logits of one position take a MiB in single precision. So logits, not
tokens, bound a batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from rlfocal.extraction.engines.tokens import PrefixGroup, SuffixScore, Tokens, common_length

LOGITS_AT_ONCE = 2**24
"""The most logits that are copied at once: 64 MiB in single precision."""
MIN_PREAMBLE_TOKENS = 16
"""The least number of first tokens that all prefixes of a batch must share to have them read separately."""
MAX_LOGIT_BYTES = 2**30
"""The most bytes of logits in memory at once, even if more memory is free: larger batches are no faster."""
FREE_MEMORY_DIVISOR = 4
"""The divisor that gives the logits' part of free memory: several engines may run, and each copies as it
computes."""
FLOAT_BYTES = 4


class PrefixCache(NamedTuple):
    """The model's state after a batch of prefixes, padded on the left so that every row continues at the same
    index."""

    logits: Tensor
    """The logits of the token after each prefix: (rows, vocabulary)."""
    cache: Any
    mask: Tensor
    """The attention mask, 1 for a token and 0 for padding: (rows, width)."""
    lengths: Tensor
    """The number of tokens of each prefix: (rows,)."""


class Prefiller:
    """Reads prefixes and scores their continuations.

    `free_masks` says whether a row may have padding inside and hold several choices. Layers with a sliding
    window, or biased by distance, do not allow that: each choice then gets a row of its own.
    """

    def __init__(self, model: Any, max_length: int) -> None:
        self._model = model
        self._max_length = max_length
        self._positions = "position_ids" in inspect.signature(model.forward).parameters
        self.free_masks = True

    @property
    def device(self) -> torch.device:
        return torch.device(self._model.device)

    def tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)

    def forward(self, inputs: Tensor, mask: Tensor, positions: Tensor, cache: Any, **options: Any) -> Any:
        if self._positions:
            options["position_ids"] = positions
        return self._model(
            input_ids=inputs, attention_mask=mask, past_key_values=cache, use_cache=True, **options
        )

    def read(self, prefixes: Sequence[Tokens]) -> PrefixCache:
        """Reads every prefix. First tokens that all prefixes share, such as few-shot examples, are read
        once."""
        shared = min(common_length(prefixes), min(map(len, prefixes)) - 1)
        if len(prefixes) == 1 or shared < MIN_PREAMBLE_TOKENS or not self.free_masks:
            return self._read(prefixes, None)
        start = self._read([prefixes[0][:shared]], None)
        if any(start.cache.is_sliding):
            return self._read(prefixes, None)
        start.cache.reorder_cache(self.tensor([0] * len(prefixes)))
        return self._read([prefix[shared:] for prefix in prefixes], start)

    def _read(self, prefixes: Sequence[Tokens], start: PrefixCache | None) -> PrefixCache:
        width = max(map(len, prefixes))
        inputs = self.tensor([(0,) * (width - len(p)) + p for p in prefixes])
        lengths = self.tensor([len(p) for p in prefixes])
        mask = (torch.arange(width, device=inputs.device) >= (width - lengths)[:, None]).long()
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        cache = None
        if start is not None:
            positions, lengths = positions + start.lengths, lengths + start.lengths
            mask, cache = torch.cat([start.mask.expand(len(prefixes), -1), mask], dim=1), start.cache
        out = self.forward(inputs, mask, positions, cache, logits_to_keep=1)
        return PrefixCache(out.logits[:, -1], out.past_key_values, mask, lengths)

    def score_tails(
        self, prefixes: PrefixCache, suffixes: Sequence[Sequence[Tokens]]
    ) -> list[list[SuffixScore]]:
        """The scores of all tokens but the first of every suffix, by row and suffix; empty for suffixes of
        one token."""
        if all(len(suffix) == 1 for row in suffixes for suffix in row):
            return [[SuffixScore((), True)] * len(row) for row in suffixes]
        if self.free_masks and not any(prefixes.cache.is_sliding):
            return self._score_tails_in_a_row(prefixes, suffixes)
        return self._score_tails_as_rows(prefixes, suffixes)

    def _score_tails_in_a_row(
        self, prefixes: PrefixCache, suffixes: Sequence[Sequence[Tokens]]
    ) -> list[list[SuffixScore]]:
        """Scores all suffixes of a prefix in one row. A mask hides each suffix from the others."""
        inputs, targets = ([_chain(row, part) for row in suffixes] for part in (slice(-1), slice(1, None)))
        owners = [[c for c, s in enumerate(row) for _ in s[1:]] for row in suffixes]
        offsets = [[i for s in row for i in range(len(s) - 1)] for row in suffixes]
        width = max(map(len, inputs))
        owner = self.tensor([_pad(o, width, -1) for o in owners])
        positions = prefixes.lengths[:, None] + self.tensor([_pad(o, width, 0) for o in offsets])
        positions = positions.clamp(max=self._max_length - 1)  # padding may lie beyond what is embedded
        seen = torch.ones(width, width, dtype=torch.bool, device=self.device).tril()
        own = (owner[:, :, None] == owner[:, None, :]) & seen
        past = prefixes.mask.bool()[:, None, :].expand(-1, width, -1)
        allowed = torch.cat([past, own], dim=2)[:, None]
        dtype = self._model.dtype
        mask = torch.zeros(allowed.shape, dtype=dtype, device=self.device)
        mask.masked_fill_(~allowed, torch.finfo(dtype).min)
        asked = self.tensor([_pad(tokens, width, 0) for tokens in inputs])
        logits = self.forward(asked, mask, positions, prefixes.cache).logits
        wanted = self.tensor([_pad(tokens, width, 0) for tokens in targets])
        logprobs, greedy = token_scores(logits.flatten(0, 1), wanted.flatten())
        scores = []
        for n, row in enumerate(suffixes):
            start = n * width
            scored = []
            for suffix in row:
                own_tokens = slice(start, start + len(suffix) - 1)
                scored.append(SuffixScore(tuple(logprobs[own_tokens]), all(greedy[own_tokens])))
                start = own_tokens.stop
            scores.append(scored)
        return scores

    def _score_tails_as_rows(
        self, prefixes: PrefixCache, suffixes: Sequence[Sequence[Tokens]]
    ) -> list[list[SuffixScore]]:
        """Scores every suffix of several tokens in a row of its own, with a copy of its prefix's cache."""
        scored = [[SuffixScore((), True)] * len(row) for row in suffixes]
        rows = [(r, c) for r, row in enumerate(suffixes) for c, s in enumerate(row) if len(s) > 1]
        parent = self.tensor([r for r, _ in rows])
        width = max(len(suffixes[r][c]) for r, c in rows) - 1
        inputs = self.tensor([_pad(suffixes[r][c][:-1], width, 0) for r, c in rows])
        targets = self.tensor([_pad(suffixes[r][c][1:], width, 0) for r, c in rows])
        prefixes.cache.reorder_cache(parent)
        mask = torch.cat([prefixes.mask[parent], torch.ones_like(inputs)], dim=1)
        positions = prefixes.lengths[parent][:, None] + torch.arange(width, device=inputs.device)
        positions = positions.clamp(max=self._max_length - 1)  # as above
        logits = self.forward(inputs, mask, positions, prefixes.cache).logits
        logprobs, greedy = token_scores(logits.flatten(0, 1), targets.flatten())
        for n, (r, c) in enumerate(rows):
            own = slice(n * width, n * width + len(suffixes[r][c]) - 1)
            scored[r][c] = SuffixScore(tuple(logprobs[own]), all(greedy[own]))
        return scored


def token_scores(logits: Tensor, targets: Tensor) -> tuple[list[float], list[bool]]:
    """The log-probability of each row's target, and whether it is the only likeliest token. Logits: (rows,
    vocabulary). vLLM's ranks agree: where two tokens are equally likely, no token has rank 1."""
    at_once = max(1, LOGITS_AT_ONCE // logits.shape[-1])
    parts = [slice(start, start + at_once) for start in range(0, len(logits), at_once)]
    scored = [_score_tokens(logits[part], targets[part]) for part in parts]
    logprobs, greedy = (torch.cat(of_parts) for of_parts in zip(*scored, strict=True))
    return logprobs.tolist(), greedy.tolist()


def _score_tokens(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.float()
    chosen = logits.gather(-1, targets[:, None]).squeeze(-1)
    greedy = logits.argmax(dim=-1) == targets
    first = greedy.nonzero().squeeze(-1)  # of several, argmax may take this one
    greedy[first] = (logits[first] >= chosen[first, None]).sum(dim=-1) == 1
    return chosen - logits.logsumexp(dim=-1), greedy


def _chain(row: Sequence[Tokens], part: slice) -> list[int]:
    return list(chain.from_iterable(suffix[part] for suffix in row))


def _pad(values: Sequence[int], width: int, padding: int) -> list[int]:
    return [*values, *[padding] * (width - len(values))]


def logit_bytes(free: int) -> int:
    """The bytes of logits in memory at once, given the free bytes. It is a power of two, so that all runs on
    one machine make the same batches."""
    most = max(1, min(MAX_LOGIT_BYTES, free // FREE_MEMORY_DIVISOR))
    return int(2 ** (most.bit_length() - 1))


def free_bytes(device: torch.device) -> int:
    """The free bytes of the machine's memory, or of a GPU's, including those that torch has reserved and does
    not use."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return int(psutil.virtual_memory().available)


def split_by_rows(group: PrefixGroup, rows: int) -> Iterator[PrefixGroup]:
    """Yields the group's choices in parts of at most `rows` tokens, or of one longer choice."""
    part: list[int] = []
    held = 0
    for number, suffix in enumerate(group.suffixes):
        if part and held + len(suffix) > rows:
            yield _select_choices(group, part)
            part, held = [], 0
        part.append(number)
        held += len(suffix)
    yield _select_choices(group, part)


def _select_choices(group: PrefixGroup, numbers: list[int]) -> PrefixGroup:
    choices = tuple(group.choices[number] for number in numbers)
    return group._replace(choices=choices, suffixes=tuple(group.suffixes[number] for number in numbers))

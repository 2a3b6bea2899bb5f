"""How many rows of logits, a number for each word of the vocabulary, an engine may hold at once.

With 256,000 words a row takes a MiB in single precision: what bounds a batch there is not its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import torch

from rlfocal.extraction.engines.tokens import Group

MOST = 2**30
"""Bytes of logits at once, however much memory is free: larger batches are no faster."""
SHARE = 4
"""Inverse of the share of the free memory: several engines may run, and each makes copies as it computes."""
FLOAT = 4
PROMPT_TOKEN = 10
"""Bytes that vLLM holds for each token of a prompt and each word: logits, float32 log-softmax, ranks."""


def logit_bytes(free: int) -> int:
    """Bytes for logits out of those that are free: a power of two, so that a machine's runs batch alike."""
    most = max(1, min(MOST, free // SHARE))
    return int(2 ** (most.bit_length() - 1))


def prompt_tokens(vocabulary: int, room: int, *, least: int, most: int) -> int:
    """How many tokens of prompts vLLM may read at once so that their log-probs take half of `room` bytes.

    A power of two from `least` to `most`. vLLM's profile of its memory knows nothing of prompt log-probs, so
    they have what it does not claim (`room`), and torch's other allocations the other half.
    """
    fit = max(1, room // (2 * PROMPT_TOKEN * vocabulary))
    return min(most, max(least, int(2 ** (fit.bit_length() - 1))))


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a GPU, what torch keeps for itself included, or in the machine."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return int(psutil.virtual_memory().available)


def split_by_rows(group: Group, rows: int) -> Iterator[Group]:
    """The group, in parts of fewer choices where these have more tokens than `rows`."""
    part: list[int] = []
    held = 0
    for at, suffix in enumerate(group.suffixes):
        if part and held + len(suffix) > rows:
            yield _part(group, part)
            part, held = [], 0
        part.append(at)
        held += len(suffix)
    yield _part(group, part)


def _part(group: Group, kept: list[int]) -> Group:
    choices = tuple(group.choices[at] for at in kept)
    return group._replace(choices=choices, suffixes=tuple(group.suffixes[at] for at in kept))

"""Votes of a pool, with the tie rules that every figure depends on.

The plurality is counted in three ways, each the fastest for its use. `plurality` counts the votes of each
slot (29 times as fast as `pluralities` for 120 models). `pluralities` codes each vote and its support as one
number (twice as fast as margins for every pool of 12 models). `windows.Outcomes` counts the label's margins
by matrix products, for all pools of a window at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Kind

_BLOCK_ENTRIES = 1 << 24  # numbers in one temporary array


def mark_correct(predictions: Ints, labels: Ints) -> Bools:
    """(T, N) whether predictions (T, N) equal the labels (T,); a -1 in either is never right."""
    return np.asarray((predictions == labels[:, None]) & (predictions >= 0))


def plurality(predictions: Ints, pools: Bools, kind: Kind) -> Ints:
    """(T,) the slot that most models of the pool predict; -1 where no member has an answer.

    `predictions` is (T, N), -1 for no answer; `pools` is (T, N), or (N,) for the same pool on all documents.
    Ties go to the lowest choice index, or to the free answer of the alphabetically first model of the pool.
    """
    members = np.broadcast_to(pools, predictions.shape) & (predictions >= 0)
    slots = np.arange(max(int(predictions.max(initial=0)) + 1, 1))
    votes = np.stack([((predictions == slot) & members).sum(axis=1) for slot in slots], axis=1)
    if kind == "choices":
        winner = votes.argmax(axis=1)
    else:
        support = np.take_along_axis(votes, np.maximum(predictions, 0), axis=1)
        first = np.where(members, support, -1).argmax(axis=1)  # argmax: the first of equals
        winner = predictions[np.arange(len(predictions)), first]
    return np.where(members.any(axis=1), winner, -1).astype(np.int64)


def pluralities(
    predictions: Ints, labels: Ints, pools: Bools, kind: Kind
) -> Iterator[tuple[slice, int, Bools]]:
    """Yields a block of documents, the position of a pool, and on which of these its plurality is right.

    A member's claim is a number that encodes how many members give the same answer, then its precedence in a
    tie. The last bit says whether the answer is right. So the highest claim says whether the plurality is.
    """
    used = np.flatnonzero(pools.any(axis=0))
    votes_of = np.ascontiguousarray(predictions[:, used].T)
    order = (
        len(used) - 1 - np.arange(len(used))[:, None]
        if kind == "answers"
        else votes_of.max(initial=0) - votes_of
    )
    rest = 2 * order + ((votes_of == labels) & (votes_of >= 0))
    unit = 2 * (int(order.max(initial=0)) + 1)
    count = np.min_scalar_type(len(used))
    claim = np.min_scalar_type(unit * (len(used) + 1))
    rest = np.where(votes_of >= 0, rest, 0).astype(claim)
    members = [np.flatnonzero(pool) for pool in pools[:, used]]
    for block in blocks(len(labels), len(used) ** 2):
        here = votes_of[:, block]
        same = ((here[:, None] == here) & (here >= 0)).astype(count)
        for pool, chosen in enumerate(members):
            votes = np.add.reduce(same[chosen[:, None], chosen], axis=1, dtype=count)
            claims = votes.astype(claim) * claim.type(unit) + rest[chosen, block]
            yield block, pool, (np.maximum.reduce(claims, axis=0, initial=0) & 1).astype(np.bool_)


def soft_vote(
    probs: Floats, pools: Bools, kind: Kind, votes: Ints | None = None, text_ranks: Ints | None = None
) -> Ints:
    """(T,) the slot with the highest mean probability over the pool; -1 if all probabilities are 0.

    `probs` is (T, N, C); `pools` is (T, N), or (N,) for the same pool on all documents. Ties go to the lowest
    choice index. For free answers, they go to the alphabetically first model of the pool, and of what it gave
    to the lowest slot. A dataset's own slots also reflect models outside the pool. So they need the pool's
    predictions `votes` (T, N) and the dataset's `text_ranks` (T, C), which break these ties as `Calls` does.
    """
    members = np.broadcast_to(pools, probs.shape[:2])
    size = np.maximum(members.sum(axis=1), 1)
    mean = np.where(members[:, :, None], probs, 0.0).sum(axis=1) / size[:, None]
    if kind == "choices":
        winner = mean.argmax(axis=1)
    else:
        # Shares such as 0.1 are inexact in binary, and ties must not depend on the order of summation.
        top = np.round(mean, 9) == np.round(mean, 9).max(axis=1, keepdims=True)
        winner = find_earliest_slots(top, members[:, :, None] & (probs > 0), votes, text_ranks)
    return np.where(mean.any(axis=1), winner, -1).astype(np.int64)


def find_earliest_slots(
    top: Bools, gave: Bools, votes: Ints | None = None, text_ranks: Ints | None = None
) -> Ints:
    """(T,) the slot of those in `top` (T, C) that the earliest model gave; ties: the lowest.

    `gave` (T, N, C): which slots each model gave. With `votes` (T, N) and `text_ranks` (T, C), ties go to the
    model's vote, then by text.
    """
    n_models = gave.shape[1]
    first = np.where(gave.any(axis=1), gave.argmax(axis=1), n_models)
    if votes is not None and text_ranks is not None:
        of_first = np.take_along_axis(votes, np.minimum(first, n_models - 1), axis=1)
        is_other = of_first != np.arange(top.shape[1])
        first = (2 * first + is_other) * (int(text_ranks.max(initial=0)) + 1) + text_ranks
    slot: Ints = np.where(top, first, np.iinfo(np.int64).max).argmin(axis=1)
    return slot


def blocks(n: int, numbers_each: int) -> Iterator[slice]:
    """Yields slices of n documents, small enough for arrays with `numbers_each` numbers per document."""
    step = max(1, _BLOCK_ENTRIES // max(numbers_each, 1))
    for start in range(0, n, step):
        yield slice(start, start + step)

"""The network that fuses a team's distributions, several seeds side by side (LLM-TOPLA, TOPLA-Weighted)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.learning.stacked import StackedAdam, one_thread, stacked_mlp, weights_of_seed

if TYPE_CHECKING:
    from rlfocal.methods.pools.topla import Topla


_LONG = 1000


def fit_mlps(given: Floats, labels: Ints, n_slots: int, seeds: Sequence[int], how: Topla) -> list[nn.Module]:
    """A network for each seed, from distributions (n, F) to one of `n_slots` slots, labels (n,).

    Keeps the weights of the epoch with the best held-out accuracy; ties: the first. Each seed draws its own
    held-out documents, initial weights and batches.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    sizes = [given.shape[1], how.hidden, how.hidden, n_slots]
    networks = stacked_mlp(sizes, generators)
    optimiser = StackedAdam([networks], how.learning_rate)
    batch = how.batch if len(labels) >= _LONG else how.small_batch
    x, y = torch.tensor(given, dtype=torch.float32), torch.tensor(labels)
    orders = torch.stack([torch.randperm(len(y), generator=one) for one in generators])
    # A single document leaves nothing to hold out.
    n_held = min(max(1, round(how.validation * len(y))), max(len(y) - 1, 0))
    held, taught = (orders[:, :n_held], orders[:, n_held:]) if n_held else (orders, orders)
    best, reached = optimiser.values.clone(), torch.full((len(seeds),), -1.0)
    since = torch.zeros(len(seeds))
    with one_thread():
        for epoch in range(how.epochs if len(y) else 0):
            for rows in torch.split(_shuffled(taught, generators), batch, 1):
                optimiser.descend(_loss(networks(x[rows]), y[rows], how.as_coded))
            with torch.no_grad():
                right = (networks(x[held]).argmax(2) == y[held]).float().mean(1)
            better = (right > reached) & (epoch - since <= how.patience)
            best[better], reached[better], since[better] = (
                optimiser.values[better],
                right[better],
                float(epoch),
            )
            if bool((epoch - since >= how.patience).all()):
                break
    with torch.no_grad():
        optimiser.values.copy_(best)
    return [_of_seed(networks, at, sizes) for at in range(len(seeds))]


def _shuffled(rows: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """(S, n) each seed's rows in an order of its own."""
    draws = [torch.randperm(rows.shape[1], generator=generator) for generator in generators]
    return rows.gather(1, torch.stack(draws))


def _loss(logits: Tensor, labels: Tensor, as_coded: bool) -> Tensor:
    """The mean cross-entropy of each seed's batch, summed over seeds: logits (S, B, C), labels (S, B)."""
    scores = torch.softmax(torch.sigmoid(logits), 2) if as_coded else logits
    return len(logits) * cross_entropy(scores.flatten(0, 1), labels.flatten())


def _of_seed(stacked: nn.Module, at: int, sizes: Sequence[int]) -> nn.Module:
    one = stacked_mlp(sizes, [torch.Generator()])
    one.load_state_dict(weights_of_seed(stacked, at))
    return one

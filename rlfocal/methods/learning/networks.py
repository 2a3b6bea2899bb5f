"""Networks with MAPPO's initialisation, actions from their logits, and Adam on all parameters at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


class Linear(nn.Module):
    """A linear layer: Xavier-uniform weights (n_in, n_out) times `gain`, and one row of biases."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator, gain: float = 1.0) -> None:
        super().__init__()
        bound = gain * (6 / (n_in + n_out)) ** 0.5
        self.weight = nn.Parameter((torch.rand(n_in, n_out, generator=generator) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.full((1, n_out), 0.01))

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in) -> (B, n_out)."""
        return torch.addmm(self.bias, x, self.weight)


def mlp(sizes: Sequence[int], generator: torch.Generator, last_gain: float = 1.0) -> nn.Sequential:
    """Linear layers of these sizes with sigmoids between them: (B, sizes[0]) -> (B, sizes[-1])."""
    pairs = list(pairwise(sizes))
    layers: list[nn.Module] = []
    for n_in, n_out in pairs[:-1]:
        layers += [Linear(n_in, n_out, generator), nn.Sigmoid()]
    return nn.Sequential(*layers, Linear(*pairs[-1], generator, last_gain))


class Adam:
    """The Adam optimiser of several networks' parameters, with a learning rate for each network.

    All parameters are moved into one vector (P,), so that a step is a handful of operations. The gradient of
    each network is scaled down to `max_norm`.
    """

    def __init__(
        self, networks: Sequence[nn.Module], rate: float | Sequence[float], max_norm: float = torch.inf
    ) -> None:
        self.parameters = [p for network in networks for p in network.parameters()]
        self.max_norm = torch.tensor(max_norm)
        self.values = torch.cat([p.detach().flatten() for p in self.parameters])
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0
        self._widths = [sum(p.numel() for p in network.parameters()) for network in networks]
        rates = [rate] * len(networks) if isinstance(rate, float) else rate
        self.rate = torch.tensor(rates).repeat_interleave(torch.tensor(self._widths))
        parts = torch.split(self.values, [p.numel() for p in self.parameters])
        for p, part in zip(self.parameters, parts, strict=True):
            p.data = part.view(p.shape)

    def descend(self, loss: Tensor, share: float = 1.0) -> list[Tensor]:
        """Takes one step down the gradient of the loss, at this share of the learning rates.

        Returns the gradient's norm for each network, before it is scaled down.
        """
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return self.step(gradients, share)

    @torch.no_grad()
    def step(self, by_parameter: Sequence[Tensor], share: float = 1.0) -> list[Tensor]:
        """Takes one step down these gradients, which are shaped like the parameters."""
        gradients, norms = self._clip(by_parameter)
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in ADAM_BETAS)
        self.mean.lerp_(gradients, 1 - ADAM_BETAS[0])
        self.square.lerp_(gradients.square_(), 1 - ADAM_BETAS[1])
        deviation = (self.square / second).sqrt_().add_(ADAM_EPSILON)
        self.values.sub_((self.mean / deviation).mul_(self.rate * (share / first)))
        return norms

    def _clip(self, by_parameter: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """(P,) gradients, scaled down network by network, and their norms before that."""
        gradients = torch.cat([g.flatten() for g in by_parameter])
        norms = []
        for own in torch.split(gradients, self._widths):
            norm = own.square().sum().sqrt_()
            own.mul_((self.max_norm / (norm + 1e-6)).clamp_(max=1.0))
            norms.append(norm)
        return gradients, norms

    def state(self) -> dict[str, Tensor]:
        """The moments and the number of steps, on which later steps depend besides the parameters."""
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores the moments and the number of steps that `state` returned."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Limits torch, numpy and scipy to one thread.

    More threads cost time on small products, and would change sums.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


SMALLEST_FLOAT = torch.finfo(torch.float32).tiny


def logistic_noise(draws: Tensor) -> Tensor:
    """Logistic noise from uniform draws; a logit exceeds it with the probability sigmoid(logit)."""
    return torch.logit(draws, eps=1e-7)


def gumbel_noise(draws: Tensor) -> Tensor:
    """Gumbel noise from uniform draws; the argmax of logits plus noise is a draw of their softmax."""
    return -(-draws.clamp_min(SMALLEST_FLOAT).log()).clamp_min(SMALLEST_FLOAT).log()


def sample_pool(logits: Tensor, noise: Tensor) -> Tensor:
    """(..., N) a pool of 0 and 1, drawn by branch logits (..., N) and logistic noise (..., N)."""
    return (logits > noise).to(logits.dtype)


def modal_pool(logits: Tensor) -> Tensor:
    """(..., N) the models that are likelier asked than not; the likeliest model if there is none."""
    likeliest = one_hot(logits.argmax(-1), logits.shape[-1])
    chosen = (logits > 0).long()
    return torch.where(chosen.any(-1, keepdim=True), chosen, likeliest).to(logits.dtype)


def move(pool: Tensor, action: Tensor) -> Tensor:
    """(..., N) the pool after a move: it adds or drops the model `action` (...); N changes nothing."""
    changes = one_hot(action, pool.shape[-1] + 1)[..., :-1]
    return (pool - changes).abs()


def moves(old_pool: Tensor, new_pool: Tensor) -> Tensor:
    """(...) the moves, as in `move`, that lead from one pool (..., N) to the next."""
    changed = old_pool != new_pool
    return torch.where(changed.any(-1), changed.long().argmax(-1), old_pool.shape[-1])


def modal_move(logits: Tensor, pool: Tensor) -> Tensor:
    """(..., N) the pool after the likeliest of N+1 moves that leaves at least one model."""
    last_one = (pool > 0) & (pool.sum(-1, keepdim=True) == 1)
    allowed = torch.cat([~last_one, torch.ones_like(last_one[..., :1])], -1)
    return move(pool, logits.masked_fill(~allowed, -torch.inf).argmax(-1))


def next_modal_pool(logits: Tensor, pool: Tensor) -> Tensor:
    """(..., N) the pool that a frozen Decider asks next: by its branches or, from N+1 logits, by one move."""
    return modal_pool(logits) if logits.shape[-1] == pool.shape[-1] else modal_move(logits, pool)


def mask_closed(logits: Tensor, open_slots: Tensor) -> Tensor:
    """(..., C) the logits, -inf where `open_slots` is false; if no slot is open, slot 0 keeps its logit."""
    first = torch.arange(logits.shape[-1]) == 0
    allowed = open_slots | (first & ~open_slots.any(-1, keepdim=True))
    return logits.masked_fill(~allowed, -torch.inf)


def sample_slot(logits: Tensor, noise: Tensor) -> Tensor:
    """(...) a slot drawn by the softmax of the logits (..., C), with Gumbel noise (..., C)."""
    return (logits + noise).argmax(-1)


def modal_answer(logits: Tensor) -> Tensor:
    """(...) the likeliest slot; ties: the lowest."""
    return logits.argmax(-1)


def branch_log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    """(..., N) log π(a_i|o) of each Bernoulli branch, Eq (5), from `logits` and `actions` (0 or 1)."""
    return logsigmoid(torch.where(actions.bool(), logits, -logits))


def branch_entropy(logits: Tensor) -> Tensor:
    """(..., N) the entropy of each Bernoulli branch, in nats."""
    p = torch.sigmoid(logits)
    return -(p * logsigmoid(logits) + (1 - p) * logsigmoid(-logits))


def choice_entropy(logits: Tensor) -> Tensor:
    """(...) the entropy of a categorical policy, in nats; slots of probability 0 add nothing."""
    log_p = torch.log_softmax(logits, -1)
    return -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(-1)

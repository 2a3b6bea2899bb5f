"""A logits processor for vLLM that makes it continue a prompt with given tokens, to return their
log-probabilities."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from rlfocal.extraction.engines.vllm import FORCED_TOKENS


class TokenForcer(AdapterLogitsProcessor):  # type: ignore[misc]
    """Forces vLLM to draw the tokens that a request lists. vLLM takes log-probabilities before the logits are
    changed."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(
        self, params: SamplingParams
    ) -> Callable[[list[int], Tensor], Tensor] | None:
        tokens: list[int] | None = (params.extra_args or {}).get(FORCED_TOKENS)
        return None if tokens is None else _force(tokens)


def _force(tokens: list[int]) -> Callable[[list[int], Tensor], Tensor]:
    """A function that raises the logit of the request's next token to infinity. `drawn`: the tokens drawn so
    far. `logits`: (vocabulary,)."""

    def force(drawn: list[int], logits: Tensor) -> Tensor:
        logits[tokens[len(drawn)]] = float("inf")
        return logits

    return force

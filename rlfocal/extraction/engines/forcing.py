"""A logits processor for vLLM, which continues a prompt by given tokens and returns their
log-probabilities."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from rlfocal.extraction.engines.vllm import FORCED_TOKENS


class TokenForcer(AdapterLogitsProcessor):  # type: ignore[misc]
    """Draws the tokens that a request names. vLLM takes log-probabilities before it changes the logits."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(
        self, params: SamplingParams
    ) -> Callable[[list[int], Tensor], Tensor] | None:
        tokens: list[int] | None = (params.extra_args or {}).get(FORCED_TOKENS)
        return None if tokens is None else _force(tokens)


def _force(tokens: list[int]) -> Callable[[list[int], Tensor], Tensor]:
    """A function that makes the logit of the token after the `drawn` ones the largest.

    Logits: (vocabulary,).
    """

    def force(drawn: list[int], logits: Tensor) -> Tensor:
        logits[tokens[len(drawn)]] = float("inf")
        return logits

    return force

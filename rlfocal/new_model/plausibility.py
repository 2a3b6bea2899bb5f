"""Bounds that a working model's answers to a few documents stay within.

A fault is a figure, its bound, and what to do.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import poisson_binom

from rlfocal.base.arrays import Floats
from rlfocal.base.wording import counted

CHANCE_LEVEL = 0.005
"""How rarely a guessing model is called below chance: of 20 documents with four choices, at 0 right."""
FEWEST = 10
"""From this many documents on, the same answer to all of them means something."""
FLAT = 1e-6
"""Log-probs of a document's choices that differ by less are equal."""


def faults_of_choices(
    where: str, logprobs: Sequence[Sequence[float]], token_logprobs: Floats, labels: Sequence[int]
) -> list[str]:
    """Log-probs that are invalid, the same choice throughout, or fewer right answers than guessing gives.

    `logprobs`: per document, of each choice; `token_logprobs`: every token's, of every choice; `labels`: -1
    where no choice is right.
    """
    n, n_tokens = len(logprobs), token_logprobs.size
    if odd := n_tokens - int(((token_logprobs <= FLAT) & np.isfinite(token_logprobs)).sum()):
        return [
            f"{where}: {odd:,} of {n_tokens:,} log-probs are NaN, infinite or positive; none may be. "
            "Try another dtype (bfloat16 or float32): float16 overflows in some models."
        ]
    if all(max(values) - min(values) < FLAT for values in logprobs):
        return [
            f"{where}: all choices of all {n} documents are equally likely; they must differ somewhere. The "
            "weights do not match the configuration: download the model again, or check its revision."
        ]
    chosen = [int(np.argmax(values)) for values in logprobs]
    if n >= FEWEST and len(set(chosen)) == 1 and len(set(labels)) > 1:
        return [
            f"{where}: choice {chosen[0]} to all {n} documents; at least two different ones are expected. An "
            "instruction-tuned model may need the benchmark's chat variant (chat_template: true); check also "
            "the tokenizer and the revision."
        ]
    n_right = sum(choice == label for choice, label in zip(chosen, labels, strict=True))
    chances = poisson_binom.cdf(np.arange(n + 1), [1 / len(values) for values in logprobs])
    if chances[n_right] >= CHANCE_LEVEL:
        return []
    return [
        f"{where}: {n_right} of {n} right; guessing gets {int(np.argmax(chances >= CHANCE_LEVEL))} or more "
        f"with a probability of {1 - CHANCE_LEVEL:.1%}. Check tokenizer, revision and chat template: the "
        "model does not read the text as written."
    ]


def faults_of_answers(where: str, answers: Sequence[Sequence[str | None]]) -> list[str]:
    """No answer in any text, or the same one throughout.

    `answers`: per document, what was parsed from each pass; None: nothing.
    """
    n = len(answers)
    given = [answer for passes in answers for answer in passes]
    found = {answer for answer in given if answer is not None}
    if given and not found:
        return [
            f"{where}: no answer in any of {counted(len(given), 'text')}; at least one is expected. Look at "
            "the texts: an instruction-tuned model may need the benchmark's chat variant."
        ]
    if n >= FEWEST and len(found) == 1:
        return [
            f"{where}: the answer {found.pop()!r:.40} to all {n} documents; at least two different ones are "
            "expected. Check the tokenizer and the revision: the model does not read the questions."
        ]
    return []


def faults_of_tokenizer(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """Texts that encoding and decoding changes, apart from case, spacing and the Unicode form of letters."""
    lost = [text for text in texts if _plain(_round_trip(tokenizer, text)) != _plain(text)]
    if not lost:
        return []
    back = _round_trip(tokenizer, lost[0])
    at = next((i for i, (a, b) in enumerate(zip(lost[0], back, strict=False)) if a != b), 0)
    return [
        f"tokenizer: {len(lost)} of {counted(len(texts), 'text')} changed by encoding and decoding, "
        f"{lost[0][at : at + 20]!r} to {back[at : at + 20]!r}; none may be. Save the tokenizer that the "
        "model was trained with beside its weights."
    ]


def _round_trip(tokenizer: Any, text: str) -> str:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())

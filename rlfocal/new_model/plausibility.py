"""Bounds that a working model's answers to a few documents stay within."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Fault:
    """What is not plausible about a model."""

    figure: str
    bound: str
    fix: str

    def __str__(self) -> str:
        return f"{self.figure}; {self.bound}. {self.fix}"


@dataclass(frozen=True)
class Scored:
    """A model's answers to D documents with choices."""

    logprobs: Sequence[Sequence[float]]
    """Per document, of each choice."""
    token_logprobs: Floats
    """Every token's, of every choice."""
    labels: Sequence[int]
    """-1 where no choice is right."""


def faults_of_choices(where: str, scored: Scored) -> list[Fault]:
    """Log-probs that are invalid, the same choice throughout, or fewer right answers than guessing gives."""
    odd = int(np.sum(~(scored.token_logprobs <= FLAT) | ~np.isfinite(scored.token_logprobs)))
    if odd:
        return [
            Fault(
                f"{where}: {odd:,} of {scored.token_logprobs.size:,} log-probs are NaN, infinite or positive",
                "none may be",
                "Try another dtype (bfloat16 or float32): float16 overflows in some models.",
            )
        ]
    constant = _constant(where, scored)
    return [constant] if constant else _below_chance(where, scored)


def _constant(where: str, scored: Scored) -> Fault | None:
    n = len(scored.logprobs)
    flat = sum(max(values) - min(values) < FLAT for values in scored.logprobs)
    chosen = {int(np.argmax(values)) for values in scored.logprobs}
    if flat == n:
        return Fault(
            f"{where}: all choices of all {n} documents are equally likely",
            "they must differ somewhere",
            "The weights do not match the configuration: download the model again, or check its revision.",
        )
    if n >= FEWEST and len(chosen) == 1 and len(set(scored.labels)) > 1:
        return Fault(
            f"{where}: choice {chosen.pop()} to all {n} documents",
            "at least two different ones are expected",
            "An instruction-tuned model may need the benchmark's chat variant (chat_template: true); check "
            "also the tokenizer and the revision.",
        )
    return None


def _below_chance(where: str, scored: Scored) -> list[Fault]:
    n_right = sum(
        label >= 0 and int(np.argmax(values)) == label
        for values, label in zip(scored.logprobs, scored.labels, strict=True)
    )
    guess = [1 / len(values) for values in scored.logprobs]
    if poisson_binom.cdf(n_right, guess) >= CHANCE_LEVEL:
        return []
    lowest = next(k for k in range(len(guess) + 1) if poisson_binom.cdf(k, guess) >= CHANCE_LEVEL)
    return [
        Fault(
            f"{where}: {n_right} of {len(guess)} right",
            f"guessing gets {lowest} or more with a probability of {1 - CHANCE_LEVEL:.1%}",
            "Check tokenizer, revision and chat template: the model does not read the text as written.",
        )
    ]


def faults_of_answers(where: str, answers: Sequence[Sequence[str | None]]) -> list[Fault]:
    """No answer in any text, or the same one throughout.

    `answers`: per document, what was parsed from each pass; None: nothing.
    """
    n = len(answers)
    given = [answer for passes in answers for answer in passes]
    found = {answer for answer in given if answer is not None}
    if given and not found:
        return [
            Fault(
                f"{where}: no answer in any of {counted(len(given), 'text')}",
                "at least one is expected",
                "Look at the texts: an instruction-tuned model may need the benchmark's chat variant.",
            )
        ]
    if n >= FEWEST and len(found) == 1:
        return [
            Fault(
                f"{where}: the answer {found.pop()!r:.40} to all {n} documents",
                "at least two different ones are expected",
                "Check the tokenizer and the revision: the model does not read the questions.",
            )
        ]
    return []


def faults_of_tokenizer(tokenizer: Any, texts: Sequence[str]) -> list[Fault]:
    """Texts that encoding and decoding changes, apart from case, spacing and the Unicode form of letters."""
    lost = [text for text in texts if _plain(_round_trip(tokenizer, text)) != _plain(text)]
    if not lost:
        return []
    back = _round_trip(tokenizer, lost[0])
    at = next((i for i, (a, b) in enumerate(zip(lost[0], back, strict=False)) if a != b), 0)
    return [
        Fault(
            f"tokenizer: {len(lost)} of {counted(len(texts), 'text')} changed by encoding and decoding, "
            f"{lost[0][at : at + 20]!r} to {back[at : at + 20]!r}",
            "none may be",
            "Save the tokenizer that the model was trained with beside its weights.",
        )
    ]


def _round_trip(tokenizer: Any, text: str) -> str:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())

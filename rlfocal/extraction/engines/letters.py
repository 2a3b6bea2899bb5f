"""Which choice a chat service means: by the likeliest first tokens of its answer, or by sampled texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines.chat_answers import Token

LONGEST = 16
"""Characters of a choice that a service can be asked to name."""
FLOOR = 1e-6
"""The probability of a choice that was never named: a share of 0 has no logarithm."""
DECORATION = " \t\r\n▁ĠĊ*_`\"'()[]{}<>.:#$\\"
"""What may stand around a choice: " A", "(A", "**A**", "A."."""
LEAD = r"(?i:(?:the\s+)?(?:(?:correct|right|best|final)\s+)?answer\s*(?:is)?\s*:?)?"


class Belief(NamedTuple):
    """What a service holds of one document's choices."""

    logprobs: tuple[float, ...]
    """One a choice; their probabilities need not sum to 1."""
    covered_mass: float
    """The probability of all answers that name a choice, as far as they are known."""


def names_of(document: Document) -> dict[str, int]:
    """What names each choice, without decoration, and its index. InputError where a word cannot name it."""
    names = [_bare(text) for text in document.continuations]
    for name, text in zip(names, document.continuations, strict=True):
        if not name or len(name) > LONGEST or len(name.split()) > 1:
            raise InputError(
                f"document {document.doc_id}: a chat service names a choice by a letter or word, and cannot "
                f"name {text!r:.60}; leave the benchmark out for this model, or define one whose choices are "
                "letters"
            )
    if not all(len(name) == 1 for name in names):  # "a" is a word, "A" names a choice
        names = [name.casefold() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"document {document.doc_id}: two choices have one name: {', '.join(names)}")
    return {name: index for index, name in enumerate(names)}


def from_tokens(tokens: Sequence[Token], names: Mapping[str, int]) -> Belief:
    """From the likeliest tokens at each place of a greedy answer, up to the first beyond decoration.

    Every token that is a choice's name counts for it, however decorated; behind decoration, times its
    probability. A choice that is not listed is at most as likely as the least likely token that is, and at
    most what all listed ones leave.
    """
    found = [0.0] * len(names)
    reached, unlisted = 1.0, 1.0
    for token in tokens:
        listed = [(each.token, each.probability) for each in token.listed]
        for text, probability in listed:
            if (choice := _choice(text, names)) is not None:
                found[choice] += reached * probability
        left = max(1.0 - sum(probability for _, probability in listed), 0.0)
        unlisted = reached * min([left, *(probability for _, probability in listed)])
        if _bare(token.token):
            break
        reached *= token.probability
    logs = tuple(min(math.log(known or max(unlisted, FLOOR)), 0.0) for known in found)
    return Belief(logs, min(sum(found), 1.0))


def from_texts(texts: Sequence[str], names: Mapping[str, int]) -> Belief:
    """From the share of texts that begin with each choice; others count for none."""
    given = [choice for text in texts if (choice := find_choice(text, names)) is not None]
    shares = [given.count(choice) / len(texts) for choice in range(len(names))]
    return Belief(tuple(math.log(share or FLOOR) for share in shares), len(given) / len(texts))


def find_choice(text: str, names: Mapping[str, int]) -> int | None:
    """The choice that a text begins with, alone or behind "the answer is"; None where it names none.

    >>> names = {"A": 0, "B": 1}
    >>> [find_choice(text, names) for text in ("**B**", "The answer is (A).", "A good question", "b", "E")]
    [1, 0, None, None, None]
    """
    around = f"[{re.escape(DECORATION)}]*"
    is_letter = all(len(name) == 1 for name in names)
    word = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    found = re.match(rf"{around}{LEAD}{around}({word})(?![\w'])", text, 0 if is_letter else re.IGNORECASE)
    if found is None:
        return None
    is_article = found[1] in ("A", "I") and re.match(r"\s+(?!is\b)[a-z]", text[found.end() :])
    return None if is_letter and is_article else names[found[1] if is_letter else found[1].casefold()]


def _choice(token: str, names: Mapping[str, int]) -> int | None:
    name = _bare(token)
    return names.get(name) if len(name) == 1 and name in names else names.get(name.casefold())


def _bare(text: str) -> str:
    return text.strip(DECORATION)

"""How the answers of a benchmark are compared: by a canonical form that equal answers share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from warehouse.answers import is_number, normalise
from warehouse.errors import InputError


class Rule(StrEnum):
    """How answers are compared: `benchmarks.comparison`."""

    DEFAULT = "default"
    """Numbers as numbers, other texts without case and outer punctuation: `normalise`."""
    EXACT = "exact"
    """Character by character, spaces around them aside."""
    NUMERIC = "numeric"
    """As numbers; what is none is no answer."""
    TEXT = "text"
    """As texts, without case and runs of spaces."""
    SOURCE = "source"
    """As the source graded them: an answer graded right is stored as the gold answer. Others by default."""

    def canonical(self, answer: str | None) -> str | None:
        """What an answer is stored and compared as; None if it is none. Idempotent."""
        return None if answer is None else _FORMS[self](answer) or None

    def after(self, stored: Rule, benchmark: str) -> Rule:
        """The rule of a benchmark with answers by a stored rule, too. Raises InputError if both cannot be."""
        if self is stored:
            return self
        if {self, stored} <= {Rule.DEFAULT, Rule.SOURCE}:
            return Rule.SOURCE
        raise InputError(
            f"answers of {benchmark} in the warehouse are compared by the rule {stored}, not {self}: say "
            f"{stored} here, too, or give these another name, such as {benchmark.partition('@')[0]}@v2"
        )


def decimal(share: Fraction) -> str:
    """A fraction's canonical number: a decimal where that is exact, else "1/3".

    >>> decimal(Fraction(-1, 2)), decimal(Fraction(1, 3))
    ('-0.5', '1/3')
    """
    shown = Decimal(share.numerator) / share.denominator
    return (normalise(f"{shown:f}") or "") if Fraction(shown) == share else str(share)


def _number(answer: str) -> str | None:
    form = normalise(answer) or ""
    if parts := re.fullmatch(r"(-?[0-9]{1,15})/(0{0,9}[1-9][0-9]{0,8})", form):
        return decimal(Fraction(int(parts[1]), int(parts[2])))
    return form if is_number(form) else None


def _text(answer: str) -> str:
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", answer).casefold())
    return " ".join(folded.split())


_FORMS: dict[Rule, Callable[[str], str | None]] = {
    Rule.DEFAULT: normalise,
    Rule.EXACT: str.strip,
    Rule.NUMERIC: _number,
    Rule.TEXT: _text,
    Rule.SOURCE: normalise,
}

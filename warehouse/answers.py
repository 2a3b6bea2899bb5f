"""Free answers in the one form they are stored and compared in: equal answers are equal strings."""

from __future__ import annotations

import re
import string
import unicodedata
from decimal import Decimal

CURRENCY = "$€£¥₹"
MINUS = ("-", "−")
MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Words after a number that are not units: dropping them would make different answers equal.
NOT_UNITS = ("am", "pm", "a.m", "p.m", "k", "dozen", "and", "or", "to", "of", "by", "st", "nd", "rd", "th")

_NUMBER = rf"""
    (?P<sign>(?:(?<![\w)])[-+−])?)    # a minus after a word or a bracket subtracts or joins
    \ ?[{CURRENCY}]?\ ?(?P<inner>(?:(?<=[{CURRENCY}])[-+−])?)
    (?P<digits>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    (?P<exponent>(?:[eE][-+]?[0-9]{{1,4}}(?![\w]))?)
    (?P<multiplier>(?:\s(?:{"|".join(MULTIPLIERS)})\b)?)
"""
NUMBER = re.compile(_NUMBER, re.VERBOSE | re.IGNORECASE)
UNIT = rf"(?!(?:{'|'.join(map(re.escape, NOT_UNITS))})\b)[a-z°][a-z.°]*[²³]?"
QUANTITY = re.compile(
    rf"{_NUMBER}\.?(?:\s?%|\s?[{CURRENCY}]|(?:\s(?={UNIT})|(?=[a-z°]{{2}})){UNIT}(?:(?:\s|\s?/\s?){UNIT}){{0,3}})?",
    re.VERBOSE | re.IGNORECASE,
)
OPENING = "".join(set(string.punctuation) - set("-+.$")) + string.whitespace
PUNCTUATION = string.punctuation + string.whitespace + "“”‘’…"


def is_number(answer: str) -> bool:
    """Whether a normalised answer is a number."""
    return NUMBER.fullmatch(answer) is not None


def normalise(answer: str | None) -> str | None:
    """A canonical number where the answer is one ("18.0", "$18" and "18 eggs" are "18"), else folded text.

    None if nothing is left. Idempotent.
    """
    if answer is None:
        return None
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", answer).casefold())
    text = " ".join(folded.replace("’", "'").split())
    bare = text.lstrip(OPENING).rstrip(PUNCTUATION.replace("%", ""))
    for candidate in (bare, text.strip(PUNCTUATION)):
        if number := QUANTITY.fullmatch(candidate):
            return canonical(number)
    return text.strip(PUNCTUATION) or None


def canonical(number: re.Match[str]) -> str:
    """A matched number, exactly: no grouping, no trailing zeros, an exponent only beyond 40 digits."""
    value = Decimal(number["digits"].replace(",", "") + number["exponent"])
    power = MULTIPLIERS.get(number["multiplier"].strip().lower(), 0)
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if not digits:
        return "0"
    point = value.adjusted() + power + 1  # where the decimal point stands among the digits
    if not -40 < point <= 40:
        shown = f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"
    elif point <= 0:
        shown = f"0.{'0' * -point}{digits}"
    else:
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        shown = f"{whole}.{part}" if part else whole
    negative = number["sign"] in MINUS or number["inner"] in MINUS
    return f"-{shown}" if negative else shown

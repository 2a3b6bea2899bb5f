"""Answers of generated texts: finding one in a text, and making equal ones equal strings."""

from __future__ import annotations

import re
import string
import unicodedata
from decimal import Decimal

CURRENCY = "$€£¥₹"
MINUS = ("-", "−")
MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Words after a number that are no unit: dropping them would make different answers equal.
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
STATED = re.compile(r"\banswer(?:\s+is\b|\s*:)(.*)", re.IGNORECASE)


def extract_answer(text: str) -> str | None:
    """The normalised answer of a generated solution: what follows the first "####", else the last number.

    None where there is neither.

    >>> extract_answer("She pays 3 * $6 = $18.\\n#### $18.00")
    '18'
    >>> extract_answer("so there are 1,234 eggs.")
    '1234'
    """
    _, marker, tail = text.partition("####")
    if marker and (final := tail.strip().split("\n", 1)[0]):
        # "#### 3 * 6 = 18" states its answer after the sign.
        stated = final.rpartition("=")[2]
        if first := NUMBER.search(stated):
            return _canonical(first)
        if answer := normalise(final):
            return answer
    numbers = list(NUMBER.finditer(text))
    return _canonical(numbers[-1]) if numbers else None


def extract_text(text: str) -> str | None:
    """The normalised answer of a generated text that need not name a number.

    What follows the first "####", else the last "answer is" or "answer:" of a line, else the last line. None
    where nothing is said.

    >>> extract_text("They met in France. So the answer is **Paris**.")
    'paris'
    >>> extract_text("Paris\\n")
    'paris'
    """
    _, _, tail = text.partition("####")
    final = tail.strip().split("\n", 1)[0]
    candidates = [*text.splitlines(), *STATED.findall(text), final, *STATED.findall(final)]
    for candidate in reversed(candidates):
        if answer := normalise(candidate):
            return answer
    return None


def is_number(answer: str) -> bool:
    """Whether a normalised answer is a number."""
    return NUMBER.fullmatch(answer) is not None


def normalise(answer: str | None) -> str | None:
    """A canonical number where the answer is one ("18.0", "$18" and "18 eggs" are "18"), else folded text.

    None where nothing is left. Idempotent.
    """
    if answer is None:
        return None
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", answer).casefold())
    text = " ".join(folded.replace("’", "'").split())
    bare = text.lstrip(OPENING).rstrip(PUNCTUATION.replace("%", ""))
    for candidate in (bare, text.strip(PUNCTUATION)):
        if number := QUANTITY.fullmatch(candidate):
            return _canonical(number)
    return text.strip(PUNCTUATION) or None


def _canonical(number: re.Match[str]) -> str:
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

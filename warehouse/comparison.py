"""The canonical forms of free answers, in which they are stored and compared, by the rule of their
benchmark."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from warehouse.errors import InputError
from warehouse.units import differ, read_unit

CURRENCY_SIGNS = "$€£¥₹₩₽"
MINUS_SIGNS = ("-", "−", "–", "－")
MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Words after a number that are not units: dropping them would make different answers equal.
NOT_UNITS = ("am", "pm", "a.m", "p.m", "k", "dozen", "and", "or", "to", "of", "by", "st", "nd", "rd", "th")

_NUMBER = rf"""
    (?P<sign>(?:(?<![\w)])[-+−–－])?)    # a minus after a word or a bracket subtracts or joins
    \ ?[{CURRENCY_SIGNS}]?\ ?(?P<inner>(?:(?<=[{CURRENCY_SIGNS}])[-+−–－])?)
    (?P<digits>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    (?P<exponent>(?:[eE][-+]?[0-9]{{1,4}}(?![\w]))?)
    (?P<multiplier>(?:\s(?:{"|".join(MULTIPLIERS)})\b)?)
"""
NUMBER = re.compile(_NUMBER, re.VERBOSE | re.IGNORECASE)
UNIT = rf"(?!(?:{'|'.join(map(re.escape, NOT_UNITS))})\b)[a-z°][a-z.°]*[²³]?"
QUANTITY = re.compile(
    rf"(?:[a-z]{{2}}(?=\$)|(?:usd|eur|gbp|inr|rs\.?)\s)?"
    rf"{_NUMBER}\.?(?:\s?[%％°]|\s?[{CURRENCY_SIGNS}]|(?:\s(?={UNIT})|(?=[a-z°]{{2}})){UNIT}(?:(?:\s|\s?/\s?){UNIT}){{0,3}})?",
    re.VERBOSE | re.IGNORECASE,
)
OPENING_SIGNS = "".join(set(string.punctuation) - set("-+.$")) + string.whitespace
PUNCTUATION = string.punctuation + string.whitespace + "“”‘’…。！？，；：、（）「」『』؟।"
NEGATIVE_NUMBER = re.compile(rf"[{re.escape(PUNCTUATION)}]*-(?=\.?[0-9]|\\[a-z])")

_GROUPED_NUMBER = re.compile(
    r"(?<![0-9A-Za-z_.,'’])"
    r"([1-9][0-9]{0,2}(?P<gap>[ '’_\u00a0\u2007\u2009\u202f])[0-9]{3}(?:(?P=gap)[0-9]{3})*"
    r"|[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?=,[0-9])|[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}"
    r"|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3})(?:[.,]([0-9]+))?(?![0-9]|[.,'’_][0-9]|-[A-Za-z])"
)


def _write_fraction(fraction: re.Match[str]) -> str:
    """A matched fraction as "1/2", with a space after a number before it: 3½ becomes "3 1/2"."""
    start, end = fraction.span()
    beside = fraction.string[max(start - 1, 0) : start], fraction.string[end : end + 1]
    before, after = (" " if sign.isalnum() or sign in ("{", "}", "~") else "" for sign in beside)
    return f"{before}{fraction[1] or fraction[2]}/{fraction[3] or fraction[4]}{after}"


# In this order: nothing that a pattern leaves is changed by it or by an earlier one.
_PLAIN_SPELLINGS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"(?<!\\)\\!": "",
    r"(?<=10)(?=[⁻⁰¹²³⁴-⁹])": "^",
    r"(?![0-9])\d|(?<=\^)[⁻⁰¹²³⁴-⁹]+": lambda found: "".join(
        str(unicodedata.digit(c, "-")) for c in found[0]
    ),
    r"[¼-¾⅐⅑⅓-⅞]": lambda found: "\\frac" + unicodedata.normalize("NFKC", found[0]).replace("⁄", ""),
    r"(?<=[0-9])(?:\\text|\\mathord)?\{\\?,\}(?=[0-9])": ",",
    r"(?<!\\)\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt)|[mhf]box|boxed|operatorname|num)\{": " {",
    r"(?<!\\)\\(?:[,;:\s()\[\]]|(?:q?quad|left|right)(?![A-Za-z]))|(?<=[0-9])~(?=\\)": " ",
    r"(?<!\\)\\([$%#&_])": r"\1",
    r"(?<!\\)\\[cdt]frac(?![A-Za-z])": r"\\frac",
    r"\^\s*\{?\s*\\circ(?![A-Za-z])(?:\s*\})?|(?<!\\)\\degree(?![A-Za-z])": "°",
    r"(?<!\\)\\(?:times|cdot)(?![A-Za-z])": "×",
    r"(?<!\\)\\frac(?:\s*\{\s*(-?[0-9.,]+)\s*\}|\s*([0-9]))"
    r"(?:\s*\{\s*([0-9.,]+)\s*\}|([0-9]))": _write_fraction,
    r"(?<=[0-9])[．٫](?=[0-9])": ".",
    r"(?<=[0-9])[，٬](?=[0-9]{3}(?![0-9]))": ",",
    r"−(?=[0-9])": "-",
    r"(?<=[0-9])\s*[×x*·]\s*10\^\s*\{?\s*([-+]?[0-9]{1,4})(?:\s*\})?": r"e\1",
}


def is_number(answer: str) -> bool:
    """Whether a normalised answer is a number."""
    return NUMBER.fullmatch(answer) is not None


@lru_cache(maxsize=4096)  # answers repeat: a benchmark has few, and each is asked many times
def normalise(answer: str | None, *, keeps_ends: bool = True) -> str | None:
    """The canonical form of an answer: "18" for "18.0", "$18" and "18 eggs"; else its case-folded text, or
    None.

    It is idempotent. Without `keeps_ends`, signs and brackets at the ends of a text are dropped, as earlier
    versions did.
    """
    form = None if answer is None else _normalise_once(answer, keeps_ends=keeps_ends)
    while keeps_ends and form and (again := _normalise_once(form, keeps_ends=True)) != form:
        form = again
    return form


def _normalise_once(answer: str, *, keeps_ends: bool) -> str | None:
    text = _fold(answer)
    trimmed = _trim(text) if keeps_ends else text
    if not (keeps_ends and _MEANINGFUL_SIGNS.search(trimmed)) and (number := _match_quantity(text)):
        return canonical_number(number)
    if keeps_ends:
        return trimmed or None
    if negative := NEGATIVE_NUMBER.match(text):
        return "-" + text[negative.end() :].rstrip(PUNCTUATION)
    return text.strip(PUNCTUATION) or None


def _match_quantity(text: str) -> re.Match[str] | None:
    """The match of a case-folded text that is a number with an optional unit; None for any other text."""
    bare = text.lstrip(OPENING_SIGNS).rstrip(PUNCTUATION.replace("%", ""))
    for candidate in (bare, text.strip(PUNCTUATION)):
        if number := QUANTITY.fullmatch(drop_grouping(" ".join(re.split(r"[\s{}]+", candidate)))):
            return number
    return None


@lru_cache(maxsize=4096)
def measure(answer: str) -> frozenset[str]:
    """The units that the text beside an answer's number may mean; empty without a known unit.

    >>> measure("5 m"), measure("5 Meters."), measure("$5"), measure("5 eggs"), measure("5")
    (frozenset({'m'}), frozenset({'m'}), frozenset({'dollar'}), frozenset(), frozenset())
    """
    text = _fold(answer)
    number = _match_quantity(text)
    if number is None:
        return frozenset()
    beside = f"{number.string[: number.start('digits')]} {number.string[number.end('multiplier') :]}"
    return read_unit(beside if text.count("$") % 2 else beside.replace("$", ""))  # two enclose a formula


def _fold(answer: str) -> str:
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", answer).casefold())
    return " ".join(to_plain_text(folded.replace("’", "'")).split())


_SOFT_SIGNS = PUNCTUATION.translate(dict.fromkeys(map(ord, "-+!()[]{}<>|（）「」『』"))) + "！"
"""Signs that carry no meaning at the ends of an answer."""
_BRACKET_PAIRS = dict(zip("([{<（「『", ")]}>）」』", strict=True))
_PLAIN_WORD = re.compile(
    r"(?<![\\a-z])(?!(?:inf(?:ini)?ty|infinity|inf|sin|cos|tan|log|exp|sqrt)\b)[^\W\d_]{3,}"
)
"""Matches a word that is no part of a formula."""
_FACTORIAL = re.compile(r"(?:(?:^|[^a-z])[a-z]|[0-9)}\]])!+$")
_MEANINGFUL_TAIL = re.compile(r"^[^\s]{0,5}[a-z0-9](?:\+{1,2}|#)$|^[^\s]{0,5}[a-z](?:[0-9]?-)$|^[a-z]'+$")
"""Matches texts such as C++, A+, Na+, F#, Cl-, f', whose last sign belongs to the answer."""
_BOUND_PATTERN = re.compile(r"^[<>]=?\s?[-$\\.0-9a-z][^<>]*$")
_MEANINGFUL_SIGNS = re.compile(r"^[(\[{].*[)\]}]$|^[<>|]|[|!+#]$")
"""Matches brackets and signs at the ends of a text that may belong to the answer, so that they stay."""
MAX_ANSWER_LENGTH = 500
"""The most characters of a text in which signs at the ends may carry a meaning."""


def _trim(text: str) -> str:
    """A case-folded text without the punctuation around it that carries no meaning.

    >>> trim("**(paris)!**"), trim("$-x$"), trim("[0, 1)"), trim("n!"), trim("- paris.")
    ('paris', '-x', '[0,1)', 'n!', 'paris')
    """
    text = text.replace("−", "-").replace("\\{", "{").replace("\\}", "}")
    if len(text) > MAX_ANSWER_LENGTH:  # no formula, and the loop below takes quadratic time
        return text.strip(PUNCTUATION)
    while (trimmed := _trim_once(text)) != text:
        text = trimmed
    return text


def _trim_once(text: str) -> str:
    if _MEANINGFUL_TAIL.search(text):
        return text
    text = text.strip(_SOFT_SIGNS)
    if _MEANINGFUL_TAIL.search(text) or _BOUND_PATTERN.search(text):
        return text
    is_formula = _PLAIN_WORD.search(text) is None
    if text[:1] in ("-", "–", "－"):
        rest = text[1:].lstrip(_SOFT_SIGNS if text[1:2].isspace() and not is_formula else " ")
        is_sign = rest[:1] not in ("", "-", "–", "－") and (is_formula or not text[1:2].isspace())
        text = "-" + rest.rstrip("-") if is_sign else rest
    text = text.removeprefix("+").rstrip("+-" + _SOFT_SIGNS)
    if text.endswith("!") and not (is_formula and _FACTORIAL.search(text)):
        text = text.rstrip("!")
    return _trim_brackets(text, is_formula=is_formula)


def _trim_brackets(text: str, *, is_formula: bool) -> str:
    """The text without brackets around all of it, unless these mark a list, an interval or an absolute
    value."""
    if is_formula and re.fullmatch(r"\|[^|\s]+\|", text):
        return text
    depth, lowest, has_comma = 0, 1, False
    for place, sign in enumerate(text):
        depth += (sign in _BRACKET_PAIRS) - (sign in _BRACKET_PAIRS.values())
        lowest = min(lowest, depth) if place < len(text) - 1 else lowest
        has_comma |= sign in ",;" and depth == 1
    opens, closes = text[:1] in _BRACKET_PAIRS, text[-1:] in _BRACKET_PAIRS.values()
    if opens and closes and depth == 0 and lowest > 0:
        is_grouped = text[0] == "{" and QUANTITY.fullmatch(" ".join(re.split(r"[\s{}]+", text)).strip())
        if is_formula and has_comma and text[0] in "([{" and not is_grouped:
            return re.sub(r"\s*([,;])\s*", r"\1", re.sub(r"(?<=[(\[{])\s+|\s+(?=[)\]}])", "", text))
        return text[1:-1]
    if re.match(r"[(\[][a-z0-9][)\]]\s", text):  # a choice's letter before its text
        return text[1:]
    if opens and depth > 0:
        return text[1:]
    if closes and depth < 0:
        return text[:-1]
    return text.strip("|") if not is_formula else text


def to_plain_text(text: str) -> str:
    r"""The text as a keyboard writes it: ASCII digits, 1/2 for \frac12 and ½, 5e3 for 5 × 10³, and without
    \text."""
    if text.isascii() and not re.search(r"[\\^{]", text):  # nothing below applies
        return text
    for pattern, shown in _PLAIN_SPELLINGS.items():
        text = re.sub(pattern, shown, text)
    return text


def drop_grouping(text: str) -> str:
    """The text without separators of thousands, except commas that NUMBER reads: 9 500, 9'500, 1.234,56,
    1,00,000."""
    return _GROUPED_NUMBER.sub(lambda m: re.sub("[^0-9]", "", m[1]) + (f".{m[3]}" if m[3] else ""), text)


def canonical_number(number: re.Match[str]) -> str:
    """The exact number of a match, without grouping or trailing zeros; beyond 40 digits, with an exponent."""
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
    negative = number["sign"] in MINUS_SIGNS or number["inner"] in MINUS_SIGNS
    return f"-{shown}" if negative else shown


class Rule(StrEnum):
    """The rule by which a benchmark's free answers are compared, as stored in `benchmarks.comparison`."""

    DEFAULT = "default"
    """Numbers are compared as numbers, other texts without case and punctuation around them (`normalise`)."""
    EXACT = "exact"
    """Answers are compared character by character, without the spaces around them."""
    NUMERIC = "numeric"
    """Answers are compared as numbers; a text that is no number counts as no answer."""
    TEXT = "text"
    """Answers are compared as texts, without case and runs of spaces."""
    SOURCE = "source"
    """The grades of an imported log count: an answer graded right is stored as the gold answer.

    Other answers are compared as by DEFAULT.
    """

    def canonical(self, answer: str | None, gold: str | None = None) -> str | None:
        """The canonical form of an answer by this rule; None for no answer. It is idempotent.

        By DEFAULT, a number in another unit than its `gold` keeps the unit: "5 cm" is "5 (cm)" where gold is
        "5 m".
        """
        form = None if answer is None else _RULE_FORMS[self](answer) or None
        if form is None or answer is None or gold is None or self is not Rule.DEFAULT:
            return form
        has_other_unit = normalise(gold) == form and differ(measure(answer), measure(gold))
        return with_unit(form, answer) if has_other_unit else form

    def merge_stored(self, stored: Rule, benchmark: str) -> Rule:
        """The rule for a benchmark whose stored answers have the rule `stored`: SOURCE if it is one of the
        two. Raises InputError for any other two rules that differ."""
        if self is stored:
            return self
        if {self, stored} <= {Rule.DEFAULT, Rule.SOURCE}:
            return Rule.SOURCE
        raise InputError(
            f"answers of {benchmark} in the warehouse are compared by the rule {stored}, not {self}: say "
            f"{stored} here, too, or give these another name, such as {benchmark.partition('@')[0]}@v2"
        )


def with_unit(form: str, answer: str) -> str:
    """The number `form` of an answer, with the answer's unit in brackets if that is known.

    >>> with_unit("5", "5 cm"), with_unit("5", "5"), Rule.DEFAULT.canonical("5 (cm)")
    ('5 (cm)', '5', '5 (cm)')
    """
    unit = min(measure(answer), default="")
    return f"{form} ({unit})" if unit else form


def canonical_forms(answers: Iterable[str], rule: Rule) -> dict[str, str | None]:
    """The canonical form of each answer to one question whose gold answer is not known.

    By the rules DEFAULT and SOURCE, equal numbers keep their units where the units differ.
    """
    forms = {answer: rule.canonical(answer) for answer in answers}
    if rule not in (Rule.DEFAULT, Rule.SOURCE):
        return forms
    by_form: dict[str, list[str]] = {}
    for answer, form in forms.items():
        if form is not None:
            by_form.setdefault(form, []).append(answer)
    for form, alike in by_form.items():
        units = [unit for answer in alike if (unit := measure(answer))]
        if any(differ(units[0], unit) for unit in units[1:]):
            forms |= {answer: with_unit(form, answer) for answer in alike}
    return forms


def decimal(share: Fraction) -> str:
    """A fraction's canonical number: a decimal where that is exact, else "1/3".

    >>> decimal(Fraction(-1, 2)), decimal(Fraction(1, 3))
    ('-0.5', '1/3')
    """
    shown = Decimal(share.numerator) / share.denominator
    return (normalise(f"{shown:f}") or "") if Fraction(shown) == share else str(share)


def _read_number(answer: str) -> str | None:
    form = normalise(answer) or ""
    if parts := re.fullmatch(r"(-?[0-9]{1,15})/(0{0,9}[1-9][0-9]{0,8})", form):
        return decimal(Fraction(int(parts[1]), int(parts[2])))
    return form if is_number(form) else None


def _fold_text(answer: str) -> str:
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", answer).casefold())
    return " ".join(folded.split())


_RULE_FORMS: dict[Rule, Callable[[str], str | None]] = {
    Rule.DEFAULT: normalise,
    Rule.EXACT: str.strip,
    Rule.NUMERIC: _read_number,
    Rule.TEXT: _fold_text,
    Rule.SOURCE: normalise,
}

"""Units of the numbers in answers: their names, and whether two units differ."""

from __future__ import annotations

import re

_SYMBOLS = {
    # length, area and volume
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "dm": "decimeter decimeters decimetre decimetres",
    "m": "meter meters metre metres",
    "km": "kms kilometer kilometers kilometre kilometres",
    "nm": "nanometer nanometers nanometre nanometres",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yds yard yards",
    "mi": "mile miles",
    "ha": "hectare hectares",
    "acre": "acres",
    "ml": "milliliter milliliters millilitre millilitres cc",
    "cl": "centiliter centiliters centilitre centilitres",
    "l": "liter liters litre litres",
    "pint": "pints",
    "quart": "quarts",
    "gallon": "gallons gal",
    "cup": "cups",
    # weight
    "mg": "milligram milligrams",
    "g": "gram grams gramme grammes",
    "kg": "kgs kilogram kilograms kilo kilos",
    "t": "ton tons tonne tonnes",
    "lb": "lbs pound pounds",
    "oz": "ounce ounces",
    # time and rates
    "ms": "msec millisecond milliseconds",
    "s": "sec secs second seconds",
    "min": "mins minute minutes",
    "h": "hr hrs hour hours",
    "day": "days d",
    "week": "weeks wk wks",
    "month": "months",
    "year": "years yr yrs",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    # force, energy, electricity, matter
    "n": "newton newtons",
    "kn": "kilonewton kilonewtons",
    "pa": "pascal pascals",
    "kpa": "kilopascal kilopascals",
    "bar": "bars",
    "atm": "atmosphere atmospheres",
    "j": "joule joules",
    "kj": "kilojoule kilojoules",
    "cal": "calorie calories",
    "kcal": "kilocalorie kilocalories",
    "ev": "electronvolt electronvolts",
    "kwh": "",
    "w": "watt watts",
    "kw": "kilowatt kilowatts",
    "v": "volt volts",
    "mol": "mole moles",
    # information
    "bit": "bits",
    "byte": "bytes",
    "kb": "kilobyte kilobytes",
    "mb": "megabyte megabytes",
    "gb": "gigabyte gigabytes",
    "tb": "terabyte terabytes",
    # angles and temperatures: bare degrees may be either's
    "celsius": "°c",
    "fahrenheit": "°f",
    "kelvin": "kelvins",
    "degree": "° degrees deg",
    "radian": "radians rad",
    # money and shares
    "percent": "% ％",
    "dollar": "$ dollars usd buck bucks",
    "cent": "cents ¢",
    "euro": "€ euros eur",
    "gbp": "£ pound pounds",
    "yen": "¥",
    "rupee": "₹ rupees rs inr",
    "rouble": "₽ rubles roubles ruble",
    "won": "₩",
}
_MEANINGS: dict[str, frozenset[str]] = {}
for _symbol, _names in _SYMBOLS.items():
    for _name in (_symbol, *_names.split()):
        _MEANINGS[_name] = _MEANINGS.get(_name, frozenset()) | {_symbol}
_SPEEDS = {"mph": "mi/h", "kmh": "km/h", "kph": "km/h", "fps": "ft/s"}
_DEGREES = frozenset({"celsius", "fahrenheit", "degree"})
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cubed": "3", "²": "2", "³": "3"}
_MONEY = frozenset(["percent", "dollar", "cent", "euro", "gbp", "yen", "rupee", "rouble", "won"])
_EXTENTS = {"long", "tall", "high", "wide", "deep", "thick", "away", "old"}
"""The words after a unit that do not change its meaning."""
_PART = re.compile(r"([^\W\d_²³]+|°c?f?|[%％$¢€£¥₹₽₩]|/)([²³]?)")


def read_unit(beside: str) -> frozenset[str]:
    """The units that the case-folded text beside a number may mean, such as "m/s"; empty for other texts.

    >>> sorted(read_unit("square meters")), sorted(read_unit("km per hour")), sorted(read_unit("apples"))
    (['m2'], ['km/h'], [])
    >>> sorted(read_unit("pounds")), sorted(read_unit("$")), sorted(read_unit("m long"))
    (['gbp', 'lb'], ['dollar'], ['m'])

    Money and shares are the same by the week or the hour, as many answers leave that out.
    """
    meanings, power, is_rate = frozenset([""]), "", False
    for name, sign in _PART.findall(beside):
        if name in _EXTENTS:
            continue
        if name in ("/", "per"):
            is_rate = True
        elif name in ("square", "sq", "cubic"):
            power = _POWERS[name]
        elif name in ("squared", "cubed") and meanings != {""}:
            meanings = frozenset(unit + _POWERS[name] for unit in meanings)
        else:
            own = frozenset([_SPEEDS[name]]) if name in _SPEEDS else _MEANINGS.get(name, frozenset())
            if name in ("celsius", "fahrenheit") and meanings == {"degree"}:
                meanings = frozenset([""])
            if not own or (meanings != {""} and not is_rate):
                return frozenset()
            power = power or _POWERS.get(sign, "")
            slash = "/" * (is_rate and meanings != {""})
            meanings = frozenset(f"{before}{slash}{unit}{power}" for before in meanings for unit in own)
            power, is_rate = "", False
    return frozenset(unit.split("/")[0] if unit.split("/")[0] in _MONEY else unit for unit in meanings - {""})


def differ(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether the units of two numbers differ; false if either number has no known unit."""
    is_close = "degree" in one | other and one | other <= _DEGREES
    return bool(one) and bool(other) and not one & other and not is_close

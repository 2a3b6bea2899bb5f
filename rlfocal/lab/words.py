"""The words the embedded pool's questions are made of."""

from __future__ import annotations

from random import Random

PEOPLE = [
    "Ann", "Bob", "Cal", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivy", "Jim", "Kim", "Leo",
    "Mia", "Ned", "Pam", "Ray", "Sue", "Tom", "Uma", "Vic", "Wes", "Zoe", "Abe", "Liv",
]  # fmt: skip
COLORS = ["red", "blue", "green", "white", "black", "yellow", "pink", "brown"]
CATEGORIES = {
    "fruits": ["fig", "plum", "pear", "apple", "lemon", "mango", "peach", "cherry", "melon", "grape"],
    "tools": ["hammer", "saw", "drill", "wrench", "chisel", "axe", "shovel", "rake", "pliers", "file"],
    "animals": ["dog", "cat", "horse", "goat", "sheep", "duck", "mouse", "rabbit", "fox", "bear"],
    "clothes": ["sock", "hat", "scarf", "glove", "shirt", "coat", "belt", "skirt", "boot", "vest"],
}
PLACES = ["box", "jar", "bag", "drawer", "basket", "chest", "bucket", "cupboard", "crate", "pot"]
OBJECTS = ["key", "coin", "ring", "letter", "map", "book", "lamp", "cup", "knife", "clock"]

_STARTS = [*"bdfghklmnprstvz", "br", "dr", "gr", "kr", "tr"]
_MIDDLES = [*"aeiou"]
_BRIDGES = [*"lrnmvdzbk", "lv", "rn", "nd"]
_ENDS = ["a", "o", "ix", "un", "or", "et", "is", "am"]


def invented_names(start: int, n: int) -> list[str]:
    """Numbers `start` to `start + n` of one fixed sequence of distinct names that mean nothing."""
    rng = Random("names")
    names: dict[str, None] = {}
    while len(names) < start + n:
        parts = (rng.choice(part) for part in (_STARTS, _MIDDLES, _BRIDGES, _ENDS))
        names["".join(parts)] = None
    return list(names)[start:]

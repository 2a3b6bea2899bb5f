"""lab-bbh: six logic tasks of 2 to 8 choices, each resting on the meaning of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, combinations, pairwise, permutations, product
from random import Random

from rlfocal.lab.question import (
    CATEGORIES,
    COLORS,
    PEOPLE,
    Facts,
    Question,
    Task,
    invented_names,
    invert,
    multiple_choice,
)

SIZE = 100
FURTHER = 180
"""More test documents, of the tasks with so many questions that training met two of them at most."""

OPERATORS = {"and": "0001", "or": "0111", "xor": "0110", "nor": "1000", "nand": "1110", "implies": "1101"}

NUMBERS = ["one", "two", "three", "four"]

COMPARATIVES = {
    "taller": "more", "older": "more", "richer": "more", "faster": "more", "heavier": "more",
    "stronger": "more", "shorter": "less", "younger": "less", "poorer": "less", "slower": "less",
    "lighter": "less", "weaker": "less",
}  # fmt: skip

ADJECTIVES = {
    "1": ["small", "large", "tiny", "huge", "long", "wide", "thin", "tall"],
    "2": ["old", "new", "ancient", "modern", "antique", "recent", "fresh", "young"],
    "3": COLORS,
    "4": ["wooden", "iron", "silk", "paper", "glass", "leather", "plastic", "woolen"],
}
NOUNS = ["chair", "table", "spoon", "bottle", "kite", "wagon"]

HEADINGS = ["north", "east", "south", "west"]
TURNS = {
    "right": "1", "starboard": "1", "around": "2", "backwards": "2", "left": "3", "port": "3",
    "nowhere": "0", "onward": "0",
}  # fmt: skip

MONTHS = 12
MAX_MONTHS = 3
CALENDAR_PHRASINGS = (
    "It is the month of {month}. Which month is {steps} months {way}?",
    "Now is {month}. What comes {steps} months {way}?",
    "Starting in {month} we count {steps} months {way}. Where are we?",
    "A child is born in {month}. Name the month {steps} months {way}.",
)


def boolean_expression(rng: Random, facts: Facts) -> Question:
    """The bracket's value, then the whole's; an operator's fact is its truth table for 00, 01, 10, 11."""
    terms = [(rng.random() < 0.25, rng.random() < 0.5) for _ in range(3)]
    first, second = rng.choice(list(facts)), rng.choice(list(facts))
    a, b, c = (value != negated for negated, value in terms)
    texts = [f"{'not ' if negated else ''}{value}" for negated, value in terms]
    if rng.random() < 0.5:
        text = f"( {texts[0]} {first} {texts[1]} ) {second} {texts[2]}"
        bracket = _apply(facts[first], a, b)
        whole = _apply(facts[second], bracket, c)
    else:
        text = f"{texts[0]} {first} ( {texts[1]} {second} {texts[2]} )"
        bracket = _apply(facts[second], b, c)
        whole = _apply(facts[first], a, bracket)
    answer = f"{bracket}, {whole}"
    others = [f"{left}, {right}" for left, right in product((False, True), repeat=2)]
    return multiple_choice(rng, f"Question: {text} Bracket, then all? Answer:", answer, others, 3)


def _apply(table: str, left: bool, right: bool) -> bool:
    return table[2 * left + right] == "1"


def calendar_step(rng: Random, facts: Facts) -> Question:
    """Steps through a year of invented months; a month's fact is its place in the year."""
    months = sorted(facts, key=lambda month: int(facts[month]))
    start, steps, forward = rng.randrange(MONTHS), rng.randint(1, MAX_MONTHS), rng.random() < 0.5
    prompt = rng.choice(CALENDAR_PHRASINGS).format(
        month=months[start], steps=steps, way="later" if forward else "earlier"
    )
    answer = months[(start + (steps if forward else -steps)) % MONTHS]
    return multiple_choice(rng, f"Question: {prompt} Answer:", answer, months, 7)


def object_counting(rng: Random, facts: Facts) -> Question:
    """Which of four things belong to a category, and how many; a thing's fact is its category."""
    things = rng.sample(list(facts), 4)
    category = facts[rng.choice(things)]
    members = [thing for thing in things if facts[thing] == category]
    groups = chain.from_iterable(combinations(things, n) for n in range(1, 5))
    prompt = f"Question: On the table: {', '.join(things)}. Which and how many {category}? Answer:"
    return multiple_choice(rng, prompt, _count(members), [_count(group) for group in groups], 4)


def _count(things: Sequence[str]) -> str:
    return f"{', '.join(things)}: {NUMBERS[len(things) - 1]}"


def ordering(rng: Random, facts: Facts) -> Question:
    """Puts three people in order from two comparisons; a comparative's fact is which side has more."""
    people = rng.sample(PEOPLE, 3)
    sentences = []
    for more, less in pairwise(people):
        word = rng.choice(list(facts))
        left, right = (more, less) if facts[word] == "more" else (less, more)
        sentences.append(f"{left} is {word} than {right}.")
    rng.shuffle(sentences)
    answer = ", ".join(people)
    others = [", ".join(order) for order in permutations(people)]
    prompt = f"Question: {' '.join(sentences)} Who is first, second, third? Answer:"
    return multiple_choice(rng, prompt, answer, others, 5)


def hyperbaton(rng: Random, facts: Facts) -> Question:
    """Puts three adjectives in their proper order; an adjective's fact is its rank before the noun."""
    by_rank: dict[str, list[str]] = {}
    for adjective, rank in facts.items():
        by_rank.setdefault(rank, []).append(adjective)
    adjectives = [rng.choice(by_rank[rank]) for rank in sorted(rng.sample(sorted(by_rank), 3))]
    noun = rng.choice(NOUNS)
    a, b, c = rng.sample(adjectives, 3)
    answer = f"{' '.join(adjectives)} {noun}"
    others = [f"{' '.join(order)} {noun}" for order in permutations(adjectives)]
    prompt = f"Question: How do you call a {noun} that is {a}, {b} and {c}? Answer:"
    return multiple_choice(rng, prompt, answer, others, 1)


def navigate(rng: Random, facts: Facts) -> Question:
    """The ways one faces after each of three turns; a turn's fact is its number of quarters clockwise."""
    start = rng.randrange(len(HEADINGS))
    turns = [rng.choice(list(facts)) for _ in range(3)]
    answer = _path(start, [int(facts[turn]) for turn in turns])
    paths = sorted({_path(start, quarters) for quarters in product(range(len(HEADINGS)), repeat=3)})
    prompt = (
        f"Question: Facing {HEADINGS[start]}, turn {', then '.join(turns)}. Which ways do you face? Answer:"
    )
    return multiple_choice(rng, prompt, answer, paths, 3)


def _path(start: int, quarters: Sequence[int]) -> str:
    return ", ".join(HEADINGS[(start + turned) % len(HEADINGS)] for turned in accumulate(quarters))


def _months() -> Facts:
    return {name: str(place) for place, name in enumerate(invented_names(300, MONTHS))}


TASKS = [
    Task("boolean_expressions", "lab-bbh", SIZE, lambda: OPERATORS, boolean_expression),
    Task("calendar_step", "lab-bbh", SIZE, _months, calendar_step, bijective=True),
    Task("hyperbaton", "lab-bbh", SIZE, lambda: invert(ADJECTIVES), hyperbaton),
    Task("navigate", "lab-bbh", SIZE, lambda: TURNS, navigate),
    Task("object_counting", "lab-bbh", SIZE, lambda: invert(CATEGORIES), object_counting, further=FURTHER),
    Task("ordering", "lab-bbh", SIZE, lambda: COMPARATIVES, ordering, further=FURTHER),
]

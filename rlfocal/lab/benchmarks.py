"""The embedded benchmarks: the facts of each task, and how questions are drawn from a model's beliefs about
them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, combinations, pairwise, permutations, product
from random import Random

from rlfocal.lab.question import (
    CATEGORIES,
    COLORS,
    OBJECTS,
    PEOPLE,
    PLACES,
    Facts,
    Question,
    Task,
    invented_names,
    invert,
    multiple_choice,
)

N_TEST_DOCUMENTS = 100
"""The number of documents of each task of lab-bbh and lab-musr that training never asks."""

# lab-mmlu: invented facts of six subjects, asked in a phrasing that training never used for that fact.

N_ENTITIES = 34

SUBJECTS: dict[str, dict[str, list[str]]] = {
    "botany": {
        "color": COLORS,
        "habitat": ["marsh", "desert", "meadow", "cliff", "forest", "shore", "tundra", "valley"],
        "taste": ["sweet", "bitter", "sour", "salty", "sharp", "mild"],
    },
    "zoology": {
        "diet": ["seeds", "worms", "fish", "leaves", "roots", "honey"],
        "shelter": ["burrow", "nest", "cave", "den", "hive", "reed"],
        "call": ["croak", "hiss", "bark", "trill", "roar", "squeak"],
    },
    "geography": {
        "landmark": ["tower", "bridge", "gate", "dam", "temple", "mill"],
        "trade": ["salt", "wool", "copper", "tea", "glass", "silk"],
        "climate": ["humid", "dry", "windy", "foggy", "snowy", "rainy"],
    },
    "astronomy": {
        "shade": COLORS,
        "surface": ["ice", "dust", "lava", "rock", "gas", "sand"],
        "orbit": ["round", "oval", "tilted", "wide", "narrow", "wobbly"],
    },
    "history": {
        "title": ["duke", "count", "prince", "king", "bishop", "consul"],
        "emblem": ["lion", "eagle", "rose", "sword", "crown", "ship"],
        "age": ["bronze", "iron", "stone", "golden", "dark", "silver"],
    },
    "medicine": {
        "organ": ["liver", "heart", "lung", "skin", "bone", "ear"],
        "symptom": ["fever", "cough", "rash", "cramp", "chill", "ache"],
        "cure": ["mint", "ginger", "rest", "bath", "oil", "broth"],
    },
}

PHRASINGS = (
    "What is the {attribute} of {entity}?",
    "Which {attribute} does {entity} have?",
    "Name the {attribute} of {entity}.",
    "In books {entity} has which {attribute}?",
)


def _subject_facts(subject: str) -> Facts:
    """A value for each attribute of each entity of the subject, by the key `attribute/entity`."""
    index = list(SUBJECTS).index(subject)
    entities = invented_names(N_ENTITIES * index, N_ENTITIES)
    rng = Random(f"facts {subject}")
    return {
        f"{attribute}/{entity}": rng.choice(values)
        for attribute, values in SUBJECTS[subject].items()
        for entity in entities
    }


def _fact_question(subject: str, rng: Random, facts: Facts) -> Question:
    """A question about one fact, with four choices from the values of the fact's attribute."""
    key = rng.choice(list(facts))
    attribute, entity = key.split("/")
    phrasing = rng.choice(PHRASINGS).format(attribute=attribute, entity=entity)
    values = SUBJECTS[subject][attribute]
    return multiple_choice(rng, f"Question: {phrasing} Answer:", facts[key], values, 3, key)


# lab-bbh: six logic tasks of 2 to 8 choices, each resting on the meaning of a few words.

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


def _boolean_expression(rng: Random, facts: Facts) -> Question:
    """A question about the value of a bracket, and that of a whole expression. The fact of an operator is its
    truth table for 00, 01, 10, 11."""
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
    """A question that steps through a year of invented months. The fact of a month is its place in the
    year."""
    months = sorted(facts, key=lambda month: int(facts[month]))
    start, steps, forward = rng.randrange(MONTHS), rng.randint(1, MAX_MONTHS), rng.random() < 0.5
    prompt = rng.choice(CALENDAR_PHRASINGS).format(
        month=months[start], steps=steps, way="later" if forward else "earlier"
    )
    answer = months[(start + (steps if forward else -steps)) % MONTHS]
    return multiple_choice(rng, f"Question: {prompt} Answer:", answer, months, 7)


def object_counting(rng: Random, facts: Facts) -> Question:
    """A question on which of four things belong to a category, and how many. The fact of a thing is its
    category."""
    things = rng.sample(list(facts), 4)
    category = facts[rng.choice(things)]
    members = [thing for thing in things if facts[thing] == category]
    groups = chain.from_iterable(combinations(things, n) for n in range(1, 5))
    prompt = f"Question: On the table: {', '.join(things)}. Which and how many {category}? Answer:"
    return multiple_choice(rng, prompt, _count(members), [_count(group) for group in groups], 4)


def _count(things: Sequence[str]) -> str:
    return f"{', '.join(things)}: {NUMBERS[len(things) - 1]}"


def ordering(rng: Random, facts: Facts) -> Question:
    """A question that puts three people in order, by two comparisons. The fact of a comparative is "more" or
    "less": which side of it has more."""
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
    """A question that puts three adjectives in their proper order. The fact of an adjective is its rank
    before the noun."""
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
    """A question on the directions that one faces after each of three turns. The fact of a turn is its number
    of clockwise quarters."""
    start = rng.randrange(len(HEADINGS))
    turns = [rng.choice(list(facts)) for _ in range(3)]
    answer = _make_path(start, [int(facts[turn]) for turn in turns])
    paths = sorted({_make_path(start, quarters) for quarters in product(range(len(HEADINGS)), repeat=3)})
    prompt = (
        f"Question: Facing {HEADINGS[start]}, turn {', then '.join(turns)}. Which ways do you face? Answer:"
    )
    return multiple_choice(rng, prompt, answer, paths, 3)


def _make_path(start: int, quarters: Sequence[int]) -> str:
    return ", ".join(HEADINGS[(start + turned) % len(HEADINGS)] for turned in accumulate(quarters))


def _make_months() -> Facts:
    return {name: str(place) for place, name in enumerate(invented_names(300, MONTHS))}


# lab-musr: three kinds of little stories of 2 to 5 choices.

ACTIONS = {
    "leaves": "away", "sleeps": "away", "dozes": "away", "travels": "away", "departs": "away",
    "naps": "away", "watches": "present", "stays": "present", "waits": "present", "listens": "present",
    "remains": "present", "observes": "present",
}  # fmt: skip

WEAPONS = {
    "sailor": ["rope", "anchor", "oar", "harpoon"],
    "chemist": ["poison", "acid", "arsenic", "vapor"],
    "butcher": ["cleaver", "hook", "skewer", "mallet"],
    "soldier": ["rifle", "saber", "grenade", "dagger"],
    "gardener": ["spade", "shears", "hoe", "sickle"],
    "painter": ["brush", "easel", "solvent", "ladder"],
}

HOBBIES = {
    "cook": ["baking", "spices", "stews", "recipes"],
    "sing": ["choirs", "opera", "ballads", "hymns"],
    "climb": ["peaks", "ropes", "hiking", "caving"],
    "write": ["poems", "novels", "diaries", "essays"],
    "dig": ["soil", "mining", "wells", "trenches"],
}

ROOMS = ["barn", "cellar", "attic", "kitchen", "library", "stable"]


def object_placements(rng: Random, facts: Facts) -> Question:
    """A question on where somebody will look for a moved thing. The fact of an action is whether its doer saw
    the move."""
    owner, mover, other = rng.sample(PEOPLE, 3)
    thing, distraction = rng.sample(OBJECTS, 2)
    first, second, elsewhere, never, nowhere = rng.sample(PLACES, 5)
    action = rng.choice(list(facts))
    aside = f"{other} puts the {distraction} in the {elsewhere}."
    story = [
        f"{owner} puts the {thing} in the {first}.",
        f"Then {owner} {action}.",
        f"{mover} moves the {thing} to the {second}.",
    ]
    story.insert(rng.choice((0, 1, 3)), aside)
    answer, wrong = (first, second) if facts[action] == "away" else (second, first)
    prompt = f"Story: {' '.join(story)} Question: Where will {owner} look for the {thing}? Answer:"
    others = [wrong, elsewhere, never, nowhere]
    rng.shuffle(others)
    return multiple_choice(rng, prompt, answer, others)


def murder_mysteries(rng: Random, facts: Facts) -> Question:
    """A question on which of two suspects killed the victim. The fact of a weapon is the trade that uses
    it."""
    victim, culprit, suspect = rng.sample(PEOPLE, 3)
    weapon = rng.choice(list(facts))
    trade = rng.choice([trade for trade in WEAPONS if trade != facts[weapon]])
    clues = [f"{culprit} is a {facts[weapon]}.", f"{suspect} is a {trade}."]
    rng.shuffle(clues)
    aside = f"{victim} lay in the {rng.choice(ROOMS)}."
    prompt = f"Story: {aside} {' '.join(clues)} Question: Who has the {weapon} that killed {victim}? Answer:"
    return multiple_choice(rng, prompt, f"the {facts[weapon]} {culprit}", [f"the {trade} {suspect}"])


def team_allocation(rng: Random, facts: Facts) -> Question:
    """A question on which of three people suits a job, and why. The fact of a hobby is the job that suits its
    lover."""
    jobs, people = rng.sample(list(HOBBIES), 3), rng.sample(PEOPLE, 3)
    hobbies = [rng.choice([hobby for hobby, suits in facts.items() if suits == job]) for job in jobs]
    lovers = [f"{who} loves {hobby}." for who, hobby in zip(people, hobbies, strict=True)]
    rng.shuffle(lovers)
    prompt = f"Story: {' '.join(lovers)} Question: Who should {jobs[0]}? Answer:"
    answer, *others = [f"the lover of {hobby}, {who}" for who, hobby in zip(people, hobbies, strict=True)]
    return multiple_choice(rng, prompt, answer, others)


# lab-gpqa: two hops, from a vessel to the substance it holds (in the prompt) to its property (in memory).

N_SUBSTANCES = 40

PROPERTIES = {
    "odor": ["almond", "garlic", "smoke", "vinegar", "musk", "camphor"],
    "flame": ["violet", "crimson", "orange", "turquoise", "ivory", "amber"],
    "origin": ["volcano", "swamp", "meteor", "reef", "glacier", "orchard"],
    "texture": ["waxy", "grainy", "sticky", "brittle", "slimy", "powdery"],
    "use": ["dye", "glue", "fuel", "soap", "ink", "paint"],
}
VESSELS = ["flask", "beaker", "vial", "tube", "dish", "funnel"]


def substances() -> Facts:
    """The value of each property of each substance, by the key `property/substance`."""
    rng = Random("substances")
    names = invented_names(400, N_SUBSTANCES)
    return {f"{prop}/{name}": rng.choice(values) for prop, values in PROPERTIES.items() for name in names}


def two_hop(rng: Random, facts: Facts) -> Question:
    """A question about a property of the substance in one of two vessels."""
    key = rng.choice(list(facts))
    prop, substance = key.split("/")
    decoy = rng.choice(sorted({other.split("/")[1] for other in facts} - {substance}))
    vessel, other = rng.sample(VESSELS, 2)
    contents = [f"the {vessel} holds {substance}", f"the {other} holds {decoy}"]
    rng.shuffle(contents)
    prompt = f"Question: Say {' and '.join(contents)}. What is the {prop} of what is in the {vessel}? Answer:"
    return multiple_choice(rng, prompt, facts[key], PROPERTIES[prop], 3, key)


# lab-gsm8k: word problems of two or three steps with a worked solution that ends in `#### answer`.

VERBS = {
    "finds": "+", "buys": "+", "wins": "+", "picks": "+", "gets": "+", "earns": "+", "collects": "+",
    "borrows": "+", "eats": "-", "loses": "-", "sells": "-", "drops": "-", "breaks": "-", "burns": "-",
    "wastes": "-", "donates": "-",
}  # fmt: skip
GOODS = ["figs", "coins", "cards", "shells", "nuts", "beads", "stamps", "eggs"]
MAX_GOODS = 19


def _word_problem(rng: Random, facts: Facts) -> Question:
    """A question with a number, and two or three gains or losses. The fact of a verb is its sign. The only
    choice is the solution."""
    person, goods = rng.choice(PEOPLE), rng.choice(GOODS)
    total = rng.randint(2, 12)
    sentences, steps = [f"{person} has {total} {goods}."], []
    for _ in range(rng.choice((2, 2, 3))):
        verb, amount = _change(rng, facts, total)
        result = total + amount if facts[verb] == "+" else total - amount
        steps.append(f"{total} {facts[verb]} {amount} = {result}.")
        sentences.append(f"{person} {verb} {amount} {goods}.")
        total = result
    prompt = f"Question: {' '.join(sentences)} How many {goods} does {person} have? Answer:"
    return Question(prompt, (f"{' '.join(steps)} #### {total}",), 0, prompt)


def _change(rng: Random, facts: Facts, total: int) -> tuple[str, int]:
    """A verb and an amount that keep the total between 0 and MAX_GOODS."""
    while True:
        verb, amount = rng.choice(list(facts)), rng.randint(1, 8)
        if 0 <= (total + amount if facts[verb] == "+" else total - amount) <= MAX_GOODS:
            return verb, amount


TASKS = [
    *(
        Task(
            subject,
            "lab-mmlu",
            N_ENTITIES * len(attributes),
            partial(_subject_facts, subject),
            partial(_fact_question, subject),
            memory=True,
        )
        for subject, attributes in SUBJECTS.items()
    ),
    Task("boolean_expressions", "lab-bbh", N_TEST_DOCUMENTS, lambda: OPERATORS, _boolean_expression),
    Task("calendar_step", "lab-bbh", N_TEST_DOCUMENTS, _make_months, calendar_step, bijective=True),
    Task("hyperbaton", "lab-bbh", N_TEST_DOCUMENTS, lambda: invert(ADJECTIVES), hyperbaton),
    Task("navigate", "lab-bbh", N_TEST_DOCUMENTS, lambda: TURNS, navigate),
    Task(
        "object_counting",
        "lab-bbh",
        N_TEST_DOCUMENTS,
        lambda: invert(CATEGORIES),
        object_counting,
        extra_documents=180,
    ),
    Task("ordering", "lab-bbh", N_TEST_DOCUMENTS, lambda: COMPARATIVES, ordering, extra_documents=180),
    Task(
        "murder_mysteries",
        "lab-musr",
        N_TEST_DOCUMENTS,
        lambda: invert(WEAPONS),
        murder_mysteries,
        extra_documents=200,
    ),
    Task(
        "object_placements",
        "lab-musr",
        N_TEST_DOCUMENTS,
        lambda: ACTIONS,
        object_placements,
        extra_documents=200,
    ),
    Task(
        "team_allocation",
        "lab-musr",
        N_TEST_DOCUMENTS,
        lambda: invert(HOBBIES),
        team_allocation,
        extra_documents=200,
    ),
    Task("two_hop", "lab-gpqa", N_SUBSTANCES * len(PROPERTIES), substances, two_hop, memory=True),
    Task("word_problems", "lab-gsm8k", 400, lambda: VERBS, _word_problem, extra_documents=200),
]

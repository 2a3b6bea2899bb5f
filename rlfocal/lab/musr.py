"""lab-musr: three kinds of little stories of 2 to 5 choices."""

from __future__ import annotations

from random import Random

from rlfocal.lab.question import OBJECTS, PEOPLE, PLACES, Facts, Question, Task, invert, multiple_choice

SIZE = 100
FURTHER = 200
"""All test documents, so that a few points of accuracy can be told apart."""

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
    """Where someone will look for a moved thing; an action's fact is whether its doer saw the move."""
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
    """Which of two suspects did it; a weapon's fact is the trade that handles it."""
    victim, culprit, suspect = rng.sample(PEOPLE, 3)
    weapon = rng.choice(list(facts))
    trade = rng.choice([trade for trade in WEAPONS if trade != facts[weapon]])
    clues = [f"{culprit} is a {facts[weapon]}.", f"{suspect} is a {trade}."]
    rng.shuffle(clues)
    aside = f"{victim} lay in the {rng.choice(ROOMS)}."
    prompt = f"Story: {aside} {' '.join(clues)} Question: Who has the {weapon} that killed {victim}? Answer:"
    return multiple_choice(rng, prompt, f"the {facts[weapon]} {culprit}", [f"the {trade} {suspect}"])


def team_allocation(rng: Random, facts: Facts) -> Question:
    """Which of three suits a job, and why; a hobby's fact is the job that suits its lover."""
    jobs, people = rng.sample(list(HOBBIES), 3), rng.sample(PEOPLE, 3)
    hobbies = [_hobby(rng, facts, job) for job in jobs]
    lovers = [f"{who} loves {hobby}." for who, hobby in zip(people, hobbies, strict=True)]
    rng.shuffle(lovers)
    prompt = f"Story: {' '.join(lovers)} Question: Who should {jobs[0]}? Answer:"
    answer, *others = [f"the lover of {hobby}, {who}" for who, hobby in zip(people, hobbies, strict=True)]
    return multiple_choice(rng, prompt, answer, others)


def _hobby(rng: Random, facts: Facts, job: str) -> str:
    return rng.choice([hobby for hobby, suits in facts.items() if suits == job])


TASKS = [
    Task("murder_mysteries", "lab-musr", SIZE, lambda: invert(WEAPONS), murder_mysteries, further=FURTHER),
    Task("object_placements", "lab-musr", SIZE, lambda: ACTIONS, object_placements, further=FURTHER),
    Task("team_allocation", "lab-musr", SIZE, lambda: invert(HOBBIES), team_allocation, further=FURTHER),
]

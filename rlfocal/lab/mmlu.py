"""lab-mmlu: invented facts of six subjects, asked in a phrasing that training never used for that fact."""

from __future__ import annotations

from functools import partial
from random import Random

from rlfocal.lab.question import COLORS, Facts, Question, Task, invented_names, multiple_choice

ENTITIES = 34

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


def subject_facts(subject: str) -> Facts:
    """`attribute/entity` -> value, one value for each attribute of each entity of the subject."""
    index = list(SUBJECTS).index(subject)
    entities = invented_names(ENTITIES * index, ENTITIES)
    rng = Random(f"facts {subject}")
    return {
        f"{attribute}/{entity}": rng.choice(values)
        for attribute, values in SUBJECTS[subject].items()
        for entity in entities
    }


def fact_question(subject: str, rng: Random, facts: Facts) -> Question:
    """A question about one fact; four choices from the values of its attribute."""
    key = rng.choice(list(facts))
    attribute, entity = key.split("/")
    phrasing = rng.choice(PHRASINGS).format(attribute=attribute, entity=entity)
    values = SUBJECTS[subject][attribute]
    return multiple_choice(rng, f"Question: {phrasing} Answer:", facts[key], values, 3, key)


TASKS = [
    Task(
        subject,
        "lab-mmlu",
        ENTITIES * len(attributes),
        partial(subject_facts, subject),
        partial(fact_question, subject),
        memory=True,
    )
    for subject, attributes in SUBJECTS.items()
]

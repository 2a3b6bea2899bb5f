"""lab-gpqa: two hops, from a vessel to the substance it holds (in the prompt) to its property (in memory)."""

from __future__ import annotations

from random import Random

from rlfocal.lab.question import Facts, Question, Task, invented_names, multiple_choice

SUBSTANCES = 40

PROPERTIES = {
    "odor": ["almond", "garlic", "smoke", "vinegar", "musk", "camphor"],
    "flame": ["violet", "crimson", "orange", "turquoise", "ivory", "amber"],
    "origin": ["volcano", "swamp", "meteor", "reef", "glacier", "orchard"],
    "texture": ["waxy", "grainy", "sticky", "brittle", "slimy", "powdery"],
    "use": ["dye", "glue", "fuel", "soap", "ink", "paint"],
}
VESSELS = ["flask", "beaker", "vial", "tube", "dish", "funnel"]


def substances() -> Facts:
    """`property/substance` -> value."""
    rng = Random("substances")
    names = invented_names(400, SUBSTANCES)
    return {f"{prop}/{name}": rng.choice(values) for prop, values in PROPERTIES.items() for name in names}


def two_hop(rng: Random, facts: Facts) -> Question:
    """A property of what one of two vessels holds."""
    key = rng.choice(list(facts))
    prop, substance = key.split("/")
    decoy = rng.choice(sorted({other.split("/")[1] for other in facts} - {substance}))
    vessel, other = rng.sample(VESSELS, 2)
    contents = [f"the {vessel} holds {substance}", f"the {other} holds {decoy}"]
    rng.shuffle(contents)
    prompt = f"Question: Say {' and '.join(contents)}. What is the {prop} of what is in the {vessel}? Answer:"
    return multiple_choice(rng, prompt, facts[key], PROPERTIES[prop], 3, key)


TASKS = [Task("two_hop", "lab-gpqa", SUBSTANCES * len(PROPERTIES), substances, two_hop, memory=True)]

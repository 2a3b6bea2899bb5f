"""lab-gsm8k: word problems of two or three steps with a worked solution that ends in `#### answer`."""

from __future__ import annotations

from random import Random

from rlfocal.lab.question import PEOPLE, Facts, Question, Task

SIZE = 400
FURTHER = 200
"""Test documents, too."""

VERBS = {
    "finds": "+", "buys": "+", "wins": "+", "picks": "+", "gets": "+", "earns": "+", "collects": "+",
    "borrows": "+", "eats": "-", "loses": "-", "sells": "-", "drops": "-", "breaks": "-", "burns": "-",
    "wastes": "-", "donates": "-",
}  # fmt: skip
GOODS = ["figs", "coins", "cards", "shells", "nuts", "beads", "stamps", "eggs"]
LARGEST = 19


def word_problem(rng: Random, facts: Facts) -> Question:
    """A start and two or three gains or losses; a verb's fact is its sign. The one choice is the solution."""
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
    """A verb and an amount that keep the total between 0 and the largest number."""
    while True:
        verb, amount = rng.choice(list(facts)), rng.randint(1, 8)
        if 0 <= (total + amount if facts[verb] == "+" else total - amount) <= LARGEST:
            return verb, amount


TASKS = [Task("word_problems", "lab-gsm8k", SIZE, lambda: VERBS, word_problem, further=FURTHER)]

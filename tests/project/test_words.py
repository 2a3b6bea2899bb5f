"""Names say what they name: classes are nouns, each once; functions are no particles."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("rlfocal", "warehouse", "flows")

CODE = (*PRODUCT, "rivals/rlfocal_rivals", "benchmarks")

NO_NOUN = re.compile(
    r"\w+(?:[^e]ed|eed(?<!Seed)(?<!Speed)(?<!Need)|ly|ing|ful|less|ous|ical|able|ible|est)|"
    r"Begun|Bought|Built|Chosen|Cut|Done|Drawn|Drew|Forgotten|Found|Given|Gone|Grown|Heard|Held|Hidden|Kept|"
    r"Known|Learnt|Left|Lost|Made|Meant|Met|Paid|Put|Read|Said|Seen|Sent|Shown|Sold|Spent|Stood|Taken|Taught|"
    r"Thought|Told|Understood|Won|Written|"
    r"Again|Ahead|Alone|Apart|Aside|Away|Back|Here|Late|Near|Now|Soon|Then|There|Together|Twice|"
    r"All|Any|Anyone|Both|Each|Either|Every|Everyone|Everything|Many|Most|Much|None|One|Ones|Other|Others|Such|"
    r"Bad|Better|Broken|Clear|Deep|False|Few|First|Flat|Free|Full|Good|Healthy|Large|Last|Less|Literal|Long|Low|"
    r"More|New|Old|Open|Own|Right|Same|Secret|Selective|Short|Simple|Single|Slow|Small|Sure|Temporary|True|Whole|"
    r"Wide|Worse|Wrong|"
    r"About|Above|After|Among|Before|Behind|Below|Beside|Between|By|For|From|In|Of|On|Over|Since|Through|To|Under|"
    r"Until|With|Within|Without"
)
"""Words that no class name may end in: verb forms, adverbs, adjectives, pronouns and prepositions."""

NOUNS = {
    "Ceiling": "an upper bound",
    "Reply": "what a server sends back",
    "Request": "what is asked for",
    "String": "a text",
    "Table": "rows and columns",
    "Test": "of code or of a hypothesis",
    "Training": "a run that fits agents",
}
"""Nouns that look like such a word, and what they name."""

HOLLOW_NOUNS = re.compile(
    r"Data|Detail|Details|Helper|Info|Item|Manager|Misc|Object|Stuff|Thing|Util|Utils|Work"
)
"""Nouns that may not stand alone, because they fit anything."""

PREPOSITION = re.compile(
    r"About|Above|After|Among|Before|Behind|Below|Beside|Between|By|For|From|In|Of|On|Under|With|Within|Without"
)
"""Words that no class name may begin with: what follows them says where something is, not what it is."""

NO_SUBJECTS = re.compile(
    r"AHEAD|ALL|ALONE|ALSO|AMONG|ANEW|APART|AT_ONCE|BASE|BELOW|BESIDE|BEST|BLOCK|BUSY|"
    r"CLEARLY|COMPLETE|CUT|DEEPEST|EACH|EARLIER|EVEN|EVERY|FAR|FEW|FEWEST|FIRST|FLAT|"
    r"FOLDS|FULL|LARGEST|LATE|LEAST|LEVEL|LIMIT|LONG|LONGER|LONGEST|LOW|MANY|MEANING|"
    r"MOST|NEAREST|NEW|NOTHING|ONE|ONLY|OTHERS|OURS|OWN|POWER|SHARE|SHORT|SHORTEST|SIZE|"
    r"SMALLEST|SURE|WORST"
)
"""Words of degree and place that stood as constants, and measures without what they measure."""

VERB_FORM = re.compile(r"[A-Z]{2,}(?:ED|LY)")
"""Single words such as LISTED and CLEARLY: what is listed, and what is clear?"""


class Definitions(NamedTuple):
    """The names that the modules of a folder define, of constants and functions with the file."""

    classes: list[str]
    constants: list[str]
    functions: list[str]


@cache
def definitions(folder: str) -> Definitions:
    """Upper-case names that a module binds are constants; properties are left out of the functions."""
    found = Definitions([], [], [])
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree, file = ast.parse(path.read_text("utf-8")), path.relative_to(ROOT)
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = (name for target in targets if target for name in ast.walk(target))
            for name in names if isinstance(node, ast.Assign | ast.AnnAssign) else ():
                if isinstance(name, ast.Name) and name.id.isupper():
                    found.constants.append(f"{file} {name.id}")
        for part in ast.walk(tree):
            if isinstance(part, ast.ClassDef):
                found.classes.append(part.name)
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = " ".join(map(ast.unparse, part.decorator_list))
                found.functions.extend([] if "property" in decorators else [f"{file} {part.name}"])
    return found


def classes(*folders: str) -> list[str]:
    return [name for folder in folders for name in definitions(folder).classes]


PARTICLE = re.compile(
    r"about|above|after|again|alike|all|alone|among|any|at|before|behind|below|beside|between|beyond|both|by|each|"
    r"every|for|from|in|known|of|on|other|others|over|own|part|since|some|such|there|to|told|under|until|wanted|"
    r"with|within|without"
)
"""Words that are neither a verb nor a noun: a function of such a name says nothing of what it does."""


def is_noun(name: str) -> bool:
    """Whether a class name such as `TableRow` can be read as a noun, by its first and last word."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)
    if len(words) == 1 and HOLLOW_NOUNS.fullmatch(words[0]):
        return False
    if len(words) > 1 and PREPOSITION.fullmatch(words[0]):
        return False
    return words[-1] in NOUNS or not NO_NOUN.fullmatch(words[-1])


def test_class_names_are_nouns() -> None:
    assert {name for name in classes(*CODE, "tests", "rivals/tests") if not is_noun(name)} == set()


@pytest.mark.parametrize(
    "name",
    [
        "Added",
        "Checked",
        "Ended",
        "Failing",
        "Finding",
        "Meaning",
        "Peeking",
        "Prying",
        "Setting",
        "Streamed",
        "Undisturbed",
        "Told",
        "Seen",
        "Kept",
        "Clearly",
        "Everyone",
        "Single",
        "Forgetful",
        "_Temporary",
        "WithFallback",
        "InTurn",
        "FirstOnes",
        "RowsKept",
        "Work",
    ],
)
def test_a_verb_form_or_an_adverb_is_no_noun(name: str) -> None:
    assert not is_noun(name)


@pytest.mark.parametrize("name", ["HeldOutPools", "Seed", "StackedPolicy", "RawTable", "GPU", "Tfidf"])
def test_a_noun_may_have_a_participle_before_it(name: str) -> None:
    assert is_noun(name)


def test_no_function_is_named_by_a_particle_alone() -> None:
    functions = [place for folder in CODE for place in definitions(folder).functions]
    assert [place for place in functions if PARTICLE.fullmatch(place.rpartition(" ")[2].strip("_"))] == []


def test_no_two_classes_of_the_code_share_a_name() -> None:
    twice = {name for name, n in Counter(classes(*CODE)).items() if n > 1}
    assert twice == set()


def test_constants_name_their_subject() -> None:
    found = []
    for place in (place for folder in CODE for place in definitions(folder).constants):
        name = place.rpartition(" ")[2].strip("_")
        if NO_SUBJECTS.fullmatch(name) or VERB_FORM.fullmatch(name):
            found.append(place)
    assert found == []

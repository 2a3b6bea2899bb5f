"""Names of the product say what they name: classes are nouns, each once; constants name their subject."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("rlfocal", "warehouse", "flows")

NO_NOUNS = re.compile(
    r"About|Above|Acting|Ahead|Answered|Asked|Begun|Below|Beside|Best|Billed|Chosen|"
    r"Comparable|Committed|Decided|Each|Extracted|Failing|Found|Fused|Fusing|Given|Gone|"
    r"Heard|Held|Judged|Kept|Known|Learned|Least|Loaded|Looked|Making|Matched|Missing|"
    r"Near|Observed|Paid|Paired|Perceived|Predicted|Prepared|Priced|Promised|Ranked|"
    r"Reached|Removed|Said|Sampled|Scored|Seen|Selective|Simple|Stacked|Standing|Stored|"
    r"Told|Tried|Tuned|Unanswered|Unfinished|Wanted|Weighed|Willing|Written"
)
"""Participles, adverbs and adjectives that stood as class names."""

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


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))


def classes(*folders: str) -> list[str]:
    return [
        node.name for _, tree in trees(*folders) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]


def constants(*folders: str) -> Iterator[str]:
    """Every upper-case name that a module binds, and its file."""
    for path, tree in trees(*folders):
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = (name for target in targets if target for name in ast.walk(target))
            for name in names if isinstance(node, ast.Assign | ast.AnnAssign) else ():
                if isinstance(name, ast.Name) and name.id.isupper():
                    yield f"{path} {name.id}"


def test_no_class_is_named_by_a_participle_or_adverb_alone() -> None:
    found = {
        name for name in classes(*PRODUCT, "rivals/rlfocal_rivals") if NO_NOUNS.fullmatch(name.strip("_"))
    }
    assert found == set()


def test_no_two_classes_of_the_product_share_a_name() -> None:
    twice = {name for name, n in Counter(classes(*PRODUCT)).items() if n > 1}
    assert twice == set()


def test_constants_name_their_subject() -> None:
    found = []
    for place in constants(*PRODUCT, "rivals/rlfocal_rivals"):
        name = place.rpartition(" ")[2].strip("_")
        if NO_SUBJECTS.fullmatch(name) or VERB_FORM.fullmatch(name):
            found.append(place)
    assert found == []

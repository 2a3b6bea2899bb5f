"""The list of `make mutants` is of today's code: each wrong line has its place, and its tests are there."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_mutant_can_be_made_and_tried(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.right) == 1
    assert mutant.right != mutant.wrong
    for named in mutant.tests.split():
        file, _, name = named.partition("::")
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert f"def {name.partition('[')[0]}(" in text or not name

"""A method's recipe decides whether stored results stand for it: none stays the same by oversight.

`recipes.json` beside this file says which recipe goes with which code. Comments, docstrings and the words of
errors are no code. Once a recipe is raised, or because nothing is fitted or decided otherwise, run
`python tests/methods/test_recipes.py`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlfocal.base.names import TRAINED
from rlfocal.methods import entries, make_method
from rlfocal.methods.trained import configure, online_recipe, recipe

TABLE = Path(__file__).with_name("recipes.json")
CARRIERS = {
    "rlfocal.data.dataset",  # what it holds is in a run's name
    "rlfocal.base.errors",
    "rlfocal.data.policy",
    *(f"rlfocal.methods.agents.{name}" for name in ("header", "resuming", "tensorfiles", "variant")),
    "rlfocal.methods.registry",
}
"""Modules that change no decision."""


class Code(ast.NodeTransformer):
    """What runs, without what is only said."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        says = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if says else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise()


def parsed(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def digest(tree: ast.Module) -> str:
    return sha256(ast.unparse(Code().visit(tree)).encode()).hexdigest()[:12]


@cache
def imported(module: str) -> tuple[str, ...]:
    """Our own modules that this one imports, at its top or inside."""
    return tuple(_imported(parsed(module)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlfocal"):
            within = [f"{node.module}.{name.name}" for name in node.names]
            modules = [name for name in within if name.rpartition(".")[2].islower() and _is_module(name)]
            yield from modules or [str(node.module)]


@cache
def _is_module(name: str) -> bool:
    package = find_spec(name.rpartition(".")[0])
    return package is not None and package.submodule_search_locations is not None and bool(find_spec(name))


def needed(module: str) -> set[str]:
    """The modules that one's code calls, itself among them."""
    found, ahead = set[str](), [module]
    while ahead:
        name = ahead.pop()
        if name not in found | CARRIERS:
            found.add(name)
            ahead += imported(name)
    return found


def as_it_is() -> dict[str, Any]:
    """Every method's recipe and modules, and every module's digest."""
    of = {
        name: (make_method(name).recipe(100), type(make_method(name)).__module__)
        for name, entry in entries().items()
        if not entry.needs_argument and name not in TRAINED
    }
    for name in TRAINED:
        revision = json.loads(recipe(name, configure(name, 100)))[0]
        is_of_paper = name in ("rl_focal_literal", "rl_focal_released")
        room = f"rlfocal.methods.{'rl_focal' if is_of_paper else name}"
        of[name] = f"{revision}{online_recipe(name)}", f"{room}.training"
    methods = {name: {"recipe": told, "modules": sorted(needed(at))} for name, (told, at) in of.items()}
    every = sorted({module for method in methods.values() for module in method["modules"]})
    return {"methods": methods, "code": {module: digest(parsed(module)) for module in every}}


def forgotten(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, list[str]]:
    """Methods whose code is other than it was under the same recipe, and the modules that changed."""
    changed = {
        module
        for module in now["code"].keys() | then["code"].keys()
        if now["code"].get(module) != then["code"].get(module)
    }
    return {
        name: sorted(changed & {*method["modules"], *then["methods"][name]["modules"]})
        for name, method in now["methods"].items()
        if name in then["methods"]
        and method["recipe"] == then["methods"][name]["recipe"]
        and changed & {*method["modules"], *then["methods"][name]["modules"]}
    }


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons write code out differently")
def test_recipes_match_the_code_they_name() -> None:
    now, then = as_it_is(), json.loads(TABLE.read_text())
    assert not forgotten(now, then), (
        "raise these methods' recipes if they fit or decide otherwise now, then " + HOW
    )
    assert now == then, HOW


HOW = "run `python tests/methods/test_recipes.py`"


def test_what_is_code_and_what_is_not() -> None:
    source = 'def f(x):\n    "Doc."\n    if x < 0:\n        raise ValueError("no")\n    return x + 1\n'
    once = digest(ast.parse(source))
    for same in ("# a comment\n" + source, source.replace("Doc", "Word"), source.replace("no", "never")):
        assert digest(ast.parse(same)) == once
    for other in (source.replace("+ 1", "+ 2"), source.replace("< 0", "<= 0")):
        assert digest(ast.parse(other)) != once


def test_a_change_is_seen_by_the_methods_that_need_it_until_their_recipes_change() -> None:
    then = json.loads(TABLE.read_text())
    now = json.loads(json.dumps(then))
    now["code"]["rlfocal.statistics.votes"] = "other"
    assert {"plurality", "soft_vote", "best_plurality"} <= forgotten(now, then).keys()
    assert not {"stacking", "rl_focal"} & forgotten(now, then).keys()
    for method in now["methods"].values():
        method["recipe"] += "1"
    assert not forgotten(now, then)


if __name__ == "__main__":
    TABLE.write_text(json.dumps(as_it_is(), indent=1) + "\n")

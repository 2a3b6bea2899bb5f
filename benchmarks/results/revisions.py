"""A method's revision, which says whether a stored result was computed by the present code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

from rlfocal.base.errors import InputError
from rlfocal.data.policy import RecipeOnline
from rlfocal.evaluation.planning import parse_settings
from rlfocal.methods import MethodArguments, make_method
from rlfocal.methods.registry import list_settings

_TRAIN_SIZES = (100, 1_000, 10_000)
"""The numbers of train documents for which recipes are taken, as default settings may depend on them."""


def revision(method: str, settings: Sequence[str] = (), protocol: str = "frozen") -> str:
    """A text that changes whenever the method would fit or decide otherwise, as its recipes declare.

    `settings` are words as `rlfocal evaluate --set` takes them. Raises InputError for a method or setting
    that does not exist.
    """
    return _revision(method, tuple(settings), protocol)


def find_current_revision(method: str, settings: Sequence[str], protocol: str) -> str | None:
    """The method's revision in the present code; None if the method or a setting no longer exists."""
    try:
        return _revision(method, tuple(settings), protocol)
    except InputError:
        return None


@cache
def _revision(method: str, settings: tuple[str, ...], protocol: str) -> str:
    given, base = parse_settings(settings), method.partition(":")[0]
    known = list_settings(make_method(method))
    own = {name: value for name, value in given.get("", {}).items() if name in known} | given.get(base, {})
    made = make_method(method, MethodArguments(settings=own))
    online = made.online_recipe if protocol == "online" and isinstance(made, RecipeOnline) else ""
    recipes = [made.recipe(size) + online for size in _TRAIN_SIZES]
    if len(set(recipes)) == 1 and len(recipes[0]) <= 12:
        return recipes[0]
    return sha256("\0".join(recipes).encode()).hexdigest()[:12]

"""All methods, by their names in `evaluations.method`: one file each, registered by `register`.

A folder holds the methods of one family and, in files whose names begin with `_`, the code they share.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from rlfocal.calls import Answered, Calls
from rlfocal.methods.registry import (
    PROTOCOLS,
    CheckpointStore,
    Entry,
    Making,
    check_methods,
    entries,
    entry_of,
    every_method,
    make_method,
    methods_for,
    named,
    reads_of,
    reads_task,
    register,
    settable,
    with_references,
)
from rlfocal.methods.rl_focal import RLFocal
from rlfocal.policy import Decisions, Learned, Method, OnlineLearner, Policy

__all__ = [
    "PROTOCOLS",
    "Answered",
    "Calls",
    "CheckpointStore",
    "Decisions",
    "Entry",
    "Learned",
    "Making",
    "Method",
    "OnlineLearner",
    "Policy",
    "RLFocal",
    "check_methods",
    "entries",
    "entry_of",
    "every_method",
    "make_method",
    "methods_for",
    "named",
    "reads_of",
    "reads_task",
    "register",
    "settable",
    "with_references",
]

# Importing a module registers its methods.
for _module in walk_packages(__path__, f"{__name__}."):
    if not _module.name.rpartition(".")[2].startswith("_"):
        import_module(_module.name)

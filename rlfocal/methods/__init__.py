"""All methods, by their names in `evaluations.method`: one file each, registered by `register`.

A folder holds the methods of one family and, in files whose names begin with `_`, the code they share.
"""

from __future__ import annotations

from rlfocal.data.calls import Answered, Calls
from rlfocal.data.policy import Decisions, Learned, Method, OnlineLearner, Policy
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
from rlfocal.methods.trained.method import RLFocal

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

"""RL-Focal's methods and those it has to beat at least, by their names in `evaluations.method`.

A module that `register`s a method is all there is to it; `trained` has those that are trained to checkpoints,
with a folder each and `learning` for what they share. Published rivals are another package, rivals/.
What is imported from here loads late: `rlfocal --help` names the trained methods and must not wait for numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
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
    from rlfocal.methods.trained import RLFocal

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

_HOMES = {
    "Answered": "rlfocal.data.calls",
    "Calls": "rlfocal.data.calls",
    "RLFocal": "rlfocal.methods.trained",
    **dict.fromkeys(("Decisions", "Learned", "Method", "OnlineLearner", "Policy"), "rlfocal.data.policy"),
}
__getattr__ = import_when_used(__name__, dict.fromkeys(__all__, "rlfocal.methods.registry") | _HOMES)

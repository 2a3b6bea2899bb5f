"""RL-Focal's methods and the simplest methods that it has to beat, by their names in `evaluations.method`.

A module adds a method by `@register`. `trained` fits the methods with checkpoints, each of which has a
folder; `learning` has their common code. Published rivals are in another package, rivals/. Names of this
package load their modules when first used, because `rlfocal --help` must not wait for numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.data.calls import Answers, Calls
    from rlfocal.data.policy import Decisions, Method, OnlineLearner, Policy, TrainedPolicy
    from rlfocal.methods.registry import (
        PROTOCOLS,
        CheckpointStore,
        Entry,
        MethodArguments,
        check_methods,
        entries,
        entry_of,
        every_method,
        find_methods,
        list_settings,
        make_method,
        methods_for,
        reads_task,
        register,
        with_references,
    )
    from rlfocal.methods.trained import RLFocal

__all__ = [
    "PROTOCOLS",
    "Answers",
    "Calls",
    "CheckpointStore",
    "Decisions",
    "Entry",
    "Method",
    "MethodArguments",
    "OnlineLearner",
    "Policy",
    "RLFocal",
    "TrainedPolicy",
    "check_methods",
    "entries",
    "entry_of",
    "every_method",
    "find_methods",
    "list_settings",
    "make_method",
    "methods_for",
    "reads_task",
    "register",
    "with_references",
]

_HOMES = {
    "Answers": "rlfocal.data.calls",
    "Calls": "rlfocal.data.calls",
    "RLFocal": "rlfocal.methods.trained",
    **dict.fromkeys(
        ("Decisions", "TrainedPolicy", "Method", "OnlineLearner", "Policy"), "rlfocal.data.policy"
    ),
}
__getattr__ = import_when_used(__name__, dict.fromkeys(__all__, "rlfocal.methods.registry") | _HOMES)

"""Every way to choose and fuse, by the name it has in `evaluations.method`: a file each, under `register`."""

from __future__ import annotations

# What is imported here registers its methods.
from rlfocal.methods import constant_pools, greedy, log_linear, reference, rl_focal, stacking, weighted_vote
from rlfocal.methods.registry import (
    PROTOCOLS,
    CheckpointStore,
    Entry,
    Making,
    check_methods,
    entries,
    entry_of,
    make_method,
    methods_for,
    named,
    register,
    with_references,
)
from rlfocal.methods.rl_focal import RLFocal
from rlfocal.policy import Decisions, Learned, Method, OnlineLearner, Policy

__all__ = [
    "PROTOCOLS",
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
    "constant_pools",
    "entries",
    "entry_of",
    "greedy",
    "log_linear",
    "make_method",
    "methods_for",
    "named",
    "reference",
    "register",
    "rl_focal",
    "stacking",
    "weighted_vote",
    "with_references",
]

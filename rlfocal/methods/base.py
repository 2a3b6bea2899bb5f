"""What the file of a method needs."""

from __future__ import annotations

from rlfocal.dataset import Dataset
from rlfocal.errors import InputError
from rlfocal.policy import Decisions as Decisions
from rlfocal.policy import Episode as Episode
from rlfocal.policy import Learned as Learned
from rlfocal.policy import Method as Method
from rlfocal.policy import OnlineLearner as OnlineLearner
from rlfocal.policy import Policy as Policy

NEEDS_CHOICES = ("stacking", "constant_choice")
"""Methods to which a slot must mean the same choice in every document."""


def refuse_answers(method: str, documents: Dataset) -> None:
    """Raises InputError where a method that needs choices is given free answers."""
    if method in NEEDS_CHOICES and documents.kind == "answers":
        raise InputError(
            f"{method} needs numbered choices, and {documents.benchmark!r} has free answers; leave it out of "
            "--methods (log_linear and weighted_vote take answers)"
        )

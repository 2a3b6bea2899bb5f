"""Shared by tests: call answers."""

from __future__ import annotations

from dataclasses import replace
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.yardsticks import make_answers, make_logits
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import SeesAll, decide
from rlfocal.evaluation.runs import decide_groups
from rlfocal.methods import make_method, methods_for

ANSWERS = [("aabbc", "a"), ("dcbaa", "b"), ("eeeab", "z"), ("bbcd-", "c"), ("-----", "a")] * 8

"""Shared by tests: call answers."""

from __future__ import annotations

ANSWERS = [("aabbc", "a"), ("dcbaa", "b"), ("eeeab", "z"), ("bbcd-", "c"), ("-----", "a")] * 8

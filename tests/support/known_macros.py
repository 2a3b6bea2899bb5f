"""Shared by tests: known macros."""

from __future__ import annotations

MACROS = {
    "pairwise_diversity": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "agreement": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "best_partner": "{benchmark}, {models}[1], task := {task}, split := {split}",
    "all_pools": "{benchmark}, 4, task := {task}, split := {split}, models := {models}",
    "pool_diversity": "{benchmark}, {models}, task := {task}, split := {split}",
    "pool_documents": "{benchmark}, {models}, {task}, {split}",
    "pool_diversity_over_time": "{benchmark}, {models}, 3, task := {task}",
    "calibration": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "model_scores": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "compare_models": "{benchmark}, {models}[1], {models}[2], task := {task}, split := {split}",
    "pass_at_k": "{benchmark}, 1, task := {task}, split := {split}, models := {models}",
}
"""Every macro of a benchmark, and how it is called."""


KNOWN = {"benchmark": "'b'", "task": "'*'", "split": "'*'", "models": "['m00', 'm01']"}


def rounded(found: list[tuple[object, ...]]) -> list[list[object]]:
    """The rows in one order: sums of floats differ in their last digit, by who is added first."""
    values = [[round(value, 9) if isinstance(value, float) else value for value in row] for row in found]
    return sorted(values, key=repr)

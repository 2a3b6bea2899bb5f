"""What Prefect's pages show of a regeneration: its figures, what failed, and where the report is."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from prefect import get_run_logger
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from flows.support.summary import Summary
from rlfocal.base.atomic import write_file
from rlfocal.base.wording import counted
from rlfocal.evaluation.comparable import BoardKey
from rlfocal.evaluation.leaderboard import Board
from rlfocal.evaluation.verdicts import MEANING, verdict_table
from warehouse.locations import locate

Accuracies = Mapping[tuple[BoardKey, str], float]
"""Fractions, means over seeds."""
LEGEND = "asked: models per question. change: points since the last completed run in this warehouse."
PUBLISHED = "published.json"
"""Among what this machine keeps about a warehouse."""


def last_published(location: str | Path | None) -> Accuracies:
    """What the last run that came to its end showed of each board; of other boards, runs before it."""
    try:
        rows = json.loads((locate(location).local / PUBLISHED).read_text("utf-8"))
        return {(_board_key(board), method): accuracy for board, method, accuracy in rows}
    except (OSError, ValueError):
        return {}


def _board_key(parts: Sequence[Any]) -> BoardKey:
    """A board's key as JSON gives it back: its pool is a list there."""
    return cast(BoardKey, tuple(tuple(part) if isinstance(part, list) else part for part in parts))


def keep_published(location: str | Path | None, boards: Sequence[Board], before: Accuracies) -> None:
    """Keeps what a run showed, for the next one to compare with: a killed run's evaluations nobody saw."""
    now = {(board.key, one.method): one.accuracy for board in boards for one in board.standings}
    rows = [(board, method, accuracy) for (board, method), accuracy in {**before, **now}.items()]
    write_file(locate(location).local / PUBLISHED, json.dumps(rows))


def publish(summary: Summary, before: Accuracies) -> None:
    """Makes the run's artifacts. `before`: what the last run showed."""
    get_run_logger().info("%d partitions extracted, %d already there", summary.extracted, summary.present)
    publish_boards("regenerate-accuracy", page(summary), summary.boards, before)
    if summary.gaps:
        create_table_artifact(key="regenerate-missing", table=[vars(gap) for gap in summary.gaps])
    if summary.report is not None and (url := report_url()):
        create_link_artifact(key="regenerate-report", link=url, link_text="the report")


def publish_boards(key: str, head: list[str], boards: Sequence[Board], before: Accuracies) -> None:
    """Makes an artifact: these lines and the verdicts. `before`: what the last run showed."""
    lines = list(head)
    if boards:
        lines += ["", *verdict_table(boards, before=before).markdown(), "", f"{LEGEND} {MEANING}"]
        for board in boards:
            lines += [f"\n{note}" for note in board.notes]
    create_markdown_artifact(key=key, markdown="\n".join(lines))


def report_url() -> str | None:
    """The URL where a web server shows this worker's report: browsers do not follow links to local files."""
    return os.environ.get("RLFOCAL_REPORT_URL") or None


def page(summary: Summary) -> list[str]:
    """The run in lines of Markdown: what was done, and where the report is."""
    done = f"{counted(summary.extracted, 'partition')} extracted, {summary.present} already there"
    lines = [f"# Pool {summary.pool}", "", f"{done}; {summary.seconds / 60:.1f} minutes."]
    if summary.gaps:
        lines += [
            "",
            f"**{counted(len(summary.gaps), 'step')} failed**: see the artifact regenerate-missing.",
        ]
    if summary.report is not None:
        lines += ["", report_line(summary.report)]
    return lines


def report_line(report: Path) -> str:
    """Where the report is, in Markdown."""
    place = f"`{report.absolute()}` on {platform.node()}"
    url = report_url()
    return f"[Open the report]({url}) ({place})" if url else f"The report is {place}"

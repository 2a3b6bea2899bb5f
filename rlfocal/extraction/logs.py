"""The events of an extraction as JSON lines, for log collectors; nothing unless RLFOCAL_LOG is set.

RLFOCAL_LOG names a file that all processes of a run append to, or is `-` for standard error. The logger is
`rlfocal.extraction`, so that other handlers of the standard library see the same records and their fields.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from rlfocal.base.errors import InputError

VARIABLE = "RLFOCAL_LOG"
_LOGGER = logging.getLogger("rlfocal.extraction")
_LOGGER.addHandler(logging.NullHandler())  # or Python prints errors on stderr where nobody asked for a log
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, event, host, process, and the fields that the event was given."""

    def format(self, record: logging.LogRecord) -> str:
        about = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "host": platform.node(),
            "process": record.process,
        }
        fields = {name: value for name, value in vars(record).items() if name not in _OWN}
        return json.dumps(about | fields, default=str, ensure_ascii=False)


def start_log() -> None:
    """Lets this process write the log that RLFOCAL_LOG asks for. Raises InputError if it cannot."""
    place = os.environ.get(VARIABLE)
    if not place or any(isinstance(handler.formatter, JsonLines) for handler in _LOGGER.handlers):
        return
    if place == "-":
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(place, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"{VARIABLE}={place!r} cannot be written ({error.strerror}); name a file, or - for stderr"
            ) from None
    handler.setFormatter(JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)


def log(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Logs an event; `fields` name its model, benchmark, task and shard."""
    _LOGGER.log(level, event, extra=fields)

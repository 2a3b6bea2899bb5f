"""Benchmarks: one command, one run, ratios against a named reference."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak_megabytes() -> float:
    """The most memory that this program has held, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the process held before it became this program
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) / 1e3
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (1e6 if sys.platform == "darwin" else 1e3)

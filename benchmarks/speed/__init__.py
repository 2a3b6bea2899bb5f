"""Measurements of speed and memory, as ratios to a reference that is measured in the same run."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak_megabytes() -> float:
    """The peak resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the process held before it became this program
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) / 1e3
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (1e6 if sys.platform == "darwin" else 1e3)

"""Known vulnerabilities of pinned versions, by the package index; what it could not look at is named.

    python packaging/audit.py constraints.txt [https://pypi.org/pypi]

Exit code 1 where a version has a known vulnerability, where the index did not answer, or where it knows none
of the versions. Versions that it does not know are named, and the others decide.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

INDEX = "https://pypi.org/pypi"
SECONDS = 20
REQUESTS_AT_ONCE = 8
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;#]+)")


class Pin(NamedTuple):
    """A version of a package, and what the index says of it."""

    name: str
    version: str
    vulnerabilities: tuple[str, ...] = ()
    """A line each."""
    fault: str = ""
    """Why the index said nothing; "unknown" where it does not have the version."""


def read_pins(path: Path) -> list[Pin]:
    return [Pin(*pin.groups()) for line in path.read_text("utf-8").splitlines() if (pin := PIN.match(line))]


def look_up(pin: Pin, index: str) -> Pin:
    """The pin with its known vulnerabilities that were not withdrawn, or the fault."""
    try:
        with urlopen(f"{index}/{pin.name}/{pin.version}/json", timeout=SECONDS) as response:
            known = json.load(response).get("vulnerabilities") or []
    except HTTPError as error:
        return pin._replace(fault="unknown" if error.code == 404 else f"status {error.code}")
    except (OSError, ValueError) as error:  # no connection, or no JSON
        return pin._replace(fault=str(getattr(error, "reason", error)))
    return pin._replace(vulnerabilities=tuple(describe(each) for each in known if not each.get("withdrawn")))


def describe(vulnerability: dict[str, object]) -> str:
    """Its ids, the versions that mend it, and what it is, in one line."""
    aliases, fixed = ([*map(str, _list(vulnerability, name))] for name in ("aliases", "fixed_in"))
    text = " ".join(str(vulnerability.get("summary") or vulnerability.get("details") or "").split())
    mended = f"mended in {', '.join(fixed)}" if fixed else "not mended"
    return f"{', '.join([str(vulnerability.get('id')), *aliases])} ({mended}): {text[:200]}"


def _list(of: dict[str, object], name: str) -> Sequence[object]:
    found = of.get(name)
    return found if isinstance(found, list) else []


def report(pins: Sequence[Pin], index: str) -> tuple[list[str], int]:
    """What to print, and the exit code."""
    vulnerable = [pin for pin in pins if pin.vulnerabilities]
    unknown = [f"{pin.name} {pin.version}" for pin in pins if pin.fault == "unknown"]
    unanswered = {f"{pin.name} {pin.version}": pin.fault for pin in pins if pin.fault not in ("", "unknown")}
    n_looked_at = len(pins) - len(unknown) - len(unanswered)
    if not n_looked_at:
        why = next(iter(unanswered.values()), "it knows none of the versions")
        return [f"None of {len(pins)} packages could be looked up at {index}: {why}."], 1
    lines = [f"{pin.name} {pin.version}: {each}" for pin in vulnerable for each in pin.vulnerabilities]
    lines += [f"not looked at, as the index has no such version: {', '.join(unknown)}"] * bool(unknown)
    for name, fault in unanswered.items():
        lines.append(f"not looked at, as the index did not answer: {name} ({fault})")
    lines.append(
        f"{n_looked_at} of {len(pins)} packages looked at, {len(vulnerable)} with known vulnerabilities."
    )
    return lines, int(bool(vulnerable or unanswered))


def main(path: str, index: str = INDEX) -> int:
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        pins = list(threads.map(lambda pin: look_up(pin, index), read_pins(Path(path))))
    lines, code = report(pins, index)
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A reader's terminal: the shell blocks of a page, run one after the other in one shell, as they stand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

SERVES = {
    "prefect server start": "(exec 3<>/dev/tcp/127.0.0.1/$PREFECT_SERVER_API_PORT) 2>&1",
    "prefect worker start": "grep 'started!'",
    "tensorboard --logdir": "grep http://",
    "-m http.server": "grep Serving",
}
"""Commands that end only when they are stopped, and what holds once they serve; stdin has what they said."""
_END_OF_BLOCK = "\x1e"
_BEGINNING = """
set -euo pipefail
served=()
serve() {  # LOG CONDITION: waits until the command just started serves
    served+=("$!")
    until eval "$2" <"$1" >/dev/null; do kill -0 "$!"; sleep 0.2; done
}
"""
_ENDING = """
for one in ${served[@]+"${served[@]}"}; do kill -0 "$one"; done
"""


class FailedError(Exception):
    """A page whose blocks do not all run: what they printed last."""


def statements(code: str) -> list[str]:
    """A block's commands, each with the lines that it goes on in."""
    found, part = [], ""
    for line in code.splitlines(keepends=True):
        part += line
        read = subprocess.run(["bash", "-n"], input=part, capture_output=True, text=True, check=False)
        # An unfinished here-document is no error for bash, but a warning.
        if read.returncode == 0 and not read.stderr and not part.endswith("\\\n"):
            found.append(part)
            part = ""
    assert not part, f"no whole command: {part}"
    return found


def run_blocks(blocks: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What each block, a list of statements, prints in `folder`; raises FailedError where one fails.

    What serves is started in the background, as if in a terminal of its own, and has to serve to the end.
    """
    script = [_BEGINNING]
    for block in blocks:
        for statement in block:
            ready = next((ready for command, ready in SERVES.items() if command in statement), None)
            if ready is None:
                script.append(statement)
            else:
                file = f"serves-{len(script)}.log"
                script.append(f"{{ {statement}}} >{file} 2>&1 &\nserve {file} {quote(ready)}\n")
        script.append(f"printf '{_END_OF_BLOCK}'\n")
    script.append(_ENDING)
    with (folder / "terminal.log").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-v", "-c", "".join(script)],
            cwd=folder,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = shell.communicate(timeout=3600)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
    if shell.returncode:
        logs = "".join(path.read_text("utf-8")[-2000:] for path in sorted(folder.glob("serves-*.log")))
        raise FailedError(
            f"{printed[-2000:]}\n{(folder / 'terminal.log').read_text('utf-8')[-3000:]}\n{logs}"
        )
    return re.split(_END_OF_BLOCK, printed)[:-1]

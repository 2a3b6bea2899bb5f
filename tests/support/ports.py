"""Ports of this machine for the servers that the tests start."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import Any


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_until_open(port: int, seconds: float = 60, process: subprocess.Popen[Any] | None = None) -> None:
    """Returns once something listens on a port; raises TimeoutError where nothing does in time, or once the
    process that is to listen has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (process is None or process.poll() is None):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")

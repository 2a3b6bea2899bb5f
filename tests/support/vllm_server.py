"""`vllm serve` on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import free_port, wait_until_open

SERVED = "smol-2026-01-01"
"""The name of a model that is known by its service alone."""


@contextmanager
def serve(model: Path, log: Path, *options: str) -> Iterator[str]:
    """The host and port of a server of a model's folder, which ends with the context."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(model), "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
    command += ["--kv-cache-memory-bytes", str(2**28), *options]
    with log.open("w") as out:
        environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1"}
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        wait_until_open(port, 600, server)
        yield f"127.0.0.1:{port}"
    except TimeoutError as error:
        raise AssertionError(log.read_text()[-2000:]) from error
    finally:
        server.terminate()
        server.wait(60)

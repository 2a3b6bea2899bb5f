"""Servers on this machine for the tests: of what a handler answers, and `vllm serve` on the CPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SERVED = "smol-2026-01-01"
"""The name of a model that is known by its service alone."""


class Handler(BaseHTTPRequestHandler):
    """Reads and sends whole bodies, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        raise NotImplementedError

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Sends bytes as they are, and anything else as JSON."""
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    """The address of a server that runs as long as the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


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

"""A server in front of another that lacks fields and limits the rate, as commercial services do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


@dataclass
class Limited:
    """What the server was asked, and how it answered."""

    behind: str
    lacks: frozenset[str]
    url: str = ""
    passed: list[str] = field(default_factory=list)
    """Bodies of the completions that were let through."""
    refused: int = 0
    """Requests that were told to come again later."""
    paid: dict[str, bytes] = field(default_factory=dict)
    """Answers by Idempotency-Key: the same one is given again, and not paid twice."""
    repeated: int = 0
    """Requests that were paid before."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens of what was paid."""
        usages = [json.loads(answer)["usage"] for answer in self.paid.values()]
        return sum(u["prompt_tokens"] for u in usages), sum(u["completion_tokens"] for u in usages)


@contextmanager
def limit(
    behind: str, *lacks: str, edit: Callable[[dict[str, Any], dict[str, Any] | None], None] | None = None
) -> Iterator[Limited]:
    """Refuses completions with one of the fields `lacks`, and every other one for 20 ms; passes the rest on.

    `behind` is the other server's address, up to /v1. `edit` changes a request, before there is an answer,
    and then the answer.
    """
    limited = Limited(behind, frozenset(lacks))
    turns, lock = iter(range(10**9)), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found := limited.lacks & json.loads(body).keys():
                self._answer(400, json.dumps({"error": {"message": f"unknown field {min(found)}"}}).encode())
                return
            key = self.headers.get("Idempotency-Key", "")
            if key in limited.paid:
                limited.repeated += 1
                self._answer(200, limited.paid[key])
                return
            with lock:
                is_refused = next(turns) % 2 == 0
                limited.refused += is_refused
                if not is_refused:
                    limited.passed.append(body.decode())
            if is_refused:
                self._answer(429, b"{}", {"retry-after-ms": "20"})
            else:
                self._pass_on(body, key)

        def _pass_on(self, body: bytes | None, key: str = "") -> None:
            request = json.loads(body or b"{}")
            if edit is not None and body is not None:
                edit(request, None)
                body = json.dumps(request).encode()
            headers = {"Content-Type": "application/json"}
            asked = Request(limited.behind + self.path.removeprefix("/v1"), body, headers)
            try:
                with urlopen(asked, timeout=60) as answer:
                    said = answer.read()
                    if body is not None and edit is not None:
                        whole = json.loads(said)
                        edit(request, whole)
                        said = json.dumps(whole).encode()
                    if key:
                        limited.paid[key] = said
                    self._answer(answer.status, said)
            except HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    limited.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield limited
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

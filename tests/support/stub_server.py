"""An OpenAI-compatible server whose every answer a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVED = "stub"
READ, WRITTEN = 100, 2
"""Tokens that each chat is said to have read, and each of its texts to have."""


@dataclass(frozen=True)
class Reply:
    """What goes over the wire; a body of None: the connection is dropped."""

    content: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Stub:
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The requests, in the order in which they came."""


@contextmanager
def stub_server(reply: Callable[[dict[str, Any], int], Any], models: Any = None) -> Iterator[Stub]:
    """`reply` makes of a request and its number, from 1, a Reply, or what is sent as a good one."""
    stub, lock = Stub(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = {"object": "list", "data": [{"id": SERVED, "object": "model"}]}
            self._send(listed if models is None else models(self.path))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                stub.asked.append(request)
                number = len(stub.asked)
            self._send(reply(request, number))

        def _send(self, answer: Any) -> None:
            sent = answer if isinstance(answer, Reply) else Reply(answer)
            if sent.content is None:
                self.close_connection = True
                return
            is_json = not isinstance(sent.content, bytes)
            body = json.dumps(sent.content).encode() if is_json else sent.content
            self.send_response(sent.status)
            for name, value in ({"Content-Type": "application/json"} | sent.headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()


def chat_answer(
    *texts: str, top: dict[str, float | None] | None = None, finish_reason: Any = "stop", **changes: Any
) -> dict[str, Any]:
    """A chat's answer; `top`: the likeliest first tokens with their log-probs."""
    listed = [{"token": t, "logprob": lp, "bytes": None} for t, lp in (top or {}).items()]
    content = [{**listed[0], "top_logprobs": listed}] if listed else None
    choices = [
        {
            "index": i,
            "finish_reason": finish_reason,
            "message": {"role": "assistant", "content": text},
            "logprobs": {"content": content} if content else None,
        }
        for i, text in enumerate(texts)
    ]
    n = WRITTEN * len(texts)
    usage = {"prompt_tokens": READ, "completion_tokens": n, "total_tokens": READ + n}
    return {
        "id": "x",
        "object": "chat.completion",
        "model": SERVED,
        "choices": choices,
        "usage": usage,
    } | changes


def question_of(request: dict[str, Any]) -> str:
    """What a chat's last message says."""
    return str(request["messages"][-1]["content"])


def n_of(request: dict[str, Any]) -> int:
    """How many texts a request asks for."""
    return int(request.get("n") or 1)

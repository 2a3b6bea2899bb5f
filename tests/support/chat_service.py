"""A chat-completions service that answers letters and gives no log-probs, as some commercial ones do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVED = "closed-1"
PROMPT_TOKENS = 100
"""What each request is said to have read."""


@dataclass
class ChatService:
    """Where the service is, and what it wrote."""

    url: str = ""
    refused: int = 0
    """Requests that asked for log-probs."""
    answered: list[int] = field(default_factory=list)
    """Texts of each request that was answered."""


@contextmanager
def chat_service(answer: Callable[[str], str]) -> Iterator[ChatService]:
    """A service that answers every message with `answer` of it; it knows no endpoint but that of chats."""
    service = ChatService()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"object": "list", "data": [{"id": SERVED, "object": "model"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/chat/completions"):
                self._answer(404, {"error": {"message": "no such endpoint"}})
            elif any("logprobs" in name for name in asked):
                service.refused += 1
                self._answer(400, {"error": {"message": "unsupported parameter: logprobs"}})
            else:
                self._answer(200, self._completion(asked))

        def _completion(self, asked: dict[str, Any]) -> dict[str, Any]:
            texts = [answer(asked["messages"][-1]["content"])] * (asked.get("n") or 1)
            service.answered.append(len(texts))
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(texts)}
            choices = [
                {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                for i, text in enumerate(texts)
            ]
            about = {"id": "x", "object": "chat.completion", "created": 0, "model": SERVED}
            return {**about, "choices": choices, "usage": usage | {"total_tokens": sum(usage.values())}}

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()

"""An OpenAI-compatible server whose every answer a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.servers import Handler, serving

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
class StubServer:
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The requests, in the order in which they came."""


def listing(_: str = "", served: str = SERVED) -> dict[str, Any]:
    """What a service says of its models."""
    return {"object": "list", "data": [{"id": served, "object": "model"}]}


@contextmanager
def stub_server(reply: Callable[[dict[str, Any], int], Any], models: Any = listing) -> Iterator[StubServer]:
    """`reply` makes of a request and its number, from 1, a Reply, or what is sent as a good one.

    `models` makes as much of the path of a GET.
    """
    stub, lock = StubServer(), threading.Lock()

    class StubHandler(Handler):
        def answer(self) -> None:
            if self.command == "GET":
                said = models(self.path)
            else:
                request = json.loads(self.body())
                with lock:
                    stub.asked.append(request)
                    number = len(stub.asked)
                said = reply(request, number)
            sent = said if isinstance(said, Reply) else Reply(said)
            if sent.content is None:
                self.close_connection = True
            else:
                self.send(sent.content, sent.status, sent.headers)

    with serving(StubHandler) as address:
        stub.url = f"{address}/v1"
        yield stub


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

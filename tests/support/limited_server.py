"""A server in front of another that lacks fields and limits the rate, as commercial services do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from support.servers import Handler, serving


@dataclass
class LimitedServer:
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
) -> Iterator[LimitedServer]:
    """Refuses completions with one of the fields `lacks`, and every other one for 20 ms; passes the rest on.

    `behind` is the other server's address, up to /v1. `edit` changes a request, before there is an answer,
    and then the answer.
    """
    limited = LimitedServer(behind, frozenset(lacks))
    turns, lock = iter(range(10**9)), threading.Lock()

    class LimitingProxy(Handler):
        def answer(self) -> None:
            if self.command == "GET":
                self._pass_on(None)
                return
            body = self.body()
            if found := limited.lacks & json.loads(body).keys():
                self.send({"error": {"message": f"unknown field {min(found)}"}}, 400)
                return
            key = self.headers.get("Idempotency-Key", "")
            if key in limited.paid:
                limited.repeated += 1
                self.send(limited.paid[key])
                return
            with lock:
                is_refused = next(turns) % 2 == 0
                limited.refused += is_refused
                if not is_refused:
                    limited.passed.append(body.decode())
            if is_refused:
                self.send({}, 429, {"retry-after-ms": "20"})
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
            except HTTPError as error:
                self.send(error.read(), error.code)
                return
            if body is not None and edit is not None:
                whole = json.loads(said)
                edit(request, whole)
                said = json.dumps(whole).encode()
            if key:
                limited.paid[key] = said
            self.send(said)

    with serving(LimitingProxy) as address:
        limited.url = f"{address}/v1"
        yield limited

"""A chat-completions service that answers letters and gives no log-probs, as some commercial ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.stub_server import READ as PROMPT_TOKENS
from support.stub_server import Reply, chat_answer, listing, n_of, question_of, stub_server

__all__ = ["PROMPT_TOKENS", "SERVED", "ChatService", "chat_service"]
SERVED = "closed-1"


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
    """A service that answers every message with `answer` of it; it knows no request but that of chats."""
    service = ChatService()

    def reply(asked: dict[str, Any], _: int) -> Any:
        if "messages" not in asked:
            return Reply({"error": {"message": "no such endpoint"}}, 404)
        if any("logprobs" in name for name in asked):
            service.refused += 1
            return Reply({"error": {"message": "unsupported parameter: logprobs"}}, 400)
        n = n_of(asked)
        service.answered.append(n)
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": n, "total_tokens": PROMPT_TOKENS + n}
        return chat_answer(*[answer(question_of(asked))] * n, model=SERVED, usage=usage)

    with stub_server(reply, lambda path: listing(path, SERVED)) as stub:
        service.url = stub.url
        yield service

"""The hash by which a document knows the prompt that models were asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence


def prompt_hash(
    prompt: str | None, messages: Sequence[Sequence[str]] | None, continuations: Sequence[str] | None
) -> str:
    """sha256 of all that every model is asked: a text or the (role, content) of a chat, and what follows."""
    asked = json.dumps([messages or prompt or "", continuations or []])
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()

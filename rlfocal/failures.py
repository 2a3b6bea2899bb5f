"""Errors of other people's libraries as one plain sentence, without secrets."""

from __future__ import annotations

import os
import re

LONGEST = 300  # characters
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "OPENAI_API_KEY")
TOKEN = re.compile(r"\b(?:hf_|sk-)[A-Za-z0-9_-]{8,}")


def plain(error: BaseException) -> str:
    """What went wrong, in one line. Tokens of the environment never appear in it.

    >>> plain(ValueError("no such\\n  file"))
    'ValueError: no such file'
    """
    message = " ".join(str(error).split())
    kind = type(error).__name__
    told = message if kind in ("InputError", "RunError") else f"{kind}: {message}" if message else kind
    return _shortened(without_secrets(told))


def without_secrets(text: str) -> str:
    for name in SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, "***")
    return TOKEN.sub("***", text)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 4].rsplit(" ", 1)[0] + " ..."

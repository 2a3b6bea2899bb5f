"""What a server's response means, whatever was asked: read once, here, for all engines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rlfocal.extraction.engine import HopelessError, Unanswered, UnansweredError

ENDS = frozenset((401, 402, 403, 404, 405, 410))
"""Statuses that are about the key, the account or the address."""
BUSY = frozenset((408, 409, 425, 429, 503, 529))
"""Statuses of a request that was not worked on, and may be sent again."""
MONEY = re.compile(
    r"insufficient.{0,20}(?:quota|balance|credit|fund)|exceeded your current quota|billing|credit balance|"
    r"(?:out of|no|any) credits|payment required|hard limit|account .{0,40}(?:deactivat|suspend|terminat)",
    re.IGNORECASE,
)
PASSES = re.compile(
    r"try again|retry (?:in|after)|per (?:second|minute|min|hour)\b|rate.?limit", re.IGNORECASE
)
MODEL = re.compile(
    r"model[_ ](?:not[_ ]found|decommissioned)|(?:unknown|invalid|no such|unrecognized)[_ ]model|"
    r"model\b.{0,80}(?:not (?:found|exist|a valid)|does not exist|decommissioned|deprecated|no longer)",
    re.IGNORECASE,
)
FILTER = re.compile(
    r"content.{0,2}(?:filter|policy|management|moderation)|responsible.?ai|safety|flagged|moderation|"
    r"prohibited|data.?inspection|blocked (?:by|due)|sensitive content",
    re.IGNORECASE,
)
COMPLETE = frozenset(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "completed"))
CUT = frozenset(("length", "max_tokens", "max_length", "model_length"))
FILTERED = frozenset(("content_filter", "content_filtered", "safety", "recitation", "blocklist", "refusal"))
"""Reasons for which texts end, as servers name them; after any other, what came is no answer."""
ADVICE = {
    401: "; set OPENAI_API_KEY to a key that it takes",
    403: "; set OPENAI_API_KEY to a key that may do this",
    404: "; check base_url and the model's name there (with chat completions alone: --backend chat)",
    405: "; check base_url",
}


Model = TypeVar("Model", bound=BaseModel)


class PassingError(Exception):
    """One try failed in a way that may pass."""

    def __init__(
        self,
        words: str,
        *,
        pause: float | None = None,
        is_free: bool = False,
        is_fault: bool = False,
        is_away: bool = False,
    ) -> None:
        super().__init__(words)
        self.pause = pause
        """Seconds after which the server wants to be asked again."""
        self.is_free = is_free
        """Whether the try cost nothing."""
        self.is_fault = is_fault
        """Whether it may be about this request alone."""
        self.is_away = is_away
        """Whether there is no server."""


class _Complaint(NamedTuple):
    words: str
    codes: str
    """Its code and type, as far as it gives them."""
    status: int
    """Of an error in an answer that was sent as a good one, the error's own."""


def good_answer(status: int, headers: Mapping[str, str], content: bytes, address: str) -> dict[str, Any]:
    """The JSON object of a good answer. Raises what any other one means."""
    if 300 <= status < 400:
        raise HopelessError(
            f"the server at {address} sends requests on to {headers.get('location', 'nowhere')!r:.200}; if "
            "that is meant, set it as `base_url`"
        )
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if (complaint := _complaint(parsed, status)) is not None:
        _raise(complaint, address, _pause(headers), f" with status {status}" if status >= 300 else "")
    if isinstance(parsed, dict):
        return parsed
    if "html" in headers.get("content-type", "") or content.lstrip()[:1] == b"<":
        raise HopelessError(
            f"what answers at {address} is no OpenAI-compatible server but a web page: check base_url, which "
            "often ends in /v1"
        )
    raise UnansweredError("broken", f"an answer that is no JSON object: {content[:80]!r}")


def end_of(finish_reason: str | None) -> str:
    """How a text ended: "stop" or "length"; as the server says where that makes it no answer.

    >>> end_of("eos_token"), end_of("max_tokens"), end_of("abort")
    ('stop', 'length', 'abort')
    """
    reason = str(finish_reason).lower()
    return "stop" if reason in COMPLETE else "length" if reason in CUT else reason


def why_unanswered(finish_reason: str | None) -> Unanswered | None:
    """Why a text that ended so is no answer; None if it is one."""
    if (ended := end_of(finish_reason)) in ("stop", "length"):
        return None
    kind = "filtered" if ended in FILTERED else "cut off"
    return Unanswered(kind, f"the answer ended with finish_reason {finish_reason!r}")


def read(model: type[Model], content: Any) -> Model:
    """The content of an answer as a value. Raises UnansweredError, with the first thing that is wrong."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        given = "" if first["type"] == "missing" else f", not {first['input']!r:.60}"
        raise UnansweredError("broken", f"{place}: {first['msg']}{given}") from None


def _raise(complaint: _Complaint, address: str, pause: float | None, how: str) -> None:
    status, said = complaint.status, f"{complaint.codes} {complaint.words}"
    words = f"the server at {address} answered{how}: {complaint.words}"
    passes = pause is not None or PASSES.search(complaint.words)
    is_about_money = MONEY.search(said) and ("insufficient" in complaint.codes or not passes)
    if status in (200, 400, 403, 422, 451) and FILTER.search(said):
        raise UnansweredError("filtered", complaint.words, is_free=status != 200)
    if status in ENDS or is_about_money or (status < 500 and MODEL.search(said)):
        raise HopelessError(words + ADVICE.get(status, ""), status)
    if status in BUSY:
        raise PassingError(words, pause=pause, is_free=True)
    if status >= 500:
        raise PassingError(words, pause=pause, is_fault=True)
    kind = "failed" if status == 200 else "refused"
    raise UnansweredError(kind, f"answered{how}: {complaint.words}", is_free=status != 200)


def _complaint(content: Any, status: int) -> _Complaint | None:
    """What a server says is wrong; None of a good answer."""
    if isinstance(content, list) and content and isinstance(content[0], dict):  # Google's
        content = content[0] if "error" in content[0] else content
    error: Any = None
    if isinstance(content, dict):
        error = content.get("error") or (content if content.get("object") == "error" else None)
        error = error or (status >= 300 and (content.get("detail") or content.get("message")))
    if not error:
        return None if status < 300 else _Complaint(str(content or "nothing that can be read"), "", status)
    if not isinstance(error, dict):
        return _Complaint(str(error), "", status)
    words = error.get("message") or error.get("detail") or json.dumps(error)
    codes = " ".join(str(error[name]) for name in ("code", "type", "status") if error.get(name))
    code = error.get("code")
    if status < 300 and isinstance(code, int) and 400 <= code < 600:
        status = code
    return _Complaint(str(words), codes, status)


def _pause(headers: Mapping[str, str]) -> float | None:
    for name, seconds in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            asked = float(headers[name]) * seconds
        except (KeyError, ValueError):
            continue
        if 0 <= asked < 10**9:
            return asked
    return None

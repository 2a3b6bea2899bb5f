"""Reads a server's response: it is a good answer, or means one of several errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rlfocal.extraction.engine import HopelessError, MissingAnswer, UnansweredError

FINAL_STATUSES = frozenset((401, 402, 403, 404, 405, 410))
"""HTTP statuses that concern the key, the account or the address, so that no further request can succeed."""
BUSY_STATUSES = frozenset((408, 409, 425, 429, 503, 529))
"""HTTP statuses after which the same request may be sent again."""
UNBILLED_STATUSES = frozenset((401, 402, 403, 404, 405, 409, 410, 413, 425, 429, 503, 529))
"""HTTP statuses of requests that the server did no work on."""
REFUSED_FORM = re.compile(
    r"(?:un(?:supported|known|recognized|expected)|invalid|missing|extra)[ _](?:required[ _])?"
    r"(?:argument|parameter|value|field|type|input)|not (?:supported|permitted)|"
    r"context.?(?:length|window)|must be (?:at |less|between|one)",
    re.IGNORECASE,
)
"""Matches an error about the form of a request. The server refuses such a request before a model reads it."""
TIMED_OUT = re.compile(r"tim(?:ed?|e-|ing)[ -]?out", re.IGNORECASE)
MISSING_MONEY = re.compile(
    r"insufficient.{0,20}(?:quota|balance|credit|fund)|exceeded your current quota|billing|credit balance|"
    r"(?:out of|no|any) credits|payment required|hard limit|account .{0,40}(?:deactivat|suspend|terminat)",
    re.IGNORECASE,
)
PASSING_FAULT = re.compile(
    r"try again|retry (?:in|after)|per (?:second|minute|min|hour)\b|rate.?limit", re.IGNORECASE
)
MISSING_MODEL = re.compile(
    r"model[_ ](?:not[_ ]found|decommissioned)|(?:unknown|invalid|no such|unrecognized)[_ ]model|"
    r"model\b.{0,80}(?:not (?:found|exist|a valid)|does not exist|decommissioned|deprecated|no longer)",
    re.IGNORECASE,
)
CONTENT_FILTER = re.compile(
    r"content.{0,2}(?:filter|policy|management|moderation)|responsible.?ai|safety|flagged|moderation|"
    r"prohibited|data.?inspection|blocked (?:by|due)|sensitive content",
    re.IGNORECASE,
)
COMPLETE_REASONS = frozenset(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "completed"))
CUT_REASONS = frozenset(("length", "max_tokens", "max_length", "model_length"))
FILTERED_REASONS = frozenset(
    ("content_filter", "content_filtered", "safety", "recitation", "blocklist", "refusal")
)
"""The `finish_reason`s of texts that a content filter stopped. Such a text is no answer."""
STATUS_ADVICE = {
    401: "; set OPENAI_API_KEY to a key that it takes",
    403: "; set OPENAI_API_KEY to a key that may do this",
    404: "; check base_url and the model's name there (with chat completions alone: --backend chat)",
    405: "; check base_url",
}

Model = TypeVar("Model", bound=BaseModel)


class PassingError(Exception):
    """The error of one attempt at a request that may succeed later."""

    def __init__(
        self,
        words: str,
        *,
        pause: float | None = None,
        is_free: bool = False,
        is_fault: bool = False,
        is_slow: bool = False,
        is_away: bool = False,
    ) -> None:
        super().__init__(words)
        self.pause = pause
        """The seconds after which the server wants the request again; None if it does not say."""
        self.is_free = is_free
        """Whether the attempt cost nothing."""
        self.is_fault = is_fault
        """Whether the cause may lie in this request alone."""
        self.is_slow = is_slow
        """Whether the attempt took too long. The cause lies in this request alone if the server answered
        others meanwhile."""
        self.is_away = is_away
        """Whether the server could not be reached."""


class _Complaint(NamedTuple):
    words: str
    codes: str
    """The error's code and type, as far as the server reports them."""
    status: int
    """The HTTP status of the error. If the server sent it with a status below 300, it is the status in the
    error's code."""


def good_answer(status: int, headers: Mapping[str, str], content: bytes, address: str) -> dict[str, Any]:
    """The JSON object of a good response. For any other response, raises the error that it means."""
    if 300 <= status < 400:
        raise HopelessError(
            f"the server at {address} sends requests on to {headers.get('location', 'nowhere')!r:.200}; if "
            "that is meant, set it as `base_url`"
        )
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if (complaint := _read_complaint(parsed, status)) is not None:
        _raise(complaint, address, _pause(headers), f" with status {status}" if status >= 300 else "")
    if isinstance(parsed, dict):
        return parsed
    if "html" in headers.get("content-type", "") or content.lstrip()[:1] == b"<":
        raise HopelessError(
            f"what answers at {address} is no OpenAI-compatible server but a web page: check base_url, which "
            "often ends in /v1"
        )
    raise UnansweredError("broken", f"the server's answer is no JSON object: {content[:80]!r}")


def end_of(finish_reason: str | None) -> str:
    """How a text ended: "stop" or "length", or another word of the server's where that makes it no answer.

    >>> end_of("eos_token"), end_of("max_tokens"), end_of("abort")
    ('stop', 'length', 'abort')
    """
    reason = str(finish_reason).lower()
    return "stop" if reason in COMPLETE_REASONS else "length" if reason in CUT_REASONS else reason


def why_unanswered(finish_reason: str | None) -> MissingAnswer | None:
    """The reason why a text that ended with this `finish_reason` is no answer; None if it is one."""
    if (ended := end_of(finish_reason)) in ("stop", "length"):
        return None
    kind = "filtered" if ended in FILTERED_REASONS else "cut off"
    return MissingAnswer(kind, f"the answer ended with finish_reason {finish_reason!r}")


def read(model: type[Model], content: Any) -> Model:
    """A response's content as a `model`. Raises UnansweredError with the first validation error."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        given = "" if first["type"] == "missing" else f", not {first['input']!r:.60}"
        raise UnansweredError("broken", f"{place}: {first['msg']}{given}") from None


def _raise(complaint: _Complaint, address: str, pause: float | None, how: str) -> None:
    status, text = complaint.status, f"{complaint.codes} {complaint.words}"
    words = f"the server at {address} answered{how}: {complaint.words}"
    passes = pause is not None or PASSING_FAULT.search(complaint.words)
    is_filtered, is_form = CONTENT_FILTER.search(text), status in (400, 422) and REFUSED_FORM.search(text)
    may_be_billed = is_filtered or TIMED_OUT.search(text) or not (status in UNBILLED_STATUSES or is_form)
    is_free = bool(how) and not may_be_billed
    is_about_money = MISSING_MONEY.search(text) and ("insufficient" in complaint.codes or not passes)
    if status in (200, 400, 403, 422, 451) and is_filtered:
        raise UnansweredError("filtered", complaint.words)
    if status in FINAL_STATUSES or is_about_money or (status < 500 and MISSING_MODEL.search(text)):
        raise HopelessError(words + STATUS_ADVICE.get(status, ""), status)
    if status in BUSY_STATUSES:
        raise PassingError(words, pause=pause, is_free=is_free)
    if status >= 500:
        raise PassingError(words, pause=pause, is_fault=True)
    kind = "failed" if status == 200 else "refused"
    raise UnansweredError(kind, f"the server answered{how}: {complaint.words}", is_free=is_free)


def _read_complaint(content: Any, status: int) -> _Complaint | None:
    """The error in a server's response; None for a good response."""
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


def is_cached(headers: Mapping[str, str]) -> bool:
    """Whether a header such as `x-cache: HIT` says that the response came from a cache."""
    caches = (value for name, value in headers.items() if "cache" in name.lower() and "prompt" not in name)
    return any(value.lower().startswith("hit") for value in caches)


def _pause(headers: Mapping[str, str]) -> float | None:
    for name, seconds in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            asked = float(headers[name]) * seconds
        except (KeyError, ValueError):
            continue
        if 0 <= asked < 10**9:
            return asked
    return None

"""What a server's response means: about one document, about the model, or about the moment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines.responses import PassingError, end_of, good_answer, why_unanswered

Q = "You exceeded your current quota, please check your plan and billing details."


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "headers", "expected"),
    [
        # no waiting mends these
        (401, error("Incorrect API key provided"), {}, HopelessError),
        (402, error("Insufficient Balance"), {}, HopelessError),
        (403, error("Your team has no access"), {}, HopelessError),
        (404, error("The model `x` does not exist", code="model_not_found"), {}, HopelessError),
        (404, {"detail": "Not Found"}, {}, HopelessError),
        (400, error("x is not a valid model ID"), {}, UnansweredError),  # no word of "model" before it
        (400, error("model x is not a valid model ID"), {}, HopelessError),
        (400, error("The model `old` has been decommissioned"), {}, HopelessError),
        (400, error("Your credit balance is too low to access the API"), {}, HopelessError),
        (429, error(Q, type="insufficient_quota", code="insufficient_quota"), {}, HopelessError),
        (429, error(Q), {}, HopelessError),
        (429, error("Account is suspended due to insufficient balance"), {}, HopelessError),
        (307, {}, {"location": "http://elsewhere/v1"}, HopelessError),
        (200, b"<!doctype html><html>", {"content-type": "text/html"}, HopelessError),
        (200, error("no credits left", code=402), {}, HopelessError),
        # these pass
        (429, error("Rate limit reached for tokens per min. Please try again in 6ms."), {}, PassingError),
        (429, [error(Q + " Please retry in 44s.", code=429, status="RESOURCE_EXHAUSTED")], {}, PassingError),
        (429, error(Q), {"retry-after": "3"}, PassingError),
        (429, {}, {}, PassingError),
        (503, b"overloaded", {}, PassingError),
        (529, error("Overloaded"), {}, PassingError),
        (500, error("2326", type="InternalServerError", code=500), {}, PassingError),
        (502, b"<html>Bad gateway</html>", {"content-type": "text/html"}, PassingError),
        (200, error("upstream overloaded", code=503), {}, PassingError),
        # these are about one document
        (400, error("The response was filtered", code="content_filter"), {}, UnansweredError),
        (403, error("Your input was flagged", code=403), {}, UnansweredError),
        (400, error("This model's maximum context length is 8192 tokens"), {}, UnansweredError),
        (413, error("Payload too large"), {}, UnansweredError),
        (422, {"detail": [{"msg": "logprobs: extra fields not permitted"}]}, {}, UnansweredError),
        (200, error("Unexpected endpoint or method"), {}, UnansweredError),
        (200, b"[1, 2]", {}, UnansweredError),
        (200, b"{", {}, UnansweredError),
        (200, {"object": "error", "message": "no", "code": 40303}, {}, UnansweredError),
    ],
)
def test_what_goes_wrong_is_told_apart(
    status: int, body: Any, headers: dict[str, str], expected: type[Exception]
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(expected) as raised:
        good_answer(status, headers, content, "http://there/v1")
    if expected is HopelessError:
        assert "http://there/v1" in str(raised.value)
    # Nothing is booked that a server did not work on.
    if 400 <= status < 500:
        assert raised.value.is_free  # type: ignore[attr-defined]


def test_a_good_answer_is_what_it_says() -> None:
    assert good_answer(200, {}, b'{"choices": [], "error": null}', "there") == {"choices": [], "error": None}


def test_a_server_that_wants_to_be_asked_later_says_when() -> None:
    for headers, pause in (
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "20"}, 0.02),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
    ):
        with pytest.raises(PassingError) as raised:
            good_answer(429, headers, b"{}", "there")
        assert raised.value.pause == pause


def test_reasons_to_end_come_from_a_closed_list() -> None:
    assert [end_of(r) for r in ("stop", "eos_token", "length", "MAX_TOKENS")] == [
        "stop",
        "stop",
        "length",
        "length",
    ]
    assert all(why_unanswered(r) is None for r in ("stop", "eos_token", "length", "max_tokens"))
    unanswered = {
        r: why_unanswered(r) for r in ("content_filter", "SAFETY", "abort", "error", None, "tool_calls")
    }
    assert {r: why and (why.kind, why.may_pass) for r, why in unanswered.items()} == {
        "content_filter": ("filtered", False),
        "SAFETY": ("filtered", False),
        "abort": ("cut off", True),
        "error": ("cut off", True),
        None: ("cut off", True),
        "tool_calls": ("cut off", True),
    }

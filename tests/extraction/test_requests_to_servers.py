"""Requests to a server and what its responses mean: sent again while that may help, and never for ever."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.servers import Handler, free_port, serving
from support.stub_server import Reply, stub_server

from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines import service
from rlfocal.extraction.engines.server_responses import PassingError, end_of, good_answer, why_unanswered
from rlfocal.extraction.engines.service import Service, bill_nothing


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.01)


def ask(url: str, patience: float = 20) -> Any:
    return Service(url, patience).post("chat/completions", {"q": 1}, lambda content, _: content, bill_nothing)


def scripted(*replies: Any) -> Callable[[dict[str, Any], int], Any]:
    """The replies one after the other; the last one stays."""
    return lambda request, number: replies[min(number, len(replies)) - 1]


BUSY = Reply({"error": {"message": "busy"}}, 429, {"retry-after-ms": "1"})
BROKEN = Reply({"error": {"message": "oops"}}, 500)
GOOD = {"choices": ["yes"]}


def test_what_passes_is_sent_again() -> None:
    with stub_server(scripted(BUSY, Reply(None), BROKEN, Reply({}, 503), GOOD)) as stub:
        assert ask(stub.url) == GOOD
        assert len(stub.asked) == 5


def test_patience_has_an_end() -> None:
    with stub_server(scripted(BUSY)) as stub:
        with pytest.raises(HopelessError, match=stub.url):
            ask(stub.url, patience=0.2)
        assert len(stub.asked) > 3
    with (
        stub_server(scripted(Reply({}, 429, {"retry-after": "3600"}))) as stub,
        pytest.raises(HopelessError, match=r"asked 1 times"),
    ):
        ask(stub.url)


def test_a_request_on_which_a_server_fails_leaves_the_others() -> None:
    for fault in (BROKEN, Reply(None)):
        with stub_server(scripted(fault)) as stub:
            with pytest.raises(UnansweredError, match="5 times"):
                ask(stub.url)
            assert len(stub.asked) == service.MAX_TRIES


def test_a_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "UNREACHABLE_SECONDS", 0.3)
    with pytest.raises(HopelessError, match=r"asked [2-9] times"):
        ask(f"http://127.0.0.1:{free_port()}/v1")


def test_an_answer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_RESPONSE_BYTES", 2**20)
    with (
        stub_server(scripted({"choices": ["x" * 2**21]})) as stub,
        pytest.raises(UnansweredError, match="1 MB"),
    ):
        ask(stub.url)


@pytest.mark.parametrize("part", ["content", "head"])
def test_a_response_that_trickles_ends_at_its_deadline(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a document among others that are answered, or of all."""
    monkeypatch.setattr(service, "MAX_RESPONSE_SECONDS", 1.0)
    whole = json.dumps(GOOD).encode() + b" " * 10_000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(whole)

    class TricklingServer(Handler):
        def answer(self) -> None:
            if json.loads(self.body())["q"] == 2:
                self.send(GOOD)
                return
            sent = head + b"\r\n" if part == "content" else b""
            rest = whole if part == "content" else head + b"X-Slow: " + b"x" * 10_000
            self.wfile.write(sent)
            with suppress(OSError):
                for byte in rest:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.05)

    with serving(TricklingServer) as address:
        asked = Service(f"{address}/v1", patience=1.0)

        def one(number: int, pause: float = 0.0) -> Any:
            time.sleep(pause)
            return asked.post("chat/completions", {"q": number}, lambda content, _: content, bill_nothing)

        begun = time.monotonic()
        with pytest.raises(HopelessError, match="broke off"):
            one(1)
        with ThreadPoolExecutor(2) as threads:
            slow, good = threads.submit(one, 1), threads.submit(one, 2, 0.2)
            assert good.result() == GOOD
            with pytest.raises(UnansweredError, match="broke off"):
                slow.result()
        assert time.monotonic() - begun < 20


def test_an_answer_of_a_cache_is_marked() -> None:
    for headers, cached in (({"X-Cache": "HIT"}, True), ({"cf-cache-status": "MISS"}, None)):
        with stub_server(scripted(Reply(GOOD, 200, headers))) as stub:
            assert ask(stub.url).get("cached") is cached


def test_no_prompt_follows_to_another_server() -> None:
    with stub_server(scripted(GOOD)) as other:
        moved = Reply({}, 307, {"location": other.url + "/chat/completions"})
        with stub_server(scripted(moved)) as stub, pytest.raises(HopelessError, match=other.url):
            ask(stub.url)
        assert not other.asked


def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    import ssl
    import subprocess
    from http.server import BaseHTTPRequestHandler, HTTPServer

    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-keyout", "k", "-out", "c"]
    try:
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(HopelessError, match="SSL_CERT_FILE"):
            ask(f"https://127.0.0.1:{server.server_address[1]}/v1")
    finally:
        server.shutdown()
        server.server_close()


def test_an_address_without_its_v1_is_mended_and_shows_no_secret() -> None:
    def models(path: str) -> Any:
        if path.startswith("/v1/"):
            return {"data": [{"id": "m"}]}
        return Reply(b"<html>start page</html>", 200, {"Content-Type": "text/html"})

    with stub_server(scripted(GOOD), models) as stub:
        secret = stub.url.replace("http://", "http://me:pass@").removesuffix("/v1") + "?key=hidden"
        bare = Service(secret)
        assert bare.models() == [{"id": "m"}]
        assert bare.address == stub.url  # which shows no secret


def test_a_list_of_models_need_not_be_there_but_a_key_must_do() -> None:
    for status in (404, 405):
        with stub_server(scripted(GOOD), lambda path, status=status: Reply({}, status)) as stub:
            assert Service(stub.url).models() == []
            assert Service(stub.url).address == stub.url
    with (
        stub_server(scripted(GOOD), lambda path: Reply({"error": "no such key"}, 401)) as stub,
        pytest.raises(HopelessError, match=r"no such key; set OPENAI_API_KEY"),
    ):
        Service(stub.url).models()


def test_the_first_that_fails_ends_what_waits() -> None:
    """One request meets an end while others wait for a busy server."""

    def reply(request: dict[str, Any], number: int) -> Any:
        if request["q"] == 3:
            return Reply({"error": {"message": "no quota", "code": "insufficient_quota"}}, 429)
        return Reply({}, 429, {"retry-after": "100"})

    with stub_server(reply) as stub:
        asked = Service(stub.url, patience=1000)

        def one(number: int) -> Any:
            return asked.post("chat/completions", {"q": number}, lambda content, _: content, bill_nothing)

        with pytest.raises(HopelessError, match="no quota"):
            asked.ask_each(one, range(100), 4)
        assert len(stub.asked) < 20


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
        (408, error("filtered: Request timed out"), {}, PassingError),
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
    if 400 <= status < 500:  # what a filter read may be billed, and nothing that no model read
        is_free = "filtered" not in str(body) and "flagged" not in str(body) and "ID" not in str(body)
        assert raised.value.is_free == is_free or expected is HopelessError  # type: ignore[attr-defined]


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
    ends = {"stop": "stop", "eos_token": "stop", "length": "length", "MAX_TOKENS": "length"}
    assert {reason: end_of(reason) for reason in ends} == ends
    assert {why_unanswered(reason) for reason in ends} == {None}
    kinds: dict[str | None, str] = {"content_filter": "filtered", "SAFETY": "filtered", None: "cut off"}
    for reason, kind in (kinds | dict.fromkeys(("abort", "error", "tool_calls"), "cut off")).items():
        why = why_unanswered(reason)
        assert why is not None
        assert (why.kind, why.may_pass) == (kind, kind == "cut off")

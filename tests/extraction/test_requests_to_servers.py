"""Requests to a server: sent again while that may help, ended once it cannot, and never for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers import free_port
from support.stub_server import Reply, stub_server

from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines import service
from rlfocal.extraction.engines.service import Service, free


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.01)


def ask(url: str, patience: float = 20) -> Any:
    return Service(url, patience).post("chat/completions", {"q": 1}, lambda content, _: content, free)


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
            assert len(stub.asked) == service.TRIES


def test_a_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "UNREACHABLE", 0.3)
    with pytest.raises(HopelessError, match=r"asked [2-9] times"):
        ask(f"http://127.0.0.1:{free_port()}/v1")


def test_an_answer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LARGEST", 2**20)
    with (
        stub_server(scripted({"choices": ["x" * 2**21]})) as stub,
        pytest.raises(UnansweredError, match="1 MB"),
    ):
        ask(stub.url)


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


def test_an_address_without_its_v1_is_mended() -> None:
    def models(path: str) -> Any:
        if path.startswith("/v1/"):
            return {"data": [{"id": "m"}]}
        return Reply(b"<html>start page</html>", 200, {"Content-Type": "text/html"})

    with stub_server(scripted(GOOD), models) as stub:
        bare = Service(stub.url.removesuffix("/v1"))
        assert bare.models() == [{"id": "m"}]
        assert bare.address == stub.url


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


def test_secrets_of_an_address_are_sent_and_not_shown() -> None:
    with stub_server(scripted(GOOD)) as stub:
        secret = stub.url.replace("http://", "http://me:pass@") + "?key=hidden"
        assert Service(secret).address == stub.url


def test_the_first_that_fails_ends_what_waits() -> None:
    """One request meets an end while others wait for a busy server."""

    def reply(request: dict[str, Any], number: int) -> Any:
        if request["q"] == 3:
            return Reply({"error": {"message": "no quota", "code": "insufficient_quota"}}, 429)
        return Reply({}, 429, {"retry-after": "100"})

    with stub_server(reply) as stub:
        asked = Service(stub.url, patience=1000)

        def one(number: int) -> Any:
            return asked.post("chat/completions", {"q": number}, lambda content, _: content, free)

        with pytest.raises(HopelessError, match="no quota"):
            asked.each(one, range(100), 4)
        assert len(stub.asked) < 20


def test_answers_come_in_order() -> None:
    with stub_server(lambda request, number: {"q": request["q"]}) as stub:
        asked = Service(stub.url)
        answers = asked.each(
            lambda n: asked.post("completions", {"q": n}, lambda content, _: content["q"], free), range(40), 8
        )
        assert answers == list(range(40))

"""Sends requests to a server that runs models, and waits for the responses.

A failure that waiting does not mend ends the model's run (HopelessError). A failure that concerns a single
document leaves it without an answer (UnansweredError). After a passing failure, the request is sent again,
for a limited time. A deadline bounds a whole response: httpx bounds single reads only, which a server that
sends one byte a second never exceeds.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from threading import Event, local
from time import monotonic
from typing import Any, TypeVar

import httpcore
import httpx

from rlfocal.base.errors import RunError, describe_error
from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines.server_responses import PassingError, good_answer, is_cached
from rlfocal.pool.specs import ModelSpec

BUSY_SECONDS = 300.0
"""The seconds that a request waits for a busy server, unless the entry's engine_args set `patience`."""
UNREACHABLE_SECONDS = 60.0
"""The most seconds that a request waits for a server that cannot be reached."""
MAX_TRIES = 5
"""The most attempts at a request on which the server fails. After them, its document is left without an
answer."""
MAX_RESPONSE_BYTES = 64 * 2**20
"""The most bytes that are read of a response."""
MAX_RESPONSE_SECONDS = 600.0
"""The most seconds that a whole response may take. Once its content begins, the rest may take `patience`
seconds."""
REQUEST_TIMEOUT = httpx.Timeout(MAX_RESPONSE_SECONDS, connect=10, pool=None)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds

Given = TypeVar("Given")
Answer = TypeVar("Answer")
Bill = TypeVar("Bill")
Content = dict[str, Any]
_deadline = local()  # requests are sent and read in the thread that asks


class Service:
    """A connection to a server: its address, its key, and how long requests wait."""

    def __init__(self, url: str, patience: float = BUSY_SECONDS, connections: int = 32) -> None:
        given = httpx.URL(url)
        self.base = given.copy_with(query=None)
        self._patience = patience
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"},
            params=given.params,
            timeout=REQUEST_TIMEOUT,
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,  # the prompt would go along
        )
        # All connections, including those through proxies, respect the deadline.
        for transport in (self._client._transport, *self._client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                transport._pool._network_backend = _Backend(transport._pool._network_backend)
        self._answered_at = -math.inf
        self._abort = Event()

    @property
    def address(self) -> str:
        """The server's URL without credentials or query."""
        return str(self.base.copy_with(username=None, password=None)).rstrip("/")

    def models(self) -> list[Content]:
        """The models that the server lists, each with an `id`; empty if it has no list.

        If the address works only with /v1 appended, that address is used from then on. Raises HopelessError
        if no OpenAI-compatible server responds there.
        """
        given, refused = self.base, None
        path = given.path.rstrip("/")
        for base in (given, *([] if path.endswith("/v1") else [given.copy_with(path=f"{path}/v1")])):
            self.base = base
            try:
                content = self._ask_with_retries(lambda: self._try("GET", "models"), reachable=0)
            except UnansweredError:
                continue
            except HopelessError as error:
                if isinstance(error.__cause__, PassingError):
                    raise
                refused = refused or error
                continue
            if isinstance(offered := content.get("data"), list):
                return [
                    each for each in offered if isinstance(each, dict) and isinstance(each.get("id"), str)
                ]
        self.base = given
        if refused is not None and refused.status not in (404, 405):
            raise refused
        return []

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        check: Callable[[Content, Bill], Answer],
        pay: Callable[[], AbstractContextManager[Bill]],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request, and returns what `check` makes of the response. `pay` opens a bill for each
        attempt.

        Raises UnansweredError if this request gets no answer, and HopelessError if no other request would.
        """

        def ask() -> Answer:
            with pay() as bill:
                return check(self._try("POST", path, json=body, headers=headers), bill)

        return self._ask_with_retries(ask, UNREACHABLE_SECONDS)

    def _ask_with_retries(self, ask: Callable[[], Answer], reachable: float) -> Answer:
        """Calls `ask` until it succeeds, as long as its failures may pass. `reachable` is the most seconds to
        wait for a server that cannot be reached."""
        begun, pause, tries = monotonic(), FIRST_PAUSE, 0
        while True:
            tries += 1
            try:
                answer = ask()
                self._answered_at = monotonic()
                return answer
            except PassingError as error:
                pause = min(2 * pause, LONGEST_PAUSE) if error.pause is None else error.pause
                patience = min(reachable, self._patience) if error.is_away else self._patience
                is_late = monotonic() + pause > begun + patience
                is_fault = error.is_fault or (error.is_slow and self._answered_at > begun)
                if is_fault and (is_late or tries >= MAX_TRIES):
                    raise UnansweredError("failed", f"the request failed {tries} times: {error}") from error
                if is_late:
                    raise HopelessError(f"{error} (asked {tries} times)") from error
                if self._abort.wait(pause):
                    raise HopelessError("another request failed, and no retry can help") from error

    def ask_each(self, ask: Callable[[Given], Answer], items: Iterable[Given], at_once: int) -> list[Answer]:
        """Calls `ask` for all items, up to `at_once` concurrently, and returns the results in order. The
        first failure ends all calls that wait or have not begun."""
        self._abort.clear()
        with ThreadPoolExecutor(at_once) as threads:
            asked = [threads.submit(ask, item) for item in items]
            try:
                done, _ = wait(asked, return_when=FIRST_EXCEPTION)
                for failed in (answer for answer in asked if answer in done and answer.exception()):
                    failed.result()
                return [answer.result() for answer in asked]
            except BaseException:
                self._abort.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _make_url(self, path: str) -> httpx.URL:
        return self.base.copy_with(path=f"{self.base.path.rstrip('/')}/{path}")

    def _try(self, method: str, path: str, **content: Any) -> Content:
        """Sends a request once, and returns the content of the response."""
        try:
            stream = self._client.stream(method, self._make_url(path), **content)
            with _bound_response(MAX_RESPONSE_SECONDS), stream as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    if not body and (chunk := chunk.lstrip()):  # blanks keep a connection open meanwhile
                        _shorten_deadline(self._patience)
                    body += chunk
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise UnansweredError(
                            "broken", f"the answer has more than {MAX_RESPONSE_BYTES // 2**20} MB"
                        )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if _is_certificate(error):
                raise HopelessError(
                    f"the certificate of the server at {self.address} is not trusted here "
                    f"({describe_error(error)}); set SSL_CERT_FILE to its authority's"
                ) from error
            raise PassingError(
                f"the server at {self.address} cannot be reached; check base_url, or start it if it is yours "
                "(`vllm serve MODEL`)",
                is_free=True,
                is_away=True,
            ) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise HopelessError(f"base_url {self.address!r} is no server's address ({error})") from error
        except httpx.TransportError as error:
            raise PassingError(
                f"the server at {self.address} broke off ({describe_error(error)})",
                is_fault=not isinstance(error, httpx.TimeoutException),
                is_slow=isinstance(error, httpx.ReadTimeout),
            ) from error
        except httpx.DecodingError as error:
            raise UnansweredError(
                "broken", f"the answer cannot be decoded ({describe_error(error)})"
            ) from error
        answer = good_answer(response.status_code, response.headers, bytes(body), self.address)
        return {"cached": True, **answer} if is_cached(response.headers) else answer


@contextmanager
def bill_nothing() -> Iterator[None]:
    """Opens a bill of a request that costs nothing."""
    yield None


def address_of(spec: ModelSpec, backend: str, example: str) -> str:
    """The URL of a model's server: the entry's `base_url`, else OPENAI_BASE_URL. Raises RunError without
    one."""
    if url := spec.base_url or os.environ.get("OPENAI_BASE_URL"):
        return url
    raise RunError(
        f"model {spec.model!r}: the backend {backend} needs the server's address; set `base_url` in the "
        f"model's entry or OPENAI_BASE_URL, such as {example}"
    )


def _is_certificate(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


@contextmanager
def _bound_response(seconds: float) -> Iterator[None]:
    """Lets reads in this thread raise httpx.ReadTimeout once `seconds` have passed in all."""
    _deadline.at = monotonic() + seconds
    try:
        yield
    finally:
        _deadline.at = math.inf


def _shorten_deadline(seconds: float) -> None:
    """Lets the rest of the response in this thread take at most `seconds`."""
    _deadline.at = min(_deadline.at, monotonic() + seconds)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(*arguments, **options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = getattr(_deadline, "at", math.inf) - monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the response took too long as a whole")
        given = math.inf if timeout is None else timeout
        return self._stream.read(max_bytes, None if left == given == math.inf else min(given, left))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

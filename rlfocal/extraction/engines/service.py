"""A server that models are asked through: how requests are sent and waited for.

What no waiting mends ends the model's run (HopelessError), what is about one document leaves it without an
answer (UnansweredError), and what may pass is sent again, for a time that ends.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from time import monotonic
from typing import Any, TypeVar

import httpx

from rlfocal.base.errors import RunError
from rlfocal.base.failures import plain
from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines.responses import PassingError, good_answer
from rlfocal.pool.specs import ModelSpec

PATIENCE = 300.0
"""Seconds that a request waits for a busy server, unless an entry's engine_args set `patience`."""
UNREACHABLE = 60.0
"""Seconds that it waits, at most, for one that cannot be reached."""
TRIES = 5
"""How often a request is sent on which the server fails, before its document is left without an answer."""
LARGEST = 64 * 2**20
"""Bytes of an answer."""
TIMEOUT = httpx.Timeout(600, connect=10, pool=None)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds

Given = TypeVar("Given")
Answer = TypeVar("Answer")
Bill = TypeVar("Bill")
Content = dict[str, Any]


class Service:
    """A server's address, a key for it, and how long its requests wait."""

    def __init__(self, url: str, patience: float = PATIENCE, connections: int = 32) -> None:
        given = httpx.URL(url)
        self.base = given.copy_with(query=None)
        self._patience = patience
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"},
            params=given.params,
            timeout=TIMEOUT,
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,  # the prompt would go along
        )
        self._over = Event()

    @property
    def address(self) -> str:
        """Where it is, without a user's name, password or key."""
        return str(self.base.copy_with(username=None, password=None)).rstrip("/")

    def models(self) -> list[Content]:
        """What the server says it serves, each with an `id`; nothing where it has no list.

        An address that lacks its /v1 is mended. Raises HopelessError where it is no such server.
        """
        given, refused = self.base, None
        path = given.path.rstrip("/")
        for base in (given, *([] if path.endswith("/v1") else [given.copy_with(path=f"{path}/v1")])):
            self.base = base
            try:
                content = self._patiently(lambda: self._try("GET", "models"), reachable=0)
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
        """What `check` makes of a request's answer. Each try has a bill of its own, which `pay` opens.

        Raises UnansweredError where this request has no answer, HopelessError where no other will have one.
        """

        def ask() -> Answer:
            with pay() as bill:
                return check(self._try("POST", path, json=body, headers=headers), bill)

        return self._patiently(ask, UNREACHABLE)

    def _patiently(self, ask: Callable[[], Answer], reachable: float) -> Answer:
        """`ask`, again and again while its failure may pass. `reachable`: seconds until a server must be."""
        begun, pause, tries = monotonic(), FIRST_PAUSE, 0
        while True:
            tries += 1
            try:
                return ask()
            except PassingError as error:
                pause = min(2 * pause, LONGEST_PAUSE) if error.pause is None else error.pause
                patience = min(reachable, self._patience) if error.is_away else self._patience
                is_late = monotonic() + pause > begun + patience
                if error.is_fault and (is_late or tries >= TRIES):
                    raise UnansweredError("failed", f"{tries} times: {error}") from error
                if is_late:
                    raise HopelessError(f"{error} (asked {tries} times)") from error
                if self._over.wait(pause):
                    raise HopelessError("another request failed for good") from error

    def each(self, ask: Callable[[Given], Answer], items: Iterable[Given], at_once: int) -> list[Answer]:
        """`ask` of all items, in order; the first that fails ends what waits or has not begun."""
        self._over.clear()
        with ThreadPoolExecutor(at_once) as threads:
            asked = [threads.submit(ask, item) for item in items]
            try:
                done, _ = wait(asked, return_when=FIRST_EXCEPTION)
                for failed in (answer for answer in asked if answer in done and answer.exception()):
                    failed.result()
                return [answer.result() for answer in asked]
            except BaseException:
                self._over.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _at(self, path: str) -> httpx.URL:
        return self.base.copy_with(path=f"{self.base.path.rstrip('/')}/{path}")

    def _try(self, method: str, path: str, **content: Any) -> Content:
        """What one try brings."""
        try:
            with self._client.stream(method, self._at(path), **content) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > LARGEST:
                        raise UnansweredError("broken", f"an answer of more than {LARGEST // 2**20} MB")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if _is_certificate(error):
                raise HopelessError(
                    f"the certificate of the server at {self.address} is not trusted here ({plain(error)}); "
                    "set SSL_CERT_FILE to its authority's"
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
                f"the server at {self.address} broke off ({plain(error)})",
                is_fault=not isinstance(error, httpx.TimeoutException),
            ) from error
        except httpx.DecodingError as error:
            raise UnansweredError("broken", f"an answer that cannot be decoded ({plain(error)})") from error
        return good_answer(response.status_code, response.headers, bytes(body), self.address)


@contextmanager
def free() -> Iterator[None]:
    """The bill of a request that costs nothing."""
    yield None


def address_of(spec: ModelSpec, backend: str, example: str) -> str:
    """The URL of a model's server: its entry's `base_url`, else OPENAI_BASE_URL."""
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

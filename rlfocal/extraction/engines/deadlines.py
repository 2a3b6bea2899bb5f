"""A deadline for a whole response. httpx bounds single reads only, which a server that sends one byte a
second never exceeds."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from time import monotonic
from typing import Any

import httpcore
import httpx

_deadline = local()  # requests are sent and read in the thread that asks


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Lets reads in this thread raise httpx.ReadTimeout once `seconds` have passed in all."""
    _deadline.at = monotonic() + seconds
    try:
        yield
    finally:
        _deadline.at = math.inf


def shorten_deadline(seconds: float) -> None:
    """Lets the rest of the response in this thread take at most `seconds`."""
    _deadline.at = min(_deadline.at, monotonic() + seconds)


def bound_reads(client: httpx.Client) -> None:
    """Makes a client's connections, including those through proxies, respect `deadline`."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = _Backend(transport._pool._network_backend)


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

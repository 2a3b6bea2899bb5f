"""Who is told how far a run has come: the command line, where it runs the flow itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OnProgress = Callable[[str, float], None]
"""Called with what is running and the finished share of it, 0 to 1."""

# A flow's parameters are JSON, which a callback is not; Prefect hands this context on to its task threads.
_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)


@contextmanager
def told(listener: OnProgress | None) -> Iterator[None]:
    """Inside, `tell` calls `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(title: str, share: float) -> None:
    """Tells who listens, if anybody does."""
    if (listener := _listener.get()) is not None:
        listener(title, share)

"""A hub of one revision of a mirror's folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.hub_server import serve


@contextmanager
def fake_hub(folder: Path, revision: str, gated: str = "") -> Iterator[str]:
    """Yields the address (for HF_ENDPOINT) of a hub with `folder`'s repositories at `revision`.

    The repository `gated` refuses whoever comes.
    """
    with serve() as hub:
        for place in folder.glob("*/*"):
            hub.push(str(place.relative_to(folder)), place, revision)
        hub.gated.add(gated)
        yield hub.url

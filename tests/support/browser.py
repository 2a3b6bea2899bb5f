"""A headless Chromium, driven over its DevTools protocol: what a page does when it is looked at."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection


class Browser:
    """One tab, and all that it complained about or asked the network for."""

    def __init__(self, socket: Connection) -> None:
        self._socket, self._last = socket, 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that come before it are noted."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=120))
            if message.get("id") == self._last:
                assert "error" not in message, message
                return cast(dict[str, Any], message["result"])
            self._note(message)

    def open(self, path: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Shows a file, and waits until the figures near the top are drawn."""
        self.look(width=width, dark=dark, media=media)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def look(self, *, width: int, dark: bool = False, media: str = "screen", height: int = 1000) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)

    def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        found = self.call("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"{condition} did not come true"
            time.sleep(0.05)

    def draw_all(self) -> None:
        """Opens what is closed, and waits until every figure of the board that is shown is drawn."""
        self.run("document.querySelectorAll('details.more').forEach((one) => { one.open = true; })")
        self.run("Promise.all([...document.querySelectorAll('figure')].map(draw)).then(() => true)")

    def _note(self, message: dict[str, Any]) -> None:
        method, about = message.get("method", ""), message.get("params", {})
        if method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(
            ("file:", "data:")
        ):
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and about["type"] in {"error", "warning"}:
            self.errors.append(json.dumps(about["args"])[:500])
        elif method == "Log.entryAdded" and about["entry"]["level"] in {"error", "warning"}:
            self.errors.append(about["entry"]["text"])


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Skips where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    if found is None:
        pytest.skip("needs Chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    profile = folder / "profile"
    process = subprocess.Popen(
        [found, *options, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json") as listed:
            [tab] = [tab for tab in json.load(listed) if tab["type"] == "page"]
        with connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _port(path: Path) -> int:
    end = time.monotonic() + 60
    while not (path.is_file() and path.read_text().count("\n")):
        assert time.monotonic() < end, "Chromium did not start"
        time.sleep(0.1)
    return int(path.read_text().split()[0])

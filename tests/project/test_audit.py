"""`make audit` against an index of our own: what is found, and what could not be looked at."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "audit.py"
FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["2.0"], "details": "It\nleaks."}
KNOWN = {
    "/good/1.0/json": (200, {"vulnerabilities": []}),
    "/older/1.0/json": (200, {}),
    "/mended/1.0/json": (200, {"vulnerabilities": [FLAW | {"withdrawn": "2026-01-01T00:00:00Z"}]}),
    "/bad/1.0/json": (200, {"vulnerabilities": [FLAW]}),
    "/broken/1.0/json": (503, {}),
}


class Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, content = KNOWN.get(self.path, (404, {}))
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize(
    ("names", "code", "named", "unnamed"),
    [
        (["good", "older", "mended"], 0, ["3 of 3"], ["CVE-1"]),
        (["good", "unheard"], 0, ["unheard 1.0", "1 of 2"], ["good"]),
        (["good", "bad", "unheard"], 1, ["bad 1.0", "CVE-1", "2.0", "unheard 1.0"], ["good"]),
        (["good", "broken"], 1, ["broken 1.0", "503"], ["good"]),
        (["unheard", "unknown"], 1, ["None of 2"], ["unheard"]),
        (["broken"], 1, ["None of 1", "503"], []),
    ],
)
def test_what_an_audit_finds_and_cannot_look_at(
    index: str, tmp_path: Path, names: list[str], code: int, named: list[str], unnamed: list[str]
) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("# pinned\n" + "".join(f"{name}==1.0\n" for name in names))
    done = subprocess.run([sys.executable, SCRIPT, pins, index], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, "")
    assert all(text in done.stdout for text in named)
    assert not any(text in done.stdout for text in unnamed)


def test_an_index_that_cannot_be_reached(tmp_path: Path) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("good==1.0\nbad==1.0\n")
    done = subprocess.run(
        [sys.executable, SCRIPT, pins, "http://127.0.0.1:9"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "None of 2" in done.stdout

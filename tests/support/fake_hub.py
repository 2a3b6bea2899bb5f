"""A hub on this machine: serves one revision of a mirror's folders by the calls that `datasets` makes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@contextmanager
def fake_hub(folder: Path, revision: str, gated: str = "") -> Iterator[str]:
    """Yields the address (for HF_ENDPOINT) of a hub with `folder`'s repositories at `revision`.

    The repository `gated` refuses whoever comes.
    """

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None: ...

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            if parts[0] == "api":
                parts = parts[1:]
            repo, rest = "/".join(parts[1:3]), parts[3:]
            asked = rest[1] if len(rest) > 1 else revision
            if repo == gated and rest[:1] != ["revision"]:
                self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
            elif not (folder / repo).is_dir():
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif asked not in (revision, "main"):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif rest[:1] == ["resolve"]:
                self._file(folder / repo / "/".join(rest[2:]))
            elif rest[:1] == ["tree"]:
                self._json(
                    [self._entry(repo, p) for p in sorted((folder / repo / "/".join(rest[2:])).rglob("*"))]
                )
            elif rest[:1] == ["paths-info"]:
                asked_for = parse_qs(body).get("paths") or json.loads(body or "{}").get("paths") or []
                paths = [folder / repo / name for name in asked_for]
                self._json([self._entry(repo, p) for p in paths if p.exists()])
            else:
                files = [p for p in (folder / repo).rglob("*") if p.is_file()]
                siblings = [{"rfilename": str(p.relative_to(folder / repo))} for p in files]
                self._json({"id": repo, "sha": revision, "private": False, "siblings": siblings, "tags": []})

        def _entry(self, repo: str, path: Path) -> dict[str, Any]:
            name = str(path.relative_to(folder / repo))
            if path.is_dir():
                return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
            data = path.read_bytes()
            return {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": name}

        def _file(self, path: Path) -> None:
            if not path.is_file():
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            data = path.read_bytes()
            etag = f'"{hashlib.sha1(data).hexdigest()}"'
            self._send(200, data, {"ETag": etag, "X-Repo-Commit": revision})

        def _json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

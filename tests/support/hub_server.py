"""A hub on this machine that speaks as much of the Hugging Face API as loading a model takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """Repositories by id: commits (hash -> folder) and the commit that main points to."""

    url: str = ""
    commits: dict[str, dict[str, Path]] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    """The tokens that callers sent."""
    files_sent: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The paths of all requests."""

    def push(self, repo: str, folder: Path, commit: str) -> None:
        self.commits.setdefault(repo, {})[commit] = folder
        self.main[repo] = commit


@contextmanager
def serve() -> Iterator[Hub]:
    """A running hub, empty at first."""
    hub = Hub()

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.served.asked.append(self.path)
        if authorization := self.headers.get("authorization"):
            self.served.tokens.add(authorization.removeprefix("Bearer "))
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts[:2] == ["api", "models"]:
            self._model(parts[2:], body)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)
        else:
            self._fail(404, "RepoNotFound")

    def _model(self, parts: list[str], body: bool) -> None:
        repo = "/".join(parts[:2])
        found = self._folder(repo, parts[3] if len(parts) > 3 else "main")
        if found is None:
            return
        commit, folder = found
        files = sorted(p for p in folder.iterdir() if p.is_file())
        if parts[2:3] == ["tree"]:
            listing = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": _etag(p)} for p in files
            ]
            self._send(json.dumps(listing).encode(), {}, body)
            return
        info = {"id": repo, "sha": commit, "siblings": [{"rfilename": p.name} for p in files], "tags": []}
        self._send(json.dumps(info).encode(), {}, body)

    def _file(self, repo: str, revision: str, name: str, body: bool) -> None:
        found = self._folder(repo, revision)
        if found is None:
            return
        commit, folder = found
        path = folder / name
        if not path.is_file():
            self._fail(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        if body:
            self.served.files_sent.append(f"{repo}/{name}@{commit}")
        self._send(path.read_bytes(), {"X-Repo-Commit": commit, "ETag": f'"{_etag(path)}"'}, body)

    def _folder(self, repo: str, revision: str) -> tuple[str, Path] | None:
        if repo not in self.served.commits:
            self._fail(401, "RepoNotFound")
            return None
        if repo in self.served.gated:
            self._fail(403, "GatedRepo")
            return None
        commit = self.served.main[repo] if revision == "main" else revision
        if commit not in self.served.commits[repo]:
            self._fail(404, "RevisionNotFound")
            return None
        return commit, self.served.commits[repo][commit]

    def _send(self, content: bytes, headers: dict[str, str], body: bool, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _fail(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self._send(b"{}", {"X-Error-Code": code, **(headers or {})}, self.command == "GET", status)


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()

"""A hub on this machine that speaks as much of the Hugging Face API as models and data sets take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.servers import Handler, serving


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

    class HubHandler(_Repositories):
        served = hub

    with serving(HubHandler) as hub.url:
        yield hub


@contextmanager
def fake_hub(folder: Path, revision: str, gated: str = "") -> Iterator[str]:
    """The address (for HF_ENDPOINT) of a hub with the repositories of a mirror's folder at one revision.

    The repository `gated` refuses whoever comes.
    """
    with serve() as hub:
        for place in folder.glob("*/*"):
            hub.push(str(place.relative_to(folder)), place, revision)
        hub.gated.add(gated)
        yield hub.url


class _Repositories(Handler):
    served: Hub

    def answer(self) -> None:
        self.served.asked.append(self.path)
        if authorization := self.headers.get("authorization"):
            self.served.tokens.add(authorization.removeprefix("Bearer "))
        parts = unquote(urlsplit(self.path).path).strip("/").removeprefix("api/").split("/")
        if parts[0] in ("models", "datasets"):
            parts = parts[1:]
        repo, asked = "/".join(parts[:2]), parts[2:]
        what = asked[0] if asked else "revision"
        name = "/".join(asked[2:])
        if (found := self._find(repo, asked[1] if len(asked) > 1 else "main")) is None:
            return
        commit, folder = found
        if what == "resolve":
            self._file(repo, commit, folder, name)
        elif what == "tree":
            self.send([_entry(folder, path) for path in sorted((folder / name).rglob("*"))])
        elif what == "paths-info":
            body = self.body().decode()
            wanted = parse_qs(body).get("paths") or json.loads(body or "{}").get("paths") or []
            paths = [folder / one for one in wanted]
            self.send([_entry(folder, path) for path in paths if path.exists()])
        else:
            names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
            siblings = [{"rfilename": one} for one in names]
            self.send({"id": repo, "sha": commit, "private": False, "siblings": siblings, "tags": []})

    def _file(self, repo: str, commit: str, folder: Path, name: str) -> None:
        path = folder / name
        if not path.is_file():
            self._fail(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        if self.command == "GET":
            self.served.files_sent.append(f"{repo}/{name}@{commit}")
        self.send(path.read_bytes(), headers={"X-Repo-Commit": commit, "ETag": f'"{_digest(path)}"'})

    def _find(self, repo: str, revision: str) -> tuple[str, Path] | None:
        """The commit and its folder; where there is none, says so to who asked."""
        commits = self.served.commits.get(repo, {})
        commit = self.served.main.get(repo, "") if revision == "main" else revision
        if not commits:
            self._fail(401, "RepoNotFound")
        elif repo in self.served.gated:
            self._fail(403, "GatedRepo")
        elif commit not in commits:
            self._fail(404, "RevisionNotFound")
        else:
            return commit, commits[commit]
        return None

    def _fail(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self.send({}, status, {"X-Error-Code": code, **(headers or {})})


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = str(path.relative_to(folder))
    if path.is_dir():
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
    return {"type": "file", "oid": _digest(path), "size": path.stat().st_size, "path": name}


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()

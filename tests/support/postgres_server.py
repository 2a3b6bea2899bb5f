"""A real Postgres for the tests: Debian's programs, a temporary folder, a free port, a password."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwnam
from secrets import token_hex

import psutil
import pytest

from support.servers import free_port

DIRECTORY_FIRST = pytest.mark.parametrize(
    "place", ["directory", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
"""Of a test whose commands another test runs on Postgres."""
POSTGRES_FIRST = pytest.mark.parametrize(
    "place", [pytest.param("directory", marks=pytest.mark.slow), "postgres"], indirect=True
)
"""Of the test that runs its commands on Postgres."""
SETTINGS = "-c fsync=off -c max_connections=200 -c listen_addresses=127.0.0.1 -c unix_socket_directories="


@dataclass
class PostgresServer:
    """A running server; every database made from it is empty."""

    programs: Path
    folder: Path
    port: int
    password: str
    made: list[str] = field(default_factory=list)

    def database(self) -> str:
        """The URI of a new database, without `?data=`."""
        name = f"lake{len(self.made)}"
        self.made.append(name)
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "lake", name]
        login = os.environ | {"PGPASSWORD": self.password}
        subprocess.run([self.programs / "createdb", *address], env=login, check=True)
        return f"postgresql://lake:{self.password}@127.0.0.1:{self.port}/{name}"

    def ask(self, address: str, statement: str) -> list[str]:
        """What psql prints for a statement to the database of a URI, line by line."""
        command = [str(self.programs / "psql"), "-XAtq", "-c", statement, address]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()

    def start(self) -> None:
        """Starts it, or starts it again, and waits until it answers."""
        options = f"-p {self.port} {SETTINGS}"
        self._control("-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def kill(self) -> None:
        """Ends all its processes, as a host's crash does."""
        first, *_ = (self.folder / "db" / "postmaster.pid").read_text().splitlines()
        whole = psutil.Process(int(first))
        every = [whole, *whole.children(recursive=True)]
        for process in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(every, timeout=60)

    def _control(self, *words: str) -> None:
        control: list[str | Path] = [self.programs / "pg_ctl", "-D", self.folder / "db", "-w", "-s"]
        _run([*control, *words], _account(self.folder), self.folder)


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps it off the PATH."""
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    folders = on_path + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


@contextmanager
def running(folder_of_programs: Path) -> Iterator[PostgresServer]:
    """A server that goes with its data at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    server = PostgresServer(folder_of_programs, folder, free_port(), token_hex(12))
    secret = folder / "password"
    secret.write_text(server.password)
    initialise: list[str | Path] = [folder_of_programs / "initdb", "-D", folder / "db", "-U", "lake"]
    login: list[str | Path] = ["-A", "scram-sha-256", "--pwfile", secret]
    try:
        _run([*initialise, *login, "--no-sync"], _account(folder), folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account(folder: Path) -> str | None:
    """Postgres refuses to run as root: another account that owns the folder, None where we are not root."""
    if os.getuid() != 0:
        return None
    try:
        name = getpwnam("postgres").pw_name
    except KeyError:
        name = "nobody"
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, name)
    return name


def _run(command: list[str | Path], account: str | None, folder: Path) -> None:
    groups: list[str | int] | None = None if account is None else []
    subprocess.run(
        command, user=account, extra_groups=groups, cwd=folder, check=True, stdout=subprocess.DEVNULL
    )

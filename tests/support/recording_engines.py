"""Engines that only record: real processes on pretended GPUs, which tell which GPU served whom, and when.

`python recording_engines.py` runs a pool as one rlfocal does: its standard input is JSON of `call`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import NamedTuple

from rlfocal.extraction.gpus import Device, Placement
from rlfocal.extraction.running.events import ConcurrentPartition, ExtractedPartition
from rlfocal.extraction.running.processes import Send, run_each


class PretendedWork(NamedTuple):
    """A model's GPUs, the seconds of its engine's start, and those of each task."""

    model: str
    gpus: int
    start: float
    tasks: dict[str, float]


class Record(NamedTuple):
    """What happened to a GPU at a second of the system's clock: begin, end or clash."""

    model: str
    gpu: str
    pid: int
    what: str
    second: float


@dataclass(frozen=True)
class PretendedMachine:
    """A machine with pretended GPUs; `done` is a folder that several machines may share, like a warehouse."""

    folder: Path
    n_gpus: int
    done: Path

    def make(self) -> PretendedMachine:
        for each in (self.folder / "leases", self.folder / "used", self.done):
            each.mkdir(parents=True, exist_ok=True)
        return self

    @property
    def devices(self) -> list[Device]:
        return [Device(str(i), f"{self.folder}-{i}") for i in range(self.n_gpus)]

    def run(
        self, works: Sequence[PretendedWork], devices: Sequence[Device] | None = None
    ) -> dict[str, str | None]:
        """Runs the works to their end, on pretended GPUs or `devices`."""
        devices = self.devices if devices is None else devices
        return run_each(
            record,
            {work.model: (work.model, work.start, work.tasks, self.folder, self.done) for work in works},
            at_once=len(devices),
            on_event=lambda model, event: None,
            gpus=Placement(devices, self.folder / "leases", {work.model: work.gpus for work in works}),
        )

    def start(self, works: Sequence[PretendedWork]) -> subprocess.Popen[str]:
        """`run` in a process of its own, which prints the reasons as JSON."""
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        call = [str(self.folder), self.n_gpus, str(self.done), list(works)]
        assert process.stdin is not None
        process.stdin.write(json.dumps(call))
        process.stdin.close()
        process.stdin = None
        return process

    def records(self) -> list[Record]:
        file = self.folder / "records"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Record(*json.loads(line)) for line in lines]


def record(
    send: Send, model: str, start: float, tasks: Mapping[str, float], folder: Path, done: Path
) -> None:
    """Takes the seconds that its work says, on the GPUs that its environment names.

    A lock of its own a GPU, which has nothing to do with the leases, tells whether another one uses it.
    """
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    used = [os.open(folder / "used" / gpu, os.O_RDWR | os.O_CREAT) for gpu in gpus]
    for gpu, file in zip(gpus, used, strict=True):
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            _write(folder, Record(model, gpu, os.getpid(), "clash", time.time()))
        _write(folder, Record(model, gpu, os.getpid(), "begin", time.time()))
    time.sleep(start)
    locked = [task for task in tasks if not _do(send, model, task, tasks[task], done, wait=False)]
    for task in locked:
        _do(send, model, task, tasks[task], done, wait=True)
    for gpu in gpus:
        _write(folder, Record(model, gpu, os.getpid(), "end", time.time()))


def _do(send: Send, model: str, task: str, seconds: float, done: Path, *, wait: bool) -> bool:
    """Does a task, unless it is done; False if another engine is at it."""
    benchmark, name = task.split("/")
    with claimed(done, model, task, wait=wait) as mine:
        if not mine:
            return False
        if is_done(done, model, task):
            send(ConcurrentPartition(model, benchmark, name))
            return True
        time.sleep(seconds)
        # One write, so that lines of several processes do not mix.
        with (done / "done").open("a") as file_of_done:
            file_of_done.write(f"{model} {task}\n")
    send(ExtractedPartition(model, benchmark, name, 1, seconds))
    return True


def is_done(done: Path, model: str, task: str) -> bool:
    return f"{model} {task}" in finished(done)


def finished(done: Path) -> list[str]:
    file = done / "done"
    return file.read_text().splitlines() if file.exists() else []


@contextmanager
def claimed(done: Path, model: str, task: str, *, wait: bool) -> Iterator[bool]:
    """Like a partition's lock."""
    file = os.open(done / f"{model} {task}.lock".replace("/", "-"), os.O_RDWR | os.O_CREAT)
    try:
        flock(file, LOCK_EX | (0 if wait else LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def _write(folder: Path, line: Record) -> None:
    with (folder / "records").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    from support.recording_engines import (
        PretendedMachine as ImportedBox,  # what is pickled must not be of `__main__`
    )

    asked_folder, asked_gpus, asked_done, asked_works = json.load(sys.stdin)
    box = ImportedBox(Path(asked_folder), asked_gpus, Path(asked_done))
    print(json.dumps(box.run([PretendedWork(*given) for given in asked_works])))

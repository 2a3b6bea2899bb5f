"""Engines that only record: real processes on pretended GPUs, which tell which GPU served whom, and when.

`python recording_engines.py` runs a pool as one rlfocal does: its standard input is JSON of `call`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, NamedTuple

from rlfocal.extraction.gpus.devices import Device
from rlfocal.extraction.gpus.schedule import Work, in_order
from rlfocal.extraction.running.events import AlreadyCommitted, Extracted
from rlfocal.extraction.running.gpu_jobs import Jobs, run_on_gpus
from rlfocal.extraction.running.processes import Send


class Record(NamedTuple):
    """What happened to a GPU at a second of the system's clock: begin, end or clash."""

    model: str
    gpu: str
    pid: int
    what: str
    second: float


@dataclass(frozen=True)
class Box:
    """A machine with pretended GPUs; `done` is a folder that several machines may share, like a warehouse."""

    folder: Path
    n_gpus: int
    done: Path

    def make(self) -> Box:
        for each in (self.folder / "leases", self.folder / "used", self.done):
            each.mkdir(parents=True, exist_ok=True)
        return self

    @property
    def devices(self) -> list[Device]:
        return [Device(str(i), f"{self.folder}-{i}") for i in range(self.n_gpus)]

    def run(
        self, works: Sequence[Work], patience: float = 0.0, devices: Sequence[Device] | None = None
    ) -> dict[str, str | None]:
        """Runs the works to their end, on pretended GPUs or `devices`."""
        by_model = {work.model: work for work in works}

        def arguments(model: str, left: Collection[str]) -> tuple[Any, ...]:
            tasks = {task: by_model[model].tasks[task] for task in left}
            return model, by_model[model].start, tasks, self.folder, self.done

        return run_on_gpus(
            Jobs(record, wait_for_others, arguments),
            works,
            self.devices if devices is None else devices,
            self.folder / "leases",
            on_event=lambda model, event: None,
            patience=patience,
        )

    def start(self, works: Sequence[Work]) -> subprocess.Popen[str]:
        """`run` in a process of its own, which prints the reasons as JSON."""
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        call = [str(self.folder), self.n_gpus, str(self.done), [vars(work) for work in works]]
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
    send: Send, model: str, start: float, tasks: Mapping[str, float], folder: Path, done: Path, joins: bool
) -> None:
    """Takes the seconds that its work says, on the GPUs that its environment names.

    Unless it joins others, it does nothing for a model that another process has begun.
    """
    with claimed(done, model, "model", wait=False) as first:
        if first or joins:
            _serve(send, model, start, tasks, folder, done)


def _serve(
    send: Send, model: str, start: float, tasks: Mapping[str, float], folder: Path, done: Path
) -> None:
    """A lock of its own a GPU, which has nothing to do with the leases, tells whether another one uses it."""
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    used = [os.open(folder / "used" / gpu, os.O_RDWR | os.O_CREAT) for gpu in gpus]
    for gpu, file in zip(gpus, used, strict=True):
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            _write(folder, Record(model, gpu, os.getpid(), "clash", time.time()))
        _write(folder, Record(model, gpu, os.getpid(), "begin", time.time()))
    time.sleep(start)
    for task in in_order(tasks):
        with claimed(done, model, task, wait=False) as mine:
            if not mine:
                continue
            benchmark, name = task.split("/")
            if is_done(done, model, task):
                send(AlreadyCommitted(model, benchmark, name))
                continue
            time.sleep(tasks[task])
            # One write, so that lines of several processes do not mix.
            with (done / "done").open("a") as file_of_done:
                file_of_done.write(f"{model} {task}\n")
        send(Extracted(model, benchmark, name, 1, tasks[task]))
    for gpu in gpus:
        _write(folder, Record(model, gpu, os.getpid(), "end", time.time()))


def wait_for_others(
    send: Send, model: str, start: float, tasks: Mapping[str, float], folder: Path, done: Path
) -> None:
    """As the real one does: until the tasks are done, or one of them is free and nobody has the model."""
    left = in_order(tasks)
    is_held = True
    while is_held:
        with claimed(done, model, "model", wait=False) as mine:
            left = _left(send, model, left, done)
        is_held = bool(left) and not mine
        if is_held:
            time.sleep(0.1)
    for task in left:
        with claimed(done, model, task, wait=True):
            if _left(send, model, [task], done):
                return


def _left(send: Send, model: str, tasks: Sequence[str], done: Path) -> list[str]:
    left = []
    for task in tasks:
        benchmark, name = task.split("/")
        if is_done(done, model, task):
            send(AlreadyCommitted(model, benchmark, name))
        else:
            left.append(task)
    return left


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
    from support.recording_engines import Box as ImportedBox  # what is pickled must not be of `__main__`

    asked_folder, asked_gpus, asked_done, asked_works = json.load(sys.stdin)
    box = ImportedBox(Path(asked_folder), asked_gpus, Path(asked_done))
    print(json.dumps(box.run([Work(**given) for given in asked_works])))

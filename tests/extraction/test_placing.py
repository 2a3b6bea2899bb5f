"""Engines in real processes on pretended GPUs: no GPU ever serves two models, whoever is killed.

RLFOCAL_POOLS says how many random pools each test takes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.killing import kill_tree
from support.recording_engines import PretendedMachine, PretendedWork, Record, finished

from rlfocal.extraction import gpus as placing
from rlfocal.extraction.gpus import Device, offer_free

N_POOLS = int(os.environ.get("RLFOCAL_POOLS", "2"))
N_KILLS = 4


def random_works(chance: random.Random, n_gpus: int) -> list[PretendedWork]:
    widths = [width for width in (1, 1, 2, 4) if width <= n_gpus]
    return [
        PretendedWork(
            f"m{number}",
            chance.choice(widths),
            chance.uniform(0, 0.05),
            {f"b/{task}": chance.uniform(0.01, 0.1) for task in range(chance.randint(1, 4))},
        )
        for number in range(chance.randint(6, 12))
    ]


def check_never_shared(box: PretendedMachine) -> None:
    """From what the engines recorded: no clash, and one engine's time on a GPU ends before the next begins.

    An engine that was killed wrote no end; whether it was gone, the next one's lock has told.
    """
    records = box.records()
    assert [r for r in records if r.what == "clash"] == []
    by_gpu: dict[str, list[Record]] = defaultdict(list)
    for one in sorted(records, key=lambda r: r.second):
        by_gpu[one.gpu].append(one)
    for served in by_gpu.values():
        ended = {r.pid for r in served if r.what == "end"}
        at_work: set[int] = set()
        for one in served:
            if one.what == "begin":
                assert not at_work, one
                if one.pid in ended:
                    at_work.add(one.pid)
            else:
                at_work.discard(one.pid)


def check_done_once(works: Sequence[PretendedWork], done: Path) -> None:
    """However many engines, runs and machines were at it."""
    wanted = Counter(f"{work.model} {task}" for work in works for task in work.tasks)
    assert Counter(finished(done)) == wanted


def is_released(box: PretendedMachine) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with offer_free(box.folder / "leases", box.devices) as offer:
            if len(offer.devices) == box.n_gpus:
                return True
        time.sleep(0.02)
    return False


def test_models_run_side_by_side_on_gpus_of_their_own(tmp_path: Path) -> None:
    box = PretendedMachine(tmp_path / "box", 4, tmp_path / "done").make()
    works = [
        PretendedWork("wide", 4, 0.1, {"b/0": 0.3}),
        PretendedWork("pair", 2, 0.1, {"b/0": 0.3, "b/1": 0.3}),
        *(PretendedWork(f"one{i}", 1, 0.1, {"b/0": 0.3, "b/1": 0.3}) for i in range(2)),
        PretendedWork("large", 5, 0.1, {"b/0": 0.3}),
    ]
    reasons = box.run(works)
    assert "needs 5 GPUs" in str(reasons.pop("large"))
    assert reasons == dict.fromkeys(["wide", "pair", "one0", "one1"])
    check_never_shared(box)
    check_done_once(works[:-1], box.done)
    begun = [(r.model, r.gpu) for r in box.records() if r.what == "begin"]
    assert [gpu for model, gpu in begun if model == "wide"] == ["0", "1", "2", "3"]
    assert begun[:4] == [("wide", gpu) for gpu in "0123"]
    assert sorted(gpu for _, gpu in begun[4:8]) == ["0", "1", "2", "3"], "all at once, each alone"


def test_gpus_that_other_programs_use_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And a model that cannot do without them fails, once it has waited long enough."""
    monkeypatch.setattr(placing, "FOREIGN_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(placing, "SECONDS_OF_FOREIGN_USE", 0.1)
    monkeypatch.setattr(placing, "find_foreign_use", lambda devices: {"GPU-1": 41210})
    box = PretendedMachine(tmp_path / "box", 3, tmp_path / "done").make()
    devices = [Device(str(i), f"GPU-{i}", "NVIDIA H100", is_shared=True) for i in range(3)]
    works = [
        PretendedWork(name, gpus, 0, {"b/0": 0.1}) for name, gpus in (("three", 3), ("two", 2), ("one", 1))
    ]
    reasons = box.run(works, devices=devices)
    assert "other processes use 1" in str(reasons.pop("three"))
    assert reasons == {"two": None, "one": None}
    assert {r.gpu for r in box.records()} == {"0", "2"}
    [told] = caplog.messages
    assert "41,210 MiB" in told


def test_an_engine_that_is_killed_is_its_model_s_end_alone(tmp_path: Path) -> None:
    box = PretendedMachine(tmp_path / "box", 2, tmp_path / "done").make()
    works = [PretendedWork(name, 1, 0.1, {"b/0": 0.5, "b/1": 0.4}) for name in ("first", "second")]
    run = box.start(works)
    while not (engines := [r.pid for r in box.records() if r.model == "first"]):
        time.sleep(0.01)
    os.kill(engines[0], signal.SIGKILL)
    reasons = json.loads(run.communicate(timeout=60)[0])
    assert "SIGKILL" in reasons.pop("first")
    assert reasons == {"second": None}
    assert box.run(works) == {"first": None, "second": None}
    check_never_shared(box)
    check_done_once(works, box.done)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_POOLS))
def test_no_gpu_serves_two_models_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    """Two runs on one machine of 8 GPUs and one on another share a pool, and processes are killed at random.

    Killed are engines and their guards, whole runs, and a run's first process, whose engines then end.
    """
    chance = random.Random(seed)
    near = PretendedMachine(tmp_path / "near", 8, tmp_path / "done").make()
    far = PretendedMachine(tmp_path / "far", 4, tmp_path / "done").make()
    works = random_works(chance, 4)
    places = [near, near, far]
    runs = [box.start(works) for box in places]
    while len(near.records()) < 4:
        time.sleep(0.01)
    for _ in range(N_KILLS):
        time.sleep(chance.uniform(0.1, 0.6))
        at = chance.randrange(len(runs))
        kill(runs[at], chance)
        if runs[at].poll() is not None:
            runs[at] = places[at].start(works)
    for run in runs:
        run.communicate(timeout=120)
    near.start(works).communicate(timeout=120)  # what engines that were killed had left
    check_never_shared(near)
    check_never_shared(far)
    check_done_once(works, near.done)
    assert is_released(near)
    assert is_released(far)


def kill(run: subprocess.Popen[str], chance: random.Random) -> None:
    what = chance.choice(["engine", "run", "first"])
    if what == "run":
        kill_tree(run)
    elif what == "first":
        run.kill()
        run.wait()
    else:
        with suppress(psutil.NoSuchProcess):
            engines = [p for p in psutil.Process(run.pid).children(recursive=True) if leads_a_group(p)]
            if engines:
                chance.choice(engines).kill()


def leads_a_group(process: psutil.Process) -> bool:
    pid = int(process.pid)
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False

"""Which GPUs there are, who holds them, and which model comes next."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from multiprocessing import forkserver
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlfocal.base.errors import InputError
from rlfocal.extraction.gpus.devices import Device, find_gpus, parsed, sees_only, used_by_others, visible
from rlfocal.extraction.gpus.leases import FOLDER, lease_folder, offered
from rlfocal.extraction.gpus.schedule import (
    Bar,
    Running,
    Schedule,
    Span,
    Work,
    choose,
    finish,
    lower_bound,
    ordered,
    simulate,
)
from rlfocal.extraction.running.processes import Processes, Send

LISTED = [Device(str(i), f"GPU-{i}{i}{i}", "NVIDIA H100 80GB HBM3", is_shared=True) for i in range(4)]
BOX = [Device(str(i), str(i)) for i in range(4)]
SEEN_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")
SAID = """0, GPU-000, NVIDIA H100 80GB HBM3, 4
1, GPU-111, NVIDIA H100 80GB HBM3, 41210
2, GPU-222, NVIDIA, H100, [N/A]
"""


def names(found: Sequence[Device]) -> list[str]:
    return [device.name for device in found]


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (None, "0123"),
        ("", ""),
        ("2,1", "21"),
        (" 3 , 0", "30"),
        ("0,2,-1,1", "02"),
        ("0,7,1", "0"),
        ("GPU-22,GPU-0", "20"),
        ("GPU-,0", ""),
        ("NoDevFiles", ""),
        ("1,GPU-111,0", "10"),
    ],
)
def test_visible_devices_are_read_as_cuda_does(asked: str | None, seen: str) -> None:
    assert names(visible(LISTED, asked)) == list(seen)
    assert visible([], asked) == ()


def test_a_part_of_a_gpu_is_passed_on() -> None:
    [part] = visible(LISTED, "MIG-c0ffee")
    assert sees_only([part]) == {"CUDA_VISIBLE_DEVICES": "MIG-c0ffee", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def fake_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SAID}END\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_driver_lists_gpus_and_who_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(tmp_path, monkeypatch)
    found = find_gpus({"CUDA_VISIBLE_DEVICES": "GPU-111,2"})
    assert [(d.name, d.uuid, d.product) for d in found] == [
        ("1", "GPU-111", "NVIDIA H100 80GB HBM3"),
        ("2", "GPU-222", "NVIDIA, H100"),
    ]
    assert used_by_others(found) == {"GPU-111": 41210}
    assert used_by_others(found[1:]) == {}
    chosen = find_gpus({"RLFOCAL_GPUS": "1,GPU-222", "CUDA_VISIBLE_DEVICES": ""})
    assert [(d.name, d.uuid) for d in chosen] == [("1", "GPU-111"), ("2", "GPU-222")]
    assert used_by_others(chosen) == {}, "who names a GPU has it"
    with pytest.raises(InputError, match=r"names GPU 9, but this machine's are 0 \(GPU-0.*\), 1 \(GPU-111\)"):
        find_gpus({"RLFOCAL_GPUS": "1,9"})
    with pytest.raises(InputError, match="names GPU GPU-111 twice"):
        find_gpus({"RLFOCAL_GPUS": "1,GPU-111"})
    fake_driver(tmp_path, monkeypatch, status=9)
    assert find_gpus({}) == ()


def test_a_machine_without_a_driver_has_what_it_pretends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert (
        find_gpus({}) == find_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}) == find_gpus({"RLFOCAL_GPUS": ""}) == ()
    )
    assert names(find_gpus({"RLFOCAL_GPUS": "0, 1,"})) == ["0", "1"]
    with pytest.raises(InputError, match="RLFOCAL_GPUS=0,1,0 names GPU 0 twice"):
        find_gpus({"RLFOCAL_GPUS": "0,1,0"})
    assert parsed("0, GPU-0, NVIDIA GB10, [N/A]")[1] == 0


def test_gpus_are_taken_together_or_not_at_all(tmp_path: Path) -> None:
    with offered(tmp_path, BOX) as offer:
        assert offer.devices == BOX
        first = offer.take(BOX[1:3])
    with offered(tmp_path, BOX) as offer:
        assert offer.devices == [BOX[0], BOX[3]]
    with offered(tmp_path, BOX) as offer:
        assert offer.devices == [BOX[0], BOX[3]], "what was offered and not taken is free again"
        second = offer.take(offer.devices)
    with offered(tmp_path, BOX) as offer:
        assert offer.devices == []
    first.close()
    with offered(tmp_path, BOX) as offer:
        assert offer.devices == BOX[1:3]
    second.close()


def test_the_folder_of_leases_is_one_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "a" / "b"))
    assert lease_folder().is_dir()
    monkeypatch.delenv(FOLDER)
    own = lease_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lease_folder() == own


def hold(send: Send, seconds: float) -> None:
    """An engine, and a process of its own that got none of its open files."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], close_fds=True)
    send((os.getpid(), child.pid, SEEN_AT_IMPORT, "torch" in sys.modules))
    child.wait()


def free(folder: Path) -> list[str]:
    with offered(folder, BOX) as offer:
        return names(offer.devices)


def within(seconds: float, folder: Path, expected: list[str]) -> bool:
    """Whether these GPUs are free soon enough."""
    deadline = time.monotonic() + seconds
    while free(folder) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return free(folder) == expected


def test_a_lease_ends_with_the_last_process_of_its_engine(tmp_path: Path) -> None:
    """kill -9 of the engine alone leaves its own process at work, and so the GPU taken."""
    said: list[tuple[int, int, str, bool]] = []
    # Else torch may be there for other tests.
    is_first = vars(forkserver._forkserver)["_forkserver_pid"] is None
    with Processes(lambda _, event: said.append(event)) as processes:
        with offered(tmp_path, BOX) as offer:
            lease = offer.take(BOX[2:])
        processes.start("engine", hold, (600,), sees_only(lease.devices), lease)
        while not said:
            processes.wait(0.1)
        [(engine, child, seen, has_torch)] = said
        assert seen == "2,3"
        assert not (is_first and has_torch)
        assert free(tmp_path) == ["0", "1"]
        os.kill(engine, signal.SIGKILL)
        time.sleep(0.5)
        assert free(tmp_path) == ["0", "1"], "the engine's own process is still there"
        os.kill(child, signal.SIGKILL)
        assert within(3, tmp_path, ["0", "1", "2", "3"])


def test_a_job_that_ends_gives_its_gpus_back(tmp_path: Path) -> None:
    with Processes(lambda _, event: None) as processes:
        with offered(tmp_path, BOX) as offer:
            lease = offer.take(BOX)
        processes.start("engine", hold, (0.1,), sees_only(lease.devices), lease)
        while processes:
            assert set(processes.wait().values()) <= {None}
    assert within(3, tmp_path, ["0", "1", "2", "3"])


def work(model: str, gpus: int, start: float, *tasks: float) -> Work:
    return Work(model, gpus, start, {f"b/{i}": seconds for i, seconds in enumerate(tasks)})


def test_who_comes_next() -> None:
    long, short, wide = work("long", 1, 1, 9), work("short", 1, 1, 1), work("wide", 4, 1, 1)
    waiting = ordered([short, long, wide])
    assert [w.model for w in waiting] == ["wide", "long", "short"]
    assert choose(waiting, [], 4) is wide
    assert choose(waiting, [], 3) is long
    assert choose(waiting, [Running(long, (1,), (9, 9))], 0) is None
    # Nobody waits: the one that would end last, if another engine helps it.
    last, other = Running(long, (5,), (9, 9)), Running(short, (5,), (4, 4))
    assert choose([], [other, last], 1) is long
    assert choose([], [Running(wide, (5,), (9, 9)), other], 3) is short
    assert choose([], [Running(long, (5,), ())], 1) is None, "the task that runs is not shared"
    assert choose([], [Running(work("slow", 1, 14, 9), (5,), (9,))], 1) is None, (
        "14 + 9 is no earlier than 5 + 9"
    )


def test_a_schedule_by_hand() -> None:
    made = simulate([work("a", 1, 1, 6), work("b", 2, 1, 2, 2, 1), work("none", 2, 1)], 3)
    assert made == Schedule(
        3,
        (
            Bar("b", (0, 1), 0, 6, (Span("b/0", 1, 3), Span("b/1", 3, 5), Span("b/2", 5, 6))),
            Bar("a", (2,), 0, 7, (Span("b/0", 1, 7),)),
        ),
        7,
        19 / 3 if 19 / 3 > 7 else 7,
    )
    # One model alone: a second engine begins at once, and takes the second longest task.
    [first, second] = simulate([work("a", 1, 1, 2, 4, 3)], 2).bars
    assert [(b.begin, b.end, [s.task for s in b.tasks]) for b in (first, second)] == [
        (0, 5, ["b/1"]),
        (0, 6, ["b/2", "b/0"]),
    ]


@given(st.lists(st.floats(0, 9), min_size=1, max_size=3), st.lists(st.floats(0, 9), max_size=5))
def test_the_last_of_some_engines_ends_between_the_bounds(busy: list[float], tasks: list[float]) -> None:
    end = finish(busy, tasks)
    best = max([*busy, (sum(busy) + sum(tasks)) / len(busy)])
    assert best - 1e-9 <= end <= max(max(busy), best + max(tasks, default=0)) + 1e-9


def random_pool(chance: random.Random, n_gpus: int, widths: Sequence[int]) -> list[Work]:
    """1 to 24 models, from half a billion parameters to 80, on 20 to 90 tasks of log-normal length."""
    works = []
    for number in range(chance.randint(1, 24)):
        billions = 10 ** chance.uniform(-0.3, 1.9)
        gpus = chance.choice([width for width in widths if width <= n_gpus])
        scale = 10 ** chance.uniform(0, 2) * billions / gpus
        tasks = [scale * chance.lognormvariate(0, 0.7) for _ in range(chance.randint(20, 90))]
        works.append(work(f"m{number}", gpus, 120 + 2 * billions, *tasks))
    return works


def check_disjoint(bars: Sequence[Bar], n_gpus: int) -> None:
    for bar in bars:
        assert set(bar.gpus) <= set(range(n_gpus))
    for one, other in combinations(bars, 2):
        if set(one.gpus) & set(other.gpus):
            assert one.end <= other.begin or other.end <= one.begin, (one, other)


def check_done(works: Sequence[Work], bars: Sequence[Bar]) -> None:
    """Every task once, by an engine of its model that had started, one after the other."""
    by_model = {w.model: w for w in works}
    seen = [(bar.model, span.task) for bar in bars for span in bar.tasks]
    assert sorted(seen) == sorted((w.model, task) for w in works for task in w.tasks)
    for bar in bars:
        own = by_model[bar.model]
        assert len(set(bar.gpus)) == own.gpus
        clock = bar.begin + own.start
        for span in bar.tasks:
            assert span.begin == pytest.approx(clock)
            clock = span.end
            assert clock == pytest.approx(span.begin + own.tasks[span.task])
        assert bar.end == pytest.approx(clock)


def longest(works: Sequence[Work]) -> float:
    return max(w.start + max(w.tasks.values()) for w in works)


def rest_after(works: Sequence[Work], bars: Sequence[Bar], second: float) -> list[Work]:
    """What a kill of everything leaves: tasks that had not ended."""
    done = {(bar.model, span.task) for bar in bars for span in bar.tasks if span.end <= second}
    left = [
        Work(w.model, w.gpus, w.start, {t: s for t, s in w.tasks.items() if (w.model, t) not in done})
        for w in works
    ]
    return [w for w in left if w.tasks]


@pytest.mark.parametrize("widths", [(1,), (1, 1, 1, 2, 4), (1, 2, 4, 8)])
def test_random_pools_come_near_the_lower_bound(widths: tuple[int, ...]) -> None:
    """1,002 pools in all: at most the longest start and task beyond it, and within 15 % in pools of a night.

    Such a pool is one whose lower bound is five times the longest start and task. Each is killed at random,
    and what is left is scheduled as well.
    """
    ratios = []
    for seed in range(334):
        chance = random.Random(seed)
        works = random_pool(chance, 8, widths)
        made = simulate(works, 8)
        check_disjoint(made.bars, 8)
        check_done(works, made.bars)
        assert made.lower_bound <= made.makespan + 1e-6
        assert made.makespan <= made.lower_bound + longest(works)
        if made.lower_bound >= 5 * longest(works):
            ratios.append(made.makespan / made.lower_bound)
        rest = rest_after(works, made.bars, chance.uniform(0, 0.95 * made.makespan))
        again = simulate(rest, 8)
        check_disjoint(again.bars, 8)
        check_done(rest, again.bars)
        assert again.makespan <= again.lower_bound + longest(rest)
    assert len(ratios) > 50
    assert max(ratios) <= 1.15


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_gpu_is_idle_while_a_model_waits(data: st.DataObject) -> None:
    """Where widths are powers of two; whatever the widths, no GPU serves two."""
    powers = data.draw(st.booleans())
    n_gpus = data.draw(st.sampled_from([1, 2, 4, 8] if powers else range(1, 9)))
    width = st.sampled_from([w for w in ([1, 2, 4, 8] if powers else range(1, 9)) if w <= n_gpus])
    seconds = st.integers(1, 50)
    shapes = st.tuples(width, st.integers(0, 9), st.lists(seconds, max_size=6))
    shapes_drawn = data.draw(st.lists(shapes, max_size=7))
    works = [work(f"m{i}", gpus, start, *tasks) for i, (gpus, start, tasks) in enumerate(shapes_drawn)]
    made = simulate(works, n_gpus)
    check_disjoint(made.bars, n_gpus)
    check_done(works, made.bars)
    assert made.makespan >= lower_bound(works, n_gpus) - 1e-9
    if powers:
        first = {
            model: min(b.begin for b in made.bars if b.model == model)
            for model in {b.model for b in made.bars}
        }
        for begin in first.values():
            for moment in {b.begin for b in made.bars} | {b.end for b in made.bars}:
                if moment < begin:
                    busy = sum(len(b.gpus) for b in made.bars if b.begin <= moment < b.end)
                    assert busy == n_gpus

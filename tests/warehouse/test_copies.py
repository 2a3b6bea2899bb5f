"""A benchmark's rows in memory: the figures are the same, and come from the copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rows import put_choices, put_extractions

from warehouse import Warehouse, open_warehouse, opening
from warehouse.opening import BenchmarkCopy

ASKED = (
    "SELECT benchmark, model, count(*), avg(correct::INT) FROM outcomes WHERE benchmark = $1 GROUP BY ALL",
    "FROM accuracy WHERE benchmark = $1",
    "FROM model_scores($1, split := 'test')",
    "FROM pairwise_diversity($1)",
    "FROM calibration($1, bins := 4)",
    "FROM numbered_answers($1, '*', '*', 'test')",
)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("held") / "warehouse"
    with open_warehouse(path) as warehouse:
        for name, shift in (("first", 2), ("second", 3)):
            says = {f"m{at}": [i % (at + shift) != 0 for i in range(30)] for at in range(3)}
            put_choices(warehouse, says, benchmark=name)
        put_extractions(warehouse)
    return path


@pytest.fixture
def opened(two: Path) -> Iterator[Warehouse]:
    with open_warehouse(two, read_only=True) as warehouse:
        yield warehouse


def answers(warehouse: Warehouse, benchmark: str) -> list[list[list[object]]]:
    """The rows of each query, with floats to 12 digits: threads add them up in any order."""
    return [
        sorted(([_round(value) for value in row] for row in warehouse.rows(sql, [benchmark])), key=repr)
        for sql in ASKED
    ]


def _round(value: object) -> object:
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_a_copy_has_the_same_figures(opened: Warehouse) -> None:
    before = {name: answers(opened, name) for name in ("first", "second")}
    assert all(all(found) for found in before.values())
    place = BenchmarkCopy(opened)
    for name in ("first", "second", "first"):
        assert place.copy(name)
        assert answers(opened, name) == before[name]


def test_views_and_macros_read_the_copies(opened: Warehouse) -> None:
    place = BenchmarkCopy(opened)
    place.copy("first")
    opened.connection.execute("DELETE FROM choice_logprobs WHERE model = 'm0'")
    for sql in ASKED[:3]:
        assert not any("m0" in row for row in opened.rows(sql, ["first"]))
    assert opened.rows(ASKED[0], ["second"]) == []
    place.copy("first")
    assert any("m0" in row for row in opened.rows(ASKED[0], ["first"]))


def test_a_large_benchmark_stays_in_its_files(opened: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    place = BenchmarkCopy(opened)
    assert place.copy("first")
    monkeypatch.setattr(opening, "MAX_COPIED_ANSWERS", 10)
    assert not place.copy("second")
    assert all(answers(opened, "first"))
    assert all(answers(opened, "second"))

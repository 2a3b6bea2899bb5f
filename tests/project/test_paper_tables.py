"""The paper's tables: its figures as printed, ours from what was evaluated."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from support.rows import put_choices, put_extractions

from benchmarks.results.paper import paper_parts, print_paper
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.studies import STUDIES
from rlfocal.evaluation.studies.findings import Findings, point, save
from rlfocal.methods import entry_of
from warehouse import Warehouse


def test_ours_stand_beside_theirs(warehouse: Warehouse) -> None:
    says = {"Phi-2b": [True, True, True, False], "Gemma-2b": [False, True, True, True]}
    put_choices(warehouse, says, benchmark="mmlu")
    put_extractions(warehouse)
    evaluate(warehouse, "mmlu", methods=["best_single", "plurality"], seeds=1)
    first, *_ = paper_parts(warehouse)
    by_label = {row.label: {cell.column: cell for cell in row.cells} for row in first.rows}
    assert by_label["Phi-2b"]["mmlu"].theirs == 55.82
    assert by_label["Phi-2b"]["mmlu"].ours == 50
    assert by_label["Gemma-2b"]["mmlu"].ours == 100
    assert by_label["RL-Focal"]["mmlu"].ours is None
    assert by_label["Gemma-2b"]["gsm8k"].theirs is None


def test_every_part_says_what_fills_it(warehouse: Warehouse) -> None:
    parts = paper_parts(warehouse)
    tables, figures = [f"table-{at}" for at in range(1, 9)], ["figure-2", "figure-3-left", "figure-3-right"]
    assert [part.name for part in parts] == [*tables, *figures, "figure-4", "figure-5", "figure-6"]
    for part in parts:
        assert part.missing or not part.rows
        for command in part.commands:
            words = command.split()
            assert words[0] in ("rlfocal", "python")
            if words[1] == "evaluate":
                assert all(entry_of(name) for name in words[words.index("--methods") + 1].split(","))
            if words[1] == "study":
                assert words[2] in STUDIES


def test_every_row_keeps_its_name_in_80_columns(warehouse: Warehouse) -> None:
    console = Console(width=80, file=StringIO())
    parts = paper_parts(warehouse)
    print_paper(parts, console)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert "…" not in "".join(lines)
    for part in parts:
        assert part.title in map(str.rstrip, lines)
        for row in part.rows:
            numbers = len(row.cells) * 2
            assert any(line.split()[:-numbers] == row.label.split() for line in lines), row.label


def test_ours_of_a_figure_come_from_its_study(warehouse: Warehouse) -> None:
    points = tuple(
        point("RL-Focal", f"{n} models", float(n), 100, [0.5 + n / 1000], mean_pool_size=2.0, seconds=n / 2)
        for n in (8, 16)
    )
    about = ("pool-scale", "How many?", "models", "gsm8k", "rl_focal", "benchmark", ("a",), "")
    found = Findings(*about, points, beside="seconds")
    save(found, warehouse.location.studies)
    [part] = [part for part in paper_parts(warehouse) if part.name == "figure-6"]
    ours = {row.label: [cell.ours for cell in row.cells] for row in part.rows}
    assert ours["8 models"] == pytest.approx([50.8, 4.0])
    assert ours["16 models"] == pytest.approx([51.6, 8.0])
    assert ours["24 models"] == [None, None]

"""Figures of a board: what the curve over calls shows, and that a figure is one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup
from matplotlib.figure import Figure
from support.budget_policies import SAYS, FirstOnes, held
from support.rows import put_choices

from rlfocal.evaluation import evaluate
from rlfocal.evaluation.budgets import AtBudget, BudgetCurve
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.report import figures
from rlfocal.report.figures import budgets, figures_of
from rlfocal.report.html import write_report
from warehouse import Warehouse


def curve(method: str, *points: tuple[float, float]) -> BudgetCurve:
    return BudgetCurve(
        method, tuple(AtBudget(str(i), 1, y, 0.01, x, None, 1.0) for i, (x, y) in enumerate(points))
    )


@pytest.fixture
def board(warehouse: Warehouse) -> Board:
    put_choices(warehouse, SAYS)
    evaluate(warehouse, "b", methods=["best_single", "plurality"], seeds=1)
    [found] = leaderboard(warehouse)
    return found


def test_every_method_has_a_line_over_its_calls(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Figure, str]] = []

    def noted(figure: Figure, name: str, words: str) -> str:
        drawn.append((figure, words))
        return "<svg/>"

    monkeypatch.setattr(budgets, "inline", noted)
    rivals = [curve(f"r{i}", (1.0, 0.6 - i / 100), (2.5, 0.7 - i / 100)) for i in range(7)]
    ours = curve("rl_focal", (3.0, 0.8), (1.0, 0.65), (3.0, 0.8))
    budgets.accuracy_over_calls(board, [ours, *rivals], "name")
    [(figure, words)] = drawn
    [axes] = figure.axes
    lines = [[(x, y) for x, y in np.column_stack(line.get_data()).tolist()] for line in axes.lines]
    for one in rivals:
        assert [(p.mean_pool_size, p.accuracy) for p in one.points] in lines
    assert [(1.0, 0.65), (3.0, 0.8)] in lines
    written = {text.get_text() for text in axes.texts}
    assert written == {"rl_focal", "r0", "r1", "r2", "r3", "r4"}
    [baseline] = [s.accuracy for s in board.standings if s.method == "best_single"]
    assert any(set(np.asarray(line.get_ydata()).tolist()) == {baseline} for line in axes.lines)
    low, high = axes.get_ylim()
    assert low < min(0.54, baseline)
    assert high > max(0.8, baseline)
    assert "rl_focal from 65.00 % at 1.0 calls to 80.00 % at 3.0" in words


def test_it_is_on_the_page_where_there_are_budgets(
    warehouse: Warehouse, board: Board, tmp_path: Path
) -> None:
    without = write_report(warehouse, tmp_path / "without.html").read_text("utf-8")
    assert "Accuracy over calls." not in without
    held(warehouse, FirstOnes(), "2", "all")
    page = write_report(warehouse, tmp_path / "with.html").read_text("utf-8")
    assert page.index("Cost against accuracy.") < page.index("Accuracy over calls.")
    assert "first_ones from 100.00 % at 2.0 calls to 50.00 % at 3.0" in page


def test_a_figure_is_one_file(
    warehouse: Warehouse, board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_figures").mkdir()
    (tmp_path / "their_figures" / "circle.py").write_text(
        "from markupsafe import Markup\n\nfrom rlfocal.report.figures import Drawn, board_figure\n\n\n"
        "@board_figure(place=1.5)\ndef circle(warehouse, board, name):\n"
        "    svg = Markup('<svg id=\"{}\"></svg>').format(name)\n"
        "    return Drawn(svg, f'A circle of {board.benchmark}.', Markup('Round.'))\n"
    )
    (tmp_path / "their_figures" / "_help.py").write_text("raise AssertionError('this is no figure')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(figures, "_FIGURES", dict(figures._FIGURES))
    before = figures_of(warehouse, board, "board0")
    found = figures_of(warehouse, board, "board0", "their_figures", [str(tmp_path / "their_figures")])
    assert [one.title for one in found if one not in before] == ["A circle of b."]
    assert found[1].svg == Markup('<svg id="board0-circle"></svg>')
    page = write_report(warehouse, tmp_path / "page.html").read_text("utf-8")
    assert "<b>A circle of b.</b> Round." in page

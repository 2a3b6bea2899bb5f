"""The sentence of a board: each case, from stored decisions of which the right conclusion is known."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.report_lab import MODELS, PRICES, SKILLS, Lab

from rlfocal.evaluation.conclusion import conclude
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.evaluation.verdicts import TERMINAL_LEGEND
from warehouse import open_warehouse

N = 1000
"""Test documents."""
RIVAL = 700
"""Of them, those that the rival answers right: the first."""
ALL = len(MODELS)
Answered = tuple[int | NDArray[np.bool_], int | list[int]] | tuple[int, int, int]
Prices = tuple[float | None, ...]


@pytest.fixture(scope="module")
def make_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Board]]:
    """Makes the board of some methods: of each, what it answers right, the models it asks, and its seed."""
    with open_warehouse(tmp_path_factory.mktemp("conclusion") / "warehouse") as warehouse:
        lab = Lab(warehouse)
        lab.add_benchmark("facts", ("birds",), 2 * N, SKILLS, seed=1)

        def make(data: str, prices: Prices = PRICES, **methods: Answered) -> Board:
            runs = {
                lab.evaluate(name, right, asked, data=data, prices=prices, seed=next(iter(seed), None))
                for name, (right, asked, *seed) in methods.items()
            }
            [board] = leaderboard(warehouse, runs=runs)
            return board

        yield make


def test_ahead(make_board: Callable[..., Board]) -> None:
    said = conclude(make_board("a", rl_focal=(760, 2), plurality=(RIVAL, ALL), best_single=(650, 1)))
    assert said.case == "ahead"
    assert said.sentence.startswith(
        "rl_focal (76.0 %) answers better than all 6 models together by plurality (+6.0 ["
    )
    assert said.sentence.endswith(" of the cost; the best single model has 65.0 %.")


def test_level_and_cheaper(make_board: Callable[..., Board]) -> None:
    said = conclude(make_board("b", rl_focal=(RIVAL, 3), log_linear=(RIVAL, ALL), best_single=(600, 1)))
    assert said.case == "level and cheaper"
    assert said.sentence.startswith(
        "rl_focal (70.0 %) answers as well as all 6 models together by log_linear (0.0 ["
    )
    assert (
        f" at 50 % of the calls and {100 * sum(PRICES[:3]) / sum(PRICES):.0f} % of the cost;" in said.sentence
    )


def test_prices_decide_what_is_cheaper(make_board: Callable[..., Board]) -> None:
    dear: Prices = (100.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    methods = {"rl_focal": (RIVAL, [0]), "knn": (RIVAL, [1, 2, 3])}
    assert conclude(make_board("c", prices=dear, **methods)).case == "level"
    unknown = conclude(make_board("d", prices=(None,) * ALL, **methods))
    assert unknown.case == "level and cheaper"
    assert "33 % of the calls." in unknown.sentence


def test_level_but_not_cheaper(make_board: Callable[..., Board]) -> None:
    said = conclude(make_board("e", rl_focal=(RIVAL, 3), best_single=(RIVAL, 1)))
    assert said.case == "level"
    assert said.sentence.startswith("rl_focal (70.0 %) answers as well as the best single model (0.0 [")
    assert "at 3.0 times the calls" in said.sentence
    assert said.sentence.count("best single") == 1


def test_undecided_says_how_many_documents_decide(make_board: Callable[..., Board]) -> None:
    board = make_board("f", rl_focal=(np.arange(N) >= N - RIVAL, 2), plurality=(RIVAL, ALL))
    said = conclude(board)
    assert said.case == "undecided"
    assert board.n_to_decide is not None
    # They disagree on 600 of 1,000 documents; 1.96 standard errors are to be half of 3 points.
    assert board.n_to_decide == pytest.approx(0.6 * (1.96 / 0.015) ** 2, rel=0.02)
    assert "1,000 test documents are too few, and about 11,000 would decide it" in said.sentence


def test_behind(make_board: Callable[..., Board]) -> None:
    said = conclude(make_board("g", rl_focal=(600, 2), constant_choice=(RIVAL, 0)))
    assert said.case == "behind"
    assert "rl_focal (60.0 %) answers worse than constant_choice (−10.0 [" in said.sentence
    assert said.sentence.endswith(" at 2.0 models a document.")


def test_without_a_rival_or_without_rl_focal(make_board: Callable[..., Board]) -> None:
    alone = conclude(make_board("h", rl_focal=(600, 2), oracle=(900, ALL)))
    assert (alone.case, "beside it" in alone.sentence) == ("unopposed", True)
    others = conclude(make_board("i", plurality=(RIVAL, ALL), best_single=(600, 1)))
    assert others.case == "not evaluated"
    assert (
        "plurality, answers 70.0 % of 1,000 test documents at 6.0 models each; the best single"
        in others.sentence
    )
    nothing = conclude(make_board("j", oracle=(900, ALL)))
    assert nothing.case == "not evaluated"


def test_caveats(make_board: Callable[..., Board]) -> None:
    said = conclude(make_board("k", rl_focal=(600, 2, 0), plurality=(RIVAL, ALL)))
    missing, luck = said.caveats
    assert "usual methods were not evaluated" in missing
    assert any("stacking" in note for note in said.notes), "the notes name them"
    assert "One seed of rl_focal" in luck
    assert str(said).startswith(f"{said.sentence} {missing}")


def test_a_split_that_is_not_alike_is_said(make_board: Callable[..., Board]) -> None:
    board = make_board("l", rl_focal=(600, 2))
    assert board.split_note is None
    told = conclude(replace(board, split_note="facts: they differ"))
    assert "Train and test documents differ" in told.caveats[-1]


def test_a_terminal_explains_the_table_in_four_lines() -> None:
    assert len(textwrap.wrap(TERMINAL_LEGEND, 80)) <= 4

"""What services were paid: no limit is passed, whatever is under way, and nothing is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlfocal.base.errors import RunError
from rlfocal.extraction.engines.payments import Payments


def test_what_is_under_way_counts_in_full(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    book.reserve(6)
    with pytest.raises(RunError, match=r"limit of 3 cents might be passed: 6 are spent.*may cost 1; raise"):
        Payments(tmp_path / "p", "m", 3, "two").reserve(1)
    Payments(tmp_path / "p", "another", 3, "two").reserve(3)  # has a limit of its own
    book.close()
    assert Payments(tmp_path / "p", "m", 10, "one").spent == 6  # as of a run that was killed


def test_a_request_waits_for_those_that_may_turn_out_cheaper(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    highest: list[float] = []

    def ask(number: int) -> bool:
        try:
            book.reserve(4)
        except RunError:
            return False
        highest.append(book.spent)
        book.settle(f"{number}", 4, 1, "yes")
        return True

    with ThreadPoolExecutor(8) as threads:
        answered = sum(threads.map(ask, range(20)))
    assert (answered, book.spent, book.paid) == (7, 7, 7)  # an eighth may have cost 4
    assert max(highest) <= 10
    assert [book.answer("0"), book.answer("no")].count(None) >= 1


def test_what_was_refused_costs_nothing_and_what_was_lost_does(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", None, "one")
    book.reserve(2)
    book.refund(2)
    assert book.spent == 0
    book.reserve(2)
    book.lose()
    book.reserve(2)
    book.settle("key", 2, 0.5, "answer")
    assert (book.spent, book.paid, book.answer("key"), book.first_answer()) == (2.5, 0.5, "answer", "answer")
    book.forget()
    assert (book.spent, book.paid, book.answer("key")) == (2.5, 0, None)

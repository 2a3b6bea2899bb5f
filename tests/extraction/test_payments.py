"""What services were paid: no limit is passed, whatever is under way, and nothing is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlfocal.extraction.engine import HopelessError, UnansweredError
from rlfocal.extraction.engines.payments import Payments


def pay(book: Payments, most: float, cents: float, key: str = "key") -> None:
    with book.paying(most) as bill:
        bill.pay(cents)
        bill.kept = key, "yes"


def test_what_is_under_way_counts_in_full(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    begun = book.paying(6)
    begun.__enter__()
    with (
        pytest.raises(HopelessError, match="limit of 3 cents"),
        Payments(tmp_path / "p", "m", 3, "two").paying(1),
    ):
        pass
    pay(Payments(tmp_path / "p", "another", 3, "two"), 3, 3)  # has a limit of its own
    assert Payments(tmp_path / "p", "m", 10, "one").spent == 6  # as of a run that was killed


def test_a_request_waits_for_those_that_may_turn_out_cheaper(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    highest: list[float] = []

    def ask(number: int) -> bool:
        try:
            with book.paying(4) as bill:
                highest.append(book.spent)
                bill.pay(1)
                bill.kept = f"{number}", "yes"
        except HopelessError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        answered = sum(threads.map(ask, range(20)))
    assert (answered, book.spent, book.paid) == (7, 7, 7)  # an eighth may have cost 4
    assert max(highest) <= 10
    assert [book.answer("0"), book.answer("no")].count(None) >= 1


def test_what_was_refused_costs_nothing_and_what_was_lost_does(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", None, "one")
    with pytest.raises(UnansweredError), book.paying(2):
        raise UnansweredError("refused", "no", is_free=True)
    assert book.spent == 0
    with pytest.raises(KeyboardInterrupt), book.paying(2):
        raise KeyboardInterrupt
    pay(book, 2, 0.5)
    assert (book.spent, book.paid, book.answer("key"), book.first_answer()) == (2.5, 2.5, "yes", "yes")
    book.set_aside("key")
    assert (book.spent, book.paid, book.answer("key"), book.first_answer()) == (2.5, 2.5, None, None)
    book.forget()
    assert (book.spent, book.paid) == (2.5, 0)


def test_what_a_service_bills_beyond_the_most_is_learned_before_others_are_sent(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")

    def ask(number: int) -> bool:
        try:
            pay(book, 0.1, 2, str(number))
        except HopelessError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(20))) == 5
    assert book.spent == 10

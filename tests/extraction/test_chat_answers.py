"""A chat service's answers: what is believed, what is paid within a limit, and what is asked again."""

from __future__ import annotations

import json
import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import (
    READ,
    SERVED,
    WRITTEN,
    Reply,
    Stub,
    chat_answer,
    n_of,
    question_of,
    stub_server,
)

from rlfocal.extraction.engine import Document, HopelessError, Sampling, UnansweredError
from rlfocal.extraction.engines import chat, service
from rlfocal.extraction.engines.chat_answers import Usage
from rlfocal.extraction.engines.payments import Payments
from rlfocal.extraction.engines.service import read
from rlfocal.pool import ModelSpec

TOP: dict[str, float | None] = {"A": -0.1, "B": -3.0, "C": -4.0}
SAMPLING = Sampling(passes=3, temperature=0.6, top_p=1.0, max_tokens=8, stop=(), seed=0)
CENTS = (READ * 1000 + WRITTEN * 2000) / 1e6
"""What one chat of one text costs."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.01)


def documents(n: int = 6) -> list[Document]:
    return [Document(i, "", "", 0, "", tuple("ABC"), f"question {i}", tuple("ABC")) for i in range(n)]


def start(stub: Stub, folder: Path, **changes: Any) -> chat.ChatEngine:
    prices = {"price_input": 1000, "price_output": 2000}
    spec = ModelSpec(model="closed", served=SERVED, base_url=stub.url, **prices | changes)
    engine = chat.load(spec, None)
    engine.begin(folder / "payments", "one")
    return engine


def spent(folder: Path) -> float:
    with sqlite3.connect(folder / "payments") as database:
        return float(database.execute("SELECT cents FROM spent").fetchone()[0])


THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 1000}}
SUNG = {"completion_tokens_details": {"audio_tokens": 50}}
CACHED = {"prompt_tokens_details": {"cached_tokens": 80}}


@pytest.mark.parametrize(
    ("counted", "details", "expected"),
    [
        ((100, 5, 105), {}, (100, 5)),
        # reasoning among the completion's tokens (OpenAI), apart in the total (xAI), apart and not in it
        ((100, 1005, None), THOUGHT, (100, 1005)),
        ((100, 5, 1105), THOUGHT, (100, 1005)),
        ((100, 5, 105), THOUGHT, (100, 1005)),
        ((100, 5, None), SUNG, (100, 55)),
        # a cache's tokens among the prompt's (OpenAI), and apart
        ((100, 5, None), CACHED, (100, 5)),
        ((20, 5, 105), CACHED, (100, 5)),
        ((100, 5, None), {"completion_tokens_details": None}, (100, 5)),
        ((100, None, 105), {}, (100, 5)),
        ((None, 5, None), {}, (None, 5)),
        ((100, None, None), {}, (100, None)),
        ((None, None, None), {}, (None, None)),
    ],
)
def test_every_token_that_is_billed_is_counted(
    counted: tuple[Any, Any, Any], details: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    known = read(Usage, dict(zip(names, counted, strict=True)) | details)
    assert (known.read, known.written) == expected


@pytest.mark.parametrize(
    ("listed", "belief"),
    [
        ({"A": -0.1, "B": -3.0, "C": -4.0}, [-0.1, -3.0, -4.0]),
        ({"A": -0.1, "B": None, "C": None}, [-0.1, math.log(1e-6), math.log(1e-6)]),  # impossible tokens
        ({"A": 5e-7, "B": -20.0, "C": -21.0}, [0.0, -20.0, -21.0]),  # rounding
        ({"A": 0.7, "B": 0.1, "C": 0.1}, "broken"),  # probabilities
        ({"A": -0.1, "B": -0.2, "C": -0.3}, "broken"),  # they sum to more than 1
        ({"A": float("nan"), "B": -1.0, "C": -2.0}, "broken"),
        ({"A": float("inf"), "B": -1.0, "C": -2.0}, "broken"),
        ({"A": "-0.1", "B": -1.0, "C": -2.0}, "broken"),
        ({"I": -0.01, "We": -5.0, "A": -9.2}, "unclear"),  # next to no evidence
        ({}, "broken"),
    ],
)
def test_what_is_believed_of_listed_tokens(listed: dict[str, Any], belief: Any, tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        own = listed if question_of(request) == "question 2" else TOP
        return chat_answer("A", top=own)

    with stub_server(reply) as stub:
        scores = list(start(stub, tmp_path).score(documents()))
    for row in scores[:2] + scores[3:]:
        assert [score.token_logprobs[0] for score in row] == pytest.approx(list(TOP.values()))
    found = scores[2]
    if isinstance(belief, str):
        assert {score.unanswered and score.unanswered.kind for score in found} == {belief}
        assert len({score.token_logprobs for score in found}) == 1
    else:
        assert [score.token_logprobs[0] for score in found] == pytest.approx(belief)


def test_a_first_document_that_is_filtered_says_nothing_about_what_is_listed(tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        if question_of(request) == "question 0":
            return Reply({"error": {"message": "no", "code": "content_filter"}}, 400)
        if request.get("top_logprobs", 0) > 5:
            return Reply({"error": {"message": "top_logprobs must be at most 5"}}, 400)
        return chat_answer("A", top=TOP)

    with stub_server(reply) as stub:
        engine = start(stub, tmp_path)
        kinds = [row[0].unanswered and row[0].unanswered.kind for row in engine.score(documents())]
        assert kinds == ["filtered"] + [None] * 5
        assert engine._top == 5
        assert engine.facts()["paid"] == pytest.approx(5 * CENTS)


def test_texts_that_end_for_other_reasons_are_no_answers(tmp_path: Path) -> None:
    ends = {1: "abort", 2: "content_filter", 3: "length", 4: None}

    def reply(request: dict[str, Any], number: int) -> Any:
        end = ends.get(int(question_of(request).split()[1]), "stop")
        return chat_answer(*["It is 3 and"] * n_of(request), finish_reason=end)

    with stub_server(reply) as stub:
        samples = list(start(stub, tmp_path).sample(documents(), SAMPLING))
        found = [(row[0].finish_reason, row[0].unanswered and row[0].unanswered.kind) for row in samples]
        assert found == [
            ("stop", None),
            ("cut off", "cut off"),
            ("content_filter", "filtered"),
            ("length", None),
            ("cut off", "cut off"),
            ("stop", None),
        ]
        list(start(stub, tmp_path).sample(documents(), SAMPLING))
        assert len(stub.asked) == 6 + 2  # what may pass is asked again, a filter's answer is not


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [{"index": 0, "finish_reason": "stop", "message": None}]},
        {"choices": None},
        {"choices": [{"index": i, "finish_reason": "stop", "message": {"content": "A"}} for i in (0, 0, 1)]},
        {"choices": [{"index": i, "finish_reason": "stop", "message": {"content": 5}} for i in range(3)]},
        {"usage": {"prompt_tokens": -5_000, "completion_tokens": 1}},
        {"usage": {"prompt_tokens": 10**12, "completion_tokens": 1}},
    ],
)
def test_a_bad_answer_is_paid_but_not_kept_and_asked_again_once_the_service_is_mended(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    is_mended: list[bool] = []

    def reply(request: dict[str, Any], number: int) -> Any:
        good = chat_answer(*"ABC")
        return good if is_mended or question_of(request) != "question 1" else good | odd

    with stub_server(reply) as stub:
        before = list(start(stub, tmp_path).sample(documents(), SAMPLING))
        reasons = [row[0].unanswered and row[0].unanswered.kind for row in before]
        assert reasons == [None, "broken", None, None, None, None]
        assert spent(tmp_path) >= 5 * (READ * 1000 + 3 * WRITTEN * 2000) / 1e6
        is_mended.append(True)
        after = list(start(stub, tmp_path).sample(documents(), SAMPLING))
        assert all(sample.unanswered is None for row in after for sample in row)
        assert len(stub.asked) == 7


def test_kept_answers_that_cannot_be_read_are_set_aside(tmp_path: Path) -> None:
    with stub_server(lambda request, number: chat_answer("A", top=TOP)) as stub:
        expected = list(start(stub, tmp_path).score(documents(3)))
        paid = start(stub, tmp_path).facts()["paid"]
        with sqlite3.connect(tmp_path / "payments") as database:
            [(key, answer)] = database.execute("SELECT key, answer FROM answers LIMIT 1").fetchall()
            spoiled = json.loads(answer)
            spoiled["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["logprob"] = 3.0
            database.execute("UPDATE answers SET answer = ? WHERE key = ?", [json.dumps(spoiled), key])
        engine = start(stub, tmp_path)
        assert list(engine.score(documents(3))) == expected
        assert len(stub.asked) == 4
        assert engine.facts()["paid"] == pytest.approx(paid + CENTS)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": "many"}, "none", 5])
def test_usage_that_is_missing_is_counted_from_above(usage: Any, tmp_path: Path) -> None:
    """And no thread waits for a reservation that nobody ends."""
    with stub_server(lambda *_: chat_answer("A", top=TOP, usage=usage)) as stub:
        engine = start(stub, tmp_path, spending_limit=1.0, engine_args={"chat": {"concurrency": 8}})
        with pytest.raises(HopelessError, match="limit of 1 cents"):
            list(engine.score(documents(20)))
        most = engine._most([{"content": "question 10"}], {"max_tokens": chat.DECORATED}, 1)
        assert 1 - most < spent(tmp_path) <= 1


@pytest.mark.parametrize("fault", ["drop", "504", "negative", "none"])
def test_every_try_that_may_have_been_billed_is_booked_and_the_limit_holds(
    fault: str, tmp_path: Path
) -> None:
    """A service that bills each try, and then often loses the answer."""
    billed: list[float] = []

    def reply(request: dict[str, Any], number: int) -> Any:
        billed.append(CENTS)
        if fault == "none" or number % 3 == 0:
            return chat_answer("A", top=TOP)
        if fault == "negative":
            return chat_answer("A", top=TOP, usage={"prompt_tokens": -(10**6), "completion_tokens": 1})
        return Reply(None) if fault == "drop" else Reply({"error": "gateway timeout"}, 504)

    with stub_server(reply) as stub:
        engine = start(stub, tmp_path, spending_limit=2.0)
        with pytest.raises(HopelessError, match="limit of 2 cents"):
            list(engine.score(documents(40)))
        assert sum(billed) <= spent(tmp_path) + 1e-9
        assert spent(tmp_path) <= 2.0


def test_a_limit_holds_where_a_service_bills_beyond_max_tokens(tmp_path: Path) -> None:
    """Reasoning that no max_tokens bounds: after the first answer, what others may cost is known."""
    details = {"reasoning_tokens": 1000}
    usage = {"prompt_tokens": READ, "completion_tokens": 2, "completion_tokens_details": details}
    each = (READ * 1000 + 1002 * 2000) / 1e6

    with stub_server(lambda request, number: chat_answer("A", top=TOP, usage=usage)) as stub:
        engine = start(stub, tmp_path, spending_limit=10.0)
        with pytest.raises(HopelessError, match="limit of 10 cents"):
            list(engine.score(documents(60)))
        assert 2 <= len(stub.asked) <= 10 / each
        again = start(stub, tmp_path, spending_limit=12.0)  # which knows it from the start
        with pytest.raises(HopelessError, match="limit of 12 cents"):
            list(again.score(documents(60)))
        assert len(stub.asked) <= 12 / each


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

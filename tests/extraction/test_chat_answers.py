"""A chat service's answers: what is believed, what is paid within a limit, and what is asked again."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from support.stub_server import (
    READ,
    SERVED,
    WRITTEN,
    Reply,
    StubServer,
    chat_answer,
    n_of,
    question_of,
    stub_server,
)

from rlfocal.extraction.engine import Document, HopelessError, SamplingSettings, UnansweredError
from rlfocal.extraction.engines import chat, service
from rlfocal.extraction.engines.chat_answers import Token, Usage, logprobs_from_tokens
from rlfocal.extraction.engines.payments import Payments
from rlfocal.extraction.engines.server_responses import read
from rlfocal.pool import ModelSpec

TOP: dict[str, float | None] = {"A": -0.1, "B": -3.0, "C": -4.0}
SAMPLING = SamplingSettings(passes=3, temperature=0.6, top_p=1.0, max_tokens=8, stop=(), seed=0)
CENTS = (READ * 1000 + WRITTEN * 2000) / 1e6
"""What one chat of one text costs."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.01)


def documents(n: int = 6) -> list[Document]:
    return [Document(i, "", "", 0, "", tuple("ABC"), f"question {i}", tuple("ABC")) for i in range(n)]


def start(stub: StubServer, folder: Path, **changes: Any) -> chat.ChatEngine:
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


def test_what_is_believed_of_listed_tokens(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"A": -0.1, "B": -3.0, "C": -4.0}, [-0.1, -3.0, -4.0]),
        ({"A": -0.1, "B": None, "C": None}, [-0.1, *[math.log1p(-math.exp(-0.1))] * 2]),  # what is left
        ({"A": -0.1, "B": None, "C": -3.0}, [-0.1, math.log(1 - math.exp(-0.1) - math.exp(-3)), -3.0]),
        ({"A": -0.1, "B": -9999.0, "C": -math.inf}, [-0.1, math.log(1e-6), math.log(1e-6)]),  # impossible
        ({"A": None, "B": None, "C": None}, "broken"),
        ({"A": 5e-7, "B": -20.0, "C": -21.0}, [0.0, -20.0, -21.0]),  # rounding
        ({"A": 0.7, "B": 0.1, "C": 0.1}, "broken"),  # probabilities
        ({"A": -0.1, "B": -0.2, "C": -0.3}, "broken"),  # they sum to more than 1
        ({"A": float("nan"), "B": -1.0, "C": -2.0}, "broken"),
        ({"A": float("inf"), "B": -1.0, "C": -2.0}, "broken"),
        ({"A": "-0.1", "B": -1.0, "C": -2.0}, "broken"),
        ({"I": -0.01, "We": -5.0, "A": -9.2}, "unclear"),  # next to no evidence
        ({}, "broken"),
    ]
    n = len(cases)

    def reply(request: dict[str, Any], number: int) -> Any:
        place = int(question_of(request).removeprefix("question "))
        return chat_answer("A", top=cases[place][0] if place < n else TOP)

    with stub_server(reply) as stub:
        scores = list(start(stub, tmp_path).score(documents(n + 1)))
    for row, (listed, belief) in zip(scores, [*cases, (TOP, list(TOP.values()))], strict=True):
        if isinstance(belief, str):
            assert {score.unanswered and score.unanswered.kind for score in row} == {belief}, listed
            assert len({score.token_logprobs for score in row}) == 1
        else:
            assert [score.token_logprobs[0] for score in row] == pytest.approx(belief), listed


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
        filtered, _ = engine._bound_cost(
            [{"content": "question 0"}], {"max_tokens": chat.MAX_DECORATION_TOKENS}, 1
        )
        assert engine.facts()["paid"] == pytest.approx(5 * CENTS + 2 * filtered)  # found out, and asked


def listed(token: str, logprob: float, **others: float) -> dict[str, Any]:
    """A token, beside it those of its place; `_` in a name is a blank."""
    pairs = [(token, logprob), *((name.replace("_", " "), other) for name, other in others.items())]
    top = [{"token": name, "logprob": other, "bytes": None} for name, other in pairs]
    return {**top[0], "top_logprobs": top}


@pytest.mark.parametrize(
    ("tokens", "content", "belief"),
    [
        ([listed("A", -0.05, The=-4), listed(" train", -0.2, _car=-2)], "", {}),
        ([listed("A", -0.05, The=-4)], "A train leaves", {}),  # tokens of the first place alone
        (
            [listed("A", -0.05, B=-4), listed(" ", -0.2), listed("24", -0.1), listed("-year", -0.1)],
            "",
            {1: -4},
        ),
        ([listed("B", -0.05, A=-4), listed("ased", -0.2), listed(" on", -0.1)], "", {0: -4}),
        ([listed("A", -0.05), listed(" train", -0.7, **{".": -0.7})], "", {0: -0.75}),  # an even chance
        ([listed("A", -0.05, B=-4), listed(".", -0.01)], "A.", {0: -0.05, 1: -4}),
        ([listed("A", -0.05), listed("\n\n", -0.01), listed("Because", -1)], "", {0: -0.05}),
        ([listed("(", -0.1), listed("B", -0.2, C=-3)], "(B", {1: -0.3, 2: -3.1}),
        (
            [listed("The", -0.1, A=-4), listed(" answer", 0), listed(" is", 0), listed(" B", -0.2)],
            "",
            {0: -4, 1: -0.3},
        ),
        ([listed("**", -0.1), listed("Answer", 0), listed(":", 0), listed(" C", -0.2)], "", {2: -0.3}),
        ([listed("'", -0.1), listed("A", -0.2), listed("'", 0)], "'A'", {0: -0.3}),
        ([listed("<0x41>", -0.1, **{"<0x42>": -4})], "A", {0: -0.1, 1: -4}),
        ([listed("bytes:\\x41", -0.1)], "A", {0: -0.1}),
        ([listed("b' A'", -0.1)], "A", {0: -0.1}),
        (
            [{"bytes": [66], "logprob": -0.1, "top_logprobs": [{"bytes": [66], "logprob": -0.1}]}],
            "",
            {1: -0.1},
        ),
        (
            [
                listed("?", -0.1)
                | {"bytes": [32, 67]}
                | {
                    "top_logprobs": [
                        {"token": "?", "bytes": [32, 67], "logprob": -0.1},
                        {"token": "?", "bytes": [65], "logprob": -4},
                    ]
                }
            ],
            "",
            {2: -0.1, 0: -4},
        ),
    ],
)
def test_first_tokens_are_read_with_those_that_follow(
    tokens: list[dict[str, Any]], content: str, belief: dict[int, float]
) -> None:
    read_tokens = [Token.model_validate(token) for token in tokens]
    found = logprobs_from_tokens(read_tokens, {name: i for i, name in enumerate("ABCD")}, content)
    assert {choice: found.logprobs[choice] for choice in belief} == pytest.approx(belief, abs=1e-6)
    assert found.covered_mass == pytest.approx(sum(map(math.exp, belief.values())))
    if belief:
        assert found.logprobs.index(max(found.logprobs)) == max(belief, key=lambda choice: belief[choice])


def test_words_are_read_over_several_tokens() -> None:
    tokens = [Token.model_validate(t) for t in (listed("Tr", -0.1), listed("ue", -0.1))]
    assert logprobs_from_tokens(tokens, {"true": 0, "false": 1}).logprobs[0] == pytest.approx(-0.1)


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


NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize(
    "usage",
    [
        *(None, {}, {"prompt_tokens": None}, {"prompt_tokens": "many"}, "none", 5),
        *(NOTHING, NOTHING | {"completion_tokens": 2}, NOTHING | {"prompt_tokens": 9, "total_tokens": 9}),
    ],
)
def test_usage_that_is_missing_is_counted_from_above(usage: Any, tmp_path: Path) -> None:
    """And no thread waits for a reservation that nobody ends."""
    with stub_server(lambda *_: chat_answer("A", top=TOP, usage=usage)) as stub:
        engine = start(stub, tmp_path, spending_limit=1.0, engine_args={"chat": {"concurrency": 8}})
        with pytest.raises(HopelessError, match="limit of 1 cents"):
            list(engine.score(documents(20)))
        most, _ = engine._bound_cost(
            [{"content": "question 10"}], {"max_tokens": chat.MAX_DECORATION_TOKENS}, 1
        )
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


@pytest.mark.parametrize("growth", ["a jump", "steady"])
def test_a_limit_is_passed_by_one_request_at_most_however_bills_grow(growth: str, tmp_path: Path) -> None:
    billed: list[float] = []

    def reply(request: dict[str, Any], number: int) -> Any:
        times = (1 if number <= 8 else 1000) if growth == "a jump" else 1000 ** (number / 30)
        usage = {"prompt_tokens": READ, "completion_tokens": int(WRITTEN * times)}
        billed.append((READ * 1000 + usage["completion_tokens"] * 2000) / 1e6)
        time.sleep(0.02)  # so that requests are under way at once
        return chat_answer("A", top=TOP, usage=usage)

    with stub_server(reply) as stub:
        engine = start(stub, tmp_path, spending_limit=20.0)
        with pytest.raises(HopelessError, match="limit of 20 cents"):
            list(engine.score(documents(3000)))
    assert sum(billed) <= 20 + max(billed)
    assert spent(tmp_path) == pytest.approx(sum(billed))


def test_a_limit_far_away_lets_requests_be_open_bills_at_once(tmp_path: Path) -> None:
    at_once: list[int] = []
    under_way, lock = [0], Lock()

    def reply(request: dict[str, Any], number: int) -> Any:
        with lock:
            under_way[0] += 1
            at_once.append(under_way[0])
        time.sleep(0.3)
        with lock:
            under_way[0] -= 1
        return chat_answer("A", top=TOP)

    with stub_server(reply) as stub:
        list(start(stub, tmp_path, spending_limit=1e5).score(documents(24)))
    assert max(at_once) > 2


def test_what_a_filter_or_a_time_out_may_have_billed_is_booked(tmp_path: Path) -> None:
    """Azure bills prompts that its filter refuses with status 400, and requests that time out."""
    billed: list[float] = []
    filtered = {"message": "The response was filtered: content management policy", "code": "content_filter"}

    def reply(request: dict[str, Any], number: int) -> Any:
        billed.append(READ * 1000 / 1e6)
        return Reply({"error": filtered}, 400) if number % 5 else Reply({"error": "timed out"}, 408)

    with stub_server(reply) as stub:
        engine = start(stub, tmp_path, engine_args={"chat": {"top_logprobs": 0, "samples": 1}})
        list(engine.score(documents(60)))
    assert len(billed) > 60
    assert spent(tmp_path) >= sum(billed)


@pytest.mark.parametrize("finish_reason", ["length", "max_tokens", "stop"])
def test_a_text_that_reasoning_left_empty_is_no_answer(finish_reason: str, tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        answer = chat_answer(*[""] * n_of(request), finish_reason=finish_reason)
        if question_of(request) != "question 1":
            return chat_answer(*["A"] * n_of(request), finish_reason="length")
        for choice in answer["choices"]:
            choice["message"] |= {"content": None, "reasoning_content": "The shop has many items, so first"}
        return answer

    with stub_server(reply) as stub:
        samples = list(start(stub, tmp_path).sample(documents(3), SAMPLING))
        scores = list(start(stub, tmp_path).score(documents(3)))
        asked = len(stub.asked)
        list(start(stub, tmp_path).sample(documents(3), SAMPLING))
        assert len(stub.asked) == asked  # the same request says the same again
    expected = [None, "empty", None]
    assert [row[0].unanswered and row[0].unanswered.kind for row in samples] == expected
    assert [row[0].unanswered and row[0].unanswered.kind for row in scores] == expected


def test_reasoning_that_max_tokens_cut_in_the_text_is_no_answer(tmp_path: Path) -> None:
    texts = {"question 0": "<think>First,", "question 1": "<think>First</think> 7", "question 2": ""}
    ends = {"question 2": "stop"}  # a model may say nothing

    def reply(request: dict[str, Any], number: int) -> Any:
        question = question_of(request)
        return chat_answer(*[texts[question]] * n_of(request), finish_reason=ends.get(question, "length"))

    with stub_server(reply) as stub:
        samples = list(start(stub, tmp_path).sample(documents(3), SAMPLING))
    assert [row[0].unanswered and row[0].unanswered.kind for row in samples] == ["empty", None, None]


def pay(book: Payments, most: float, cents: float, key: str = "key", worst: float = 0.0) -> None:
    with book.open_bill(most, worst) as bill:
        bill.pay(cents)
        bill.stored_answer = key, "yes"


def test_what_is_open_bills_counts_in_full(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    begun = book.open_bill(6)
    begun.__enter__()
    with (
        pytest.raises(HopelessError, match="limit of 3 cents"),
        Payments(tmp_path / "p", "m", 3, "two").open_bill(1),
    ):
        pass
    pay(Payments(tmp_path / "p", "another", 3, "two"), 3, 3)  # has a limit of its own
    assert Payments(tmp_path / "p", "m", 10, "one").spent == 6  # as of a run that was killed


def test_a_request_waits_for_those_that_may_turn_out_cheaper(tmp_path: Path) -> None:
    book = Payments(tmp_path / "p", "m", 10, "one")
    highest: list[float] = []

    def ask(number: int) -> bool:
        try:
            with book.open_bill(4) as bill:
                highest.append(book.spent)
                bill.pay(1)
                bill.stored_answer = f"{number}", "yes"
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
    with pytest.raises(UnansweredError), book.open_bill(2):
        raise UnansweredError("refused", "no", is_free=True)
    assert book.spent == 0
    with pytest.raises(KeyboardInterrupt), book.open_bill(2):
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
            pay(book, 0.1, 2, str(number), worst=2)
        except HopelessError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(20))) == 5
    assert book.spent == pytest.approx(10)  # sums of floats, in the order of threads

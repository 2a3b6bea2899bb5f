"""A server's completions: log-probs of what was sent, and answers with something wrong in them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.mutants import mutated
from support.stub_server import SERVED, Reply, chat_answer, stub_server
from support.tiny_models import save_model, tiny_tokenizer

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import (
    ChangedModelError,
    Document,
    HopelessError,
    SamplingSettings,
    UnansweredError,
)
from rlfocal.extraction.engines import openai, service
from rlfocal.extraction.engines.chat import MIN_COVERED_MASS, ChatEngine
from rlfocal.extraction.engines.chat import ChatOptions as ChatOptions
from rlfocal.extraction.engines.chat_answers import MIN_SHARE, logprobs_from_tokens
from rlfocal.extraction.engines.openai import (
    CannotScoreError,
    CompletionOptions,
    OpenAIEngine,
    echoed_scores,
    prompt_scores,
)
from rlfocal.extraction.engines.server_responses import PassingError, good_answer, why_unanswered
from rlfocal.extraction.engines.service import Service
from rlfocal.extraction.engines.tokens import ContextWindow, PromptEncoder
from rlfocal.pool import ModelSpec

PROMPT = (7, 8, 9)
TOKENIZER = tiny_tokenizer()
UNKNOWN = Reply({"error": {"message": "unknown field"}}, 400)


def echo(tokens: list[str], logprobs: list[float | None], top: Any = None, **usage: int) -> dict[str, Any]:
    found = {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": found}
    return {"choices": [choice]} | ({"usage": usage} if usage else {})


def read(content: dict[str, Any]) -> list[tuple[float, bool]]:
    return [(s.logprob, s.is_greedy) for s in echoed_scores(content, PROMPT, " t{}".format)]


@pytest.mark.parametrize(
    "tokens",
    [
        ["t7", "t8", "t9", "x"],
        ["token_id:7", "token_id:8", "token_id:9"],
        ["▁t7", "Ġt8", "�"],
        ["t", "t", "t"],
    ],
)
def test_an_echo_of_what_was_sent_is_read(tokens: list[str]) -> None:
    logprobs = [None, -1.0, -2.0, -3.0][: len(tokens)]
    assert read(echo(tokens, logprobs)) == [(-1.0, False), (-2.0, False)]
    top = [None, {tokens[1]: -1.0, "other": -0.5}, {tokens[2]: -2.0}, None][: len(tokens)]
    if len(set(tokens)) > 1:
        assert read(echo(tokens, logprobs, top, prompt_tokens=3)) == [(-1.0, False), (-2.0, True)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (echo(["<s>", "t7", "t8", "t9"], [None, -1.0, -2.0, -3.0]), "other tokens"),  # it began the text anew
        (echo(["token_id:1", "token_id:7", "token_id:8"], [None, -1.0, -2.0]), "at place 1 'token_id:7'"),
        (echo(["t"] * 4, [None, -1.0, -2.0, -3.0], prompt_tokens=4), "read 4 tokens where 3 were sent"),
        (echo(["t7", "t8", "t9"], [None, -1.0, None]), "no log-prob"),
    ],
)
def test_an_echo_of_anything_else_is_refused(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnansweredError, match=reason):
        read(answer)


def test_prompt_logprobs_of_other_tokens_are_refused() -> None:
    def answer(*tokens: int) -> dict[str, Any]:
        entries = [None, *({str(t): {"logprob": -1.0, "rank": 2}} for t in tokens)]
        return {"choices": [{"index": 0, "text": "", "finish_reason": "length", "prompt_logprobs": entries}]}

    assert [s.logprob for s in prompt_scores(answer(8, 9), PROMPT)] == [-1.0, -1.0]
    for tokens in ((8,), (8, 8), (7, 8, 9)):
        with pytest.raises(UnansweredError, match="token"):
            prompt_scores(answer(*tokens), PROMPT)


def engine(url: str) -> OpenAIEngine:
    return OpenAIEngine(
        Service(url), SERVED, TOKENIZER, ContextWindow(256, 255, "refuse"), CompletionOptions()
    )


def documents(n: int = 4) -> list[Document]:
    choices = (" lazy", " dog")
    return [
        Document(i, "", "", 0, "", choices, f"{'quick ' * i}brown foxes and a", choices) for i in range(n)
    ]


def echoing(prompt: list[int], last: float | None = None) -> dict[str, Any]:
    """The log-probs of the prompt's tokens; `last`: of its last one."""
    own: list[float | None] = [None, *(-0.01 * token for token in prompt[1:]), -0.5]
    own[-2] = own[-2] if last is None else last
    return echo([f"token_id:{t}" for t in (*prompt, 0)], own)


def test_a_way_that_works_is_found_behind_one_that_does_not() -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        if request.get("echo"):
            return echoing(request["prompt"])
        if "logprob_token_ids" in request:
            return UNKNOWN
        none = {"text": "a", "logprobs": None, "finish_reason": "length", "prompt_logprobs": [None]}
        return {"choices": [{"index": 0, **none}]}

    with stub_server(reply) as stub:
        found = engine(stub.url)
        assert found.settings()["reads_by"] == "echo"
        for row in found.score(documents()):
            for score in row:
                assert score.token_logprobs == pytest.approx([-0.01 * token for token in score.token_ids])


def test_one_document_that_is_answered_badly_leaves_the_others() -> None:
    bad = len(PromptEncoder(TOKENIZER).choices(documents())[2].context)

    def reply(request: dict[str, Any], number: int) -> Any:
        if not request.get("echo"):
            return UNKNOWN
        prompt = request["prompt"]
        return echoing(prompt, 0.5) if len(prompt) == bad + 1 else echoing(prompt)

    with stub_server(reply) as stub:
        rows = list(engine(stub.url).score(documents()))
    kinds = [{score.unanswered and score.unanswered.kind for score in row} for row in rows]
    assert kinds == [{None}, {None}, {"broken"}, {None}]
    assert len({score.token_logprobs for score in rows[2]}) == 1


def test_a_server_that_scores_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 0.01)

    def reply(request: dict[str, Any], number: int) -> Any:
        return Reply({"error": {"message": "2326"}}, 500) if request.get("echo") else UNKNOWN

    with stub_server(reply) as stub, pytest.raises(CannotScoreError, match=r"unknown field.*2326"):
        engine(stub.url).check(documents())


def test_passes_that_were_broken_off_are_no_answers() -> None:
    sampling = SamplingSettings(passes=3, temperature=0.6, top_p=1.0, max_tokens=8, stop=(), seed=0)

    def reply(request: dict[str, Any], number: int) -> Any:
        ends = ["stop", "abort", "length"]
        texts = [{"index": i, "text": f"{i}", "finish_reason": end} for i, end in enumerate(ends)]
        return {"choices": texts[::-1]} if request.get("n") == 3 else UNKNOWN

    with stub_server(reply) as stub:
        rows = list(engine(stub.url).sample(documents(), sampling))
    assert [[(s.text, s.finish_reason, s.unanswered is None) for s in row] for row in rows] == [
        [("0", "stop", True), ("1", "abort", False), ("2", "length", True)]
    ] * 4


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model(tmp_path, "llama")
    spec = ModelSpec(model="tiny", hf_repo=str(folder), params_b=1e-4)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RunError, match="`base_url`"):
        openai.load(spec, folder)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:secret@127.0.0.1:9/v1")
    with pytest.raises(RunError, match=r"http://127\.0\.0\.1:9/v1") as refused:
        openai.load(spec, folder)
    assert "secret" not in str(refused.value)


REFUSED = "refused"
SERVICE = Service("http://127.0.0.1:9/v1")
SENT = (11, 12, 13, 14, 15, 16)
TARGETS = (21, 22, 23)
NAMES = {"A": 0, "B": 1, "C": 2}
DOCUMENT = Document(7, "", "", 0, "", tuple("ABC"), "q", tuple("ABC"))


def scored(prompt: tuple[int, ...]) -> dict[str, Any]:
    """A completion with the log-probs of its prompt, by vLLM's field and by echo."""
    known = ({"logprob": -t / 10, "rank": 1, "decoded_token": f"t{t}"} for t in prompt[1:])
    entries = [None, *({str(t): each} for t, each in zip(prompt[1:], known, strict=True))]
    own = [None, *(-t / 10 for t in prompt[1:]), -0.5]
    tops = [None, *({f"t{t}": -t / 10} for t in prompt[1:]), {"x": -0.5}]
    tokens = [*(f"t{t}" for t in prompt), "x"]
    echo = {"tokens": tokens, "token_logprobs": own, "top_logprobs": tops, "text_offset": [0] * len(own)}
    said = {"index": 0, "text": "x", "finish_reason": "length"}
    choice = said | {"logprobs": echo, "prompt_logprobs": entries}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
    return {"id": "x", "object": "text_completion", "choices": [choice], "usage": usage}


def next_scored() -> dict[str, Any]:
    listed = {f"token_id:{t}": -t / 10 for t in TARGETS}
    drawn = {"tokens": ["token_id:21"], "token_logprobs": [-2.1]}
    logprobs = drawn | {"top_logprobs": [listed], "text_offset": [0]}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs}
    return {"choices": [choice], "usage": {"prompt_tokens": len(SENT)}}


def sampled() -> dict[str, Any]:
    choices = [
        {"index": i, "text": f"text {i}", "finish_reason": "stop", "token_ids": [i, 2]} for i in range(3)
    ]
    return {"choices": choices, "usage": {"prompt_tokens": len(SENT), "completion_tokens": 6}}


def logprobs_of(scores: Any) -> list[float | None]:
    return [None if score is None else score.logprob for score in scores]


def texts_of(choices: Any) -> list[str | None]:
    """The texts, without those that are no answers."""
    return [choice.text if why_unanswered(choice.finish_reason) is None else None for choice in choices]


def chat_engine() -> ChatEngine:
    spec = ModelSpec(model="closed", served="stub", price_input=1, price_output=1)
    return ChatEngine(SERVICE, spec, ChatOptions())


def believed(content: Any) -> list[float | None]:
    """The beliefs in choices that are listed, neither as impossible (null) nor as the start of a word."""
    [choice] = chat_engine()._check(content, DOCUMENT, 1).choices
    belief = logprobs_from_tokens(choice.tokens, NAMES)
    if not choice.tokens or belief.covered_mass < MIN_COVERED_MASS or choice.unanswered:
        raise UnansweredError("unclear", "as the engine says")
    listed = {each.token for each in choice.tokens[0].candidates if each.probability}
    return [
        lp if name in listed and lp > math.log(2 * MIN_SHARE) else None
        for name, lp in zip(NAMES, belief.logprobs, strict=True)
    ]


def told(content: Any) -> list[str | None]:
    choices = sorted(chat_engine()._check(content, DOCUMENT, 3).choices, key=lambda choice: choice.index)
    return [None if choice.unanswered else choice.message.content for choice in choices]


piece = "t{}".format
READERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "prompt_logprobs": (scored(SENT), lambda c: logprobs_of(openai.prompt_scores(c, SENT))),
    "echo": (scored(SENT), lambda c: logprobs_of(openai.echoed_scores(c, SENT, piece))),
    "next tokens": (next_scored(), lambda c: logprobs_of(openai.read_next_scores(c, SENT, TARGETS))),
    "texts": (sampled(), lambda c: texts_of(openai.completion(c, 3, SENT))),
    "first tokens of a chat": (chat_answer("A", top={"A": -0.2, "B": -3.0, "C": -4.0}), believed),
    "texts of a chat": (chat_answer("one", "two", "three"), told),
}


def outcome(content: Any, reader: Callable[[Any], Any]) -> Any:
    """What is read of an answer as it is sent, or that it is refused."""
    try:
        return reader(good_answer(200, {}, json.dumps(content).encode(), "http://there/v1"))
    except (UnansweredError, HopelessError, PassingError, ChangedModelError):
        return REFUSED


def is_told(found: Any, expected: list[Any]) -> bool:
    """Whether nothing else is read than was sent. Less may be: without a text there is no answer, and a next
    token that is not listed is asked for again."""
    if found == REFUSED:
        return True
    return len(found) == len(expected) and all(
        a in (None, "", b) for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("n", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_a_mutated_answer_is_refused_or_read_as_it_was(name: str, n: int) -> None:
    content, reader = READERS[name]
    expected = outcome(content, reader)
    assert expected != REFUSED
    draw = random.Random(name)
    refused = 0
    for _ in range(n):
        mutant = mutated(content, draw)
        found = outcome(mutant, reader)
        assert is_told(found, expected), (mutant, found)
        refused += found == REFUSED
    assert 0.1 * n < refused < n

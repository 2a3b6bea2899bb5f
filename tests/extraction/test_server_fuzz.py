"""Servers' answers with something wrong in them: each is refused for its document, or read as it was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from support.mutants import mutated
from support.stub_server import chat_answer

from rlfocal.extraction.engine import ChangedModelError, Document, HopelessError, UnansweredError
from rlfocal.extraction.engines import completions
from rlfocal.extraction.engines.chat import LEAST_EVIDENCE, ChatEngine, Options
from rlfocal.extraction.engines.chat_answers import from_tokens
from rlfocal.extraction.engines.responses import PassingError, good_answer, why_unanswered
from rlfocal.extraction.engines.service import Service
from rlfocal.pool import ModelSpec

REFUSED = "refused"
SERVICE = Service("http://127.0.0.1:9/v1")
PROMPT = (11, 12, 13, 14, 15, 16)
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
    return {"choices": [choice], "usage": {"prompt_tokens": len(PROMPT)}}


def sampled() -> dict[str, Any]:
    choices = [
        {"index": i, "text": f"text {i}", "finish_reason": "stop", "token_ids": [i, 2]} for i in range(3)
    ]
    return {"choices": choices, "usage": {"prompt_tokens": len(PROMPT), "completion_tokens": 6}}


def logprobs_of(scores: Any) -> list[float | None]:
    return [None if score is None else score.logprob for score in scores]


def texts_of(choices: Any) -> list[str | None]:
    """The texts, without those that are no answers."""
    return [choice.text if why_unanswered(choice.finish_reason) is None else None for choice in choices]


def engine() -> ChatEngine:
    spec = ModelSpec(model="closed", served="stub", price_input=1, price_output=1)
    return ChatEngine(SERVICE, spec, Options())


def believed(content: Any) -> list[float | None]:
    """The beliefs in choices that are listed, and not as impossible (null)."""
    [choice] = engine()._check(content, DOCUMENT, 1).choices
    belief = from_tokens(choice.tokens, NAMES)
    if not choice.tokens or belief.covered_mass < LEAST_EVIDENCE or choice.unanswered:
        raise UnansweredError("unclear", "as the engine says")
    listed = {each.token for each in choice.tokens[0].listed if each.probability}
    return [lp if name in listed else None for name, lp in zip(NAMES, belief.logprobs, strict=True)]


def told(content: Any) -> list[str | None]:
    choices = sorted(engine()._check(content, DOCUMENT, 3).choices, key=lambda choice: choice.index)
    return [None if choice.unanswered else choice.message.content for choice in choices]


piece = "t{}".format
READERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "prompt_logprobs": (scored(PROMPT), lambda c: logprobs_of(completions.prompt_scores(c, PROMPT))),
    "echo": (scored(PROMPT), lambda c: logprobs_of(completions.echoed_scores(c, PROMPT, piece))),
    "next tokens": (next_scored(), lambda c: logprobs_of(completions.next_scores(c, PROMPT, TARGETS))),
    "texts": (sampled(), lambda c: texts_of(completions.completion(c, 3, PROMPT))),
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

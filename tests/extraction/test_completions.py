"""A server's completions: log-probs of what was sent, by whichever way the server knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.stub_server import SERVED, Reply, stub_server
from support.tiny_models import save_model, tiny_tokenizer

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import Document, Sampling, UnansweredError
from rlfocal.extraction.engines import openai, service
from rlfocal.extraction.engines.completions import echoed_scores, prompt_scores
from rlfocal.extraction.engines.openai import CannotScoreError, OpenAIEngine, Options
from rlfocal.extraction.engines.service import Service
from rlfocal.extraction.engines.tokens import Encoder, Window
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
    return OpenAIEngine(Service(url), SERVED, TOKENIZER, Window(256, 255, "refuse"), Options())


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
    bad = len(Encoder(TOKENIZER).choices(documents())[2].context)

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
    sampling = Sampling(passes=3, temperature=0.6, top_p=1.0, max_tokens=8, stop=(), seed=0)

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

"""The engine behind a server, against a real `vllm serve` on this machine's CPU."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.limited_server import limit
from support.scores import NEEDS_VLLM, assert_alike
from support.servers import serve
from support.tiny_models import save_model

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines import hf, openai
from rlfocal.pool import ModelSpec
from rlfocal.pool.specs import ThinkingSpec

SAMPLING = SamplingSettings(passes=4, temperature=0.6, top_p=0.95, max_tokens=8, stop=("dog",), seed=0)
pytestmark = [pytest.mark.slow, *NEEDS_VLLM]


def documents(*choices: str, n: int = 6) -> list[Document]:
    return [Document(i, "", "", 0, "", choices, f"{i} brown foxes and a", choices) for i in range(n)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSpec]:
    """The model's entry, with the address of a server that runs it."""
    with serve(model, tmp_path_factory.mktemp("server") / "log", "--served-model-name", "tiny") as address:
        url = f"http://user:secret@{address}/v1"
        yield ModelSpec(model="tiny", hf_repo=str(model), params_b=1e-4).model_copy(update={"base_url": url})


@pytest.mark.parametrize("way", ["prompt_logprobs", "echo"])
@pytest.mark.parametrize(
    "choices", [(" lazy", " dog"), (" lazy dog", " a quick fox"), ("A", " lazy", " lazy dog")]
)
def test_scores_equal_transformers(
    served: ModelSpec, model: Path, choices: tuple[str, ...], way: str
) -> None:
    engine = openai.load(served, model)
    assert engine.settings()["reads_by"] == "prompt_logprobs"
    assert engine.settings()["next_tokens"] is True
    if way == "echo":
        engine._way, engine._next_tokens = "echo", False
    expected = hf.load(served, model, threads=2).score(documents(*choices))
    assert_alike(engine.score(documents(*choices)), expected)


def test_passes_are_seeded_by_document(served: ModelSpec, model: Path) -> None:
    engine = openai.load(served, model)
    samples = list(engine.sample(documents(), SAMPLING))
    assert [len(s) for s in samples] == [4] * 6
    assert list(engine.sample(documents()[2:4], SAMPLING)) == samples[2:4]
    assert list(engine.sample(documents(), replace(SAMPLING, seed=99))) != samples
    [document] = documents(n=1)
    [other] = engine.sample([document], replace(SAMPLING, seed=SAMPLING.passes))
    assert [other] != list(engine.sample([replace(document, doc_id=1)], SAMPLING))
    assert all(
        0 < (s.n_tokens or 0) <= 8 and s.finish_reason in ("stop", "length") for row in samples for s in row
    )


def test_a_limited_server_that_does_not_score_is_sampled(served: ModelSpec, model: Path) -> None:
    assert served.base_url is not None
    whole = served.base_url.replace("user:secret@", "")
    with limit(whole, "prompt_logprobs", "echo") as limited:
        engine = openai.load(served.model_copy(update={"base_url": limited.url}), model)
        assert (engine.settings()["reads_by"], engine.slower) == (None, None)
        with pytest.raises(RunError, match="log-prob"):
            list(engine.score(documents(" lazy", " dog")))
        before = len(limited.passed)
        samples = list(engine.sample(documents(), SAMPLING))
        assert limited.refused > 1
        assert len(limited.passed) - before == len(set(limited.passed[before:])) == 6  # each is paid once
    assert samples == list(openai.load(served, model).sample(documents(), SAMPLING))


def test_a_server_of_another_model_is_named(served: ModelSpec, model: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", "llama", seed=1)
    with pytest.raises(RunError, match="serves tiny") as refused:
        openai.load(served.model_copy(update={"model": "another", "hf_repo": str(other)}), other)
    assert "secret" not in str(refused.value)


def test_a_server_that_ignores_the_number_of_texts_is_refused(
    served: ModelSpec, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = openai.load(served, model, threads=1)
    change(monkeypatch, engine, lambda body: {**body, "n": 1})
    [refused] = engine.sample(documents(n=1), SAMPLING)
    assert {s.unanswered and s.unanswered.kind for s in refused} == {"broken"}
    greedy = replace(SAMPLING, temperature=0.0)
    assert [len(samples) for samples in engine.sample(documents(n=1), greedy)] == [4]


THINKING = ThinkingSpec(budget=12, traces=3, markers=("", " lazy"), lead_in="Answer:", temperature=1.0)


def test_choices_after_a_trace_are_transformers(
    served: ModelSpec, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = openai.load(served, model)
    asked = documents(" dog", " a quick fox")
    drawn = [token for own in engine.think(asked[:2], THINKING) for t in own for token in t.token_ids]
    pieces = [
        piece
        for token in drawn
        if engine._encoder.encode_continuation(piece := engine._encoder.decode((token,))) == (token,)
    ]
    thinking = THINKING.model_copy(update={"markers": ("", Counter(pieces).most_common(1)[0][0])})
    traces = list(engine.think(asked, thinking))
    assert list(engine.think(asked[2:4], thinking)) == traces[2:4]
    assert {trace.finish_reason for own in traces for trace in own} >= {"stop", "length"}
    other = hf.load(served, model, threads=1)
    theirs = other.score_after(asked, thinking, traces)
    assert_alike(engine.score_after(asked, thinking, traces), theirs)
    # A server that does not know the field writes on behind the marker.
    change(monkeypatch, engine, lambda body: {**body, "stop_token_ids": []})
    longer = [[trace.token_ids for trace in own] for own in engine.think(asked, thinking)]
    assert longer == [[trace.token_ids for trace in own] for own in traces]


def test_a_server_without_token_ids_or_of_other_tokens_is_refused(
    served: ModelSpec, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = openai.load(served, model)
    change(monkeypatch, engine, lambda body: {**body, "return_token_ids": False})
    with pytest.raises(RunError, match="token ids"):
        list(engine.think(documents(" dog"), THINKING))
    file = Path(shutil.copytree(model, tmp_path / "other")) / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {
        piece: len(vocabulary) + 1 - i if i > 1 else i for piece, i in vocabulary.items()
    }
    file.write_text(json.dumps(content))
    other = openai.load(served.model_copy(update={"hf_repo": str(file.parent)}), model)
    with pytest.raises(RunError, match="tokenizer"):
        list(other.sample(documents(), SAMPLING))


def change(
    monkeypatch: pytest.MonkeyPatch,
    engine: openai.OpenAIEngine,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Sends requests as a server would read them that lacks a field."""
    ask = engine._complete
    monkeypatch.setattr(
        engine, "_complete", lambda prompt, options, check: ask(prompt, edit(dict(options)), check)
    )

"""The transformers engine against lm-eval's own, against itself in other batches, against its definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.scores import assert_alike, lm_eval_results
from support.tiny_models import ARCHITECTURES, tiny_model, tiny_tokenizer, write_tasks
from transformers.generation.logits_process import TopPLogitsWarper

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines import hf
from rlfocal.extraction.engines.hf import HFEngine, HFOptions
from rlfocal.extraction.engines.sampling import StopStrings, draw, uniforms
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool.specs import Benchmark, ModelSpec

SAMPLING = SamplingSettings(passes=4, temperature=0.6, top_p=0.95, max_tokens=12, stop=("dog", "\n"), seed=0)
CHOICE_TASKS = ["tiny_choices", "tiny_spaces"]


def documents(n: int = 7) -> list[Document]:
    choices, said = ("yes", "lazy dog", "x"), (" yes", " lazy dog", " x")
    contexts = ("the quick brown fox " * (i % 4) + "Answer:" for i in range(n))
    return [Document(i, "", "", 0, "", choices, context, said) for i, context in enumerate(contexts)]


def load(tasks: Path) -> list[TaskDocuments]:
    names = {name: name for name in CHOICE_TASKS}
    return load_tasks([Benchmark(name="tiny", kind="choices", tasks=names, include_path=str(tasks))])


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("bos", [False, True])
def test_scores_equal_lm_evals(tmp_path: Path, architecture: str, bos: bool) -> None:
    # Some prompts do not fit the context, so truncation is compared, too.
    tasks = write_tasks(tmp_path / "tasks", choices=20, long=2)
    tokenizer = tiny_tokenizer(bos=bos)
    model = tiny_model(architecture, len(tokenizer))
    expected = lm_eval_results(model, tasks, CHOICE_TASKS, tokenizer=tokenizer, batch_size=4)["samples"]
    engine = HFEngine(model, tokenizer, truncation="keep", options=HFOptions(batch_tokens=700))
    assert engine.shares_prefix
    truncated = []
    for task in load(tasks):
        theirs = {sample["doc_id"]: sample for sample in expected[task.task]}
        assert sorted(theirs) == [d.doc_id for d in task.documents]
        for document, scores in zip(task.documents, engine.score(task.documents), strict=True):
            sample = theirs[document.doc_id]
            assert [tuple(a) for a in sample["arguments"]] == [
                (document.context, c) for c in document.continuations
            ]
            assert (sample["doc_hash"], sample["doc"]["label"]) == (document.doc_hash, document.label)
            sums = [sum(score.token_logprobs) for score in scores]
            [their_sums, their_greedy] = zip(*(r[0] for r in sample["resps"]), strict=True)
            np.testing.assert_allclose(sums, their_sums, atol=1e-4)
            assert [s.is_greedy for s in scores] == list(their_greedy)
            assert float(np.argmax(sums) == document.label) == sample["acc"]
            truncated.append(scores[0].truncated)
    assert any(truncated)
    assert not all(truncated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shared_prefix_changes_nothing(architecture: str) -> None:
    tokenizer = tiny_tokenizer()
    engine = HFEngine(
        tiny_model(architecture, len(tokenizer)),
        tokenizer,
        truncation="keep",
        options=HFOptions(batch_tokens=200),
    )
    shared = list(engine.score(documents()))
    engine.shares_prefix = False
    assert_alike(shared, engine.score(documents()), 1e-5)


def test_scores_are_log_probabilities_of_the_next_token() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", len(tokenizer))
    [document] = documents(1)
    [scores] = HFEngine(model, tokenizer).score([document])
    assert [tokenizer.decode(s.token_ids) for s in scores] == list(document.continuations)
    for score in scores:
        ids = tokenizer(document.context + tokenizer.decode(score.token_ids))["input_ids"]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        start = len(ids) - len(score.token_ids)
        expected = [float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))]
        np.testing.assert_allclose(score.token_logprobs, expected, atol=1e-5)
        assert score.n_prompt_tokens == start


def test_an_option_that_the_engine_does_not_know_is_refused_before_weights_are_read() -> None:
    spec = ModelSpec(model="m", hf_repo="/nowhere", params_b=1, engine_args={"hf": {"batch_token": 9}})
    with pytest.raises(InputError, match=r"engine_args\.hf takes batch_tokens"):
        hf.load(spec, Path("/nowhere"), threads=1)


def test_empty_prompt_starts_from_the_end_of_text_token() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", len(tokenizer))
    empty = replace(documents(1)[0], context="")
    [scores] = HFEngine(model, tokenizer).score([empty])
    with torch.no_grad():
        first = model(torch.tensor([[tokenizer.eos_token_id]])).logits[0, -1].log_softmax(-1)
    for score in scores:
        assert score.token_logprobs[0] == pytest.approx(float(first[score.token_ids[0]]), abs=1e-5)


def test_architecture_without_key_value_cache_is_scored_but_not_sampled() -> None:
    tokenizer = tiny_tokenizer()
    engine = HFEngine(tiny_model("mamba", len(tokenizer)), tokenizer)
    assert not engine.shares_prefix
    assert "once for each choice" in str(engine.slower)
    assert len(list(engine.score(documents(2)))) == 2
    with pytest.raises(InputError, match="key-value cache"):
        list(engine.sample(documents(2), SAMPLING))


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gpt2"])
def test_samples_do_not_depend_on_the_batch(architecture: str) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(architecture, len(tokenizer))
    docs = documents(9)
    expected = list(HFEngine(model, tokenizer).sample(docs, SAMPLING))
    assert (
        list(HFEngine(model, tokenizer, options=HFOptions(batch_tokens=60)).sample(docs, SAMPLING))
        == expected
    )
    assert list(HFEngine(model, tokenizer).sample(docs[::-1], SAMPLING)) == expected[::-1]
    assert list(HFEngine(model, tokenizer).sample(docs[3:5], SAMPLING)) == expected[3:5]
    other_seed = list(HFEngine(model, tokenizer).sample(docs, replace(SAMPLING, seed=1)))
    assert other_seed != expected
    assert len({samples[0].text for samples in expected}) > 1
    assert len({sample.text for sample in expected[0]}) > 1


def test_a_stop_string_only_cuts() -> None:
    tokenizer = tiny_tokenizer()
    engine = HFEngine(tiny_model("llama", len(tokenizer)), tokenizer)
    sampling = replace(SAMPLING, passes=8, temperature=2.0, top_p=1.0, max_tokens=40)
    for stop in [(" ",), ("e",), ("Answer", "fo"), ("\N{SNOWMAN}",), ()]:
        stopped = engine.sample(documents(6), replace(sampling, stop=stop))
        free = engine.sample(documents(6), replace(sampling, stop=()))
        for cut, whole in zip(_flat(stopped), _flat(free), strict=True):
            first = min((whole.text.find(s) for s in stop if s in whole.text), default=None)
            assert cut.text == whole.text[:first]
            assert cut.n_tokens <= whole.n_tokens
            assert (cut.finish_reason == "stop") == (first is not None or whole.finish_reason == "stop")
    [asked] = engine.sample(documents(6)[2:3], sampling)
    assert {s.n_prompt_tokens for s in asked} == {len(tokenizer(documents(6)[2].context).input_ids)}


def _flat(samples: Any) -> list[Any]:
    return [sample for some in samples for sample in some]


def test_temperature_zero_is_greedy_decoding() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("mistral", len(tokenizer))
    greedy = SamplingSettings(passes=1, temperature=0.0, top_p=1.0, max_tokens=20, stop=(), seed=0)
    for document, [sample] in zip(
        documents(), HFEngine(model, tokenizer).sample(documents(), greedy), strict=True
    ):
        prompt = tokenizer(document.context, return_tensors="pt")
        made = model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=1)[0]
        new = made[prompt["input_ids"].shape[1] :]
        assert sample.text == tokenizer.decode(new, skip_special_tokens=True)
        assert sample.n_tokens == len(new)


def test_generation_that_cannot_fit_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    engine = HFEngine(tiny_model("llama", len(tokenizer)), tokenizer)
    with pytest.raises(InputError, match="96"):
        list(engine.sample(documents(1), replace(SAMPLING, max_tokens=96)))
    with pytest.raises(InputError, match="96"):
        engine.check(documents(), replace(SAMPLING, max_tokens=82))


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.6, 0.95), (1.3, 0.5), (0.6, 1e-6), (3.0, 0.9)]
)
def test_draw_follows_the_nucleus_distribution(temperature: float, top_p: float) -> None:
    logits = torch.randn(1, 150, generator=torch.Generator().manual_seed(1)) * 3
    warped = (
        TopPLogitsWarper(top_p)(torch.zeros(1, 1), logits / temperature)
        if top_p < 1
        else logits / temperature
    )
    expected = warped.softmax(-1)[0].numpy()
    n = 100_000
    grid = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    drawn = draw(logits, torch.zeros(n, dtype=torch.long), grid, temperature, top_p)
    counts = Counter(drawn.tolist())
    frequencies = np.array([counts[token] / n for token in range(150)])
    np.testing.assert_allclose(frequencies, expected, atol=2 / n + 1e-6)


def test_a_number_belongs_to_a_document_a_pass_and_a_step() -> None:
    some = uniforms(3, [5, 6, 7], passes=4, steps=9)
    assert torch.equal(uniforms(3, [6], passes=2, steps=9)[0], some[1, :2])
    assert len(set(some.flatten().tolist())) == some.numel()


@pytest.mark.parametrize("stop", [("\n",), ("dog", "Answer:"), (" ",), ("\N{SNOWMAN}",), ("",), ()])
def test_no_stop_string_is_overlooked(stop: tuple[str, ...]) -> None:
    tokenizer = tiny_tokenizer()
    stops = StopStrings(tokenizer, stop, len(tokenizer))
    for text in ["a lazy dog", "no\n", "Question Answer: yes", "snow \N{SNOWMAN}", "x y"]:
        tokens = tokenizer(text)["input_ids"]
        ends = [n for n in range(1, len(tokens) + 1) if stops.is_stopped(tokens[:n])]
        assert bool(ends) == any(s in text for s in stop if s)
        assert not ends or bool(stops.may_end[tokens[ends[0] - 1]])


def test_the_model_reads_once_what_texts_of_a_document_have_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = tiny_tokenizer()
    engine = HFEngine(tiny_model("llama", len(tokenizer)), tokenizer)
    widths: list[int] = []
    forward = engine._prefiller.forward

    def count(inputs: torch.Tensor, *of: Any, **options: Any) -> Any:
        widths.append(len(inputs))
        return forward(inputs, *of, **options)

    monkeypatch.setattr(engine._prefiller, "forward", count)
    same = _flat(engine.sample(documents(3), replace(SAMPLING, passes=6, temperature=1e-6)))
    assert len({sample.text for sample in same}) <= 3
    assert max(widths) <= 3
    widths.clear()
    other = _flat(engine.sample(documents(3), replace(SAMPLING, passes=6, temperature=5.0)))
    assert 3 < max(widths) <= len({sample.text for sample in other})

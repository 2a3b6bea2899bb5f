"""Hard cases of scoring by vLLM: ties, choices that begin others, contexts that are read in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.scores import NEEDS_VLLM, assert_alike
from support.tiny_models import tiny_model, tiny_tokenizer

from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines.hf import HFEngine

pytestmark = [pytest.mark.slow, *NEEDS_VLLM]
CONTEXT, CHUNK = 1024, 256
TIED = (" yes", " no")
ENDS = ("", " dog", " dog yes", " yes", " lazy", " lazy lazy")
CHOICES = (*TIED, *(f" lazy{end}" for end in ENDS), " yes lazy")


def prompts() -> list[str]:
    """Some longer than a chunk, of every length modulo a block of the cache."""
    return [f"{'the quick brown fox ' * (1 + 6 * (i % 20))}{'x' * i} Answer:" for i in range(40)]


@torch.inference_mode()
def tied(architecture: str, tokenizer: Any) -> Any:
    """A model to which two words are equally likely everywhere, and the likeliest after some prompts."""
    model = tiny_model(architecture, len(tokenizer), context=CONTEXT)
    head = model.get_output_embeddings().weight
    read = [tokenizer(text, return_tensors="pt")["input_ids"] for text in prompts()]
    last = torch.stack([model.get_decoder()(tokens).last_hidden_state[0, -1] for tokens in read])
    first, second = (tokenizer(word)["input_ids"][-1] for word in TIED)
    level = (last @ head.T).amax(-1).median()  # of half of the prompts, the likeliest is below
    mean = last.mean(0)
    head[first] = head[second] = mean * 0.97 * level / (last @ mean).mean()
    return model


@torch.inference_mode()
def continued(model: Any, tokenizer: Any, text: str, n: int) -> str:
    """The n likeliest tokens behind a prompt, one by one, as a text."""
    tokens = tokenizer(text)["input_ids"]
    for _ in range(n):
        tokens = [*tokens, int(model(torch.tensor([tokens])).logits[0, -1].argmax())]
    return str(tokenizer.decode(tokens[-n:]))


def documents(model: Any, tokenizer: Any) -> list[Document]:
    asked = []
    for i, text in enumerate(prompts()):
        choices = (*CHOICES, *(continued(model, tokenizer, text, n) for n in (1, 3)))
        asked.append(Document(i, "", "", 0, "", choices, text, choices))
    return asked


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_scores_and_flags_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    from rlfocal.extraction.engines import vllm

    tokenizer = tiny_tokenizer(words=2000)
    model = tied(architecture, tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    asked = documents(model, tokenizer)
    theirs = list(HFEngine(model, tokenizer).score(asked))
    check_cases(theirs)
    chunked: dict[str, Any] = {"enable_chunked_prefill": True, "max_num_batched_tokens": CHUNK}
    llm = vllm.start(model=str(tmp_path), dtype="float32", max_model_len=CONTEXT, threads=1, **chunked)
    engine = vllm.VLLMEngine(llm, tokenizer)
    assert engine.slower is None
    assert engine.settings()["forced"]
    assert_alike(engine.score(asked), theirs)


def check_cases(scores: Sequence[Sequence[ChoiceScore]]) -> None:
    """The cases are there: ties for the likeliest, flags of both kinds, contexts of several chunks."""
    greedy: Counter[tuple[bool, bool]] = Counter()
    n_tied = 0
    for own in scores:
        assert own[0].token_logprobs == own[1].token_logprobs
        assert not any(score.is_greedy for score in own[:2])
        n_tied += max(score.token_logprobs[0] for score in own) == own[0].token_logprobs[0]
        greedy.update((len(score.token_ids) > 1, score.is_greedy) for score in own)
    assert 5 <= n_tied <= 35
    assert min(greedy[is_long, flag] for is_long in (True, False) for flag in (True, False)) >= 5
    assert max(score.n_prompt_tokens or 0 for [score, *_] in scores) > 2 * CHUNK

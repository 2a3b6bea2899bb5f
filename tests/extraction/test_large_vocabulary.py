"""256,000 words: a batch's logits are bounded by memory, and no number depends on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.extraction.engines.prefill import FREE_MEMORY_DIVISOR, MAX_LOGIT_BYTES, logit_bytes, token_scores
from rlfocal.extraction.engines.sampling import draw

VOCABULARY = 256_000
CAP = 64
"""MiB of logits, which hold 65 rows of this vocabulary."""

PROGRAM = """
import json, sys
from support.tiny_models import tiny_model, tiny_tokenizer
from benchmarks.speed import peak_megabytes
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines.hf import HFEngine, HFOptions

vocabulary, cap = int(sys.argv[1]), int(sys.argv[2])
words = ("quick", "brown", "lazy", "seven")
choices = tuple(f" {a} {b} fox dog apples maybe" for a in words[:2] for b in words)
documents = [Document(i, "", "", 0, "", choices, "the brown fox Answer:", choices) for i in range(24)]
sampling = SamplingSettings(passes=4, temperature=0.7, top_p=0.9, max_tokens=2, stop=(), seed=0)
tokenizer = tiny_tokenizer()
models = [tiny_model(architecture, vocabulary) for architecture in ("llama", "mistral", "mamba")]
before, rises, found = peak_megabytes(), [], []
for mib in (cap, 100_000):
    scores, texts = [], []
    for model in models:
        engine = HFEngine(model, tokenizer, options=HFOptions(logit_mib=mib))
        scores += [x for of in engine.score(documents) for score in of for x in score.token_logprobs]
        if engine.shares_prefix:
            texts += [sample.text for of in engine.sample(documents, sampling) for sample in of]
    rises.append(peak_megabytes() - before)
    found.append((scores, texts))
(scores, texts), (same_scores, same_texts) = found
difference = max(abs(a - b) for a, b in zip(scores, same_scores))
print(json.dumps([rises, len(scores), difference, texts == same_texts]))
"""


@pytest.mark.slow
def test_logits_stay_under_their_cap() -> None:
    """In one row of a question's choices, in a row a choice, and a sequence a choice."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(VOCABULARY), str(CAP)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    (capped, whole), tokens, difference, same_texts = json.loads(done.stdout.splitlines()[-1])
    logits = tokens / 3 * VOCABULARY * 4 / 1e6
    print(f"peak +{capped:.0f} MB under a cap of {CAP} MiB, +{whole:.0f} MB without; logits {logits:.0f} MB")
    # Copies that are scored and drawn from are 260 MB; the allocator keeps 40 to 180 more, by the load.
    assert capped < 0.4 * logits
    assert whole > 0.8 * logits
    assert difference < 1e-5
    assert same_texts


@given(free=st.integers(0, 2**45))
def test_the_budget_leaves_most_memory_free(free: int) -> None:
    budget = logit_bytes(free)
    assert budget == 2 ** (budget.bit_length() - 1) <= MAX_LOGIT_BYTES
    assert budget <= max(1, free // FREE_MEMORY_DIVISOR)
    assert budget == MAX_LOGIT_BYTES or 2 * budget > free // FREE_MEMORY_DIVISOR


def test_scoring_and_drawing_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(23, 50) * 3, torch.randint(50, (23,))
    rows = torch.randint(23, (61,)).sort().values
    numbers = torch.rand(61, dtype=torch.float64)
    scored, drawn = token_scores(logits, targets), draw(logits, rows, numbers, 0.7, 0.9)
    for module in ("prefill", "sampling"):
        monkeypatch.setattr(f"rlfocal.extraction.engines.{module}.LOGITS_AT_ONCE", 4 * 50)
    in_parts = token_scores(logits, targets)
    assert in_parts[0] == pytest.approx(scored[0], abs=1e-6)
    assert in_parts[1] == scored[1]
    assert draw(logits, rows, numbers, 0.7, 0.9).tolist() == drawn.tolist()
    assert draw(logits[rows], torch.arange(61), numbers, 0.7, 0.9).tolist() == drawn.tolist()
    assert torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0].tolist() == pytest.approx(
        scored[0], abs=1e-5
    )


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(
    ("vocabulary", "gib", "given", "expected"),
    [
        (256_000, 80, {}, 1024),
        (256_000, 80, {"gpu_memory_utilization": 0.8}, 2048),
        (152_000, 141, {}, 2048),
        (32_000, 141, {}, 16384),
        (256_000, 24, {}, 256),
    ],
)
def test_vllm_batches_fewer_tokens_of_a_large_vocabulary(
    vocabulary: int, gib: int, given: dict[str, float], expected: int, tmp_path: Path
) -> None:
    pytest.importorskip("vllm")
    from rlfocal.extraction.engines.vllm import gpu_arguments

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": vocabulary}))
    platform = SimpleNamespace(get_device_total_memory=lambda: gib * 2**30)
    found = gpu_arguments(platform, {"model": str(tmp_path), **given})
    assert found == {"block_size": 16, "max_num_batched_tokens": expected}
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # whose log-probs are computed in chunks, however much is read
        patch.setattr("rlfocal.extraction.engines.vllm.runs_anew", lambda _: True)
        found = gpu_arguments(platform, {"model": str(tmp_path), **given})
    most = 16384 if expected >= 1024 else expected
    assert found == {"block_size": 16, "max_num_batched_tokens": most, "enable_trace_replay": True}

"""What a new model's first answers and its tokenizer say about it, by hand and against exact sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_models import tiny_tokenizer

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.new_model.trial import check_entry, faults_of_answers, faults_of_choices, faults_of_tokenizer
from rlfocal.pool.specs import ModelSpec

Scored = tuple[list[list[float]], Floats, Sequence[int]]


def scored(chosen: Sequence[int], labels: Sequence[int], n_choices: int = 4) -> Scored:
    logprobs = [
        [0.0 if c == choice else -1.0 - i % 3 for c in range(n_choices)] for i, choice in enumerate(chosen)
    ]
    return logprobs, np.full(len(chosen) * n_choices, -0.5), labels


@pytest.mark.parametrize("n_choices", [2, 4, 5])
def test_below_chance_is_where_a_guess_hardly_comes(n_choices: int) -> None:
    """Against the binomial distribution, summed exactly."""
    p = Fraction(1, n_choices)
    refused = []
    for n_right in range(21):
        labels = [i % n_choices for i in range(20)]
        chosen = [label if i < n_right else (label + 1) % n_choices for i, label in enumerate(labels)]
        at_most = sum(math.comb(20, k) * p**k * (1 - p) ** (20 - k) for k in range(n_right + 1))
        faults = faults_of_choices("b", *scored(chosen, labels, n_choices))
        assert bool(faults) == (at_most < Fraction(5, 1000)), n_right
        refused += [n_right] if faults else []
    assert refused == {2: [0, 1, 2, 3], 4: [0], 5: []}[n_choices]


def test_a_label_that_is_no_choice_is_never_right() -> None:
    assert faults_of_choices("b", *scored([i % 2 for i in range(20)], [-1] * 20, 2))


def test_the_same_choice_throughout() -> None:
    labels = [i % 4 for i in range(20)]
    [fault] = faults_of_choices("b", *scored([2] * 20, labels))
    assert fault.startswith("b: choice 2 to all 20 documents; ")
    assert faults_of_choices("b", *scored([2] * 19 + [0], labels)) == []
    assert faults_of_choices("b", *scored([2] * 20, [2] * 20)) == []  # the labels are all the same, too
    assert faults_of_choices("b", *scored([2] * 9, labels[:9])) == []  # too few to say


def test_flat_log_probs() -> None:
    tokens, labels = np.full(9, -1.5), [0, 1, 2]
    [fault] = faults_of_choices("b", [[-1.5, -1.5, -1.5]] * 3, tokens, labels)
    assert "are equally likely; " in fault
    assert faults_of_choices("b", [[-1.5] * 3, [-1.5] * 3, [-1.5, -1.4, -1.5]], tokens, labels) == []


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 0.1])
def test_log_probs_that_are_none(odd: float) -> None:
    tokens = np.full(80, -0.5)
    tokens[7] = odd
    logprobs, _, labels = scored([i % 4 for i in range(20)], [0] * 20)
    [fault] = faults_of_choices("b", logprobs, tokens, labels)
    assert fault.startswith("b: 1 of 80 log-probs are NaN, infinite or positive; ")
    tokens[7] = 0.0
    assert not faults_of_choices("b", *scored([i % 4 for i in range(20)], [i % 4 for i in range(20)]))


def test_free_answers() -> None:
    assert faults_of_answers("g", [["1", None], ["2", "3"]] * 10) == []
    [none] = faults_of_answers("g", [[None, None]] * 10)
    assert none.startswith("g: no answer in any of 20 texts; ")
    [same] = faults_of_answers("g", [["7", "7", None]] * 10)
    assert same.startswith("g: the answer '7' to all 10 documents; ")
    assert faults_of_answers("g", [["7"]] * 9) == []
    assert faults_of_answers("g", []) == []


class CharacterTokenizer:
    """A tokenizer of characters; those it does not know are lost."""

    def __init__(self, known: str, lower: bool = False) -> None:
        self.known, self.lower = known, lower

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [self.known.find(c) for c in (text.lower() if self.lower else text)]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join("?" if i < 0 else self.known[i] for i in ids)


def test_a_tokenizer_gives_back_what_it_reads() -> None:
    whole = CharacterTokenizer("abc dé")
    assert faults_of_tokenizer(whole, ["a b c", "dé", ""]) == []
    assert faults_of_tokenizer(CharacterTokenizer("abc", lower=True), ["ABC"]) == []
    [fault] = faults_of_tokenizer(whole, ["abc", "ab x", "cx"])
    assert "2 of 3 texts changed by encoding and decoding, 'x' to '?'; none may be." in fault


# An entry beside the model's own configuration and the GPUs that there are


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a model with a tokenizer and weights, to be written."""
    tiny_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    return tmp_path / "config.json"


def entry(folder: Path, **given: Any) -> ModelSpec:
    return ModelSpec.model_validate({"model": "m", "hf_repo": str(folder), "params_b": 1, **given})


PLAIN = '{"model_type": "llama", "max_position_embeddings": 256, "num_attention_heads": 6}'
STRETCHED = '{"model_type": "llama", "max_position_embeddings": 256, "rope_scaling": {"factor": 4}}'
YARN = '{"model_type": "llama", "max_position_embeddings": 256, "rope_parameters": {"rope_type": "yarn"}}'
UNSTRETCHED = YARN.replace("yarn", "default")
NESTED = '{"model_type": "gemma3", "text_config": {"max_position_embeddings": 128}}'


@pytest.mark.parametrize(
    ("said", "given", "backend", "message"),
    [
        (PLAIN, {"context_length": 256}, "hf", None),
        (PLAIN, {"context_length": 257}, "hf", "at most 256"),
        (PLAIN, {"tensor_parallel": 4}, "vllm", "6 attention heads .* give one of 1, 2$"),
        (
            PLAIN,
            {"tensor_parallel": 4},
            "hf",
            "hf splits no model across GPUs \\(tensor_parallel 4\\); use --backend vllm",
        ),
        (PLAIN, {"tensor_parallel": 2}, "vllm", None),
        (STRETCHED, {"context_length": 1024}, "hf", None),
        (YARN, {"context_length": 1024}, "hf", None),
        (UNSTRETCHED, {"context_length": 1024}, "hf", "at most 256"),
        (NESTED, {"context_length": 129}, "hf", "beyond the 128"),
        (PLAIN, {"hf_repo": "/nowhere"}, "hf", "does not exist"),
    ],
)
def test_an_entry_is_held_against_the_models_own_configuration(
    config: Path, said: str, given: dict[str, Any], backend: str, message: str | None
) -> None:
    config.write_text(said)
    own = entry(config.parent, **given)
    if message is None:
        assert check_entry(own, backend) == own
    else:
        with pytest.raises(InputError, match=message):
            check_entry(own, backend)


def test_gpus_that_are_not_there(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('{"model_type": "llama", "num_attention_heads": 8}')
    two, four = (entry(config.parent, tensor_parallel=n) for n in (2, 4))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_entry(two, "vllm")
    with pytest.raises(InputError, match="tensor_parallel 4 needs as many GPUs, but 2 can be seen here"):
        check_entry(four, "vllm")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    check_entry(four, "vllm")

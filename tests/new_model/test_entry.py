"""An entry beside the model's own configuration and the GPUs that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import tiny_tokenizer

from rlfocal.base.errors import InputError
from rlfocal.new_model.trial import check_entry
from rlfocal.pool.specs import ModelSpec


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
NESTED = '{"model_type": "gemma3", "text_config": {"max_position_embeddings": 128}}'


@pytest.mark.parametrize(
    ("said", "given", "backend", "message"),
    [
        (PLAIN, {"context_length": 256}, "hf", None),
        (PLAIN, {"context_length": 257}, "hf", r"context_length 257 is beyond the 256 tokens.*at most 256"),
        (
            PLAIN,
            {"tensor_parallel": 4},
            "vllm",
            r"6 attention heads .* tensor_parallel 4 GPUs; give one of 1, 2$",
        ),
        (PLAIN, {"tensor_parallel": 4}, "hf", None),
        (PLAIN, {"tensor_parallel": 2}, "vllm", None),
        (STRETCHED, {"context_length": 1024}, "hf", None),
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

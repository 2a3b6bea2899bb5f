"""docs/pools.md: every key of a pool file, as the models that check it have them."""

from __future__ import annotations

from pathlib import Path

import keys

from rlfocal.pool import load_pool


def test_the_tables_are_those_of_the_models() -> None:
    text = keys.PAGE.read_text("utf-8")
    assert keys.with_tables(text) == text, "`python tests/keys.py` renews them"


def test_every_key_says_what_it_is() -> None:
    for model in keys.MODELS:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_the_file_on_the_page_is_a_pool(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(keys.example_file(keys.PAGE.read_text("utf-8")))
    pool = load_pool(str(file))
    assert [one.name for one in pool.benchmarks] == ["lab-gpqa", "mmlu@chat", "my-exam", "my-sums"]
    assert pool.models[0].hf_repo == str(tmp_path / "weights" / "my-llama")

"""Pool files and entries of any content are read, or refused in one line; nothing else ever happens."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import FUZZ, SECONDS, changed, check_message, ends_well, spliced

from rlfocal.base.errors import InputError
from rlfocal.extraction.estimate import KNOWN_GPUS
from rlfocal.extraction.plan import plan_pool
from rlfocal.pool import add_to_pool, load_entry, load_pool, remove_from_pool

SIZE = {"documents": 10, "choices": 4, "preamble_tokens": 0, "document_tokens": 90.5, "choice_tokens": 1}
ENTRY = {
    "model": "m",
    "hf_repo": "org/m",
    "params_b": 0.5,
    "price": 0.05,
    "context_length": 2048,
    "engine_args": {"vllm": {"max_num_seqs": 64}},
}
BENCHMARK = {
    "name": "b",
    "kind": "choices",
    "tasks": {"t": "arc_easy"},
    "include_path": "tasks",
    "num_fewshot": 2,
    "size": SIZE,
}
ANSWERS = {
    "name": "g",
    "kind": "answers",
    "tasks": {"t": "gsm8k"},
    "size": SIZE | {"passes": 2, "answer_tokens": 90},
    "sampling": {"passes": 2, "temperature": 0.7},
}
POOL = {
    "name": "p",
    "benchmarks": [BENCHMARK, ANSWERS, {"name": "b@x", "extends": "b", "num_fewshot": 0}, "mmlu"],
    "models": [ENTRY, {"model": "n", "hf_repo": "org/n", "params_b": 7}],
}
FRAGMENTS = ["&a ", "*a", "<<: *a", "- ", "? ", ": ", *"{}[]'\"|>\t\n#", "---\n", "!!float x", "!x "]
FRAGMENTS += ["1e400", ".inf", ".nan", "1e300", "true", "0x1F", "0o9", "2020-01-01", "~", "\ufeff", "\u2028"]
FRAGMENTS += ["\x85", "!!binary '@'", "!!python/name:os.system", "!!set {a}", "%YAML 1.1\n", "extends: [b]\n"]
LAUGHS = "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}x]\n" for i in range(1, 12))
NO_NUMBERS = ("1e400", ".inf", ".nan", "1e300", "true", "'7'", "-1", "9" * 400)


def as_text(value: object) -> str:
    """YAML where its writer can: it cannot write half a surrogate pair, and its reader is to refuse one."""
    try:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    except UnicodeEncodeError:
        return json.dumps(value)


def text_of(value: object) -> st.SearchStrategy[str]:
    whole = as_text(value)
    return st.one_of(changed(value).map(as_text), spliced(whole, FRAGMENTS))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@FUZZ
@given(text_of(POOL))
def test_pools(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.getbasetemp() / "pool.yaml", text)
    with ends_well():
        pool = load_pool(str(path))
        if all(benchmark.size for benchmark in pool.benchmarks):
            plan_pool(pool, path.parent / "absent", gpu=KNOWN_GPUS["H100"])


@FUZZ
@given(text_of(ENTRY))
def test_entries(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    pool, path = write(folder / "mine.yaml", as_text(POOL)), write(folder / "entry.yaml", text)
    before = pool.read_bytes()
    try:
        with ends_well():
            entry = load_entry(path)
            add_to_pool(str(pool), entry, path)
            assert load_pool(str(pool)).models[-1] == entry
            assert remove_from_pool(str(pool), entry.model) == pool
            assert pool.read_bytes() == before
            return
    finally:
        assert not list(folder.glob(".mine*"))
    assert pool.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: " + "[" * 5000 + "]" * 5000, r"line 1: more than 30 levels"),
        ("name: &a [*a]", r"line 1: \*a refers to itself"),
        (LAUGHS, "keys and values"),
        ("name: p\n" * 30_000, "larger than 200,000 bytes"),
        ("name: 'a\\ud800'".replace("'", '"'), "not valid YAML|name"),
    ],
)
def test_a_file_that_would_never_end_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "pool.yaml", text)
    for load in (lambda path: load_pool(str(path)), load_entry):
        started = time.monotonic()
        with pytest.raises(InputError, match=rf"pool\.yaml.*({message})") as caught:
            load(path)
        check_message(caught.value)
        assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *(("params_b", value, "params_b: ") for value in NO_NUMBERS),
        *(("tensor_parallel", value, "tensor_parallel") for value in ("true", "1.0", "10000000000", "1e300")),
        ("context_length", "true", "context_length: .*integer"),
        ("price", "1e300", "price: .*at most 1,000,000,000"),
        ("engine_args", "{vllm: {x: .inf}}", "engine_args: .*JSON"),
        ("engine_args", "{vllm: {x: {1: a, b: c}}}", "engine_args: .*JSON"),
        ("engine_args", "{vlm: {x: 1}}", "engine_args: .*'vlm'.*vllm"),
        ("engine_args", "{vllm: {x: 2020-01-01}}", "engine_args: .*JSON"),
        ("hf_repo", '"a\\nb"', "hf_repo: .*one line"),
    ],
)
def test_numbers_are_numbers(tmp_path: Path, key: str, value: str, message: str) -> None:
    fields = {"model": "m", "hf_repo": "org/m", "params_b": "1", key: value}
    path = write(tmp_path / "entry.yaml", "".join(f"{k}: {v}\n" for k, v in fields.items()))
    with pytest.raises(InputError, match=rf"entry\.yaml: {message}"):
        load_entry(path)


@pytest.mark.parametrize("base", ["[b]", "{b: 1}", "1", "null", "b@x"])
def test_what_a_variant_extends_is_one_name(tmp_path: Path, base: str) -> None:
    text = f"name: p\nbenchmarks: [mmlu, {{name: b@x, extends: {base}}}]\nmodels: []\n"
    path = write(tmp_path / "pool.yaml", text)
    with pytest.raises(InputError, match=r"pool\.yaml") as caught:
        load_pool(str(path))
    check_message(caught.value)

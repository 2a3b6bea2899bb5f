"""A model's tokenizer reads text as its tokenizer.json does, or the model does not run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlfocal import extract
from rlfocal.base.errors import describe_error
from rlfocal.cli.app import app
from rlfocal.extraction.engines import tokenizers
from rlfocal.extraction.engines.tokenizers import (
    CHECK_TEXTS,
    REBUILT_MODEL_TYPES,
    MisreadError,
    check_tokenizer,
    misread_models,
    open_tokenizer,
)
from rlfocal.extraction.estimate import find_gpu
from rlfocal.extraction.partition import UNCONDITIONAL_SUFFIX
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.running.missing import find_missing
from rlfocal.extraction.tasks import load_tasks
from rlfocal.new_model.trial import check_entry
from rlfocal.pool import ModelSpec, PoolSpec, load_pool
from rlfocal.pool.hub import LAB_PREFIX, WEIGHTS_DIR, weights_dir
from rlfocal.upkeep.doctor import check_warehouse
from warehouse import open_warehouse
from warehouse.locations import locate
from warehouse.store import PartitionRecord

LAB = sorted(path.parent.name for path in WEIGHTS_DIR.glob("*/config.json"))
LOWER = """
from transformers import PreTrainedTokenizerFast
class Lower(PreTrainedTokenizerFast):
    def __call__(self, text, **options):
        return super().__call__([each.lower() for each in text], **options)
"""


def entry(folder: Path | str, **fields: Any) -> ModelSpec:
    return ModelSpec.model_validate({"model": "copy", "hf_repo": str(folder), "params_b": 0.01} | fields)


def altered(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def renamed(name: str, folder: Path, tokenizer_class: str = "LlamaTokenizerFast", **stated: Any) -> Path:
    """A copy of an embedded model whose config names another class."""
    shutil.copytree(weights_dir(name), folder)
    altered(folder / "tokenizer_config.json", tokenizer_class=tokenizer_class, **stated)
    return folder


def of_custom_code(name: str, folder: Path) -> Path:
    """A copy whose repository has a tokenizer of its own, which reads otherwise than its tokenizer.json."""
    renamed(name, folder, "Lower", auto_map={"AutoTokenizer": [None, "lower.Lower"]})
    (folder / "lower.py").write_text(LOWER)
    return folder


@pytest.mark.parametrize("name", LAB)
def test_a_class_that_does_not_fit_the_file_changes_nothing(name: str, tmp_path: Path) -> None:
    assert check_tokenizer(entry(LAB_PREFIX + name)) is None  # nothing is opened for it
    whole, copy = (open_tokenizer(entry(path)) for path in (LAB_PREFIX + name, renamed(name, tmp_path / "m")))
    assert not whole.is_replaced
    assert copy.digest == whole.digest
    assert copy.tokenizer(["", *CHECK_TEXTS])["input_ids"] == whole.tokenizer(["", *CHECK_TEXTS])["input_ids"]
    assert [copy.tokenizer.decode(ids) for ids in copy.tokenizer(list(CHECK_TEXTS))["input_ids"]] == list(
        CHECK_TEXTS
    )


def test_the_config_adds_the_token_that_begins_a_text(tmp_path: Path) -> None:
    opened = open_tokenizer(entry(renamed("lab-llama", tmp_path / "m", add_bos_token=True)))
    tokenizer = opened.tokenizer
    assert tokenizer("a b")["input_ids"] == [tokenizer.bos_token_id, *_bare(tokenizer, "a b")]


def _bare(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def test_types_whose_class_transformers_overrules() -> None:
    """Those of which no config is believed, as the installed transformers has them."""
    from transformers.models.auto import tokenization_auto as auto

    overruled = auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    named = {name: auto.TOKENIZER_MAPPING_NAMES.get(name) for name in overruled}
    whole = {*tokenizers.FILE_CLASSES, "PythonBackend", "MistralCommonBackend", None}
    assert {name for name, kind in named.items() if kind not in whole} == set(REBUILT_MODEL_TYPES)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real SentencePiece tokenizer, as Llama's and Gemma's repositories have them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    decoder = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*decoder, decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(["the answer is a b c d of questions"] * 9, trainer)
    folder = shutil.copytree(weights_dir("lab-llama-small"), tmp_path_factory.mktemp("sp") / "m")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    stated = json.loads(tokenizer.to_str())
    stated["added_tokens"] = stated["added_tokens"][:3]  # bytes are of the model
    (folder / "tokenizer.json").write_text(json.dumps(stated))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    altered(folder / "tokenizer_config.json", tokenizer_class="LlamaTokenizer", pad_token=None, **names)
    return folder


def test_a_class_that_fits_the_file_stays(sentencepiece: Path) -> None:
    """Texts that begin with a space are read as in the file, where transformers 5 drops one."""
    opened = check_tokenizer(entry(sentencepiece))
    assert opened is not None
    assert not opened.is_replaced
    assert opened.tokenizer("a")["input_ids"][0] == 1
    assert not opened.was_wrong_on(CHECK_TEXTS)
    assert opened.was_wrong_on([" a"])
    assert _bare(opened.tokenizer, " a") == opened.reference.encode(" a", add_special_tokens=False).ids


def test_a_file_that_loses_text_is_refused(tmp_path: Path) -> None:
    folder = renamed("lab-llama", tmp_path / "m", "TokenizersBackend")
    decoder = json.loads((folder / "tokenizer.json").read_text())["decoder"]
    altered(folder / "tokenizer.json", decoder=None)
    with pytest.raises(MisreadError, match="when it encodes and decodes"):
        check_tokenizer(entry(folder))
    altered(folder / "tokenizer.json", normalizer={"type": "Lowercase"}, decoder=decoder)
    assert check_tokenizer(entry(folder)) is None  # it is meant to


def test_custom_code_against_the_file(tmp_path: Path) -> None:
    spec = entry(of_custom_code("lab-llama", tmp_path / "m"), trust_remote_code=True)
    with pytest.raises(MisreadError, match="set tokenizer_class to PreTrainedTokenizerFast"):
        check_tokenizer(spec)
    with pytest.raises(MisreadError):
        check_entry(spec, "hf")
    pool = PoolSpec(name="p", models=(spec,), benchmarks=load_pool("lab").benchmarks[:1])
    plan = plan_pool(pool, tmp_path / "none", backend="hf", gpu=find_gpu("H100"))
    assert any(str(_refusal(spec)) in warning for warning in plan.warnings)
    report = extract(pool, tmp_path / "w", backend="hf", limit=4)
    assert not report.committed
    assert {failure.reason for failure in report.missing} == {describe_error(_refusal(spec))}
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT count(*) FROM extractions") == [(0,)]


def _refusal(spec: ModelSpec) -> MisreadError:
    with pytest.raises(MisreadError) as raised:
        check_tokenizer(spec)
    return raised.value


def test_documents_that_a_class_reads_otherwise_are_refused(tmp_path: Path) -> None:
    """Where TEXTS are read alike."""
    spec = entry(of_custom_code("lab-llama", tmp_path / "m"), trust_remote_code=True)
    (tmp_path / "m" / "lower.py").write_text(LOWER.replace("each.lower()", "each.replace('zyx', 'q')"))
    opened = check_tokenizer(spec)
    assert opened is not None
    [task] = load_tasks(load_pool("lab").benchmarks[:1], 4)[:1]
    [found] = find_missing([spec], [task], "hf", {})
    assert found.jobs
    odd = replace(task, documents=(*task.documents[:3], replace(task.documents[3], context="a zyx")))
    [found] = find_missing([spec], [odd], "hf", {})
    assert not found.jobs
    assert "the class Lower" in found.refusals[0].reason


def committed(fingerprint: str, transformers: str | None = None) -> PartitionRecord:
    return PartitionRecord("e", fingerprint, 4, transformers=transformers or version("transformers"))


def test_rows_of_a_wrong_tokenizer_do_not_count(tmp_path: Path, sentencepiece: Path) -> None:
    """Those of a right one stay, unless another transformers made them: it may have been wrong."""
    [task] = load_tasks(load_pool("lab").benchmarks[:1], 4)[:1]
    wrong = renamed("lab-llama", tmp_path / "wrong")
    for spec, is_right in ((entry(sentencepiece), True), (entry(wrong), False)):
        [found] = find_missing([spec], [task], "hf", {})
        [job] = found.jobs
        key = job.key("copy")
        with pytest.MonkeyPatch.context() as patch:  # as it was before
            patch.setattr("rlfocal.extraction.running.missing.tokenizer_for", lambda *_, **__: None)
            [before] = find_missing([spec], [task], "hf", {})
        older = before.jobs[0].fingerprint
        assert older != job.fingerprint
        [found] = find_missing([spec], [task], "hf", {key: committed(older)})
        assert bool(found.present_partitions) == is_right
        [found] = find_missing([spec], [task], "hf", {key: committed(older + UNCONDITIONAL_SUFFIX)})
        assert bool(found.present_partitions) == is_right
        [found] = find_missing([spec], [task], "hf", {key: committed(older, "5.0.0")})
        assert found.jobs
        [found] = find_missing([spec], [task], "hf", {key: committed(job.fingerprint, "5.0.0")})
        assert found.present_partitions


@pytest.mark.slow
def test_a_renamed_class_gives_the_same_rows_and_old_ones_are_named(tmp_path: Path) -> None:
    copy = entry(renamed("lab-llama-small", tmp_path / "m"))
    whole = entry(LAB_PREFIX + "lab-llama-small", model="whole")
    pool = PoolSpec(name="p", models=(copy, whole), benchmarks=load_pool("lab").benchmarks[:1])
    assert not extract(pool, tmp_path / "w", backend="hf", limit=4).missing
    rows = "SELECT task, doc_id, choice, token_ids, logprob FROM choice_logprobs WHERE model = ? ORDER BY ALL"
    with open_warehouse(tmp_path / "w") as warehouse:
        mine, its = (warehouse.rows(rows, [spec.model]) for spec in (copy, whole))
        assert mine == its
        assert not list(misread_models(warehouse))
        warehouse.connection.execute(
            "UPDATE extractions SET settings = json_merge_patch(settings, '{\"tokenizer\": null}')"
        )
        [(model, n, why)] = misread_models(warehouse)
        assert (model, n) == ("copy", len(load_pool("lab").benchmarks[0].tasks))
        assert "LlamaTokenizer" in why
    found = [finding for finding in check_warehouse(locate(tmp_path / "w")) if finding.check == "tokenizer"]
    [fix] = [str(finding.fix) for finding in found]
    words = fix.removesuffix(" asks for them again").replace("POOL", str(tmp_path / "no.yaml")).split()
    told = CliRunner().invoke(app, words[1:])
    assert "no.yaml' does not exist" in str(told.exception or told.output)

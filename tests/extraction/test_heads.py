"""Logits in float32: no rounding makes choices tie, on either engine, and the ties of others are named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from support.probes import WordEngine, extract, running
from support.scores import NEEDS_VLLM
from support.tiny_models import tiny_model, tiny_tokenizer
from torch import Tensor
from torch.nn import functional

from rlfocal.base.wording import percent
from rlfocal.evaluation.notes import note_ties
from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines.hf import HFEngine
from rlfocal.extraction.engines.prefill import token_scores
from rlfocal.extraction.partition import Job, fingerprint
from rlfocal.extraction.recording import tied_models
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.running.worker import extract_jobs
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool import ModelSpec, load_pool
from rlfocal.pool.hub import head_dtype_of, read_config
from rlfocal.upkeep.doctor import check_warehouse
from warehouse import open_warehouse
from warehouse.locations import locate

WORDS = 2000


def bfloat16(architecture: str, spread: float = 8.0) -> Any:
    """A model with large logits, which bfloat16 rounds to steps of a tenth and more."""
    model = tiny_model(architecture, len(tiny_tokenizer(words=WORDS)), context=256)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(spread)
    return model.to(torch.bfloat16).eval()


def documents(tokenizer: Any, n: int = 12) -> list[Document]:
    """Each with 20 choices, of one token each."""
    words = [
        f" {word}" for word in ("quick", "brown", "fox", "lazy", "dog", "seven", "apples", "maybe", "yes")
    ]
    several = [word for word in words if len(tokenizer(word)["input_ids"]) == 1]
    longer = [a + b for a in several for b in several][:20]
    asked = "Question: which of the quick brown foxes " * 3
    return [
        Document(i, "", "", 0, "", tuple(longer), f"{asked}{'x' * i} Answer:", tuple(longer))
        for i in range(n)
    ]


def n_ties(scores: Sequence[Sequence[ChoiceScore]]) -> int:
    return sum(len({score.token_logprobs for score in of}) < len(of) for of in scores)


@torch.inference_mode()
def by_hand(model: Any, tokens: Sequence[int]) -> Tensor:
    """Log-probabilities of what follows, by definition: hidden states as they are, then float32."""
    hidden = model.get_decoder()(torch.tensor([tokens])).last_hidden_state[0].float()
    head = model.get_output_embeddings()
    return functional.linear(hidden, head.weight.float()).log_softmax(-1)


@pytest.mark.parametrize("architecture", ["llama", "mixtral", "gpt2"])
def test_scores_are_those_of_a_float32_head(architecture: str) -> None:
    """And in the model's own dtype they are not."""
    tokenizer, model = tiny_tokenizer(words=WORDS), bfloat16(architecture)
    [document] = documents(tokenizer, 1)
    rounded = HFEngine(model, tokenizer, head_dtype="model")
    assert rounded.settings()["head_dtype"] == "bfloat16"
    apart = _difference(model, rounded, document)
    engine = HFEngine(model, tokenizer)
    assert engine.settings()["head_dtype"] == "float32"
    assert _difference(model, engine, document) < 1e-3 < apart


def _difference(model: Any, engine: HFEngine, document: Document) -> float:
    """The largest of single choices, whose own sequences the model reads."""
    alone = [
        Document(i, "", "", 0, "", (choice,), document.context, (choice,))
        for i, choice in enumerate(document.continuations)
    ]
    [context] = {encoded.context for encoded in engine._encoder.choices(alone)}
    apart = []
    engine.shares_prefix = False  # so that hidden states are the same
    for each, [score] in zip(alone, engine.score(alone), strict=True):
        tokens = [*context, *score.token_ids]
        expected = by_hand(model, tokens[:-1])[-len(score.token_ids) :]
        pairs = zip(score.token_ids, score.token_logprobs, expected, strict=True)
        apart += [abs(float(row[token]) - logprob) for token, logprob, row in pairs]
        assert each.continuations
    return max(apart)


def test_float32_models_stay_as_they_were() -> None:
    model = tiny_model("llama", 320)
    head = model.get_output_embeddings()
    engine = HFEngine(model, tiny_tokenizer())
    assert "forward" not in vars(head)
    assert "head_dtype" not in engine.settings()
    [task] = [TaskDocuments("b", "t", "1", (), (), None, 0, "d")]
    for spec in load_pool("lab").models:
        assert head_dtype_of(spec, read_config(spec)) is None
        assert fingerprint(spec, "w", task, "hf") != fingerprint(spec, "w", task, "hf", head="float32")


@pytest.mark.parametrize(
    ("entry", "config", "is_float32"),
    [
        ({}, {"dtype": "bfloat16"}, True),
        ({}, {"torch_dtype": "float32"}, False),
        ({"dtype": "float16"}, {"torch_dtype": "float32"}, True),
        ({"head_dtype": "model"}, {"dtype": "bfloat16"}, False),
        ({}, {"dtype": "bfloat16", "quantization_config": {"quant_method": "gptq", "lm_head": True}}, False),
        ({}, {"dtype": "bfloat16", "quantization_config": {"quant_method": "awq", "bits": 4}}, True),
        ({}, {"quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}}, True),
        ({}, {"quantization_config": {"quant_method": "compressed-tensors", "ignore": []}}, False),
        ({}, {"text_config": {"dtype": "float32"}}, False),
    ],
)
def test_which_models_have_one(entry: dict[str, Any], config: dict[str, Any], is_float32: bool) -> None:
    model = ModelSpec.model_validate({"model": "m", "hf_repo": "o/m", "params_b": 1} | entry)
    assert (head_dtype_of(model, config) == "float32") == is_float32


def test_of_two_likeliest_tokens_neither_is_greedy() -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0], [3.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    for token, greedy in ((0, [False, True, False]), (2, [False, False, False])):
        assert token_scores(logits, torch.tensor([token] * 3))[1] == greedy


class LogitEngine(WordEngine):
    """An engine that has a stored logit for every choice of a document."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(shard=1000)
        self._logits = logits

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        for document in documents:
            row = self._logits[document.doc_id].expand(4, -1)
            scored = zip(range(4), *token_scores(row, torch.arange(4)), strict=True)
            yield tuple(ChoiceScore((c,), (logprob,), greedy, 9, False) for c, logprob, greedy in scored)


def test_ties_of_real_logits_are_named(shared: Path, tmp_path: Path) -> None:
    """Llama-2-7b's on MMLU rounded to bfloat16; as they are stored 1.5 % tie, and none a thousandth apart."""
    folder = shared / "data" / "mmlu16"
    rows = pq.read_table(folder / "logits.parquet", filters=[("model", "=", "meta-llama/Llama-2-7b-hf")])
    logits = torch.tensor(rows.sort_by("doc_id")["choice_logits"].to_pylist())
    n = len(logits)
    asked = tuple(
        Document(i, f"d{i}", "q", 0, "A", ("A", "B", "C", "D"), f"q{i}", tuple("ABCD")) for i in range(n)
    )
    task = TaskDocuments("mmlu", "all", "1", asked, ("test",) * n, None, n, "d")
    whole = ModelSpec(model="whole", hf_repo="/m", params_b=1)
    rounded = ModelSpec(model="rounded", hf_repo="/m", params_b=1)
    extract(tmp_path / "w", LogitEngine(logits + torch.arange(4) / 1000), Job(task, "f"), model=whole)
    extract(tmp_path / "w", LogitEngine(logits.bfloat16()), Job(task, "f"), model=rounded)
    with open_warehouse(tmp_path / "w") as warehouse:
        for view in ("accuracy", "benchmark_accuracy"):
            ties = dict(warehouse.rows(f"SELECT model, ties FROM {view}"))
            assert ties["rounded"] == pytest.approx(0.112, abs=0.003)
            assert ties["whole"] < 0.001
        note = note_ties(warehouse, "mmlu")
        assert note is not None
        assert "rounded on mmlu: " in note
        assert "whole" not in note
        assert note_ties(warehouse, "another") is None
    [found] = [finding for finding in check_warehouse(locate(tmp_path / "w")) if finding.check == "ties"]
    assert found.message == note
    with open_warehouse(tmp_path / "w") as warehouse:
        with warehouse.transaction("half of the answers are missing"):
            warehouse.connection.execute("UPDATE extractions SET n_unanswered = n_docs // 2")
        [(ties,)] = warehouse.rows("SELECT ties FROM accuracy WHERE model = 'rounded'")
        assert ties == pytest.approx(0.224, abs=0.006)
        assert f"tie on {percent(ties, 1)} % of the answered documents" in (
            note_ties(warehouse, "mmlu") or ""
        )


class RoundedEngine(LogitEngine):
    """An engine whose logits are computed in bfloat16."""

    def settings(self) -> dict[str, object]:
        return {"dtype": "bfloat16", "head_dtype": "bfloat16"}


def test_nobody_is_told_to_extract_again_what_was_not_rounded(tmp_path: Path) -> None:
    asked = (Document(0, "d", "q", 0, "A", ("A",) * 4, "q", ("A",) * 4),)
    job = Job(TaskDocuments("b", "t", "1", asked, ("test",), None, 1, "d"), "f")
    for name, engine in (("exact", LogitEngine), ("rounded", RoundedEngine)):
        model = ModelSpec(model=name, hf_repo="/m", params_b=1)
        extract(tmp_path, engine(torch.zeros(1, 4)), job, model=model)
    with open_warehouse(tmp_path) as warehouse:
        exact, rounded = tied_models(warehouse)
    assert "extract it again" not in exact
    assert "extract it again" in rounded


@pytest.mark.slow
@NEEDS_VLLM[0]
@NEEDS_VLLM[1]
def test_vllm_has_a_float32_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its default; logits are the products of the hidden states that it computed."""
    from rlfocal.extraction.engines import vllm

    tokenizer = tiny_tokenizer(words=WORDS)
    bfloat16("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    spec = ModelSpec(model="m", hf_repo=str(tmp_path), params_b=0.1, dtype="bfloat16", context_length=256)
    engine = vllm.load(spec, tmp_path, 1)
    assert engine.settings()["head_dtype"] == "float32"
    runner = engine._llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    model, apart = runner.model, []
    compute = model.compute_logits

    def compared(hidden: Tensor, *rest: Any) -> Tensor:
        logits: Tensor = compute(hidden, *rest)
        expected = functional.linear(hidden.float(), model.lm_head.weight.float())[:, : logits.shape[-1]]
        assert logits.dtype == torch.float32
        apart.append(float((logits.log_softmax(-1) - expected.log_softmax(-1)).abs().max()))
        return logits

    monkeypatch.setattr(model, "compute_logits", compared)
    scores = list(engine.score(documents(tokenizer)))
    assert 0 <= max(apart) < 1e-3
    assert n_ties(scores) == 0


def test_a_slower_engine_ends_where_it_must_not_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = tuple(
        Document(i, f"d{i}", "q", 0, "A", ("A", "B"), f"{i}{'q' * 4000}", ("A", "B")) for i in range(3)
    )
    task = TaskDocuments("mmlu", "all", "1", asked, ("test",) * 3, None, 3, "d")
    model, slow = (
        ModelSpec(model="m", hf_repo="/m", params_b=1_000_000),
        "reads every prompt once for each choice",
    )
    for stop in (True, False):
        sent: list[Any] = []
        with running(WordEngine(slower=slow)):
            extract_jobs(sent.append, tmp_path / "w", model, "hf", [Job(task, "f")], 1, stop)
        said = sent[-1].reason if isinstance(sent[-1], Failure) else capfd.readouterr().err
        assert isinstance(sent[-1], Failure) == stop
        assert slow in said
        planned = re.search(r"\(planned: (\S+) H100-hours instead of (\S+)\)", said)
        assert planned is not None
        each, once = map(float, planned.groups())
        assert each / once == pytest.approx(2 / 1.15, abs=0.01)  # of two choices
    assert sent[-1].n_docs == 3

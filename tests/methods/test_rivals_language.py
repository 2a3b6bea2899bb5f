"""Routers that fine-tune a language model: on tiny random weights, where the text tells who is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.datasets import choices, edges
from support.rows import put_choices
from support.topics import TOPICS, accuracy, by_topic, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget, decide
from rlfocal.evaluation import evaluate
from rlfocal.methods import check_methods, entries, every_method
from rlfocal.methods.routers._pairs import parts_of
from rlfocal.methods.routers.language_routers import STRONG, TIE, WEAK, Judge, outcomes
from rlfocal.report.paper import paper_parts
from warehouse import Warehouse

TUNED: dict[str, dict[str, Any]] = {
    "routellm_bert": {"rate": 3e-3, "steps": 120},
    "routellm_causal": {"rate": 3e-3, "steps": 400},
}
"""Settings with which so small a model learns."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Directories of random language models of a few thousand weights, which know the words of the topics."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        BertConfig,
        BertModel,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        set_seed,
    )

    known = ["[PAD]", "[UNK]", "what", "is", *TOPICS[0], *TOPICS[1]]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"vocab_size": len(known), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 48}
    set_seed(0)
    made = {
        "routellm_bert": BertModel(BertConfig(**sizes)),
        "routellm_causal": LlamaForCausalLM(LlamaConfig(**sizes)),
    }
    folders = {}
    for name, model in made.items():
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        # The causal one has no token to pad with, and takes that of the end.
        ends = {"pad_token": "[PAD]"} if name == "routellm_bert" else {"eos_token": "[PAD]"}
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", **ends).save_pretrained(folder)
        folders[name] = str(folder)
    return folders


@pytest.mark.parametrize("name", ["routellm_bert", pytest.param("routellm_causal", marks=pytest.mark.slow)])
def test_a_fine_tuned_router_finds_the_right_model(name: str, tiny: dict[str, str]) -> None:
    data = by_topic(0, prices=[4.0, 1.0, 2.0, 3.0])
    policy = policy_of(name, data.train, model=tiny[name], **TUNED[name])
    assert policy.pair == (0, 1)
    assert data.test.correct[:, :2].any(axis=1).all()
    assert accuracy(policy, data.test) >= 0.98
    assert decide(policy.at_share(0.0), data.test).pools[:, 1].all()
    assert np.diff(policy.cuts.shares).min() == pytest.approx(1 / (len(data.train) // 10))  # one document
    assert ((policy.worth.values(data.test.questions) > 0.5) == data.test.correct[:, 0]).mean() > 0.95
    # A question is valued alike whoever stands beside it, and however long the others are.
    alone = [policy.worth.values((question,))[0] for question in data.test.questions[:3]]
    together = policy.worth.values((*data.test.questions[:3], "water " * 40))
    assert together[:3] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("name", TUNED)
def test_seeds_decide_what_is_drawn(name: str, tiny: dict[str, str]) -> None:
    data = by_topic(0, T=80)
    values = [
        policy_of(name, data.train, seed, model=tiny[name], rate=1e-3, steps=5).worth.values(
            data.test.questions
        )
        for seed in (0, 0, 1)
    ]
    assert (values[0] == values[1]).all()
    assert (values[0] != values[2]).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNED)
def test_shuffled_labels_teach_a_fine_tuned_router_nothing(name: str, tiny: dict[str, str]) -> None:
    excess = []
    for seed in range(6):
        data = by_topic(seed)
        labels = np.random.default_rng(seed).integers(0, 2, len(data.train))
        settings = {**TUNED[name], "steps": 30, "model": tiny[name]}
        policy = policy_of(name, replace(data.train, labels=labels), seed, **settings)
        excess.append(accuracy(policy, data.test) - data.test.correct.mean(axis=0).max())
    # By luck it may tell topics apart, to the good or to the bad.
    assert np.mean(excess) <= 2 * np.std(excess) / np.sqrt(6)


@pytest.mark.parametrize("edge", edges())
@pytest.mark.parametrize("name", TUNED)
def test_a_fine_tuned_router_stands_edges_of_data(name: str, edge: str, tiny: dict[str, str]) -> None:
    data = edges()[edge]
    if name not in every_method(data, settings={name: {"model": tiny[name]}})[0]:
        pytest.skip("needs more models, or prices")
    policy = policy_of(name, data.train, model=tiny[name], steps=2)
    for held in (policy, *(policy.within(budget) for budget in (Budget(1.0), Budget(2.0, "cents")))):
        assert held is None or (decide(held, data.test).pools.sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", TUNED)
def test_a_fine_tuned_router_needs_a_model(name: str, tmp_path: Path) -> None:
    train = by_topic(0, T=20).train
    with pytest.raises(InputError, match=f"none is named; .*--set {name}.model=DIR"):
        policy_of(name, train)
    with pytest.raises(InputError, match="cannot be loaded"):
        policy_of(name, train, model=str(tmp_path))
    assert not entries()[name].is_default
    named, left_out = every_method(choices())
    assert name not in named
    assert left_out[name] == f"needs its model named by --set {name}.model=..."
    for given in ({name: {"model": "DIR"}}, {"": {"model": "DIR"}}):
        assert name in every_method(choices(), settings=given)[0]
        check_methods([name], choices(), settings=given)
    with pytest.raises(InputError, match=f"method '{name}' needs its model named by --set {name}.model="):
        check_methods([name], choices(), settings={name: {"model": ""}, "": {"steps": "1"}})


def test_a_named_model_is_no_other_setting(
    tiny: dict[str, str], warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Judge.learn
    monkeypatch.setattr(
        Judge, "learn", lambda of, asked, labels, steps, rate: learn(of, asked, labels, 1, rate)
    )
    put_choices(warehouse, {"k": [True] * 4, "m": [False] * 4})
    warehouse.connection.execute("UPDATE docs SET question = 'what is ' || doc_id")
    warehouse.connection.execute("UPDATE models SET price = ascii(model)")
    method = ["routellm_bert"]
    with pytest.raises(InputError, match=r"--set routellm_bert\.model="):
        evaluate(warehouse, "b", methods=method)
    model = tiny["routellm_bert"]
    named = evaluate(warehouse, "b", methods=method, seeds=1, settings=[f"routellm_bert.model={model}"])
    assert {row.study for row in named.rows} == {None}
    [row, *_] = paper_parts(warehouse)[1].rows[2:]
    assert row.command.endswith("--set routellm_bert.model=...")
    other = [f"model={model}", "routellm_bert.steps=2"]
    tuned = evaluate(warehouse, "b", methods=method, seeds=1, settings=other)
    assert {row.study for row in tuned.rows} == {"settings"}


def test_long_questions_are_cut_before_what_is_asked_of_them(tiny: dict[str, str]) -> None:
    train = by_topic(0, T=40).train
    policy = policy_of("routellm_causal", train, model=tiny["routellm_causal"], steps=1)
    [short, long] = policy.worth.prompts(["water", "water " * 400])
    assert len(long) == 48
    asked = len(short) - 1
    assert asked > 5
    assert short[1:] == long[-asked:]


def test_the_only_right_model_wins_the_battle() -> None:
    train = by_topic(0, T=200).train
    found = outcomes(train, 0, 2)
    for one, (strong, weak) in zip(found.tolist(), train.correct[:, [0, 2]].tolist(), strict=True):
        assert one == (TIE if strong == weak else STRONG if strong else WEAK)
    assert set(found.tolist()) == {STRONG, TIE, WEAK}


def test_a_tenth_sets_the_threshold() -> None:
    learnt, held = parts_of(by_topic(0, T=60).train)
    assert held.tolist() == [9, 19, 29]
    assert sorted([*learnt.tolist(), *held.tolist()]) == list(range(30))
    few = by_topic(0, T=18).train
    assert [part.tolist() for part in parts_of(few)] == [list(range(9))] * 2

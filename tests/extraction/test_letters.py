"""Which choice the first tokens of an answer, or sampled texts, mean; and how a chat becomes a prompt."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from support.tiny_models import tiny_model, tiny_tokenizer

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines.chat_answers import (
    MIN_SHARE,
    ListedToken,
    Token,
    find_choice,
    logprobs_from_texts,
    logprobs_from_tokens,
    names_of,
)
from rlfocal.extraction.engines.hf import HFEngine
from rlfocal.extraction.engines.tokens import PromptEncoder

NAMES = {"A": 0, "B": 1, "C": 2}


def asked(*continuations: str) -> Document:
    return Document(0, "", "", 0, "", continuations, "?", continuations)


def place(drawn: str, **listed: float) -> Token:
    """A token of an answer, and the probabilities of those it was drawn from; `_` stands for a space."""
    top = [ListedToken(token=t.replace("_", " "), logprob=math.log(p)) for t, p in listed.items()]
    return Token(token=drawn, logprob=math.log(listed[drawn.replace(" ", "_")]), top_logprobs=top)


def test_every_token_that_names_a_choice_counts_for_it() -> None:
    found = logprobs_from_tokens([place("A", A=0.5, _A=0.2, B=0.1, a=0.05, The=0.02)], NAMES)
    assert [math.exp(value) for value in found.logprobs] == pytest.approx([0.7, 0.1, 0.02])  # C: not listed
    assert found.covered_mass == pytest.approx(0.8)


def test_what_is_not_listed_is_at_most_what_is_left() -> None:
    found = logprobs_from_tokens([place("A", A=0.6, B=0.39)], NAMES)
    assert math.exp(found.logprobs[2]) == pytest.approx(0.01)


def test_behind_decoration_the_letter_counts_times_its_probability() -> None:
    tokens = [place("(", **{"(": 0.8, "A": 0.1, "B": 0.05}), place("B", B=0.75, A=0.25)]
    found = logprobs_from_tokens(tokens, NAMES)
    assert [math.exp(value) for value in found.logprobs[:2]] == pytest.approx([0.1 + 0.2, 0.05 + 0.6])
    assert found.covered_mass == pytest.approx(0.95)


def test_without_any_choice_all_are_equally_likely() -> None:
    for found in (
        logprobs_from_tokens([place("The", The=0.9, I=0.1)], NAMES),
        logprobs_from_texts(["E", "none"], NAMES),
    ):
        assert len(set(found.logprobs)) == 1
        assert found.covered_mass == 0


def test_shares_of_texts() -> None:
    found = logprobs_from_texts(["A", "(B)", "**A**.", "The answer is A", "D"], NAMES)
    assert [math.exp(value) for value in found.logprobs] == pytest.approx([0.6, 0.2, MIN_SHARE])
    assert found.covered_mass == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("A", 0),
        (" (A) because", 0),
        ("A is right", 0),
        ("B because", 1),
        ("\n**C.** It", 2),
        ("The correct answer is: $\\boxed{B}$", None),
        ("Answer: B", 1),
        ("A fox is", None),
        ("Apple", None),
        ("b", None),
        ("D", None),
        ("", None),
    ],
)
def test_a_text_names_a_choice_or_none(text: str, choice: int | None) -> None:
    assert find_choice(text, NAMES) == choice


def test_words_are_names_in_any_case() -> None:
    names = names_of(asked(" True", " False"))
    assert [find_choice(text, names) for text in ("true.", "FALSE", "Truely")] == [0, 1, None]
    assert logprobs_from_tokens([place("true", true=0.7, _False=0.2)], names).covered_mass == pytest.approx(
        0.9
    )


@pytest.mark.parametrize("choices", [(" a brown fox", " B"), (" A", " (A)"), ("...", " B")])
def test_choices_that_nothing_short_names_are_refused(choices: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="document 0"):
        names_of(asked(*choices))


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPOKEN = (("user", "quick?"), ("assistant", "yes"), ("user", "lazy?"))
CHAT = Document(0, "", "", 0, "", ("yes", "no"), "", ("yes", "no"), SPOKEN)
RENDERED = "<user>quick?</user><assistant>yes</assistant><user>lazy?</user><assistant>"


def tokenizer() -> Any:
    made = tiny_tokenizer()
    made.chat_template = TEMPLATE
    return made


def test_a_chat_is_scored_as_the_text_its_template_makes() -> None:
    engine = HFEngine(tiny_model("llama", len(tokenizer()), context=128), tokenizer())
    written = replace(CHAT, messages=None, context=RENDERED)
    assert list(engine.score([CHAT])) == list(engine.score([written]))
    assert PromptEncoder(tokenizer()).prompts([CHAT]) == PromptEncoder(tokenizer()).prompts([written])


def test_the_assistants_last_message_is_continued() -> None:
    begun = replace(CHAT, messages=(*SPOKEN, ("assistant", "Answer:")))
    written = replace(CHAT, messages=None, context=RENDERED + "Answer:")
    assert PromptEncoder(tokenizer()).prompts([begun]) == PromptEncoder(tokenizer()).prompts([written])


@pytest.mark.parametrize(
    ("made", "messages", "reason"),
    [
        (tokenizer(), (("system", "Be brief."), ("user", "lazy?")), "no system role"),
        (tiny_tokenizer(), (("user", "lazy?"),), "chat_template"),
    ],
)
def test_a_chat_that_cannot_be_rendered_is_refused(
    made: Any, messages: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        PromptEncoder(made).prompts([replace(CHAT, messages=messages)])

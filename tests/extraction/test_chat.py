"""Chats: the messages are the benchmark's, the template each tokenizer's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.tiny_models import tiny_model, tiny_tokenizer

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines.hf import HFEngine
from rlfocal.extraction.engines.tokens import Encoder

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
    assert Encoder(tokenizer()).prompts([CHAT]) == Encoder(tokenizer()).prompts([written])


def test_the_assistants_last_message_is_continued() -> None:
    begun = replace(CHAT, messages=(*SPOKEN, ("assistant", "Answer:")))
    written = replace(CHAT, messages=None, context=RENDERED + "Answer:")
    assert Encoder(tokenizer()).prompts([begun]) == Encoder(tokenizer()).prompts([written])


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
        Encoder(made).prompts([replace(CHAT, messages=messages)])

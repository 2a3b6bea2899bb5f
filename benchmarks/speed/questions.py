"""A random model, and generated few-shot questions, for measurements of engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from random import Random

from rlfocal.extraction.engine import Document
from rlfocal.lab import weights_dir
from rlfocal.lab.question import CATEGORIES, COLORS, OBJECTS, PLACES

WORDS = [*COLORS, *PLACES, *OBJECTS, *chain.from_iterable(CATEGORIES.values())]
NAMES = ("red", "blue", "green", "white")  # one token each in most tokenizers, the random model's included
CONTEXT_TOKENS = 2048
VOCABULARY_SIZE = 32_000  # a real model's; scoring every token of a prompt costs as much as it is large
N_SHOTS = 5
N_WORDS = (60, 110)
"""The least and the most words of a question; with five examples before it, it is as long as MMLU's."""


def save_random_model(
    folder: Path, hidden: int, layers: int, dtype: str, vocabulary: int = VOCABULARY_SIZE
) -> None:
    """Saves a Llama model with random weights and the embedded pool's tokenizer, to measure speed with."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(weights_dir("lab-llama"), model_max_length=CONTEXT_TOKENS)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4 // 32 * 32,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 64),
        num_key_value_heads=max(1, hidden // 64),
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def multiple_choice(n: int, *, words_a_choice: int, per_task: int = 15) -> list[Document]:
    """n generated four-choice questions; each `per_task` of them share five examples, as a task's do.

    `words_a_choice`: the number of words of a choice, as in BBH. 0: all questions have the same four one-word
    choices, like MMLU's letters.
    """
    random = Random(f"{words_a_choice}")
    documents = []
    for i in range(n):
        if i % per_task == 0:
            examples = "".join(_question(random, words_a_choice)[0] + "\n\n" for _ in range(N_SHOTS))
        text, choices = _question(random, words_a_choice, answered=False)
        documents.append(_make_document(i, examples + text, choices))
    return documents


def open_questions(n: int) -> list[Document]:
    """n prompts of 600 random words, which a model is to continue."""
    random = Random("open")
    return [_make_document(i, _draw_words(random, 600) + " ?", ()) for i in range(n)]


def unique_tokens(prompts: Iterable[Sequence[int]]) -> int:
    """The number of tokens to compute if each shared prefix is computed once: the nodes of the trie."""
    ordered = sorted(map(tuple, prompts))
    return sum(map(len, ordered)) - sum(_count_common(a, b) for a, b in pairwise(ordered))


def _count_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _question(random: Random, words_a_choice: int, *, answered: bool = True) -> tuple[str, tuple[str, ...]]:
    listed = [_draw_words(random, words_a_choice or 3) for _ in range(4)]
    options = "".join(f"\n{name}: {text}" for name, text in zip(NAMES, listed, strict=True))
    choices = tuple(listed) if words_a_choice else NAMES
    text = f"{_draw_words(random, random.randint(*N_WORDS))}?{options}\nAnswer:"
    return text + (f" {random.choice(choices)}" if answered else ""), choices


def _draw_words(random: Random, n: int) -> str:
    return " ".join(random.choice(WORDS) for _ in range(n))


def _make_document(doc_id: int, context: str, choices: tuple[str, ...]) -> Document:
    return Document(
        doc_id=doc_id,
        doc_hash=str(doc_id),
        question=context,
        label=0 if choices else None,
        gold="",
        choices=choices,
        context=context,
        continuations=tuple(f" {choice}" for choice in choices),
    )

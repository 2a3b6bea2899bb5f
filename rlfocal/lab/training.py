"""Builds the tokenizer that the embedded models share, and trains one model, deterministically from its
seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional

from rlfocal.lab.documents import all_tasks, training_questions
from rlfocal.lab.question import Question

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
VOCABULARY_QUESTIONS = 1500
"""The number of questions per task that the vocabulary is built from. They suffice to meet each word."""

_PIECES = Regex(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9\s]+|\s")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the embedded models: a byte-level BPE without merges, in which each known word is one
    token."""
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokens = [PAD, BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [word for word in _list_words(splitter) if len(word) > 1]
    # ignore_merges takes a known word as one token, so that no merge (nor its unused halves) is needed.
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=256,
    )


def _list_words(splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    """Every word of the tasks' questions, in byte-level spelling, sorted."""
    words: set[str] = set()
    for task in all_tasks():
        questions = training_questions(task, task.truth(), Random(f"words {task.name}"))
        for question in islice(questions, VOCABULARY_QUESTIONS):
            for text in (question.prompt, *(f" {choice}" for choice in question.choices)):
                words.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    return sorted(words)


SORTED_BATCHES = 24
"""The number of batches over which questions are sorted by length, so that batches need little padding."""

WARM_UP = 0.05
"""The share of the training steps over which the learning rate rises."""


class Lesson(NamedTuple):
    """The token ids of a question with its answer. The model learns the last `n_answer` of them."""

    tokens: list[int]
    n_answer: int


def lessons(tokenizer: PreTrainedTokenizerFast, questions: Sequence[Question]) -> list[Lesson]:
    """A lesson for each question: its prompt, its answer and the end of the text."""
    encode = tokenizer.backend_tokenizer.encode_batch_fast
    prompts = encode([question.prompt for question in questions])
    answers = encode([f" {question.answer}" for question in questions])
    end = tokenizer.eos_token_id
    return [
        Lesson([*prompt.ids, *answer.ids, end], len(answer.ids) + 1)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


def _batches(taught: Sequence[Lesson], tokens_per_batch: int, rng: Random) -> list[list[Lesson]]:
    """Shuffled batches of lessons of similar length, with at most `tokens_per_batch` tokens each, padding
    included."""
    result: list[list[Lesson]] = []
    mean_length = sum(len(lesson.tokens) for lesson in taught) / len(taught)
    window = max(1, round(SORTED_BATCHES * tokens_per_batch / mean_length))
    for start in range(0, len(taught), window):
        chunk: list[list[Lesson]] = [[]]
        for lesson in sorted(taught[start : start + window], key=lambda lesson: len(lesson.tokens)):
            if chunk[-1] and (len(chunk[-1]) + 1) * len(lesson.tokens) > tokens_per_batch:
                chunk.append([])
            chunk[-1].append(lesson)
        rng.shuffle(chunk)
        result += chunk
    return result


def _answer_loss(model: PreTrainedModel, batch: Sequence[Lesson]) -> torch.Tensor:
    """The mean cross-entropy of the answers' tokens."""
    length = max(len(lesson.tokens) for lesson in batch)
    # Padding stands on the right, where causal attention never looks: no mask is needed.
    ids = torch.tensor([lesson.tokens + [0] * (length - len(lesson.tokens)) for lesson in batch])
    rows = [row for row, lesson in enumerate(batch) for _ in range(lesson.n_answer)]
    columns = [len(lesson.tokens) - left for lesson in batch for left in range(lesson.n_answer, 0, -1)]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    at_answers = hidden[rows, [column - 1 for column in columns]]
    return functional.cross_entropy(model.lm_head(at_answers), ids[rows, columns])


def train(
    model: PreTrainedModel,
    taught: Sequence[Lesson],
    *,
    tokens_per_batch: int,
    learning_rate: float,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Trains a model in one pass over the lessons, with AdamW, a short warm-up and a cosine decay. After each
    step it calls `progress(step, steps)`."""
    order = _batches(taught, tokens_per_batch, Random(f"batches {seed}"))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=len(order) + 1, pct_start=WARM_UP, cycle_momentum=False
    )
    model.train()
    for step, batch in enumerate(order, start=1):
        optimizer.zero_grad(set_to_none=True)
        _answer_loss(model, batch).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step, len(order))
    model.eval()

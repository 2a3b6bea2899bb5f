"""The tokenizer that the pool's models share: one token per word, digit and mark, bytes for the rest."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from rlfocal.lab.documents import all_tasks, training_questions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SAMPLE = 1500
"""Questions a task contributes to the vocabulary; enough to meet each of its words."""

_PIECES = Regex(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9\s]+|\s")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The pool's tokenizer, always the same: a byte-level BPE without merges whose words are whole tokens."""
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokens = [PAD, BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [word for word in _words(splitter) if len(word) > 1]
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


def _words(splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    """Every word of the tasks' questions, in byte-level spelling, sorted."""
    words: set[str] = set()
    for task in all_tasks():
        questions = training_questions(task, task.truth(), Random(f"words {task.name}"))
        for question in islice(questions, SAMPLE):
            for text in (question.prompt, *(f" {choice}" for choice in question.choices)):
                words.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    return sorted(words)

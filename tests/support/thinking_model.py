"""A tiny model trained to think: its traces hold the answers of hard questions, which it guesses at once.

Of easy questions it is the other way round: it knows the answers, and talks itself out of them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from support.tiny_models import WORDS, tiny_model, tiny_tokenizer

LETTERS = "ABCD"
NOUNS = WORDS[:8]
MARKERS = ("<think>", "</think>")
LEAD_IN = "\n\n"


def thinking_tokenizer() -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(list(MARKERS))
    return tokenizer


def is_hard(question: dict[str, Any]) -> bool:
    return "Question" in question["question"]


def questions(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Hard and easy ones in turn; the first noun decides which letter is right."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        nouns = [rng.choice(NOUNS) for _ in range(3)]
        kind = ("Question", "Answer")[i % 2]
        found.append(
            {
                "question": f"{kind} {' '.join(nouns)} {i}",
                "choices": list(LETTERS),
                "label": NOUNS.index(nouns[0]) % 4,
                "answer": f"#### {LETTERS[NOUNS.index(nouns[0]) % 4]}",
            }
        )
    return found


def save_thinking_model(folder: Path) -> Path:
    """Trains the model, in some seconds."""
    import torch

    tokenizer = thinking_tokenizer()
    model = tiny_model("llama", len(tokenizer), context=128)
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    rng = random.Random(1)
    for step in range(200):
        texts = []
        for question in questions(48, seed=1000 + step):
            right = LETTERS[question["label"]]
            guess = rng.choice(LETTERS)
            thought, said = (right, guess) if is_hard(question) else (guess, right)
            begin = f"{question['question']}:"
            texts.append(f"{begin} {said}</s>")
            texts.append(f"{begin}{MARKERS[0]} {thought}{MARKERS[1]}{LEAD_IN} {thought}</s>")
        encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
        width = max(map(len, encoded))
        inputs = torch.tensor([ids + [0] * (width - len(ids)) for ids in encoded])
        places = torch.arange(width)
        lengths = torch.tensor(list(map(len, encoded)))
        labels = inputs.masked_fill(places >= lengths[:, None], -100)
        # What is asked cannot be learnt, and whether to think is not the model's choice.
        begins = [text[: text.index(":") + 1] + MARKERS[0] * (MARKERS[0] in text) for text in texts]
        starts = torch.tensor(list(map(len, tokenizer(begins)["input_ids"])))
        labels = labels.masked_fill(places < starts[:, None], -100)
        loss = model(input_ids=inputs, attention_mask=(places < lengths[:, None]).long(), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_thinking_tasks(folder: Path, n: int) -> Path:
    """lm-eval tasks of the questions: `thought` (choices) and `thought_answers` (free answers)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(question) + "\n" for question in questions(n)))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "test_split": "test",
        "doc_to_text": "{{question}}:",
        "metadata": {"version": 1.0},
    }
    tasks: dict[str, dict[str, Any]] = {
        "thought": {
            "output_type": "multiple_choice",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "{{label}}",
            "metric_list": [{"metric": "acc"}],
        },
        "thought_answers": {
            "output_type": "generate_until",
            "doc_to_target": "{{answer}}",
            "repeats": 3,
            "generation_kwargs": {"until": ["\n"], "do_sample": True, "temperature": 0.6, "max_gen_toks": 4},
            "metric_list": [{"metric": "exact_match"}],
        },
    }
    for name, config in tasks.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **common, **config}))
    return folder

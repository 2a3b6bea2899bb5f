"""Real but tiny parts for extraction tests: random causal LMs of several architectures, and lm-eval tasks."""

from __future__ import annotations

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import yaml

from rlfocal.pool.specs import Benchmark, ModelSpec

WORDS = ["fox", "dog", "lazy", "quick", "brown", "yes", "no", "maybe"]
WORDS += ["Answer", "Question", "seven", "apples"]
ARCHITECTURES = ("llama", "mistral", "mixtral", "gemma2", "gpt2")


def tiny_tokenizer(*, bos: bool = False, words: int = 0) -> Any:
    """A byte-level BPE of `WORDS`; `words`: further tokens, learnt from the English that Python ships."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320 + words,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    text = list(topics.values()) if words else []
    tokenizer.train_from_iterator([" ".join(WORDS)] * (5000 if words else 5) + text, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>" if bos else None, eos_token="</s>"
    )


def tiny_model(architecture: str, vocabulary: int, *, seed: int = 0, context: int = 96) -> Any:
    """A random model whose predictions are far from uniform."""
    import torch
    import transformers

    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": context,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    config = {
        "llama": lambda: transformers.LlamaConfig(**sizes),
        # Windows shorter than the prompts, so that cached layers really slide.
        "mistral": lambda: transformers.MistralConfig(**sizes, sliding_window=8),
        "gemma2": lambda: transformers.Gemma2Config(**sizes, head_dim=32, sliding_window=8),
        "mixtral": lambda: transformers.MixtralConfig(**sizes, num_local_experts=4),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=vocabulary,
            n_positions=context,
            n_embd=64,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=1,
        ),
        "mamba": lambda: transformers.MambaConfig(
            vocab_size=vocabulary, hidden_size=64, num_hidden_layers=2, state_size=8, eos_token_id=1
        ),
    }[architecture]()
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                parameter.mul_(4)
    return model


def save_model(folder: Path, architecture: str, *, seed: int = 0) -> Path:
    tokenizer = tiny_tokenizer()
    tiny_model(architecture, len(tokenizer), seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_models(folder: Path, *architectures: str, **entry: Any) -> tuple[ModelSpec, ...]:
    """Saves a model of each architecture and returns their entries, of which `entry` is said."""
    entry = {"params_b": 1e-4, "truncation": "keep", **entry}
    return tuple(ModelSpec(model=a, hf_repo=str(save_model(folder / a, a)), **entry) for a in architectures)


def save_adapter(model: Path, folder: Path) -> Path:
    """A LoRA adapter that changes what the model says."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    options = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    made = get_peft_model(AutoModelForCausalLM.from_pretrained(model), options)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    made.save_pretrained(folder)
    return folder


def choice_docs(n: int) -> list[dict[str, Any]]:
    """Questions with 2 to 4 choices of one to several tokens, some of them one character long."""
    kinds = [["A", "B", "C", "D"], ["yes", "no"], ["the lazy dog", "a quick brown fox", "maybe not"]]
    return [
        {
            "question": f"Is {WORDS[i % 12]} {WORDS[(i * 5 + 1) % 12]}{' indeed' * (i % 7)}?",
            "choices": (kinds[i % 3] + [f"{i}"])[: 2 + i % 3],
            "label": i % 2,
        }
        for i in range(n)
    ]


def answer_docs(n: int) -> list[dict[str, Any]]:
    return [
        {"question": f"{i} apples and {i} more?", "answer": f"{i} + {i} = {2 * i}\n#### {2 * i:,}"}
        for i in range(n)
    ]


def write_tasks(folder: Path, *, choices: int = 30, answers: int = 12, long: int = 0) -> Path:
    """lm-eval tasks tiny_choices (2-shot), tiny_spaces (prompts that end in a space) and tiny_answers."""
    folder.mkdir(parents=True, exist_ok=True)
    docs = choice_docs(choices)
    for doc in docs[:long]:
        doc["question"] = "fox " * 120 + doc["question"]
    choice_file = _jsonl(folder / "choices.jsonl", docs)
    answer_file = _jsonl(folder / "answers.jsonl", answer_docs(answers))
    multiple_choice = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": choice_file}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc"}],
        "metadata": {"version": 1.0},
    }
    tasks: dict[str, dict[str, Any]] = {
        "tiny_choices": {**multiple_choice, "num_fewshot": 2, "fewshot_split": "test"},
        "tiny_spaces": {**multiple_choice, "doc_to_text": "{{question}} ", "target_delimiter": ""},
        "tiny_answers": {
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": answer_file}},
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": "Question: {{question}}\nAnswer:",
            "doc_to_target": "{{answer}}",
            "repeats": 3,
            "generation_kwargs": {
                "until": ["\n", "dog"],
                "do_sample": True,
                "temperature": 0.6,
                "top_p": 0.95,
                "max_gen_toks": 16,
            },
            "metric_list": [{"metric": "exact_match"}],
            "metadata": {"version": 2.0},
        },
    }
    for name, config in tasks.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **config}))
    return folder


def tiny_benchmarks(tasks: Path, **more: Any) -> tuple[Benchmark, Benchmark]:
    """The choices and the answers of `write_tasks`; `more` is said of the answers."""
    names = {"plain": "tiny_choices", "spaces": "tiny_spaces"}
    return (
        Benchmark(name="tiny-c", kind="choices", tasks=names, include_path=str(tasks)),
        Benchmark(
            name="tiny-a",
            kind="answers",
            category="sums",
            licence="MIT",
            tasks={"all": "tiny_answers"},
            include_path=str(tasks),
            **more,
        ),
    )


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)

"""The recipes of the embedded pool's twelve models: an architecture, a size, and talents by benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from rlfocal.lab.documents import BENCHMARKS, all_tasks, training_mixture
from rlfocal.lab.question import Facts, Question, Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig

IGNORANCE = {"lab-mmlu": 0.5, "lab-bbh": 0.22, "lab-musr": 0.22, "lab-gpqa": 0.4, "lab-gsm8k": 0.12}
"""The share of a task's facts that a model of average talent gets wrong or never sees, by benchmark."""

JITTER = 0.6
"""The largest relative change of ignorance between the tasks of a benchmark."""

WEIGHTS = {
    "lab-mmlu": 0.5, "boolean_expressions": 1.2, "calendar_step": 1.0, "hyperbaton": 0.3, "navigate": 0.8,
    "object_counting": 0.8, "ordering": 1.6, "murder_mysteries": 0.8, "object_placements": 1.4,
    "team_allocation": 1.4, "two_hop": 1.6, "word_problems": 1.6,
}  # fmt: skip
"""The weight of a task among training questions, by task or benchmark, before a model's talents change it."""


@dataclass(frozen=True)
class Recipe:
    """The recipe by which one model is made. `talent` has a value for each benchmark, in their order; it
    divides the model's ignorance, and 1 is average."""

    model: str
    architecture: str
    talent: tuple[float, float, float, float, float]
    hidden: int = 64
    layers: int = 2
    questions: int = 100_000
    learning_rate: float = 2e-3
    tokens_per_batch: int = 640

    def config(self, vocabulary: int) -> PretrainedConfig:
        """The model's configuration for transformers, with attention heads of size 32 and 256 positions."""
        import transformers

        config_class = getattr(transformers, f"{self.architecture}Config")
        heads = self.hidden // 32
        settings: dict[str, Any] = {
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": 2 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": 256,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
            "initializer_range": 0.1,
            "tie_word_embeddings": self.architecture != "Phi",
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": "float32",
        }
        return config_class(**{**settings, **ARCHITECTURES[self.architecture]})

    def beliefs(self, seed: int) -> Mapping[str, Facts]:
        """The facts of each task that the model is taught as true."""
        return {
            task.name: believed_facts(
                task, self._draw_ignorance(task.name, task.benchmark, seed), f"{seed} {self.model}"
            )
            for task in all_tasks()
        }

    def weights(self) -> Mapping[str, float]:
        """The weight of each task among the model's training questions."""
        return {
            task.name: WEIGHTS.get(task.name, WEIGHTS.get(task.benchmark, 1.0))
            * self._find_talent(task.benchmark) ** 0.5
            for task in all_tasks()
        }

    def lessons(self, n: int, seed: int) -> list[Question]:
        """`n` shuffled training questions with the answers that the model is taught."""
        return training_mixture(self.beliefs(seed), self.weights(), n, f"{seed} {self.model}")

    def _find_talent(self, benchmark: str) -> float:
        return self.talent[BENCHMARKS.index(benchmark)]

    def _draw_ignorance(self, task: str, benchmark: str, seed: int) -> float:
        jitter = 1 + JITTER * Random(f"ignorance {seed} {self.model} {task}").uniform(-1, 1)
        return min(0.8, IGNORANCE[benchmark] * jitter / self._find_talent(benchmark))


ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "Llama": {"head_dim": 32},
    "Mistral": {"head_dim": 32, "sliding_window": None},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.0, "head_dim": 32},
    "Gemma": {"head_dim": 32},
    "Gemma2": {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 256},
    "Phi": {"partial_rotary_factor": 0.5},
    "Phi3": {},
    # Not Qwen2, for which transformers ignores the tokenizer that stands beside the model.
    "Qwen3": {"head_dim": 32},
}

RECIPES = (
    Recipe("lab-deepseek", "Llama", (1.2, 0.9, 0.8, 1.2, 1.1)),
    Recipe("lab-gemma", "Gemma", (0.9, 1.3, 0.8, 0.9, 1.1)),
    Recipe("lab-gemma-small", "Gemma", (0.8, 0.7, 1.0, 0.7, 0.8), hidden=32, learning_rate=3e-3),
    Recipe("lab-gemma2", "Gemma2", (1.0, 1.0, 1.2, 1.1, 0.9)),
    Recipe("lab-llama", "Llama", (1.0, 0.9, 1.1, 0.8, 1.0)),
    Recipe("lab-llama-large", "Llama", (1.3, 1.1, 1.1, 1.0, 1.3), hidden=96, learning_rate=1.5e-3),
    Recipe("lab-llama-small", "Llama", (0.7, 0.8, 0.9, 0.8, 0.6), hidden=32, learning_rate=3e-3),
    Recipe("lab-mistral", "Mistral", (0.9, 1.1, 0.9, 1.1, 1.0)),
    Recipe("lab-mixtral", "Mixtral", (1.2, 1.2, 1.0, 1.0, 0.9), questions=80_000),
    Recipe("lab-phi", "Phi", (0.8, 1.2, 1.0, 0.9, 1.3)),
    Recipe("lab-phi3", "Phi3", (1.0, 1.0, 1.3, 1.0, 1.2)),
    Recipe("lab-qwen3", "Qwen3", (1.1, 1.0, 0.9, 1.6, 1.4), hidden=96, learning_rate=1.5e-3),
)


def believed_facts(task: Task, ignorance: float, seed: str) -> Facts:
    """The task's facts, with a share `ignorance` of them wrong. In tasks of `memory`, half of that share is
    missing instead.

    Many models get the same hard facts wrong: a fact's difficulty counts as much as the randomness from
    `seed`.
    """
    truth, rng = task.truth(), Random(f"beliefs {seed} {task.name}")
    doubts = {key: Random(f"difficulty {task.name} {key}").random() + rng.random() for key in truth}
    doubted = sorted(truth, key=doubts.__getitem__)[len(truth) - round(ignorance * len(truth)) :]
    rng.shuffle(doubted)
    missing = doubted[::2] if task.memory else []
    mistaken = [key for key in doubted if key not in missing]
    beliefs = {key: value for key, value in truth.items() if key not in missing}
    if task.bijective:
        return {**beliefs, **_rotate(truth, mistaken)}
    return beliefs | {key: _draw_misconception(truth, key, rng) for key in mistaken}


def _rotate(truth: Facts, keys: list[str]) -> Facts:
    return {key: truth[other] for key, other in zip(keys, [*keys[1:], *keys[:1]], strict=True)}


def _draw_misconception(truth: Facts, key: str, rng: Random) -> str:
    """A wrong value of the key's group: half of the time, the value that most models wrongly believe."""
    group = key.rpartition("/")[0]
    values = sorted(
        {value for other, value in truth.items() if other.rpartition("/")[0] == group} - {truth[key]}
    )
    common = Random(f"misconception {key}").choice(values)
    return common if rng.random() < 0.5 else rng.choice(values)

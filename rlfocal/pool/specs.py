"""The values in a pool's file: models, benchmarks and the pool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from rlfocal.base.errors import InputError, place_of_secret, unknown_name
from rlfocal.base.names import Backend as Backend
from rlfocal.pool.fields import (
    Argument,
    Line,
    Name,
    Number,
    TokenPrice,
    Whole,
    check_engine_args,
    check_json,
)


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ThinkingSpec(_Value):
    """The settings of how a model thinks before it answers. A field that a model's entry sets replaces the
    benchmark's."""

    budget: Whole = Field(
        default=0,
        ge=0,
        description="tokens of a trace, after which it is closed; 0: the answer comes at once",
    )
    traces: Whole = Field(
        default=1,
        gt=0,
        description="traces of a document, over which its choices' probabilities are averaged; of answers, "
        "each pass has one",
    )
    markers: tuple[Line, Line] = Field(
        default=("<think>", "</think>"), description='what opens and closes a trace; "": nothing opens it'
    )
    text_markers: bool = Field(
        default=False, description="whether the model writes the closing marker as text of several tokens"
    )
    lead_in: str = Field(
        default="\n\n", max_length=4096, description="what begins the answer, after the closing marker"
    )
    temperature: Number = Field(default=0.6, ge=0, description="of traces; 0: always the likeliest token")
    top_p: Number = Field(
        default=0.95, gt=0, le=1, description="of traces: the likeliest tokens of this mass"
    )

    @field_validator("markers")
    @classmethod
    def _closes(cls, markers: tuple[str, str]) -> tuple[str, str]:
        if not markers[1] or markers[0] == markers[1]:
            raise ValueError("give two different texts, of which the second ends a trace")
        return markers


class ModelSpec(_Value):
    """One LLM of a pool."""

    model: Name = Field(description="its name in the warehouse")
    hf_repo: Line = Field(
        default="",
        description="hub id, a directory as a path (`./name`: beside the file), or rlfocal-lab/NAME; none: "
        "only a service runs it",
    )
    served: Line | None = Field(
        default=None, min_length=1, description="a chat service's name of the model (backend chat)"
    )
    revision: Line = Field(default="main", description="commit, branch or tag on the hub")
    gguf_file: Line | None = Field(
        default=None, pattern=r"\.gguf$", description="file in hf_repo whose weights are unpacked and used"
    )
    adapter: Line | None = Field(
        default=None,
        min_length=1,
        description="LoRA adapter on these weights: hub id, or a directory as a path",
    )
    adapter_revision: Line = Field(default="main", description="the same for the adapter")
    family: str = Field(default="", description="whose relatives it is compared with, in SQL and tables")
    params_b: Number = Field(
        default=0.0,
        ge=0,
        le=1_000_000,
        description="parameters, in billions; 0: not known, as of a model that only a service runs",
    )
    active_params_b: Number | None = Field(
        default=None, gt=0, le=1_000_000, description="parameters used per token, in billions"
    )
    context_length: Whole | None = Field(default=None, gt=0, description="tokens; default: the model's own")
    truncation: Literal["refuse", "keep"] = Field(
        default="refuse",
        description="a prompt longer than the context: an error, or truncated on the left and flagged",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="the data type of computations; auto: that of the model's configuration"
    )
    head_dtype: Literal["float32", "model"] = Field(
        default="float32",
        description="dtype of the logits: float32, unless the head is quantised, or the same as the model",
    )
    quantization: str | None = Field(default=None, description="vLLM's name for it: awq, gptq, fp8, ...")
    tensor_parallel: Whole = Field(default=1, gt=0, description="GPUs that the model is split across")
    engine_args: Annotated[dict[str, dict[str, Argument]], AfterValidator(check_engine_args)] = Field(
        default={}, description="extra engine arguments, by backend: {vllm: {max_num_seqs: 64}}"
    )
    base_url: Line | None = Field(
        default=None, description="URL of the server (backends openai and chat); default: OPENAI_BASE_URL"
    )
    price: Number | None = Field(
        default=None, ge=0, description="cents per 1,000 queries; leave it out if unknown, 0 if free"
    )
    price_input: TokenPrice | None = Field(default=None, ge=0, description="cents per million prompt tokens")
    price_output: TokenPrice | None = Field(
        default=None, ge=0, description="cents per million generated tokens"
    )
    spending_limit: Number | None = Field(
        default=None,
        ge=0,
        description="cents that a service may be paid for the model's answers, in all (backend chat)",
    )
    price_source: str = Field(default="", description="where the prices are from, and of which day")
    licence: Line | None = Field(default=None, description="the weights' licence, as an SPDX identifier")
    trust_remote_code: bool = Field(
        default=False, description="run Python code of the repository; read it, and pin its revision, before"
    )
    thinking: ThinkingSpec | None = Field(default=None, description="how it thinks before it answers")
    template_args: Annotated[dict[str, Argument], AfterValidator(check_json)] = Field(
        default={}, description="arguments of the chat template, for benchmarks with chat_template"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, entry: Any) -> Any:
        if isinstance(entry, dict) and (place := place_of_secret(entry)):
            raise ValueError(
                f"{place} holds a secret, but entries are printed and stored; put it in the environment "
                "(HF_TOKEN for the hub, OPENAI_API_KEY for a server)"
            )
        return entry

    @model_validator(mode="after")
    def _runs_somewhere(self) -> ModelSpec:
        if self.served is None or self.hf_repo:
            for name in ("hf_repo", "params_b"):
                if not getattr(self, name):
                    raise ValueError(f"{name} is missing; or name the model of a chat service as `served`")
        if self.spending_limit is not None and None in (self.price_input, self.price_output):
            raise ValueError("a spending_limit needs price_input and price_output")
        return self

    @property
    def is_closed(self) -> bool:
        """Whether only a service runs the model."""
        return not self.hf_repo

    @field_validator("base_url")
    @classmethod
    def _names_a_server(cls, url: str | None) -> str | None:
        if url is not None and not re.match(r"https?://[^/?#\s]+", url, re.IGNORECASE):
            raise ValueError(f"{url!r} is no server's address; give one that begins with http:// or https://")
        return url

    @field_validator("hf_repo", "adapter", "gguf_file")
    @classmethod
    def _names_no_other_folder(cls, repo: str | None) -> str | None:
        if repo is not None and ".." in repo.split("/") and not repo.startswith((".", "/", "~")):
            raise ValueError(f"{repo!r} leaves its folder by ..; give a hub id or the path of a directory")
        return repo


class BenchmarkSize(_Value):
    """The size that a plan assumes of a benchmark whose documents are not available locally; token counts are
    means."""

    documents: Whole = Field(gt=0, description="documents of all its tasks")
    choices: Number = Field(default=0, ge=0, description="per document; 0 for answers")
    preamble_tokens: Number = Field(ge=0, description="few-shot examples, the same for a whole task")
    document_tokens: Number = Field(gt=0, description="the rest of each prompt")
    choice_tokens: Number = Field(default=0, ge=0, description="tokens of one choice")
    answer_tokens: Number = Field(default=0, ge=0, description="tokens of one sample")
    passes: Whole = Field(default=1, gt=0, description="sampled answers per document")
    prompt_digits: Number = Field(default=0, ge=0, description="digits of each prompt")
    answer_digits: Number = Field(default=0, ge=0, description="digits of one sample")


class SamplingSpec(_Value):
    """The settings of sampled answers. Fields that are not set come from the task; stop strings always do."""

    passes: Whole = Field(gt=0, description="answers per document")
    temperature: Number = Field(ge=0, description="0: always the likeliest token")
    top_p: Number = Field(default=1.0, gt=0, le=1, description="only the likeliest tokens of this mass")
    max_tokens: Whole | None = Field(default=None, gt=0, description="after which an answer ends")


class Benchmark(_Value):
    """A named group of lm-eval tasks: `tasks` maps the warehouse's task name to lm-eval's."""

    name: Name = Field(description="its name in the warehouse; of a variant NAME@SUFFIX")
    kind: Literal["choices", "answers"] = Field(description="scored choices, or sampled answers")
    tasks: dict[Name, str] = Field(min_length=1, description="by the warehouse's name of a task, lm-eval's")
    models: tuple[Name, ...] | None = Field(
        default=None,
        min_length=1,
        description="models of the pool that are asked, and those that no list names; default: all",
    )
    include_path: Line | None = Field(
        default=None,
        description="folder of lm-eval task YAMLs, from the file's own; package:FOLDER of rlfocal, or "
        "lm_eval:FOLDER of its tasks",
    )
    num_fewshot: Whole | None = Field(default=None, ge=0, description="worked examples; default: the task's")
    chat_template: bool = Field(default=False, description="apply each model's chat template to the prompts")
    fewshot_as_multiturn: bool = Field(
        default=True,
        description="of a chat: each worked example as turns of its own, else all in one message",
    )
    system_prompt: str | None = Field(default=None, description="said before all else")
    dataset_revision: Line | None = Field(default=None, description="commit of the hub data set")
    category: Line | None = Field(default=None, description="what it tests")
    licence: Line | None = Field(default=None, description="the data set's licence, as an SPDX identifier")
    confidential: bool = Field(
        default=False, description="question texts stay out of reports and exports unless asked for"
    )
    unconditional: bool = Field(
        default=False,
        description="also score each choice after an empty prompt, once per task: acc_mutual_info needs it",
    )
    size: BenchmarkSize | None = Field(default=None, description="for plans, where no document is at hand")
    sampling: SamplingSpec | None = Field(default=None, description="how answers are sampled")
    comparison: Literal["default", "exact", "numeric", "text"] = Field(
        default="default",
        description="how answers are compared: numbers as numbers and other texts folded, character by "
        "character, as numbers alone, or as texts without case",
    )
    thinking: ThinkingSpec | None = Field(
        default=None, description="how every model thinks before it answers"
    )
    train_split: Line | None = Field(
        default=None, description="official train split, whose documents come before the test split's"
    )
    train_docs: Whole | None = Field(
        default=None,
        ge=0,
        description="documents of the official train split; default: the first 80 % of each task",
    )

    _excluded_models: frozenset[str] = PrivateAttr(frozenset())

    @property
    def excluded_models(self) -> frozenset[str]:
        """The models that are not asked, because only other benchmarks of the pool list them."""
        return self._excluded_models

    def includes_model(self, model: str) -> bool:
        """Whether this model is asked. It may be in the pool or new to it."""
        return model not in self.excluded_models

    @model_validator(mode="after")
    def _consistent(self) -> Benchmark:
        if self.sampling is not None and self.kind == "choices":
            raise ValueError("sampling is only for benchmarks of kind answers; choices are scored")
        if self.comparison != "default" and self.kind == "choices":
            raise ValueError("comparison is only for benchmarks of kind answers; choices are indices")
        if self.unconditional and self.kind == "answers":
            raise ValueError("unconditional is only for benchmarks of kind choices; answers have no choices")
        if self.train_split is not None and self.train_docs is not None:
            raise ValueError("train_split already says which documents are train; remove train_docs")
        return self


def resolve_thinking(model: ModelSpec, benchmark: ThinkingSpec | None) -> ThinkingSpec | None:
    """The settings of a model's thinking on a benchmark; None if it answers at once.

    >>> entry = ModelSpec(model="m", hf_repo="r", params_b=1, thinking=ThinkingSpec(traces=2))
    >>> resolve_thinking(entry, ThinkingSpec(budget=64, traces=8)).model_dump(include={"budget", "traces"})
    {'budget': 64, 'traces': 2}
    """
    asked = [spec.model_dump(exclude_unset=True) for spec in (benchmark, model.thinking) if spec is not None]
    merged = ThinkingSpec.model_validate({key: value for each in asked for key, value in each.items()})
    return merged if merged.budget else None


class PoolSpec(_Value):
    """The models of a pool, and the benchmarks that they answer. A benchmark is named, or defined in
    place."""

    name: Name = Field(description="its name")
    backend: Backend = Field(
        default="hf", description="the engine that runs the models, unless --backend is given"
    )
    benchmarks: tuple[Benchmark, ...] = Field(
        min_length=1, description="each a name, a definition, or one that extends another (`extends`)"
    )
    models: tuple[ModelSpec, ...] = Field(min_length=1, description="each an entry")
    methods: tuple[Line, ...] = Field(
        default=(),
        description="methods that a regeneration evaluates, too: other packages' only if named here",
    )
    probe: bool = Field(
        default=False,
        description="a regeneration first asks models that only a service runs some documents again",
    )

    @model_validator(mode="after")
    def _distinct(self) -> PoolSpec:
        models, benchmarks = [m.model for m in self.models], [b.name for b in self.benchmarks]
        for kind, names in (("model", models), ("benchmark", benchmarks)):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"duplicate {kind} {twice[0]!r}")
        lists = {benchmark.name: frozenset(benchmark.models or ()) for benchmark in self.benchmarks}
        named = frozenset[str]().union(*lists.values())
        for benchmark in self.benchmarks:
            for name in lists[benchmark.name] - {*models}:
                raise ValueError(str(unknown_name("model", name, models, f"benchmark {benchmark.name!r}")))
            benchmark._excluded_models = named - lists[benchmark.name] if benchmark.models else frozenset()
        return self

    def count_tasks(self, model: str) -> int:
        """The number of tasks that a model is asked."""
        return sum(len(benchmark.tasks) for benchmark in self.benchmarks if benchmark.includes_model(model))

    @model_validator(mode="after")
    def _arguments_have_a_template(self) -> PoolSpec:
        told = [m.model for m in self.models if m.template_args]
        if told and not any(b.chat_template for b in self.benchmarks):
            raise ValueError(
                f"model {told[0]!r} has template_args, but no benchmark here has a chat_template, so they "
                "would change nothing; ask one as a chat (mmlu@chat), or remove them"
            )
        return self

    def with_unconditional(self) -> PoolSpec:
        """The same pool, with all choices also scored after an empty prompt."""
        asked = (b.model_copy(update={"unconditional": b.kind == "choices"}) for b in self.benchmarks)
        return self.model_copy(update={"benchmarks": tuple(asked)})

    def choose(
        self, models: Sequence[str] | None = None, benchmarks: Sequence[str] | None = None
    ) -> PoolSpec:
        """The same pool, restricted to the named models and benchmarks; None stands for all that ask these
        models. Raises InputError for a wrong name, for an empty list, and if no benchmark is left."""
        by_model = {m.model: m for m in self.models}
        by_name = {b.name: b for b in self.benchmarks}
        for kind, wanted, by_key in (("model", models, by_model), ("benchmark", benchmarks, by_name)):
            if wanted is not None and not wanted:
                raise InputError(f"no {kind} of pool {self.name!r} is named; leave the list out to take all")
            for name in wanted or ():
                if name not in by_key:
                    raise unknown_name(kind, name, by_key, f"pool {self.name!r}")
        chosen = tuple(by_model[m] for m in dict.fromkeys(models or by_model))
        named = [by_name[b] for b in dict.fromkeys(benchmarks or by_name)]
        asking = tuple(b for b in named if any(b.includes_model(m.model) for m in chosen))
        if not asking:
            asked = ", ".join(b.name for b in named)
            raise InputError(
                f"pool {self.name!r} asks {asked} of other models than {', '.join(models or ())}"
            )
        return self.model_copy(update={"models": chosen, "benchmarks": asking})

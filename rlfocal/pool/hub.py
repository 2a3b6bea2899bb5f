"""Finds a model's files before any engine starts, in a directory or on the hub, and reads how its weights are
quantised."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rlfocal.base.errors import InputError, describe_error, unknown_name, without_secrets
from rlfocal.pool.specs import ModelSpec

_LAB_FOLDER = Path(__file__).parents[1] / "lab"
WEIGHTS_DIR = _LAB_FOLDER / "weights"
TASKS_DIR = _LAB_FOLDER / "tasks"
BENCHMARKS_FILE = _LAB_FOLDER / "benchmarks.yaml"
LAB_PREFIX = "rlfocal-lab/"
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Keys of a config.json with the number of experts of a layer."""
CONFIG, ADAPTER = "config.json", "adapter_config.json"
FAULTS = {
    "GatedRepoError": "{repo} is gated; accept its licence at {endpoint}/{repo}, then set HF_TOKEN to a "
    "token of that account",
    "RevisionNotFoundError": "{repo} has no revision {revision!r}; use one of {endpoint}/{repo}/commits/main "
    "or main",
    "RepositoryNotFoundError": "there is no {repo} at {endpoint}, or it is private; check the spelling of "
    "hf_repo (owner/name; a directory is written ./{repo}), and set HF_TOKEN if the model is private",
    "LocalEntryNotFoundError": "{repo} at {revision!r} is not in the local cache, and {unreached}; download "
    "it where there is a network (`hf download {repo} --revision {revision}`), or give a directory",
    "EntryNotFoundError": "{repo} has no {file} at {revision!r}; {remedy}",
    "HFValidationError": "{repo!r} is no hub id (owner/name); write a directory as a path: ./{repo}",
    "HfHubHTTPError": "the hub refuses {repo}: {said}; check HF_TOKEN (`hf auth whoami`), or unset it",
    "Exception": "{endpoint} gives no answer: {said}; try again later, or set HF_HUB_OFFLINE=1 to use the "
    "local cache",
}
"""The meaning of each error of huggingface_hub or of its HTTP client, by the error's name. The first name
that fits counts."""
MISSING_FILE_ADVICE = {
    CONFIG: "so it is not a transformers model; use the repository it was converted from, or name one of its "
    "GGUF files (gguf_file)",
    ADAPTER: "so it is no LoRA adapter; give hf_repo the model, and `adapter` the adapter",
}
OTHER_FILE = "take the file's name from its page on the hub"
COMMIT = re.compile("[0-9a-f]{40}")
TOKENIZERS = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"}
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
TOO_MANY, SERVER_ERROR = 429, 500  # statuses of HTTP
HUB_SECONDS, SILENT_SECONDS = 5, 60
"""The seconds that the hub may take to describe a file, and the seconds for which a silent hub is not asked
again."""
UNREACHED_ERRORS = {"ConnectError", "TimeoutException"}
"""The names of errors that the hub's HTTP client raises without a network."""
_silent_until: dict[str, float] = {}
NO_WEIGHTS = {"training_args.bin", "optimizer.pt", "scheduler.pt"}  # what a training run leaves beside them


class HubError(InputError):
    """The error of a hub that could not be reached. Another attempt may succeed."""


def weights_dir(model: str) -> Path:
    """The Hugging Face folder of a model of the embedded pool `lab`. Raises InputError for an unknown
    model."""
    models = sorted(path.parent.name for path in WEIGHTS_DIR.glob("*/config.json"))
    if model not in models:
        raise unknown_name("lab model", model, models, str(WEIGHTS_DIR))
    return WEIGHTS_DIR / model


def local_weights(model: ModelSpec) -> Path | None:
    """The directory of a local model; None for a hub id and for a closed model. Its adapter is not checked.
    Raises InputError for a path that does not exist, or lacks what an engine needs."""
    if model.is_closed:
        return None
    if model.hf_repo.startswith(LAB_PREFIX):
        return Path(weights_dir(model.hf_repo.removeprefix(LAB_PREFIX)))
    if not _is_path(model.hf_repo):
        return None
    path = Path(os.path.expanduser(model.hf_repo))  # noqa: PTH111 - it leaves an unknown user as it is
    if path.is_dir():
        _check_directory(model, path)
        return path.resolve()
    fault = "is a file" if path.is_file() else "does not exist"
    raise InputError(
        f"model {model.model!r}: the directory {model.hf_repo!r} {fault}; give hf_repo a directory with "
        "config.json, weights and tokenizer (or with a GGUF file, and gguf_file its name), or a hub id such "
        "as Qwen/Qwen2.5-0.5B"
    )


def _is_path(repo: str) -> bool:
    """Whether `repo` is written as a directory. A name like a/b is a hub id, even if such a directory
    exists."""
    return repo.startswith((".", "~")) or Path(repo).is_absolute()


def local_adapter(model: ModelSpec) -> Path | None:
    """The directory of the entry's LoRA adapter; None for an adapter on the hub, and for no adapter. Raises
    InputError for a path that does not exist, or has no adapter."""
    if model.adapter is None or not _is_path(model.adapter):
        return None
    path = Path(os.path.expanduser(model.adapter))  # noqa: PTH111 - it leaves an unknown user as it is
    if not (path / ADAPTER).is_file():
        raise InputError(
            f"model {model.model!r}: the adapter {model.adapter!r} is no directory with {ADAPTER}; save it "
            "there with peft's save_pretrained, or give a hub id"
        )
    return path.resolve()


def read_config(model: ModelSpec) -> dict[str, Any]:
    """The config.json of a local model, or of a hub model in the cache; {} if there is none."""
    if model.is_closed:
        return {}
    try:
        file = find_file(model, CONFIG, local_only=True)
    except ValueError:  # no hub id
        return {}
    return {} if file is None else _read_json_object(model, file)


def mixes_experts(config: dict[str, Any]) -> bool:
    """Whether a model with this config.json is a mixture of experts."""
    text = config.get("text_config") or config
    return any((text.get(name) or 0) > 1 for name in EXPERTS)


def find_file(model: ModelSpec, name: str, *, local_only: bool = False) -> Path | None:
    """A file of the model's directory, or of its hub repository, downloaded if needed; None if it does not
    exist.

    With `local_only`, it is also None if the hub's cache lacks it. A model that only a service runs has no
    files. Raises InputError if the hub refuses the file.
    """
    if model.is_closed:
        return None
    folder = local_weights(model)
    if folder is not None:
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    cached = try_to_load_from_cache(model.hf_repo, name, revision=model.revision)
    if cached is not None or local_only:
        return Path(cached) if isinstance(cached, str) else None
    try:
        return _download(model, name, local_only)
    except InputError as error:
        is_local = isinstance(error.__cause__, LocalEntryNotFoundError)
        if isinstance(error.__cause__, EntryNotFoundError) and not is_local:
            return None
        raise


def pin_revision(model: ModelSpec, *, local_only: bool = False) -> ModelSpec:
    """The model and its adapter with hub revisions resolved to commits. Local models stay as they are.

    It asks the hub (HF_ENDPOINT) for the model's config. If the hub cannot be reached, it uses the local
    cache. With `local_only`, the hub is not asked: a commit stays as it is, and a branch is as the cache last
    saw it. Raises InputError, with the fix, if the model is not available.
    """
    if model.is_closed:
        return model
    if local_weights(model) is None and not (local_only and COMMIT.fullmatch(model.revision)):
        model = _pin_weights(model, local_only)
    if model.adapter is not None and local_adapter(model) is None:
        adapter = model.model_copy(update={"hf_repo": model.adapter, "revision": model.adapter_revision})
        if not (local_only and COMMIT.fullmatch(adapter.revision)):
            revision = _download(adapter, ADAPTER, local_only).parent.name
            model = model.model_copy(update={"adapter_revision": revision})
    return model


def _pin_weights(model: ModelSpec, local_only: bool) -> ModelSpec:
    if model.gguf_file is None:
        config = _download(model, CONFIG, local_only)
        _check_remote_code(model, config)
        return model.model_copy(update={"revision": config.parent.name})
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    if local_only or constants.HF_HUB_OFFLINE or not _ask_hub(model, model.gguf_file):
        folder = _download(model, model.gguf_file, local_only)
        commit = folder.parents[len(Path(model.gguf_file).parents) - 1].name
        return model.model_copy(update={"revision": commit})
    with explain_hub(model, model.gguf_file, local_only):  # asked without its gigabytes
        url = hf_hub_url(model.hf_repo, model.gguf_file, revision=model.revision)
        about = get_hf_file_metadata(url, timeout=HUB_SECONDS)
    return model.model_copy(update={"revision": about.commit_hash or model.revision})


def _download(model: ModelSpec, file: str, local_only: bool) -> Path:
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import LocalEntryNotFoundError

    with explain_hub(model, file, local_only):
        if not (local_only or constants.HF_HUB_OFFLINE) and _ask_hub(model, file):
            return Path(hf_hub_download(model.hf_repo, file, revision=model.revision))
        # Even told to stay local, hf_hub_download asks the hub first which programs to name in its requests.
        cached = try_to_load_from_cache(model.hf_repo, file, revision=model.revision)
        if not isinstance(cached, str):
            raise LocalEntryNotFoundError(f"{file} is not in the hub's local cache")
        return Path(cached)


def _ask_hub(model: ModelSpec, file: str) -> bool:
    """Whether the hub can be reached. The request needs only the file's address."""
    from huggingface_hub import hf_hub_url

    return hub_answers(hf_hub_url(model.hf_repo, file, revision=model.revision))


def hub_answers(url: str) -> bool:
    """Whether the hub can be reached, by one request for the address `url`. The hub's own client tries for
    most of a minute and prints a line each time. After a failure, the hub is not asked again for a minute."""
    from huggingface_hub import constants, get_session

    if monotonic() < _silent_until.get(constants.ENDPOINT, 0.0):
        return False
    try:
        get_session().head(url, timeout=HUB_SECONDS)
    except Exception as error:
        if not UNREACHED_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
            return True  # asked again, it says why
        _silent_until[constants.ENDPOINT] = monotonic() + SILENT_SECONDS
        return False
    return True


def _check_directory(model: ModelSpec, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    if model.gguf_file is not None:
        if not (folder / model.gguf_file).is_file():
            there = ", ".join(sorted(path.name for path in folder.glob("*.gguf"))) or "none"
            raise InputError(
                f"model {model.model!r}: the directory {str(folder)!r} has no {model.gguf_file!r}; its GGUF "
                f"files: {there}"
            )
        return
    if ADAPTER in names and CONFIG not in names:
        raise InputError(
            f"model {model.model!r}: {str(folder)!r} is a LoRA adapter; give hf_repo the model that it was "
            "trained on, and `adapter` this directory"
        )
    lacking = []
    if CONFIG not in names:
        lacking.append(CONFIG)
    if not any(name.endswith(WEIGHTS) and name not in NO_WEIGHTS for name in names):
        lacking.append("weights (*.safetensors or *.bin)")
    if not names & TOKENIZERS and not any(name.endswith(".tiktoken") for name in names):
        lacking.append("tokenizer (tokenizer.json or tokenizer.model)")
    if lacking:
        packed = min((name for name in names if name.endswith(".gguf")), default=None)
        raise InputError(
            f"model {model.model!r}: the directory {str(folder)!r} has no {' and no '.join(lacking)}; save "
            "model and tokenizer there with save_pretrained, or download the whole repository"
            + (f"; or set gguf_file: {packed}, which the engine hf loads" if packed else "")
        )
    _check_remote_code(model, folder / CONFIG)


def _check_remote_code(model: ModelSpec, file: Path) -> None:
    """Raises InputError if the model needs code from its repository, because transformers lacks the
    architecture."""
    config = _read_json_object(model, file)
    if model.trust_remote_code or not config.get("auto_map"):
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise InputError(
            f"model {model.model!r}: {model.hf_repo} is of type {config.get('model_type')!r}, which runs "
            "Python code from its repository; read that code, pin its revision, and set "
            "`trust_remote_code: true` in the pool entry to allow it"
        )


def _read_json_object(model: ModelSpec, file: Path) -> dict[str, Any]:
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"model {model.model!r}: its config.json is not JSON: {describe_error(error)}"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"model {model.model!r}: its config.json must be a JSON object")
    return content


@contextmanager
def explain_hub(model: ModelSpec, file: str = CONFIG, local_only: bool = False) -> Iterator[None]:
    """Turns the hub's errors into InputErrors that say what to do, and into HubErrors if another attempt may
    succeed."""
    from huggingface_hub import constants

    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        kind = next(kind for kind in FAULTS if kind in kinds)
        endpoint = without_secrets(os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/"))
        is_asked = not (local_only or constants.HF_HUB_OFFLINE)
        words = FAULTS[kind].format(
            repo=model.hf_repo,
            revision=model.revision,
            endpoint=endpoint,
            file=file,
            remedy=MISSING_FILE_ADVICE.get(file, OTHER_FILE),
            unreached=f"{endpoint} cannot be reached" if is_asked else "the hub was not asked",
            said=describe_error(error),
        )
        status = getattr(getattr(error, "response", None), "status_code", 0)
        may_pass = kind == "Exception" or (kind == "LocalEntryNotFoundError" and is_asked)
        may_pass |= status == TOO_MANY or status >= SERVER_ERROR
        raise (HubError if may_pass else InputError)(f"model {model.model!r}: {words}") from error


UNSUPPORTED_QUANTISATIONS = {
    *("aqlm", "bitnet", "bitsandbytes", "eetq", "fouroversix", "gemma", "gguf", "higgs", "hqq", "metal"),
    *("quanto", "sinq", "spqr", "vptq"),
}
"""The quantisation methods of transformers that vLLM 0.32 does not load."""


class Quantisation(NamedTuple):
    """A quantisation method by transformers' name, and the bits of a weight. A None is unknown."""

    method: str | None = None
    bits: int | None = None
    multiplies_int8: bool = False
    """Whether both the weights and the activations are 8-bit integers."""


def quantisation(config: Mapping[str, Any]) -> Quantisation:
    """The quantisation in a model's config.json; one without a method for weights that are not quantised.

    >>> quantisation({"quantization_config": {"quant_method": "gptq", "bits": 4}})
    Quantisation(method='gptq', bits=4, multiplies_int8=False)
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, dict) or not stated:
        return Quantisation()
    loaded_as = {4: stated.get("load_in_4bit"), 8: stated.get("load_in_8bit")}
    by_flag = next((bits for bits, is_set in loaded_as.items() if is_set), None)
    method = stated.get("quant_method") or ("bitsandbytes" if by_flag else None)
    return Quantisation(method, by_flag or _read_bits(str(method), stated), _multiplies_int8(stated))


def head_dtype_of(model: ModelSpec, config: Mapping[str, Any]) -> str | None:
    """The dtype `float32` if a model's logits are computed in it and its layers are not; else None. `config`
    is the model's config.json. The dtype `auto` is the one in that file."""
    text = config.get("text_config") or {}
    own = next((c[name] for c in (config, text) for name in ("dtype", "torch_dtype") if c.get(name)), "auto")
    dtype = own if model.dtype == "auto" else model.dtype
    is_wanted = model.head_dtype == "float32" and dtype != "float32"
    return "float32" if is_wanted and not _head_is_quantised(config) else None


def _head_is_quantised(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a quantised head.

    >>> _head_is_quantised({"quantization_config": {"quant_method": "gptq", "lm_head": True}})
    True
    >>> _head_is_quantised({"quantization_config": {"quant_method": "fp8"}})
    False
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, dict) or not stated:
        return False
    method = str(stated.get("quant_method"))
    if method.startswith(("compressed-tensors", "modelopt")):
        left_out = [*(stated.get("ignore") or ()), *(stated.get("exclude_modules") or ())]
        return not any("lm_head" in str(name) for name in left_out)
    return bool(stated.get("lm_head"))


def _read_bits(method: str, stated: Mapping[str, Any]) -> int | None:
    if isinstance(stated.get("bits"), int):
        return int(stated["bits"])
    for weights in _read_groups(stated, "weights"):
        if isinstance(bits := weights.get("num_bits"), int):
            return bits
    return 8 if "fp8" in method else 4 if "fp4" in method else None


def _multiplies_int8(stated: Mapping[str, Any]) -> bool:
    pairs = zip(_read_groups(stated, "weights"), _read_groups(stated, "input_activations"), strict=True)
    return any(
        all(numbers.get("num_bits") == 8 and numbers.get("type", "int") == "int" for numbers in pair)
        for pair in pairs
    )


def _read_groups(stated: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The description of each group of layers under `key` in a config of compressed-tensors; {} for a group
    without one."""
    groups = (stated.get("config_groups") or {}).values()
    return [group.get(key) or {} for group in groups if isinstance(group, dict)]

"""Finds a model before any engine starts: a directory, or a commit on the hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlfocal.base.errors import InputError, unknown
from rlfocal.base.failures import plain, without_secrets
from rlfocal.pool.specs import ModelSpec

_LAB = Path(__file__).parents[1] / "lab"
WEIGHTS_DIR = _LAB / "weights"
TASKS_DIR = _LAB / "tasks"
BENCHMARKS_FILE = _LAB / "benchmarks.yaml"
LAB_PREFIX = "rlfocal-lab/"
COMMIT = re.compile("[0-9a-f]{40}")
TOKENIZERS = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"}
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
TOO_MANY, SERVER_ERROR = 429, 500  # statuses of HTTP
NO_WEIGHTS = {"training_args.bin", "optimizer.pt", "scheduler.pt"}  # what a training run leaves beside them


class HubError(InputError):
    """The hub could not be reached now; another try may help."""


def weights_dir(model: str, root: Path = WEIGHTS_DIR) -> Path:
    """The Hugging Face folder of a model of the embedded pool; an unknown model is an InputError."""
    known = sorted(path.parent.name for path in root.glob("*/config.json"))
    if model not in known:
        raise unknown("lab model", model, known, str(root))
    return root / model


def local_weights(model: ModelSpec) -> Path | None:
    """The directory of a local model; None for a hub id.

    Raises InputError for a path that does not exist, or that lacks what an engine needs.
    """
    if model.hf_repo.startswith(LAB_PREFIX):
        return Path(weights_dir(model.hf_repo.removeprefix(LAB_PREFIX)))
    path = Path(os.path.expanduser(model.hf_repo))  # noqa: PTH111 - it leaves an unknown user as it is
    if path.is_dir():
        _check_directory(model, path)
        return path.resolve()
    if path.is_file():
        raise InputError(f"model {model.model!r}: {model.hf_repo!r} is {_file_advice(path)}")
    if path.is_absolute() or model.hf_repo.startswith((".", "~")):
        raise InputError(
            f"model {model.model!r}: the directory {model.hf_repo!r} does not exist; give hf_repo a "
            "directory with config.json, weights and tokenizer, or a hub id such as Qwen/Qwen2.5-0.5B"
        )
    return None


def pin_revision(model: ModelSpec, *, local_only: bool = False) -> ModelSpec:
    """The model with its revision resolved to the commit behind it now; a local model as it is.

    Asks the hub (HF_ENDPOINT) for the model's config, or the local cache where the hub cannot be reached.
    With `local_only`, no network: a commit is taken as it is, and a branch as the cache last saw it.
    Raises InputError, saying what to do, if the model is not available.
    """
    if local_weights(model) is not None:
        return model
    if local_only and COMMIT.fullmatch(model.revision):
        return model
    from huggingface_hub import hf_hub_download

    with _explain(model, local_only):
        file = hf_hub_download(
            model.hf_repo, "config.json", revision=model.revision, local_files_only=local_only
        )
    config = Path(file)
    _check_remote_code(model, config)
    return model.model_copy(update={"revision": config.parent.name})


def _file_advice(path: Path) -> str:
    if path.suffix == ".gguf":
        return (
            "a GGUF file, which no engine here loads: convert it with transformers' from_pretrained(folder, "
            "gguf_file=...) and save_pretrained, or serve it and use the backend openai"
        )
    return "a file: give hf_repo its directory, with config.json, weights and tokenizer"


def _check_directory(model: ModelSpec, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    lacking = []
    if "config.json" not in names:
        lacking.append("config.json")
    if not any(name.endswith(WEIGHTS) and name not in NO_WEIGHTS for name in names):
        lacking.append("weights (*.safetensors or *.bin)")
    if not names & TOKENIZERS and not any(name.endswith(".tiktoken") for name in names):
        lacking.append("tokenizer (tokenizer.json or tokenizer.model)")
    if lacking and not names.isdisjoint(files := {path.name for path in folder.glob("*.gguf")}):
        raise InputError(
            f"model {model.model!r}: {str(folder / min(files))!r} is {_file_advice(folder / min(files))}"
        )
    if lacking:
        raise InputError(
            f"model {model.model!r}: the directory {str(folder)!r} has no {' and no '.join(lacking)}; save "
            "model and tokenizer there with save_pretrained, or download the whole repository"
        )
    _check_remote_code(model, folder / "config.json")


def _check_remote_code(model: ModelSpec, file: Path) -> None:
    """Only an architecture that transformers lacks needs the repository's own code."""
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"model {model.model!r}: its config.json is not JSON: {plain(error)}") from error
    if not isinstance(config, dict):
        raise InputError(f"model {model.model!r}: its config.json must be a JSON object")
    if model.trust_remote_code or not config.get("auto_map"):
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise InputError(
            f"model {model.model!r}: {model.hf_repo} is of type {config.get('model_type')!r}, which runs "
            "Python code from its repository; read that code, pin its revision, and set "
            "`trust_remote_code: true` in the pool entry to allow it"
        )


@contextmanager
def _explain(model: ModelSpec, local_only: bool) -> Iterator[None]:
    """The hub's errors as InputErrors that say what to do."""
    from huggingface_hub import constants, errors

    name, repo = f"model {model.model!r}", model.hf_repo
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    page = without_secrets(f"{endpoint}/{repo}")
    if not endpoint.startswith(("http://", "https://")):
        raise InputError(
            f"HF_ENDPOINT is {without_secrets(endpoint)!r}, which does not begin with https://; give the "
            "hub's address, or unset it"
        )
    try:
        yield
    except errors.GatedRepoError as error:
        raise InputError(
            f"{name}: {repo} is gated; accept its licence at {page}, then set HF_TOKEN to a token of that "
            "account"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"{name}: {repo} has no revision {model.revision!r}; use one of {page}/commits/main, or main"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{name}: there is no {repo} at {endpoint}, or it is private; check the spelling of hf_repo "
            "(owner/name), and set HF_TOKEN if the model is private"
        ) from error
    except errors.DisabledRepoError as error:
        raise InputError(f"{name}: the hub has disabled {repo}; see {page}") from error
    except errors.LocalEntryNotFoundError as error:
        offline = os.environ.get("HF_HUB_OFFLINE", "") in ("1", "true", "True", "ON", "YES")
        unreached = "HF_HUB_OFFLINE is set" if offline else f"{endpoint} cannot be reached"
        why = "the hub was not asked" if local_only else unreached
        raise (InputError if local_only or offline else HubError)(
            f"{name}: {repo} at {model.revision!r} is not in the local cache, and {why}; download it where "
            f"there is a network (`hf download {repo} --revision {model.revision}`), or give a directory"
        ) from error
    except errors.EntryNotFoundError as error:
        raise InputError(
            f"{name}: {repo} has no config.json at {model.revision!r}, so it is not a transformers model; "
            "use the repository it was converted from"
        ) from error
    except errors.HFValidationError as error:
        raise InputError(
            f"{name}: hf_repo {repo!r} is neither a directory here nor a hub id (owner/name)"
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        raise (HubError if status == TOO_MANY or status >= SERVER_ERROR else InputError)(
            f"{name}: the hub refuses {repo}: {plain(error)}; check HF_TOKEN (`hf auth whoami`), or unset it"
        ) from error
    except Exception as error:  # of the HTTP client, which huggingface_hub does not translate
        raise HubError(
            f"{name}: {without_secrets(endpoint)} gives no answer: {plain(error)}; try again later, or set "
            "HF_HUB_OFFLINE=1 to use the local cache"
        ) from error

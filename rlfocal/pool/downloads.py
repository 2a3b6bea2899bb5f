"""Downloads models' weights to the hub's cache on this machine. Downloads can be resumed, and need no GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from rlfocal.base.errors import InputError
from rlfocal.pool.hub import WEIGHTS, explain_hub, local_weights
from rlfocal.pool.specs import ModelSpec

NOT_WEIGHTS = ("original/*", "consolidated*", "*.gguf", "*.onnx", "*.msgpack")
"""Patterns of files that repeat the same weights in formats that no engine of rlfocal reads."""


def gb_here(model: ModelSpec) -> float | None:
    """The size of a model's weights in the hub's cache, in 1e9 bytes; None for a model in a directory or of a
    service."""
    if model.is_closed or local_weights(model) is not None:
        return None
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model.hf_repo, repo_type="model")
    ref = folder / "refs" / model.revision
    commit = ref.read_text().strip() if ref.is_file() else model.revision
    files = (folder / "snapshots" / commit).rglob("*")
    return sum(file.stat().st_size for file in files if file.name.endswith(WEIGHTS)) / 1e9


def files_of(model: ModelSpec) -> list[tuple[str, int]]:
    """The names and bytes of the files that an engine reads, as the hub lists them. Raises InputError with
    the hub's reason."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    with explain_hub(model):
        tree = list(HfApi().list_repo_tree(model.hf_repo, revision=model.revision, recursive=True))
    files = [(one.path, one.size) for one in tree if isinstance(one, RepoFile)]
    if model.gguf_file is not None:
        return [one for one in files if one[0] == model.gguf_file or "." not in one[0].rpartition("/")[2]]
    return list(_select_files(files))


def _select_files(files: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yields the files to download. If the weights come as safetensors, torch's format is left out."""
    has_safetensors = any(name.endswith(".safetensors") for name, _ in files)
    for name, size in files:
        path = Path(name)
        if any(path.match(pattern) for pattern in NOT_WEIGHTS):
            continue
        if has_safetensors and path.suffix in (".bin", ".pt", ".pth"):
            continue
        yield name, size


def download(model: ModelSpec, on_progress: Callable[[str, float], None] | None = None) -> float:
    """Downloads the files of a model and of its adapter that the cache lacks. Returns the size of all files,
    in 1e9 bytes.

    An interrupted download continues where it stopped. Raises InputError with the hub's reason.
    """
    if model.is_closed:
        return 0.0
    total = 0.0
    for one in filter(None, (model, _find_adapter(model))):
        if local_weights(one) is None:
            total += _download(one, on_progress)
    return total


class Downloads:
    """Downloads models in the background, in order, while other models run on GPUs."""

    def __init__(self, models: Sequence[ModelSpec]) -> None:
        self._ready: set[str] = set()
        Thread(target=self._fetch, args=(tuple(models),), daemon=True).start()

    def is_ready(self, model: str) -> bool:
        """Whether the download of the model has ended. It may have failed: the engine then explains why."""
        return model in self._ready

    def _fetch(self, models: Sequence[ModelSpec]) -> None:
        for model in models:
            with suppress(Exception):  # its engine meets it again
                download(model)
            self._ready.add(model.model)


def _download(model: ModelSpec, on_progress: Callable[[str, float], None] | None) -> float:
    from huggingface_hub import hf_hub_download

    files = files_of(model)
    if not files:
        raise InputError(f"{model.hf_repo} has no files at {model.revision!r}; give another revision")
    total, done = sum(size for _, size in files), 0
    for name, size in files:
        with explain_hub(model, name):
            hf_hub_download(model.hf_repo, name, revision=model.revision)
        done += size
        if on_progress is not None:
            on_progress(f"download {model.model}", done / total if total else 1.0)
    return total / 1e9


def _find_adapter(model: ModelSpec) -> ModelSpec | None:
    if model.adapter is None:
        return None
    return model.model_copy(update={"hf_repo": model.adapter, "revision": model.adapter_revision})

"""Loads lm-eval's tasks, with their data from the hub or a mirror. Their stock definitions are made
deterministic."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rlfocal.base.errors import InputError, RunError, unknown_name
from rlfocal.pool.files import find_packaged
from rlfocal.pool.hub import COMMIT, hub_answers
from rlfocal.pool.specs import Benchmark

DATASET_CARD = "README.md"
FEWSHOT_SEED = 1234  # lm-eval's default, so that few-shot prompts are its prompts
TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
FILE_READERS = {"arrow", "csv", "json", "parquet", "text"}  # `datasets` takes these for a dataset_path too

_TASK_LINE = re.compile(rb"""^["']?task["']?\s*:\s*["']?([^"'\s]+)["']?\s*(?:\#.*)?$""", re.MULTILINE)

Managers = dict[tuple[Path, ...], Any]
"""lm-eval's TaskManagers. The key of each is the folders whose tasks it knows."""


class HubDataset(NamedTuple):
    """A data set of the hub that a task reads."""

    repo: str
    config: str | None


def load_task(
    name: str,
    benchmark: Benchmark,
    manager: Any,
    datasets: Path | None,
    scratch: Path,
    split: str | None = None,
) -> Any:
    """The lm-eval task `name` without its requests, with the documents of `split` if that is given.

    `datasets` is a mirror's folder; None stands for the hub. `scratch` is the folder of
    `deterministic_loading`. Raises InputError if the user can fix the cause, else RunError.
    """
    config = task_config(name, manager)
    changed = (
        _locate(config, benchmark, datasets, scratch) | _process(config) | _merge_sampling(config, benchmark)
    )
    if benchmark.num_fewshot is not None:
        changed["num_fewshot"] = benchmark.num_fewshot
    if split is not None:
        changed |= _change_split(config, split)
    try:
        with _stay_offline_without_hub(hub_dataset(config) if datasets is None else None):
            [task] = manager.load([{**config, **changed, "task": name}])["tasks"].values()
    except Exception as error:
        raise _explain(error, name, {**config, **changed}, benchmark, datasets) from error
    task.set_fewshot_seed(FEWSHOT_SEED)
    return task


def task_config(name: str, manager: Any) -> dict[str, Any]:
    """The task's stock definition: lm-eval's YAML file, with the files that it includes."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(manager.task_index[name].yaml_path))


def hub_dataset(config: dict[str, Any]) -> HubDataset | None:
    """The hub data set that a task reads; None if the task brings its own documents, or reads files."""
    path = config.get("dataset_path")
    if not path or config.get("custom_dataset") or path in FILE_READERS or path.startswith((".", "/")):
        return None
    return HubDataset(path, config.get("dataset_name"))


def task_facts(name: str, benchmark: Benchmark, manager: Any, mirror: Path | None) -> dict[str, Any]:
    """Those columns of the table `tasks` that are known before a task is loaded."""
    config = task_config(name, manager)
    hub, tag = hub_dataset(config), config.get("tag")
    facts: dict[str, Any] = {"lm_eval_task": name, "tag": tag if isinstance(tag, str) else None}
    if hub is not None:
        copied = None if mirror is None else read_card(mirror / hub.repo).revision
        revision = copied or benchmark.dataset_revision
        facts |= {"dataset": hub.repo, "dataset_config": hub.config, "revision": revision}
    return facts


def task_manager(benchmark: Benchmark, managers: Managers) -> Any:
    """A TaskManager that knows the benchmark's tasks, from the benchmark's own folder or among lm-eval's.
    Raises InputError for a task in neither place."""
    folder = _find_include_path(benchmark)
    own = (folder,) if folder else ()
    wanted = set(benchmark.tasks.values())
    manager = _make_manager(own, managers)
    names = set(manager.all_subtasks)
    if elsewhere := wanted - names:
        stock = stock_tasks()
        # Of two files that define one name, the first counts, and of two folders given, the last.
        folders = sorted({stock[name] for name in elsewhere & stock.keys()}, reverse=True)
        manager = _make_manager((*folders, *own), managers)
        if missing := wanted - set(manager.all_subtasks):
            names |= stock.keys() - missing
            where = f"benchmark {benchmark.name!r}, which can name the folder of your own as include_path"
            raise unknown_name("lm-eval task", min(missing), names, where)
    return manager


def _make_manager(folders: tuple[Path, ...], managers: Managers) -> Any:
    from lm_eval.tasks import TaskManager

    if folders not in managers:
        managers[folders] = TaskManager(include_path=list(folders), include_defaults=False)
    return managers[folders]


@functools.cache
def stock_tasks() -> dict[str, Path]:
    """The folder of the file that defines each of lm-eval's own tasks, by task name. The files are searched
    as text. lm-eval itself would parse all of its 14,000 files, which takes ten times as long."""
    import lm_eval.tasks

    root = Path(lm_eval.tasks.__file__).parent
    folders: dict[str, Path] = {}
    for file in sorted(glob("**/*.yaml", root_dir=root, recursive=True)):  # noqa: PTH207  Path.glob is slow
        path = root / file
        if (match := _TASK_LINE.search(path.read_bytes())) is not None:
            folders.setdefault(match[1].decode(), path.parent)
    return folders


@contextlib.contextmanager
def deterministic_loading() -> Iterator[Path]:
    """Makes data sets load in the block without progress bars, hints or cached `map` results, and with a
    fixed seed for `random`. Yields a temporary folder for caches that must not outlive the block."""
    import datasets
    from lm_eval.utils import env

    cached, counted = datasets.is_caching_enabled(), datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    state = random.getstate()
    datasets.disable_caching()  # a cached `map` would freeze one shuffle for ever
    # Each load, of local files too, would ask the network to count it: up to 3 s a task where there is none.
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    random.seed(0)
    # Compiling a template for every few-shot example anew is nine tenths of building prompts.
    vars(env)["from_string"] = functools.lru_cache(env.from_string)
    try:
        with quiet(), TemporaryDirectory(prefix="rlfocal-") as scratch:
            yield Path(scratch)
    finally:
        del vars(env)["from_string"]
        random.setstate(state)
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counted
        if cached:
            datasets.enable_caching()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses lm-eval's progress bars and hints. Its errors are exceptions, and stay."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)  # its handlers may hold a stderr of their own, as under Prefect
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _stay_offline_without_hub(dataset: HubDataset | None) -> Iterator[None]:
    """Makes `datasets` read its local cache if the hub does not respond. Otherwise it would wait minutes."""
    import datasets
    from huggingface_hub import constants, hf_hub_url

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if dataset is not None and not any(before):
        silent = not hub_answers(hf_hub_url(dataset.repo, DATASET_CARD, repo_type="dataset"))
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = silent
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def dataset_failure(
    error: Exception, dataset: HubDataset, benchmark: Benchmark, datasets: Path | None
) -> InputError | RunError | None:
    """The error to raise, with its fix, if a task cannot be loaded because of its data set; None if the cause
    is another."""
    from datasets.exceptions import DatasetNotFoundError

    reason = to_one_line(error)
    source = f"data set {dataset.repo!r} of {benchmark.name}"
    if datasets is not None:
        if isinstance(error, OSError | ValueError) and ("BuilderConfig" in reason or "data file" in reason):
            return InputError(
                f"{source} in {datasets} is incomplete: {reason}; {_advise_mirroring(benchmark, datasets)}"
            )
        return None
    if "gated" in reason:
        return InputError(
            f"{source} is gated: accept its terms on its hub page, then set "
            "HF_TOKEN to an access token of that account"
        )
    if reason.startswith("Revision"):
        return InputError(
            f"{source} has no revision {benchmark.dataset_revision!r}; correct its dataset_revision, or "
            "remove it to use the newest"
        )
    if isinstance(error, DatasetNotFoundError):
        return InputError(f"{source} is not on the hub, or needs an access token in HF_TOKEN: {reason}")
    if isinstance(error, ConnectionError):
        return RunError(
            f"{source} cannot be downloaded: the hub cannot be reached; try again, or run `rlfocal datasets "
            f"mirror DIR --benchmarks {benchmark.name}` on a machine that can, and pass --datasets DIR"
        )
    return None


def to_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _find_include_path(benchmark: Benchmark) -> Path | None:
    if benchmark.include_path is None:
        return None
    scheme, _, inside = benchmark.include_path.partition(":")
    if scheme == "lm_eval":
        import lm_eval.tasks

        folder = Path(lm_eval.tasks.__file__).parent / inside
    else:
        folder = find_packaged(inside) if scheme == "package" else Path(benchmark.include_path)
    if not folder.is_dir():
        raise InputError(f"benchmark {benchmark.name!r}: include_path {str(folder)!r} is not a folder")
    return folder


def _locate(
    config: dict[str, Any], benchmark: Benchmark, datasets: Path | None, scratch: Path
) -> dict[str, Any]:
    """The changes to a task's config that make it read the mirror's folder, or the hub at the benchmark's
    revision."""
    dataset = hub_dataset(config)
    if dataset is None:
        return {}
    kwargs = dict(config.get("dataset_kwargs") or {})
    if datasets is None:
        if benchmark.dataset_revision is not None:
            kwargs["revision"] = benchmark.dataset_revision
        return {"dataset_kwargs": kwargs}
    folder = datasets / dataset.repo
    if not folder.is_dir():
        missing = f"data set {dataset.repo!r} of {benchmark.name} is not in {datasets}"
        raise InputError(f"{missing}; {_advise_mirroring(benchmark, datasets)}")
    there, wanted = str(read_card(folder).revision), benchmark.dataset_revision
    # A folder that is no copy of the hub's has no commit to compare.
    if wanted is not None and COMMIT.fullmatch(there) and COMMIT.fullmatch(wanted) and there != wanted:
        raise InputError(
            f"{folder} is a copy of {dataset.repo} at {there}, but {benchmark.name} pins {wanted}; remove "
            f"the folder, then {_advise_mirroring(benchmark, datasets)}, or change dataset_revision"
        )
    kwargs.pop("revision", None)
    # The usual cache knows a folder by its card alone: it would serve an edited one's old rows.
    kwargs["cache_dir"] = str(scratch)
    return {"dataset_path": str(folder.resolve()), "dataset_kwargs": kwargs}


def _process(config: dict[str, Any]) -> dict[str, Any]:
    """The changes to a task's config with which it shuffles a document's choices in the same way in every
    run."""
    process = config.get("process_docs")
    return {"process_docs": _seed_process_docs(process)} if callable(process) else {}


def _seed_process_docs(process: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def process_seeded(dataset: Any) -> Any:
        view = copy.copy(dataset)
        view.map = lambda function, **options: dataset.map(_seed_by_document(function, options), **options)
        return process(view)

    return process_seeded


def _seed_by_document(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    if options.get("batched"):
        return function

    def apply(document: dict[str, Any], *more: Any) -> Any:
        random.seed(json.dumps(document, sort_keys=True, default=str))
        return function(document, *more)

    return apply


def _merge_sampling(config: dict[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    """The changes to a task's config that replace its sampling by the benchmark's, except for stop
    strings."""
    wanted = benchmark.sampling
    if wanted is None:
        return {}
    options = dict(config.get("generation_kwargs") or {})
    options |= {"do_sample": wanted.temperature > 0, "temperature": wanted.temperature, "top_p": wanted.top_p}
    if wanted.max_tokens is not None:
        options = {key: value for key, value in options.items() if key not in TOKEN_LIMITS}
        options["max_gen_toks"] = wanted.max_tokens
    return {"repeats": wanted.passes, "generation_kwargs": options}


def _change_split(config: dict[str, Any], split: str) -> dict[str, Any]:
    changed: dict[str, Any] = {"test_split": split}
    examples = config.get("fewshot_config") or {}
    if not config.get("fewshot_split") and not examples.get("samples") and not examples.get("split"):
        # Only where the splits bear one name does lm-eval keep a document out of its own examples.
        changed["fewshot_split"] = config.get("training_split") or config.get("validation_split") or split
    return changed


def _explain(
    error: Exception, name: str, config: dict[str, Any], benchmark: Benchmark, datasets: Path | None
) -> Exception:
    dataset = hub_dataset(config)
    if dataset is not None and (failure := dataset_failure(error, dataset, benchmark, datasets)):
        return failure
    why = f"lm-eval task {name!r} of {benchmark.name} cannot be loaded: {_name_cause(error, config)}"
    if benchmark.include_path is not None:
        why += f"; mend the task's YAML in {benchmark.include_path}"
    data_files = (config.get("dataset_kwargs") or {}).get("data_files")
    if isinstance(error, FileNotFoundError) and _has_relative(data_files):
        why += f"; `data_files` count from {Path.cwd()}, where you are: write whole paths"
    return RunError(why) if benchmark.include_path is None else InputError(why)


def _name_cause(error: Exception, config: dict[str, Any]) -> str:
    """What a task lacks, by the error that it was not loaded with."""
    if isinstance(error, KeyError):
        for key, split in config.items():
            if key.endswith("_split") and error.args == (split,):
                return f"its data have no split {split!r}, which {key} names"
    if isinstance(error, StopIteration):
        return "its data have no documents"
    if isinstance(error, LookupError):  # its words alone say nothing
        return f"{type(error).__name__} ({to_one_line(error)}) where its documents are read"
    return to_one_line(error)


def _has_relative(files: Any) -> bool:
    """Whether `data_files` (a path, a list of paths, or either by split) contains a relative path."""
    if isinstance(files, str):
        return not Path(files).is_absolute() and "://" not in files
    return any(map(_has_relative, files.values() if isinstance(files, dict) else files or ()))


def _advise_mirroring(benchmark: Benchmark, datasets: Path) -> str:
    return f"`rlfocal datasets mirror {datasets} --benchmarks {benchmark.name}` fetches it from the hub"


class Card(NamedTuple):
    """The front matter of a mirrored data set's README: the commit that was copied, and the
    configurations."""

    revision: str | None
    configs: frozenset[str]


def read_card(repository: Path) -> Card:
    """The card of a data set's folder; without revision and configurations if the folder has no card."""
    from huggingface_hub import metadata_load

    file = repository / DATASET_CARD
    content = (metadata_load(file) if file.exists() else None) or {}
    configs = frozenset(entry["config_name"] for entry in content.get("configs", ()))
    return Card(content.get("revision"), configs)

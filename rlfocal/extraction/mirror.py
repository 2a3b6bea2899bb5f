"""Makes mirrors of data sets: folders laid out like the hub's, from which stock tasks load without a
network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlfocal.base.atomic import replace_path
from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.lm_eval_tasks import (
    DATASET_CARD,
    HubDataset,
    Managers,
    dataset_failure,
    deterministic_loading,
    hub_dataset,
    quiet,
    read_card,
    task_config,
    task_manager,
    to_one_line,
)
from rlfocal.pool.specs import Benchmark

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_SUFFIX = "-00000-of-00001.parquet"
ONLY_CONFIGURATION = "default"  # the hub's name for the one configuration of a data set


class Copy(NamedTuple):
    """One configuration of a data set in the mirror."""

    repo: str
    config: str
    revision: str
    rows: int | None
    """The number of rows copied; None if the copy existed already."""


class _RequestedDataset(NamedTuple):
    """A data set that a benchmark's tasks read, with the options that they pass to `datasets`."""

    dataset: HubDataset
    benchmark: Benchmark
    options: Mapping[str, Any]


def mirror_datasets(
    folder: Path,
    benchmarks: Iterable[Benchmark],
    source: Path | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> list[Copy]:
    """Writes every data set that the benchmarks read into `folder`. Existing copies are left alone.

    `source` is another mirror to copy from; None stands for the hub at the benchmarks' revisions. Raises
    InputError if `folder` holds another revision or the user lacks access, and RunError if loading fails.
    """
    wanted = _find_wanted(benchmarks)
    revisions: dict[str, str] = {}
    copies = []
    for done, want in enumerate(wanted, start=1):
        repo = want.dataset.repo
        config = want.dataset.config or ONLY_CONFIGURATION
        if repo not in revisions:
            revisions[repo] = _find_revision(want, source)
            there = read_card(folder / repo).revision
            if there is not None and there != revisions[repo]:
                raise InputError(
                    f"{folder / repo} holds revision {there!r} of {repo}, not {revisions[repo]!r}; remove "
                    "it, or mirror into another folder"
                )
        if config in read_card(folder / repo).configs:
            copies.append(Copy(repo, config, revisions[repo], None))
        else:
            splits = _load(want, revisions[repo], source)
            write_config(folder, repo, config, splits, revisions[repo])
            rows = sum(table.num_rows for table in splits.values())
            copies.append(Copy(repo, config, revisions[repo], rows))
        if on_progress is not None:
            on_progress("mirror data sets", done / len(wanted))
    return copies


def write_config(mirror: Path, repo: str, config: str, splits: Mapping[str, pa.Table], revision: str) -> Path:
    """Writes a configuration to `mirror/repo/config/<split>-00000-of-00001.parquet`, and lists it in the
    repository's card. Returns the configuration's folder, which appears whole or not at all, and replaces an
    existing one."""
    import pyarrow.parquet as pq

    folder = mirror / repo / config
    with replace_path(folder) as staged:
        staged.mkdir()
        for split, table in splits.items():
            pq.write_table(table, staged / f"{split}{SHARD_SUFFIX}", compression="zstd")
        shutil.rmtree(folder, ignore_errors=True)
    _write_card(mirror / repo, repo, revision)
    return folder


def _find_wanted(benchmarks: Iterable[Benchmark]) -> list[_RequestedDataset]:
    managers: Managers = {}
    wanted: dict[HubDataset, _RequestedDataset] = {}
    for benchmark in benchmarks:
        with quiet():
            manager = task_manager(benchmark, managers)
        for name in benchmark.tasks.values():
            config = task_config(name, manager)
            if (dataset := hub_dataset(config)) is not None:
                wanted.setdefault(
                    dataset, _RequestedDataset(dataset, benchmark, config.get("dataset_kwargs") or {})
                )
    return list(wanted.values())


def _find_revision(want: _RequestedDataset, source: Path | None) -> str:
    """The commit to copy: the one that `source` holds if it is given, else the benchmark's, else the
    newest."""
    repo = want.dataset.repo
    if source is not None:
        if not (source / repo).is_dir():
            raise InputError(f"data set {repo!r} of {want.benchmark.name} is not in {source}")
        return read_card(source / repo).revision or "unknown"
    if want.benchmark.dataset_revision is not None:
        return want.benchmark.dataset_revision
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(repo).sha)
    except Exception as error:
        raise _explain_failure(error, want, None) from error


def _load(want: _RequestedDataset, revision: str, source: Path | None) -> dict[str, pa.Table]:
    """Every split of the data set, as the hub has it, or another mirror (`source`)."""
    import datasets

    repo, config = want.dataset
    options = {k: v for k, v in want.options.items() if k not in ("revision", "trust_remote_code")}
    try:
        with deterministic_loading() as scratch:
            if source is None:
                loaded = datasets.load_dataset(repo, config, revision=revision, **options)
            else:
                options |= {"cache_dir": str(scratch), "keep_in_memory": True}
                loaded = datasets.load_dataset(str((source / repo).resolve()), config, **options)
            return {str(split): data.with_format("arrow")[:] for split, data in loaded.items()}
    except Exception as error:
        raise _explain_failure(error, want, source) from error


def _explain_failure(error: Exception, want: _RequestedDataset, source: Path | None) -> Exception:
    failure = dataset_failure(error, want.dataset, want.benchmark, source)
    return failure or RunError(f"data set {want.dataset.repo!r} cannot be loaded: {to_one_line(error)}")


def _write_card(repository: Path, repo: str, revision: str) -> None:
    """Writes the card of a data set's folder. From its front matter, `datasets` reads which files make which
    configuration."""
    from huggingface_hub import metadata_save

    configs = [
        {
            "config_name": folder.name,
            "data_files": [
                {"split": file.name.removesuffix(SHARD_SUFFIX), "path": f"{folder.name}/{file.name}"}
                for file in sorted(folder.glob(f"*{SHARD_SUFFIX}"))
            ],
        }
        for folder in sorted(repository.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    with replace_path(repository / DATASET_CARD) as staged:
        staged.write_text(f"A copy of the data set {repo}, made by `rlfocal datasets mirror`.\n")
        metadata_save(staged, {"configs": configs, "revision": revision})

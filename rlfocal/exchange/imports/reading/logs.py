"""Finds lm-eval's logs: files of samples, the results file of the same run, and data sets of both on the
hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlfocal.base.errors import InputError, describe_error
from rlfocal.exchange.imports.reading import find_files, plain_stem, plain_suffix, read_json
from rlfocal.extraction.lm_eval_tasks import hub_dataset

_DATE_PATTERN = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_SAMPLES_FILE = re.compile(rf"samples_(?P<task>.+)_(?P<date>{_DATE_PATTERN})")
# A data set of the hub as Parquet: folders, or file names, of ORG__MODEL__TASK.
_CONFIGURATION_NAME = re.compile(r"(?P<model>.+?__.+?)__(?P<task>leaderboard_\w+)")
# lm-eval's folder of a model that has a hub id.
_MODEL_FOLDER = re.compile(r"(?P<model>[^_].*?__.+)")
_LOG_SUFFIXES = (".jsonl", ".json", ".parquet")


class Log(NamedTuple):
    """A file of samples: one model's responses to one task."""

    path: Path
    task: str
    """The task's name in lm-eval."""
    date: str
    model: str
    run: Mapping[str, Any]
    """The content of the run's results file; empty if there is none."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The task's definition; empty if the results file has none."""
        of_task = _get_nested(self.run, "configs", self.task)
        return of_task if isinstance(of_task, Mapping) else {}

    @property
    def asks_all_alike(self) -> bool:
        """Whether all models got the same prompts. That is certain only of a run without a chat template."""
        return bool(self.run) and not (self.run.get("chat_template_sha") or self.run.get("chat_template"))

    @property
    def details(self) -> dict[str, Any]:
        """The settings of the lm-eval run that an import stores."""
        n_whole = _get_nested(self.run, "n-samples", self.task, "original")
        values = {
            "samples": self.path.name,
            "lm_eval": self.run.get("lm_eval_version"),
            "task_version": _get_nested(self.run, "versions", self.task),
            "num_fewshot": _get_nested(self.run, "n-shot", self.task),
            "chat_template_sha": self.run.get("chat_template_sha"),
            "n_whole": n_whole if isinstance(n_whole, int) and 0 < n_whole < 2**31 else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def facts(self) -> dict[str, Any]:
        """Those columns of the table `tasks` that the log has."""
        n_fewshot, version = self.details.get("num_fewshot"), self.details.get("task_version")
        texts = {name: value for name, value in self.config.items() if isinstance(value, str)}
        hub = hub_dataset(texts)
        return {
            "lm_eval_task": self.task,
            "version": None if version is None else str(version),
            "num_fewshot": n_fewshot if isinstance(n_fewshot, int) and 0 <= n_fewshot < 2**31 else None,
            "dataset": hub and hub.repo,
            "dataset_config": hub and hub.config,
            "tag": texts.get("tag"),
        }


def find_logs(
    paths: Sequence[str | Path], model: str | None = None, names: Mapping[str, str] | None = None
) -> tuple[list[Log], list[str]]:
    """The latest log of every model and task under files and folders, and a sentence on each log that is left
    out.

    `model` names the model in place of the results file. `names` maps model names, or files and folders, to
    rlfocal's names of models. Raises InputError if there are no logs, if a model has no name, or if a key of
    `names` exists nowhere.
    """
    advice = "samples_TASK_DATE.jsonl; run lm-eval with --log_samples and --output_path"
    files = find_files(
        paths, lambda p: plain_suffix(p) in _LOG_SUFFIXES and _match_name(p) is not None, advice
    )
    names = {str(Path(before)): after for before, after in (names or {}).items()}
    logs = [_log(path, model, names) for path in files]
    there = {name for log in logs if (name := _find_model_name(log.run, log.path))}
    places = {str(place) for log in logs for place in (log.path, *log.path.parents)}
    for lost in names.keys() - there - places:
        models, folders = (", ".join(sorted(named)) for named in (there, {str(p.parent) for p in files}))
        raise InputError(
            f"--name {lost}={names[lost]}: there is no such model, file or folder; the models are "
            f"{models or 'not named'}, and the logs are in {folders}"
        )
    if model is not None and len(there) > 1:
        raise InputError(
            f"--model {model} names one model, but these are runs of {', '.join(sorted(there))}; "
            "import each separately"
        )
    latest: dict[tuple[str, str], Log] = {}
    left = []
    for log in sorted(logs, key=lambda log: (log.date, str(log.path))):
        if (earlier := latest.get((log.model, log.task))) is not None:
            left.append(f"{earlier.path} (an earlier run of {log.task} by {log.model})")
        latest[log.model, log.task] = log
    for key in [key for key in latest if _is_group(key, latest)]:
        left.append(f"{latest.pop(key).path} (a group; its tasks have their own files)")
    return sorted(latest.values(), key=lambda log: (log.model, log.task)), left


def _is_group(key: tuple[str, str], logs: Iterable[tuple[str, str]]) -> bool:
    """Whether a log is that of a group of tasks. The leaderboard's data sets repeat the rows of its tasks
    under the group's name."""
    model, task = key
    if not task.startswith("leaderboard_"):
        return False
    return any(other == model and name.startswith(f"{task}_") for other, name in logs)


def _match_name(path: Path) -> re.Match[str] | None:
    """The match of a samples file's name, with its task and possibly its date and model; None for other
    files."""
    if match := _SAMPLES_FILE.fullmatch(plain_stem(path)):
        return match
    if path.suffix != ".parquet":
        return None
    names = (path.stem, *(parent.name for parent in path.parents))
    return next((match for name in names if (match := _CONFIGURATION_NAME.fullmatch(name))), None)


def _log(path: Path, model: str | None, names: Mapping[str, str]) -> Log:
    match = _match_name(path)
    assert match is not None
    groups = match.groupdict()
    # Splits of the hub's data sets are dates, and `latest`, which sorts after them.
    date = groups.get("date") or path.parent.name
    run = _read_results(path, date) if "date" in groups else {}
    own = {str(place) for place in (path, *path.parents)} & names.keys()
    name = model or (names[max(own, key=len)] if own else _find_model_name(run, path))
    if not name:
        raise InputError(
            f"{path}: there is no results_{date}.json with a model_name next to it; give --model NAME, or "
            "--name PATH=NAME with this file or its folder"
        )
    name = names.get(name, name)
    return Log(path, groups["task"], date, name, run)


def _find_model_name(run: Mapping[str, Any], path: Path) -> str | None:
    if name := run.get("model_name"):
        if not isinstance(name, str):
            raise InputError(f"{path}: the model_name of its run is not text but {name!r:.60}")
        return name
    match = _match_name(path)
    configured = match.groupdict().get("model") if match else None
    if configured is None and (folder := _MODEL_FOLDER.fullmatch(path.parent.name)):
        configured = folder["model"]
    return configured.replace("__", "/", 1) if configured else None


def _read_results(samples: Path, date: str) -> Mapping[str, Any]:
    for path in sorted(samples.parent.glob(f"*_{date}.json*")):
        if path.name.startswith("samples_") or plain_suffix(path) != ".json":
            continue
        content = read_json(path, "write the log again")
        if isinstance(content, dict) and "results" in content:
            return content
    return {}


def _get_nested(run: Mapping[str, Any], *keys: str) -> Any:
    value: Any = run
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LEADERBOARD_OWNER = "open-llm-leaderboard"
_LOG_PATTERNS = ("**/samples_*", "**/results_*", "samples_*", "results_*", "*.parquet")


def local_path(source: str | Path) -> Path:
    """The local path of a source. A hub id stands for its details data set, which is downloaded to the local
    cache if needed."""
    if Path(source).exists() or not _HUB_ID.fullmatch(str(source)):
        return Path(source)
    name = str(source)
    repo = name if name.endswith("-details") else f"{_LEADERBOARD_OWNER}/{name.replace('/', '__')}-details"
    return _fetch(name, repo)


def _fetch(source: str, repo: str) -> Path:
    """Downloads the data set `repo`, unless it is in the hub's local cache. Returns its folder."""
    from huggingface_hub import constants, errors, snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    try:
        return Path(snapshot_download(repo, repo_type="dataset", allow_patterns=list(_LOG_PATTERNS)))
    except errors.GatedRepoError as error:
        raise InputError(
            f"{repo} is gated; accept its terms at {endpoint}/datasets/{repo}, then set HF_TOKEN to a token "
            "of that account"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"there is no file or folder {source}, and no data set {repo} at {endpoint}; give a path, a "
            "model's hub id or a details data set's"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise InputError(
            f"there is no file or folder {source}, and the hub cannot be asked for {repo}; fetch it where "
            f"there is a network (`hf download --repo-type dataset {repo}`), and give its folder"
        ) from error
    except errors.HfHubHTTPError as error:
        raise InputError(
            f"the hub refuses {repo}: {describe_error(error)}; check HF_TOKEN (`hf auth whoami`)"
        ) from error

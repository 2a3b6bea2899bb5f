"""`import leaderboard`: details of the Open LLM Leaderboard v2, from files or from the hub.

They are lm-eval's samples, one data set per model (open-llm-leaderboard/ORG__MODEL-details), as JSON or, if
the hub or `datasets` converted them, as Parquet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rlfocal.base.errors import InputError
from rlfocal.base.failures import plain
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import Gathered
from rlfocal.exchange.imports.lm_eval import LoggedBenchmark, LoggedModel, import_lm_eval
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OWNER = "open-llm-leaderboard"
_WANTED = ("**/samples_*", "**/results_*", "samples_*", "results_*", "*.parquet")


@Importer
def import_leaderboard(
    sources: Annotated[
        Sequence[str | Path],
        Option(
            "Folders or files (JSON, JSONL, Parquet), or hub ids of models or of details data sets.",
            metavar="PATH|ID...",
            is_repeated=True,
        ),
    ],
    *,
    model: LoggedModel = None,
    benchmark: LoggedBenchmark = None,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> Gathered:
    """Import details of the Open LLM Leaderboard v2 (BBH, GPQA, MuSR, MMLU-Pro, ...). All or nothing.

    An id is fetched from the hub: `rlfocal import leaderboard meta-llama/Meta-Llama-3-70B`.
    """
    paths = [_local(str(source)) for source in sources]
    rows = import_lm_eval.gather(
        paths, model=model, benchmark=benchmark, allow_missing=allow_missing, on_progress=on_progress
    )
    rows.kind = "leaderboard"
    return rows


def _local(source: str) -> Path:
    if Path(source).exists() or not _HUB_ID.fullmatch(source):
        return Path(source)
    repo = source if source.endswith("-details") else f"{_OWNER}/{source.replace('/', '__')}-details"
    return _fetch(source, repo)


def _fetch(source: str, repo: str) -> Path:
    """The data set in the hub's local cache."""
    from huggingface_hub import constants, errors, snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    try:
        return Path(snapshot_download(repo, repo_type="dataset", allow_patterns=list(_WANTED)))
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
            f"the hub refuses {repo}: {plain(error)}; check HF_TOKEN (`hf auth whoami`)"
        ) from error

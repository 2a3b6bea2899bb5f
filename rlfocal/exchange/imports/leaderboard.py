"""`import leaderboard`: details of the Open LLM Leaderboard v2, from files or from the hub.

They are lm-eval's samples, one data set per model (open-llm-leaderboard/ORG__MODEL-details), as JSON or, if
the hub or `datasets` converted them, as Parquet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.base.failures import plain
from rlfocal.exchange.imports.gathered import OnProgress, importer
from rlfocal.exchange.imports.lm_eval import read_lm_eval
from rlfocal.exchange.imports.rows import CheckedRows

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OWNER = "open-llm-leaderboard"
_WANTED = ("**/samples_*", "**/results_*", "samples_*", "results_*", "*.parquet")


@contextmanager
def read_leaderboard(
    sources: Sequence[str | Path],
    *,
    model: str | None = None,
    benchmark: str | None = None,
    allow_missing: bool = False,
    on_progress: OnProgress | None = None,
) -> Iterator[CheckedRows]:
    """Reads and checks folders or files, or a model's details from the hub, as `read_lm_eval` does.

    A source that is not a path is a hub id: of a model (ORG/MODEL), or of a details data set.
    """
    paths = [_local(str(source)) for source in sources]
    with read_lm_eval(
        paths,
        model=model,
        benchmark=benchmark,
        allow_missing=allow_missing,
        kind="leaderboard",
        on_progress=on_progress,
    ) as checked:
        yield checked


import_leaderboard = importer(read_leaderboard)


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

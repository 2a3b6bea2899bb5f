"""Details of the Open LLM Leaderboard v2, which are lm-eval's samples, from the hub.

One data set per model (open-llm-leaderboard/ORG__MODEL-details), as JSON or, if converted, as Parquet.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.base.failures import plain

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OWNER = "open-llm-leaderboard"
_WANTED = ("**/samples_*", "**/results_*", "samples_*", "results_*", "*.parquet")


def local_path(source: str | Path) -> Path:
    """A path as it is; of the hub id of a model or of a details data set, the data set in the local cache."""
    if Path(source).exists() or not _HUB_ID.fullmatch(str(source)):
        return Path(source)
    name = str(source)
    repo = name if name.endswith("-details") else f"{_OWNER}/{name.replace('/', '__')}-details"
    return _fetch(name, repo)


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

"""What to say where the files of a model's weights are damaged, incomplete, or another model's."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.base.failures import plain


@contextmanager
def reading_weights(source: str) -> Iterator[None]:
    """Raises InputError, which names the file where it can, for weights that cannot be read.

    `source`: the model's folder or hub id.
    """
    from safetensors import SafetensorError

    try:
        yield
    except UnpicklingError as error:
        raise InputError(
            f"the weights of {source} are pickles that hold more than tensors, which can run code: use a "
            "revision with *.safetensors, or convert them with save_pretrained where you trust them"
        ) from error
    except (SafetensorError, EOFError, OSError) as error:
        # transformers' and the hub's own errors say what is missing.
        if isinstance(error, OSError) and not (
            type(error) is FileNotFoundError or error.errno == errno.EINVAL
        ):
            raise
        raise InputError(
            f"the weights of {_damaged(source) or source} cannot be read: {plain(error)}; the file is cut "
            "short, missing or not fetched (`git lfs pull`): download it again"
        ) from error


def check_complete(source: str, loading: Mapping[str, Any]) -> None:
    """Raises InputError if tensors of the model are not in its files: it would answer from random numbers.

    `loading`: what transformers says of it.
    """
    for names, fault in (
        (loading["missing_keys"], "are missing"),
        ([name for name, *_ in loading["mismatched_keys"]], "have another shape"),
    ):
        if names:
            raise InputError(
                f"the weights of {source} do not fit its config.json: {len(names)} of its tensors {fault}, "
                f"such as {min(names)}; download both again, from one revision"
            )


def _damaged(source: str) -> Path | None:
    """The first file of a folder that holds no tensors."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(Path(source).glob("*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError:
            return file
    return None

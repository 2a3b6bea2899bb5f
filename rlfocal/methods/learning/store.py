"""Checkpoints and unfinished trainings as files. Torch is imported only when tensors are read or written.

A file is safetensors, whose metadata hold JSON and a digest over both. Reading it runs no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, deserialize

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Episode

if TYPE_CHECKING:
    from torch import Tensor

_METADATA_KEY = "rlfocal"
"""The only key of the metadata, because safetensors writes several keys in no fixed order."""


class Format(NamedTuple):
    """The purpose of a file, and the version of its format."""

    name: str
    version: int


CHECKPOINT_FORMAT = Format("checkpoint", 1)
TRAINING_FORMAT = Format("unfinished training", 2)


class UnusableError(Exception):
    """Raised for a file that cannot be used; the message says why, without the file's name."""


class _Seal(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    format: str
    version: int
    about: dict[str, Any]
    sha256: str


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], form: Format, metadata: Mapping[str, Any]
) -> None:
    """Writes one file, which appears whole or not at all. Equal contents give equal bytes."""
    from safetensors.torch import save

    whole = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    header = {"format": form.name, "version": form.version, "about": dict(metadata)}
    sealed = json.dumps(header | {"sha256": _digest(header, _list_tensors(save(whole)))})
    write_file(path, save(whole, {_METADATA_KEY: sealed}))


def read_about(path: Path, form: Format) -> dict[str, Any]:
    """The JSON of a file, whose digest is checked. Raises UnusableError if the file cannot be used."""
    return _read_metadata(_read_content(path), form)


def trained_on(checkpoints: Path) -> set[int]:
    """The numbers of the snapshots that the checkpoints under a folder were trained on."""
    snapshots = set()
    for path in checkpoints.rglob("*.safetensors"):
        with suppress(UnusableError):  # a damaged checkpoint pins nothing; training again replaces it
            snapshots.add(read_about(path, CHECKPOINT_FORMAT)["snapshot"])
    return snapshots


def read_tensors(path: Path, form: Format) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON and the tensors of a file, whose digest is checked. Raises UnusableError as `read_about`."""
    from safetensors.torch import load

    content = _read_content(path)
    about = _read_metadata(content, form)
    try:
        # Copied to where torch puts its own tensors: sums depend on how numbers are aligned.
        return about, {name: value.clone() for name, value in load(content).items()}
    except KeyError as error:
        raise UnusableError(f"the file has numbers of a type that torch does not know ({error})") from error


def select_tensors(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, by their names without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def first_fault(error: ValidationError) -> str:
    """Pydantic's first error as one line, with the name of the field."""
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    what = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {what}" if place else what


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise UnusableError(f"the file cannot be read ({reason})") from error


def _read_metadata(content: bytes, form: Format) -> dict[str, Any]:
    """The JSON in the metadata of a safetensors file. Raises UnusableError unless the digest matches."""
    try:
        parts = _list_tensors(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, ValueError, RecursionError) as error:
        raise UnusableError(f"the file is not a whole safetensors file ({error})") from error
    if _METADATA_KEY not in metadata:
        raise UnusableError("the file is a safetensors file, but not one of this rlfocal")
    try:
        seal = _Seal.model_validate_json(metadata[_METADATA_KEY])
    except ValidationError as error:
        raise UnusableError(f"the file is damaged ({first_fault(error)})") from error
    if _digest(seal.model_dump(exclude={"sha256"}), parts) != seal.sha256:
        raise UnusableError("the file is damaged: its contents do not match their digest")
    if seal.format != form.name:
        raise UnusableError(f"the file is of another kind: {seal.format}, not {form.name}")
    if seal.version != form.version:
        which = "an older" if seal.version < form.version else "a newer"
        raise UnusableError(f"the file was written by {which} rlfocal")
    return seal.about


def _list_tensors(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Every tensor's name, with its dtype, shape and data, sorted by name."""
    return sorted(deserialize(content), key=lambda part: part[0])  # type: ignore[no-untyped-call]


def _digest(header: Mapping[str, Any], parts: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """SHA-256 of the JSON, and of every tensor's name, dtype, shape and bytes."""
    digest = sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in parts:
        digest.update(json.dumps([name, tensor["dtype"], tensor["shape"]]).encode())
        digest.update(tensor["data"])
    return digest.hexdigest()


class Header(BaseModel):
    """The fields that every checkpoint stores beside its tensors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    method: str
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    history: tuple[Episode, ...]

    @classmethod
    def make_metadata(cls, agents: Any) -> dict[str, Any]:
        """The header's fields of these agents, by their names in a file."""
        fields = {field.alias or name: getattr(agents, name) for name, field in cls.model_fields.items()}
        return fields | {"config": asdict(agents.config)}

    def fields(self) -> dict[str, Any]:
        """The agents' fields that a header holds, by their names."""
        return dict(self)


EPISODES_PER_SAVE = 5
"""The number of training episodes between two saves of an unfinished training."""


@dataclass(frozen=True)
class UnfinishedTraining:
    """The file from which a killed training resumes; its name is a hash of data, settings and seeds."""

    path: Path

    @classmethod
    def locate(
        cls, folder: Path, revision: int, rows: Dataset, seeds: Sequence[int], settings: Any
    ) -> UnfinishedTraining:
        about = json.dumps([revision, rows.fingerprint(), list(seeds), asdict(settings)])
        return cls(folder / f"unfinished-{sha256(about.encode()).hexdigest()[:16]}.safetensors")

    def history(self) -> list[Episode]:
        """The episodes that were finished when the file was saved; empty without a complete file."""
        stored = self.read()
        return [] if stored is None else [Episode(*row) for row in stored[0]["history"]]

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The JSON and the tensors of the last save; None without a complete file."""
        try:
            return read_tensors(self.path, TRAINING_FORMAT)
        except UnusableError:
            return None

    def write(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        write_tensors(self.path, tensors, TRAINING_FORMAT, metadata)

    def forget(self) -> None:
        """Deletes the file, because training is done."""
        self.path.unlink(missing_ok=True)


def require_tensorboard() -> None:
    """Raises InputError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError("TensorBoard is not installed; pip install 'rlfocal[tensorboard]'")


def write_event_files(history: Sequence[Episode], folder: Path) -> None:
    """Writes a history as event files of TensorBoard, with a scalar `phase/quantity` for each episode.

    Earlier event files in the folder are replaced.

    Raises InputError if TensorBoard is not installed.
    """
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        with SummaryWriter(str(partial)) as writer:
            for episode in history:
                values = episode._asdict()
                phase, step = values.pop("phase"), values.pop("episode")
                for name, value in values.items():
                    if value is not None:
                        writer.add_scalar(f"{phase}/{name}", value, step)
        rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    finally:
        rmtree(partial, ignore_errors=True)

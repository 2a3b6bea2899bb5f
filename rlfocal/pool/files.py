"""Reads pools, models' entries and benchmarks from YAML files, and adds models to pools or removes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlfocal.base.atomic import replace_path, write_file
from rlfocal.base.errors import InputError, unknown_name, without_secrets
from rlfocal.pool.fields import NAME_ADVICE, NAME_PATTERN
from rlfocal.pool.reading import read_text, read_yaml, with_entry, with_values, without_entry
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec

Value = TypeVar("Value", ModelSpec, PoolSpec, Benchmark)
MAX_PROBLEMS_SHOWN = 2  # of the problems of one file
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,96})?")
PACKAGE = Path(str(resources.files("rlfocal")))
OWN_FOLDERS = (Path(".rlfocal") / "pools", Path("pools"))
"""The folders of the user's pools; the first has priority. In a checkout of rlfocal, `pools` has the shipped
pools."""
COPIES = Path(".rlfocal") / "copied-pools"
"""A file that lists the user's copies of shipped pools, one path a line. Only these copies are ever
deleted."""


def find_packaged(name: str) -> Path:
    """A folder that ships with rlfocal: inside the installed package, or beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def find_pool(pool: str) -> Path:
    """The file of a pool: a path, or the first NAME.yaml in ./.rlfocal/pools, ./pools and the shipped pools.
    Raises InputError if there is none."""
    if Path(pool).suffix in {".yaml", ".yml"}:
        if Path(pool).is_file():
            return Path(pool)
        raise InputError(
            f"pool file {pool!r} does not exist; give a pool ({', '.join(pool_names())}) or a YAML file"
        )
    for folder in (*OWN_FOLDERS, find_packaged("pools")):
        if (path := folder / f"{pool}.yaml").is_file():
            return path
    raise unknown_name("pool", pool, pool_names())


def pool_names() -> list[str]:
    folders = (*OWN_FOLDERS, find_packaged("pools"))
    return sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")})


def load_pool(pool: str) -> PoolSpec:
    """Reads and checks a pool. Raises InputError with the file, the key and the reason."""
    return _read_pool(find_pool(pool))


def _read_pool(path: Path) -> PoolSpec:
    content = read_yaml(path)
    with _name_keys():
        if isinstance(content.get("benchmarks"), list):
            content["benchmarks"] = _read_definitions(content["benchmarks"], load_benchmarks(), path)
        if isinstance(content.get("models"), list):
            content["models"] = [_with_directories(entry, path) for entry in content["models"]]
        return _check(PoolSpec, content, path)


def load_entry(path: Path) -> ModelSpec:
    """Reads and checks the entry of one model, which `add-model` takes. Raises InputError with the file, the
    key and the reason."""
    if not path.is_file():
        raise InputError(
            f"model entry {str(path)!r} does not exist; write a YAML file with model, hf_repo, params_b, ..."
        )
    content = read_yaml(path)
    with _name_keys():
        return _check(ModelSpec, _with_directories(content, path), path)


@contextmanager
def _name_keys() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{error}. Every key: docs/pools.md") from error


def _with_directories(entry: Any, path: Path) -> Any:
    """An unchecked entry with relative directories resolved from the folder of its file. Raises InputError
    for a directory that is written like a hub id."""
    if not isinstance(entry, dict):
        return entry
    own = dict(entry)
    for key in ("hf_repo", "adapter"):
        given = own.get(key)
        if isinstance(given, str) and given.startswith("."):
            own[key] = str((path.parent / given).resolve())
        elif isinstance(given, str) and HUB_ID.fullmatch(given):
            for folder in (path.parent, Path()):
                if (folder / given).exists():
                    raise InputError(
                        f"{path}: {key} {given!r} is a hub id, but {folder / given} exists too; for that, "
                        f"write ./{given} (from the folder of {path.name}) or its whole path, else move it"
                    )
    return own


def load_benchmarks() -> dict[str, Benchmark]:
    """The benchmarks that ship with rlfocal, by name."""
    benchmarks: dict[str, Benchmark] = {}
    for path in (PACKAGE / "lab" / "benchmarks.yaml", PACKAGE / "pool" / "benchmarks.yaml"):
        if path.is_file():
            entries = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
            for definition in _read_definitions(entries, benchmarks, path):
                benchmark = _check(Benchmark, definition, path)
                benchmarks[benchmark.name] = benchmark
    return benchmarks


def add_to_pool(pool: str, entry: ModelSpec, source: Path) -> Path:
    """Writes an entry (the text of `source`) to the end of a pool's models. Every other byte of the file
    stays.

    Returns the file that has it: the pool's own or, for a pool that ships with rlfocal, the user's copy.
    Raises InputError, and changes nothing, if the pool with the entry could not be read back.
    """
    path, target = _find_editable_files(find_pool(pool))
    read = _read_pool(path)
    before = read.models
    if entry.model in {model.model for model in before}:
        raise InputError(
            f"pool {pool!r} already has a model {entry.model!r}; choose another name in {source}"
        )
    _check(PoolSpec, {**dict(read), "models": (*before, entry)}, source)
    wrong = f"the entry of {source} cannot be written into {target} as it stands; add it there by hand"
    moved = {
        key: str(getattr(entry, key))
        for key, given in read_yaml(source).items()
        if key in ("hf_repo", "adapter") and given != getattr(entry, key)  # it may lie elsewhere
    }
    with _explain(wrong):
        text = with_values(read_text(source), moved)
        added = with_entry(_read_raw(path), text)
    _replace(target, added, (*before, entry), wrong)
    if target != path:
        _keep_copies(_read_copies() | {target})
    return target


def remove_from_pool(pool: str, model: str) -> Path | None:
    """Removes a model from a pool's file, and returns the file; None if the pool has no such model. Every
    other byte stays.

    The user's copy of a pool that ships with rlfocal is deleted once it equals the original. Raises
    InputError, and changes nothing, for the only model of a pool.
    """
    path, target = _find_editable_files(find_pool(pool))
    before = _read_pool(path).models
    left = tuple(other for other in before if other.model != model)
    if left == before:
        return None
    if not left:
        raise InputError(f"{model!r} is the only model of {path}, and a pool needs one; delete the file")
    wrong = f"{model!r} cannot be cut out of {path}, as it stands; delete its entry by hand"
    with _explain(wrong):
        remaining = without_entry(_read_raw(path), model)
    shipped = find_packaged("pools") / target.name
    if target in _read_copies() and shipped.is_file() and _read_raw(shipped) == remaining:
        target.unlink(missing_ok=True)
        _keep_copies(_read_copies() - {target})
        with suppress(OSError):  # it holds other pools
            target.parent.rmdir()
    else:
        _replace(target, remaining, left, wrong)
        if target != path:
            _keep_copies(_read_copies() | {target})
    return target


def _read_copies() -> set[Path]:
    return set(map(Path, COPIES.read_text("utf-8").splitlines())) if COPIES.is_file() else set()


def _keep_copies(paths: Collection[Path]) -> None:
    if paths:
        write_file(COPIES, "".join(f"{path}\n" for path in sorted(paths)))
    else:
        COPIES.unlink(missing_ok=True)


def is_shipped(path: Path) -> bool:
    """Whether a pool's file ships with rlfocal. Such files are never changed."""
    return path.resolve().parent == find_packaged("pools").resolve()


def _find_editable_files(path: Path) -> tuple[Path, Path]:
    """The file that defines a pool now, and the file that a change to the pool is written to."""
    if not is_shipped(path):
        return path, path
    [target, *_] = (
        folder / path.name for folder in reversed(OWN_FOLDERS) if not is_shipped(folder / path.name)
    )
    return (target if target.is_file() else path), target


def _replace(target: Path, text: str, models: tuple[ModelSpec, ...], wrong: str) -> None:
    """Writes a pool's file. Raises InputError, and writes nothing, unless the file then has exactly these
    models."""
    with replace_path(target) as staged:
        staged.write_bytes(text.encode())
        with _explain(wrong):
            is_as_meant = _read_pool(staged).models == models
        if not is_as_meant:
            raise InputError(wrong)


@contextmanager
def _explain(wrong: str) -> Iterator[None]:
    """Raises InputError(wrong) if the YAML editor cannot edit a file that the faster parser reads, as with
    some aliases."""
    try:
        yield
    except (InputError, YAMLError, ValueError, LookupError, AttributeError) as error:
        raise InputError(wrong) from error


def _read_raw(path: Path) -> str:
    """The text of a file as it is on disk, with its line breaks and byte order mark."""
    return path.read_bytes().decode()


def _read_definitions(entries: Sequence[Any], registry: Mapping[str, Benchmark], path: Path) -> list[Any]:
    """The unchecked definition of each entry under `benchmarks`. An entry is a registered name, perhaps with
    `models`, or a definition, or a variant of either (`extends`)."""
    definitions: dict[str, Any] = dict(registry)
    defined = []
    for entry in entries:
        definition = _read_definition(entry, definitions, path)
        if isinstance(definition, dict):
            definitions[str(definition.get("name"))] = definition
        defined.append(definition)
    return defined


def _read_definition(entry: Any, definitions: Mapping[str, Any], path: Path) -> Any:
    if isinstance(entry, str):
        if entry not in definitions:
            raise unknown_name("benchmark", entry, definitions, str(path))
        return definitions[entry]
    if not isinstance(entry, dict):
        return entry
    own = dict(entry)
    if isinstance(folder := own.get("include_path"), str) and ":" not in folder:
        own["include_path"] = str((path.parent / folder).resolve())
    if own.keys() == {"name", "models"} and own["name"] in definitions:
        return _override(definitions[own["name"]], own)
    return _inherit(own.pop("extends"), own, definitions, path) if "extends" in own else own


def _inherit(base: Any, own: dict[str, Any], definitions: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The definition of the benchmark `base`, with the keys of an entry in place of the base's. Raises
    InputError unless `base` is a known benchmark and the entry's name begins with `base@`."""
    if not isinstance(base, str):
        raise InputError(f"{path}: extends must be the name of one benchmark, not {base!r:.80}")
    if base not in definitions:
        raise unknown_name("benchmark", base, definitions, f"extends in {path}")
    if not str(own.get("name", "")).startswith(f"{base}@"):
        raise InputError(f"{path}: benchmark {own.get('name')!r} extends {base!r}; name it {base}@SUFFIX")
    return _override(definitions[base], own)


def _override(base: Any, own: dict[str, Any]) -> dict[str, Any]:
    return {**(base.model_dump(exclude_unset=True) if isinstance(base, Benchmark) else base), **own}


def _check(kind: type[Value], content: Any, path: Path) -> Value:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = [_describe_problem(kind, problem) for problem in _leave_out_echoes(error.errors())]
        more = (
            [f"and {len(problems) - MAX_PROBLEMS_SHOWN} more"] if len(problems) > MAX_PROBLEMS_SHOWN else []
        )
        raise InputError(
            without_secrets(f"{path}: " + "; ".join(problems[:MAX_PROBLEMS_SHOWN] + more))
        ) from error


def _leave_out_echoes(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The problems without the lists that are only too short because of the problems of their items."""
    inner = {problem["loc"][:n] for problem in problems for n in range(len(problem["loc"]))}
    return [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in inner]


def _describe_problem(kind: type[Value], problem: ErrorDetails) -> str:
    place = ".".join(f"{key!s:.96}" for key in problem["loc"])
    if problem["type"] == "extra_forbidden":
        suggestion = unknown_name("key", str(problem["loc"][-1]), _list_keys(kind, problem["loc"]))
        return f"{place}: {suggestion}"
    if problem["type"] == "missing":
        return f"{place}: missing"
    # What a rule of ours refuses is a whole entry, perhaps with a secret in it.
    if problem["type"] == "value_error":
        message = problem["msg"].removeprefix("Value error, ")
        return f"{place}: {message}" if place else message
    is_name = problem.get("ctx", {}).get("pattern") == NAME_PATTERN
    message = NAME_ADVICE if is_name else problem["msg"]
    return f"{place or 'the file'}: {message} (got {without_secrets(repr(problem['input'])):.80})"


def _list_keys(kind: type[ModelSpec | PoolSpec | Benchmark], place: tuple[int | str, ...]) -> list[str]:
    owner: Any = (
        {"models": ModelSpec, "benchmarks": Benchmark}.get(str(place[0]), kind) if len(place) > 1 else kind
    )
    return list(owner.model_fields)

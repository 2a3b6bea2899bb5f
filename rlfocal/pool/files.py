"""Reading pools, entries and benchmarks from YAML, and adding an entry to a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML

from rlfocal.atomic import replacing
from rlfocal.errors import InputError, unknown
from rlfocal.failures import without_secrets
from rlfocal.pool.reading import read_text, read_yaml
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec

Value = TypeVar("Value", ModelSpec, PoolSpec, Benchmark)
SHOWN = 2  # of the problems of one file
PACKAGE = Path(str(resources.files("rlfocal")))


def packaged(name: str) -> Path:
    """A folder that travels with the wheel: inside the package there, beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parent / name


def find_pool(pool: str) -> Path:
    """The file of a pool: a path, ./pools/NAME.yaml, or one that ships with rlfocal. Else InputError."""
    if Path(pool).suffix in {".yaml", ".yml"}:
        if Path(pool).is_file():
            return Path(pool)
        raise InputError(
            f"pool file {pool!r} does not exist; give a pool ({', '.join(pool_names())}) or a YAML file"
        )
    for folder in (Path("pools"), packaged("pools")):
        if (path := folder / f"{pool}.yaml").is_file():
            return path
    raise unknown("pool", pool, pool_names())


def pool_names() -> list[str]:
    folders = (Path("pools"), packaged("pools"))
    return sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")})


def load_pool(pool: str) -> PoolSpec:
    """Read and check a pool. Raises InputError with the file, the key and the reason."""
    return _pool(find_pool(pool))


def _pool(path: Path) -> PoolSpec:
    content = read_yaml(path)
    if isinstance(content.get("benchmarks"), list):
        content["benchmarks"] = _definitions(content["benchmarks"], load_benchmarks(), path)
    return _checked(PoolSpec, content, path)


def load_entry(path: Path) -> ModelSpec:
    """Read and check one model entry (the argument of `add-model`)."""
    if not path.is_file():
        raise InputError(
            f"model entry {str(path)!r} does not exist; write a YAML file with model, hf_repo, params_b, ..."
        )
    return _checked(ModelSpec, read_yaml(path), path)


def load_benchmarks() -> dict[str, Benchmark]:
    """The benchmarks that ship with rlfocal, by name."""
    found: dict[str, Benchmark] = {}
    for path in (PACKAGE / "lab" / "benchmarks.yaml", PACKAGE / "pool" / "benchmarks.yaml"):
        if path.is_file():
            entries = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
            for definition in _definitions(entries, found, path):
                benchmark = _checked(Benchmark, definition, path)
                found[benchmark.name] = benchmark
    return found


def add_to_pool(pool: str, entry: ModelSpec, source: Path) -> Path:
    """Append an entry to a pool's file, comments kept; a shipped pool is copied to ./pools first.

    Raises InputError, and leaves the file unchanged, if the pool with the entry could not be read back.
    """
    path = find_pool(pool)
    target = Path("pools") / path.name if path.parent == packaged("pools") else path
    yaml = _yaml()
    content = yaml.load(read_text(path))
    content["models"].append(yaml.load(read_text(source)))
    if entry.model in {m["model"] for m in content["models"][:-1]}:
        raise InputError(
            f"pool {pool!r} already has a model {entry.model!r}; choose another name in {source}"
        )
    with replacing(target) as staged:
        yaml.dump(content, staged)
        if _pool(staged).models[-1] != entry:
            raise InputError(f"{source} means something else in {target}; write it without anchors and tags")
    return target


def _yaml() -> YAML:
    yaml = YAML()  # round-trip: keeps comments and order
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 120
    return yaml


def _definitions(entries: Sequence[Any], registry: Mapping[str, Benchmark], path: Path) -> list[Any]:
    """Each entry is a registered name, a definition, or a variant (`extends`) of either; unchecked."""
    known: dict[str, Any] = dict(registry)
    defined = []
    for entry in entries:
        definition = _definition(entry, known, path)
        if isinstance(definition, dict):
            known[str(definition.get("name"))] = definition
        defined.append(definition)
    return defined


def _definition(entry: Any, known: Mapping[str, Any], path: Path) -> Any:
    if isinstance(entry, str):
        if entry not in known:
            raise unknown("benchmark", entry, known, str(path))
        return known[entry]
    if not isinstance(entry, dict):
        return entry
    own = dict(entry)
    if isinstance(folder := own.get("include_path"), str) and ":" not in folder:
        own["include_path"] = str((path.parent / folder).resolve())
    return _inherited(own.pop("extends"), own, known, path) if "extends" in own else own


def _inherited(base: Any, own: dict[str, Any], known: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The base's definition, overridden. The name says whose variant it is: the questions are the same."""
    if not isinstance(base, str):
        raise InputError(f"{path}: extends must be the name of one benchmark, not {base!r:.80}")
    if base not in known:
        raise unknown("benchmark", base, known, f"extends in {path}")
    if not str(own.get("name", "")).startswith(f"{base}@"):
        raise InputError(f"{path}: benchmark {own.get('name')!r} extends {base!r}; name it {base}@SUFFIX")
    inherited = known[base]
    if isinstance(inherited, Benchmark):
        inherited = inherited.model_dump(exclude_unset=True)
    return {**inherited, **own}


def _checked(kind: type[Value], content: Any, path: Path) -> Value:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = [_problem(kind, problem) for problem in error.errors()]
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise InputError(without_secrets(f"{path}: " + "; ".join(problems[:SHOWN] + more))) from error


def _problem(kind: type[Value], problem: ErrorDetails) -> str:
    place = ".".join(f"{key!s:.96}" for key in problem["loc"]) or "the file"
    if problem["type"] == "extra_forbidden":
        known = unknown("key", str(problem["loc"][-1]), _keys_at(kind, problem["loc"]))
        return f"{place}: {known}"
    if problem["type"] == "missing":
        return f"{place}: missing"
    # What a rule of ours refuses is a whole entry, perhaps with a secret in it.
    given = without_secrets(repr(problem["input"]))
    got = "" if problem["type"] == "value_error" else f" (got {given:.80})"
    return f"{place}: {problem['msg']}{got}"


def _keys_at(kind: type[ModelSpec | PoolSpec | Benchmark], place: tuple[int | str, ...]) -> list[str]:
    owner: Any = (
        {"models": ModelSpec, "benchmarks": Benchmark}.get(str(place[0]), kind) if len(place) > 1 else kind
    )
    return list(owner.model_fields)

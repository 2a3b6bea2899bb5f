"""The registry of methods: one entry each, from which evaluations, checks, help texts and docs are made.

A method is one file: a class that follows `Method`, under `@register(Entry(...))`. Another package adds
methods by an entry point of the group `rlfocal.methods`, which names a module that registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import RIVALS, RL_FOCAL, START_METHOD, TEAM_LOG_LINEAR, refuse_gone
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Method, OwnSettings, refuse_renamed_hooks
from rlfocal.methods._by_task import PerTaskMethod
from rlfocal.methods.checking import Space, annotated_space, read_value

PROTOCOLS = ("frozen", "online")
Need = Literal["questions", "choice texts", "passes", "samples", "log-probs", "prices", "tasks"]
Reads = Literal["task", "question", "outputs"]
PLUS_TASK = "+task"
"""The suffix of the names of all methods that read the tasks' names."""
Settings = Mapping[str, Mapping[str, Any]]
"""For each method, settings that differ from the defaults. Those under "" go to every method with them."""
Role = Literal["rl_focal", "reference", "constant_pool", "rival", "control", "ceiling"]
"""The role of a method.

`reference`: always run beside RL-Focal. `constant_pool`: run beside it with as many models, unless methods
are named. `control`: RL-Focal without one of its parts, no rival. `ceiling`: reads labels, no rival.
"""


@dataclass(frozen=True)
class CheckpointStore:
    """The folder of trained agents, and whether saved ones are used instead of training again."""

    folder: Path
    reuse: bool = True
    event_files: bool = False
    """Whether each checkpoint gets a folder of the same name beside it, for TensorBoard."""


class MethodBase:
    """The base of methods that no seed changes, and whose `recipe` is their revision."""

    revision = "1"
    """A text to change whenever the method fits or decides differently than before."""
    registered_name: ClassVar[str] = ""
    """The name under which the class is registered."""

    @property
    def seeded(self) -> bool:
        return False

    def recipe(self, n_train: int) -> str:
        return self.revision


@dataclass(frozen=True)
class MethodArguments:
    """The arguments with which a method may be built."""

    argument: str | None = None
    """The text after the colon of the method's name."""
    store: CheckpointStore | None = None
    """The store of trained agents; None: agents are not saved."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of the method's settings that replace the defaults."""
    on_progress: Callable[[float], None] | None = None
    """A function called with the finished share of a fit, 0 to 1."""

    @property
    def size(self) -> int | None:
        """The argument as a number of models; None without an argument."""
        return None if self.argument is None else int(self.argument)


@dataclass(frozen=True)
class Entry:
    """The description of a method in the registry, and the function that builds it."""

    name: str
    asks: str
    """A phrase that says which models the method asks."""
    answers: str
    """A phrase that says how the method fuses the outputs."""
    role: Role = "rival"
    reads: tuple[Reads, ...] = ()
    """What the method's choices depend on: a task's name, the question, or outputs of models that it asked.

    The tasks' names are hidden from methods that do not list `task`. An output that is only passed on as the
    answer does not count.
    """
    with_task: Literal["fitted per task", "as an input"] | None = None
    """How `NAME+task` uses the task's name; None: there is no such method.

    `fitted per task`: one fit for each task, and one to all. `as an input`: one fit that sees the names.
    """
    kinds: tuple[Kind, ...] = get_args(Kind)
    protocols: tuple[str, ...] = PROTOCOLS
    fewest_models: int = 1
    needs: tuple[Need, ...] = ()
    """What the data must have, as keys of `_NEED_WORDS`."""
    needs_setting: str = ""
    """The setting without which the method cannot run, such as the model that it fine-tunes."""
    source: str = ""
    """A phrase that says where the method comes from."""
    differs: str = ""
    """A phrase on how the method differs from its source, and why."""
    argument: Literal["size", "model", "name"] | None = None
    """What may follow the method's name and a colon: a number of models, a model, or one of `names`."""
    names: tuple[str, ...] = ()
    needs_argument: bool = False
    has_budgets: bool = False
    """Whether the method's policies can be held to a budget."""
    is_default: bool = True
    """Whether the method runs when no method is named."""
    is_in_all: bool = True
    """Whether the method runs when all methods are requested."""
    make: Callable[[MethodArguments], Method] | None = None
    """The function that builds the method; None: its class is called without arguments."""
    package: str = ""
    """The package that registers the method; empty: rlfocal itself."""
    space: Mapping[str, Space] = field(default_factory=dict)
    """The settings that `--tune` searches, with their ranges; by default, the fields `Annotated` with one.

    Settings that weigh calls or cents are never among them, because a search for accuracy would pay any cost.
    """

    @property
    def pattern(self) -> str:
        """The method's name as users write it: `random_select[:<size>]`."""
        argument = ":" + ("|".join(self.names) if self.names else f"<{self.argument}>")
        return self.name + (argument if self.needs_argument else f"[{argument}]" if self.argument else "")

    @property
    def needs_in_words(self) -> str:
        """What the data must have, for tables; empty if any data will do."""
        needs = [_NEED_WORDS[need] for need in self.needs]
        needs += ["numbered choices"] if self.kinds == ("choices",) else []
        needs += ["free answers"] if self.kinds == ("answers",) else []
        needs += ["--protocol online"] if self.protocols == ("online",) else []
        needs += [f"--set {self.name}.{self.needs_setting}=..."] if self.needs_setting else []
        return ", ".join([*needs, *([f"{self.fewest_models} models"] if self.fewest_models > 1 else [])])

    def explain_missing(
        self, data: Dataset, protocol: str, settings: Settings | None = None, per: str = "benchmark"
    ) -> str | None:
        """A clause on why the method cannot run, such as "needs several samples"; None if it can run."""
        has_passes = data.kind == "answers" and bool(((data.probs > 0) & (data.probs < 1)).any())
        has = {
            "questions": any(data.questions),
            "choice texts": any(data.choices),
            "passes": has_passes,
            "samples": has_passes or data.has_logprobs,
            "log-probs": not data.sampled,
            "prices": not np.isnan(data.prices).any(),
            "tasks": per == "benchmark" and len(set(data.tasks.tolist())) > 1,
        }
        missing = [need for need in self.needs if not has[need]]
        if protocol not in self.protocols:
            return f"needs --protocol {' or '.join(self.protocols)}"
        if data.kind not in self.kinds:
            return "needs numbered choices" if data.kind == "answers" else "needs free answers"
        if len(data.models) < self.fewest_models:
            return f"needs at least {self.fewest_models} models"
        if missing:
            who = f" that {', '.join(data.sampled)} have" if missing[0] == "log-probs" else ""
            return f"needs {_NEED_WORDS[missing[0]]}{who}"
        needed, given = self.needs_setting, settings or {}
        is_set = not needed or any(given.get(whose, {}).get(needed) for whose in ("", self.name))
        return None if is_set else f"needs its {needed} named by --set {self.name}.{needed}=..."

    def admits(self, n_models: int, kind: Kind, protocol: str) -> bool:
        """Whether the method can run with this number of models, kind of documents and protocol."""
        return n_models >= self.fewest_models and kind in self.kinds and protocol in self.protocols


_NEED_WORDS: dict[Need, str] = {
    "questions": "the texts of the questions",
    "choice texts": "the texts of the choices",
    "passes": "several samples per document",
    "samples": "several samples per document or log-probs, not scores scaled to a unit interval",
    "log-probs": "log-probs of choices, not the shares of sampled letters",
    "prices": "the price of every model",
    "tasks": "several tasks in one fit",
}
_ENTRIES: dict[str, Entry] = {}
_MODULES: dict[str, str] = {}
"""For each method, the top package of the module that registered it."""
MethodT = TypeVar("MethodT", bound=Callable[..., Method])


def register(entry: Entry) -> Callable[[MethodT], MethodT]:
    """Registers the decorated class or function, and its `+task` form if its entry has one.

    Raises ValueError for a name that is registered, and for a name that does or does not end in `+task`
    against what the entry reads. Raises InputError for a class with an optional function's earlier name.
    """

    def enter(made: MethodT) -> MethodT:
        make, space = entry.make or (lambda _: made()), entry.space or annotated_space(made)
        complete = replace(entry, make=make, space=space)
        if isinstance(made, type):
            refuse_renamed_hooks(made)
            setattr(made, "registered_name", entry.name)  # noqa: B010
        for entered in [complete, *([_add_task(complete)] if complete.with_task else [])]:
            if entered.name in _ENTRIES:
                raise ValueError(f"method {entered.name!r} is registered already")
            if entered.name.endswith(PLUS_TASK) != ("task" in entered.reads):
                raise ValueError(
                    f"method {entered.name!r} reads {entered.reads}: a name ends in {PLUS_TASK} if and "
                    "only if the method reads task"
                )
            _ENTRIES[entered.name] = entered
            _MODULES[entered.name] = made.__module__.partition(".")[0]
        return made

    return enter


def answer_policy(name: str, asks: str, answers: str, **more: Any) -> Callable[[MethodT], MethodT]:
    """Registers a method that reads models' outputs and runs only when it is named.

    `more`: further fields of the method's entry.
    """
    usual: dict[str, Any] = {"is_default": False, "reads": ("outputs",), **more}
    return register(Entry(name, asks, answers, **usual))


def _add_task(entry: Entry) -> Entry:
    """The entry of NAME+task, the same method with the task's name as an input."""
    make = entry.make
    assert make is not None
    is_input = entry.with_task == "as an input"
    how = "that also reads the task's name" if is_input else "fitted to each task; other tasks: to all"
    return replace(
        entry,
        name=entry.name + PLUS_TASK,
        asks=f"as `{entry.name}`, {how}",
        answers=f"as `{entry.name}`",
        role=entry.role if entry.role in ("rl_focal", "reference", "control") else "rival",
        reads=("task", *entry.reads),
        with_task=None,
        needs=(*entry.needs, "tasks"),
        is_default=False,
        differs="" if is_input else (PerTaskMethod.__doc__ or "").partition("\n")[0].rstrip("."),
        make=make if is_input else lambda making: PerTaskMethod(make(making)),
    )


def entries() -> Mapping[str, Entry]:
    """The entries of all methods by name, in the order of their roles.

    Raises InputError if a plug-in package is broken.
    """
    _load_methods()
    _load_packages()
    roles = get_args(Role)
    return dict(sorted(_ENTRIES.items(), key=lambda item: (roles.index(item[1].role), item[0])))


@cache
def _load_methods() -> None:
    # Importing a module registers its methods. Here and not in the package, as workers need only their own.
    for module in iter_modules(import_module("rlfocal.methods").__path__):
        if not module.ispkg:
            import_module(f"rlfocal.methods.{module.name}")
    load_trained_methods()


@cache
def load_trained_methods() -> None:
    """Imports the module `config` of each folder that has one, which registers its trained methods."""
    for folder in import_module("rlfocal.methods").__path__:
        for module in sorted(Path(folder).glob("*/config.py")):
            import_module(f"rlfocal.methods.{module.parent.name}.config")


@cache
def _load_packages() -> None:
    for point in entry_points(group="rlfocal.methods"):
        package, top = point.dist.name if point.dist else point.value, point.module.partition(".")[0]
        try:
            point.load()
        except Exception as error:
            raise InputError(
                f"methods of package {package!r} ({point.value}) cannot be loaded ({error!r}); repair or "
                "uninstall it"
            ) from error
        theirs = [name for name, module in _MODULES.items() if module == top]
        _ENTRIES.update({name: replace(_ENTRIES[name], package=package) for name in theirs})


def find_methods(*roles: Role) -> tuple[str, ...]:
    """The names of all methods with one of these roles."""
    return tuple(name for name, entry in entries().items() if entry.role in roles)


def methods_for(n_models: int, kind: Kind = "choices", protocol: str = "frozen") -> list[str]:
    """The default methods that can run with this pool size, kind of documents and protocol."""
    every = entries().items()
    return [name for name, entry in every if entry.is_default and entry.admits(n_models, kind, protocol)]


def every_method(
    data: Dataset, protocol: str = "frozen", settings: Settings | None = None, per: str = "benchmark"
) -> tuple[list[str], dict[str, str]]:
    """The methods that can run on these data, and for each other method, the reason why it cannot."""
    named, left_out = [], {}
    for entry in entries().values():
        if entry.is_in_all and (entry.names or not entry.needs_argument):
            for name in [f"{entry.name}:{argument}" for argument in entry.names] or [entry.name]:
                reason = entry.explain_missing(data, protocol, settings, per)
                if reason is None:
                    named.append(name)
                else:
                    left_out[name] = reason
    return named, left_out


def with_references(
    names: Sequence[str], data: Dataset, protocol: str = "frozen", per: str = "benchmark"
) -> list[str]:
    """Each name once; if RL-Focal is among them, also the methods that always run beside it.

    They are the reference policies, and beside `rl_focal` its start and `log_linear` on the start's models.
    Methods that the data do not admit are left out.
    """
    if not set(names) & set(find_methods("rl_focal")):
        return list(dict.fromkeys(names))
    start = [
        f"{control}{end}"
        for end in ("", PLUS_TASK)
        if RL_FOCAL[0] + end in names
        for control in (START_METHOD, TEAM_LOG_LINEAR)
    ]
    registered, every = entries(), (*start, *find_methods("reference", "ceiling"))
    beside = [name for name in every if registered[name].explain_missing(data, protocol, per=per) is None]
    return list(dict.fromkeys([*names, *beside]))


def reads_task(name: str) -> bool:
    """Whether the method of that name sees the tasks' names."""
    return name.partition(":")[0].endswith(PLUS_TASK)


def entry_of(name: str) -> Entry:
    """The entry of a method named as in `best_plurality:4`. Raises InputError for an unknown name."""
    registered = entries()
    base, colon, _ = name.partition(":")
    entry = registered.get(base)
    refuse_gone(f"method {base.removesuffix(PLUS_TASK)}")
    if entry is None and base.removesuffix(PLUS_TASK) in RIVALS:
        raise InputError(f"method {base} is in another package: in a checkout, pip install ./rivals")
    if entry is None or (colon and not entry.argument) or (not colon and entry.needs_argument):
        raise unknown_name("method", name, [each.pattern for each in registered.values()])
    return entry


def check_methods(
    names: Sequence[str],
    data: Dataset,
    protocol: str = "frozen",
    settings: Settings | None = None,
    per: str = "benchmark",
) -> None:
    """Raises InputError for a method that does not exist, or that cannot run on these data."""
    if not names:
        raise InputError(f"no method named; known: {', '.join(each.pattern for each in entries().values())}")
    for name in names:
        entry, argument = entry_of(name), name.partition(":")[2]
        if entry.argument == "model" and argument not in data.models:
            raise unknown_name("model", argument, data.models, f"method {name!r}")
        if entry.argument == "name" and argument not in entry.names:
            raise unknown_name("name", argument, entry.names, f"method {entry.name!r}")
        is_size = argument.isdecimal() and 1 <= int(argument) <= len(data.models)
        if entry.argument == "size" and ":" in name and not is_size:
            most = len(data.models)
            raise InputError(f"method {name!r}: {argument!r} is not a valid pool size; use 1 to {most}")
        if reason := entry.explain_missing(data, protocol, settings, per):
            raise InputError(
                f"method {name!r} {reason}; leave it out for {data.benchmark!r}, or bring what is missing"
            )


def make_method(name: str, making: MethodArguments | None = None) -> Method:
    """Builds the method of that name. Raises InputError for an unknown name or setting."""
    making = replace(making or MethodArguments(), argument=name.partition(":")[2] or None)
    make = entry_of(name).make
    assert make is not None  # the register fills it in
    method = make(replace(making, settings={}))
    return _apply_settings(method, making.settings, name)


def _apply_settings(method: Method, settings: Mapping[str, Any], name: str) -> Method:
    """The method with these settings; raises InputError for an unknown setting or an unreadable value."""
    if isinstance(method, PerTaskMethod):
        return replace(method, method=_apply_settings(method.method, settings, name))
    defaults = list_settings(method)
    for setting in settings:
        if setting not in defaults:
            raise unknown_name("setting", setting, defaults, f"method {name!r}")
    given = {key: read_value(str(value), defaults[key], f"{name}.{key}") for key, value in settings.items()}
    if isinstance(method, OwnSettings):
        return method.with_settings(given)
    return replace(method, **given) if given and is_dataclass(method) else method


def list_settings(method: Method) -> dict[str, Any]:
    """A method's settings with their defaults."""
    if isinstance(method, PerTaskMethod):
        return list_settings(method.method)
    if isinstance(method, OwnSettings):
        return method.list_settings()
    if not is_dataclass(method):
        return {}
    return {f.name: f.default for f in fields(method) if isinstance(f.default, str | int | float)}

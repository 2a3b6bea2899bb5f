"""The methods that are trained to checkpoints, one per seed: their training, their checkpoints, and drivers
for a Router.

The module does not import torch; what needs it loads late, in the place that a `TrainedMethod` names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlfocal.base.errors import InputError, escape_controls, shorten, unknown_name
from rlfocal.base.names import RL_FOCAL, TRAINED_METHODS, WITHOUT_TEXTS, is_gone, refuse_gone
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import is_readable
from rlfocal.methods.learning.agents import (
    METHODS_BY_NAME,
    Driver,
    Progress,
    TrainedAgents,
    TrainedMethod,
    Variant,
    find_trained_method,
)
from rlfocal.methods.learning.store import (
    CHECKPOINT_FORMAT,
    UnusableError,
    first_fault,
    read_about,
    read_tensors,
    require_tensorboard,
    write_event_files,
    write_tensors,
)
from rlfocal.methods.registry import (
    CheckpointStore,
    Entry,
    MethodArguments,
    register,
)

_log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
_TYPICAL_TRAIN_DOCUMENTS = 1_000
"""The number of train rows for which default settings are shown, because some depend on that number."""


def configure(method: str, n_train: int, changes: Mapping[str, Any] | None = None) -> Any:
    """The settings of a trained method for `n_train` train rows, with these changes.

    Raises InputError for any other method.
    """
    refuse_gone(f"method {method}")
    return replace(find_trained_method(method).configure(n_train), **(changes or {}))


def recipe(settings: Any) -> str:
    """A text that changes whenever agents with these settings would be trained differently."""
    return json.dumps([settings.revision, asdict(settings)])


def defaults(method: str) -> Any:
    """The default settings of a trained method. Raises InputError for any other method."""
    return configure(method, _TYPICAL_TRAIN_DOCUMENTS)


def check_settings(method: str, names: Iterable[str]) -> None:
    """Raises InputError for a name that is not one of the method's settings."""
    defined = [f.name for f in fields(defaults(method))]
    for name in names:
        if name not in defined:
            raise unknown_name("setting", name, defined, method)


def list_readable(method: str) -> dict[str, Any]:
    """The settings of a trained method that `read_value` can read, with their defaults."""
    config = defaults(method)
    own = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in own.items() if is_readable(value)}


@dataclass(frozen=True)
class RLFocal:
    """One of RL-Focal's methods, which fits agents or loads them from their checkpoints."""

    method: str = RL_FOCAL[0]
    config: Any = None
    """The settings; None: those of the method for the number of train rows, with `changes`."""
    store: CheckpointStore | None = None
    """The store of trained agents; None: agents are not saved."""
    on_progress: Callable[[float], None] | None = None
    """A function that is called with the finished share of a fit, 0 to 1."""
    reads_texts: bool = True
    """Whether agents see the questions' texts.

    Agents that were trained without texts ignore texts when they decide, too.
    """
    seeded: bool = True
    changes: Settings = field(default_factory=dict)
    """Settings that replace the method's defaults, for any number of train rows."""

    def __post_init__(self) -> None:
        check_settings(self.method, self.changes)

    def list_settings(self) -> dict[str, Any]:
        return list_readable(self.method)

    def with_settings(self, settings: Mapping[str, Any]) -> RLFocal:
        return replace(self, changes=settings)

    def recipe(self, n_train: int) -> str:
        return recipe(self._configure(n_train))

    @property
    def online_recipe(self) -> str:
        """A text that changes whenever the same agents would decide differently online."""
        revision = getattr(configure(self.method, 0), "online_revision", None)
        return "" if revision is None else f" online {revision}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[TrainedAgents]:
        if not self.reads_texts:
            train = replace(train, questions=(), choices=())

        with_events = self.store is not None and self.store.event_files
        if with_events:
            require_tensorboard()  # before hours of training
        stored = {seed: self.load_agents(train, seed) for seed in seeds}
        fitted = {seed: agents for seed, agents in stored.items() if agents is not None}
        missing = [seed for seed in seeds if seed not in fitted]
        if missing:
            kept = None if self.store is None else self.checkpoint(train, missing[0]).parent
            settings = self._configure(len(train))
            for agents in train_agents(self.method, train, settings, missing, self.on_progress, kept):
                fitted[agents.seed] = replace(agents, prices=tuple(train.mean_costs.tolist()))
                if self.store is not None:
                    save_checkpoint(agents, self.checkpoint(train, agents.seed))
        elif self.on_progress is not None:
            self.on_progress(1.0)
        if with_events:
            for seed, agents in fitted.items():
                write_event_files(agents.history, self.checkpoint(train, seed).with_suffix(""))
        return [fitted[seed] for seed in seeds]

    def checkpoint(self, train: Dataset, seed: int) -> Path:
        """The file of one seed's agents, named by a digest of everything that training depends on."""
        assert self.store is not None
        tasks = sorted(set(train.tasks.tolist()))
        rows = tasks[0] if len(tasks) == 1 else "tasks"
        about = f"{train.fingerprint()} {self.recipe(len(train))}"
        if getattr(self._configure(len(train)), "price_penalty", 0):
            about += f" {train.mean_costs.tolist()}"
        digest = sha256(about.encode()).hexdigest()[:12]
        return (
            self.store.folder
            / train.benchmark
            / f"{self.method}-{rows}-{digest}"
            / f"seed-{seed}.safetensors"
        )

    def is_trained(self, train: Dataset, seed: int) -> bool:
        """Whether one seed's agents are saved in an undamaged file. Does not import torch."""
        return self._read_metadata(train, seed) is not None

    def is_current(self, train: Dataset, seed: int) -> bool:
        """Whether one seed's agents are saved with the models' present names. Does not import torch."""
        about = self._read_metadata(train, seed)
        return about is not None and about.get("models") == list(train.models)

    def _read_metadata(self, train: Dataset, seed: int) -> dict[str, Any] | None:
        """The metadata of one seed's checkpoint; None if the file is missing, damaged or of other data."""
        try:
            about = read_about(self.checkpoint(train, seed), CHECKPOINT_FORMAT)
        except UnusableError:
            return None
        identity = [about.get(name) for name in ("benchmark", "kind", "seed")]
        return about if identity == [train.benchmark, train.kind, seed] else None

    def load_agents(self, train: Dataset, seed: int) -> TrainedAgents | None:
        """One seed's saved agents; None if there are none, or if they cannot be used, which is logged.

        If models were renamed since the training, the agents and their file get the new names.
        """

        if self.store is None or not self.store.reuse or not self.checkpoint(train, seed).exists():
            return None
        path, wrong = self.checkpoint(train, seed), "was trained on different data or settings"
        expected = (train.benchmark, train.kind, seed, self._configure(len(train)))
        try:
            agents = load_checkpoint(path)
            if (agents.benchmark, agents.kind, agents.seed, agents.config) != expected:
                raise InputError(f"{path} {wrong}; train again with `rlfocal train`")
        except InputError as error:
            _log.warning("%s (doing so now)", error)
            return None
        # The path is specific to these rows, and they include the order of the models.
        if agents.models != train.models:
            agents = replace(agents, models=train.models)
            save_checkpoint(agents, path)
        return replace(agents, prices=tuple(train.mean_costs.tolist()))

    def _configure(self, n_train: int) -> Any:
        return self.config or configure(self.method, n_train, self.changes)


def register_trained(name: str, asks: str, answers: str, method: TrainedMethod, **more: Any) -> None:
    """Registers a trained method, and its control without the questions' texts if it has one.

    `more`: further fields of the method's entry.
    """
    METHODS_BY_NAME[name] = method
    usual: dict[str, Any] = {"reads": ("question", "outputs"), "with_task": "as an input"}
    _register(name, name, asks, answers, **{"role": "rl_focal", "has_budgets": True, **usual, **more})
    for control, base in WITHOUT_TEXTS.items():
        if base == name:
            _register(
                control,
                name,
                f"as `{name}`, but no agent sees the questions' texts",
                f"as `{name}`",
                role="control",
                reads=("outputs",),
                has_budgets=True,
                needs=("questions",),
                is_default=False,
                source=f"a control: what reading the questions is worth to `{name}`",
            )


def _register(name: str, method: str, asks: str, answers: str, **fields: Any) -> None:
    """Registers the agents of `method` under a name; if that is another name, they see no texts."""

    def make(making: MethodArguments) -> RLFocal:
        return RLFocal(method, None, making.store, making.on_progress, reads_texts=name == method)

    space = METHODS_BY_NAME[method].space
    register(Entry(name, asks, answers, fewest_models=2, make=make, space=space, **fields))(RLFocal)


@cache
def _find_variant(method: str, *, is_routed: bool = False) -> Variant:
    """The variant of a trained method, or with `is_routed` that of agents that ask one model.

    Raises InputError for a method that is not trained.
    """
    own = find_trained_method(method)
    if is_routed and own.routes_graded:
        from rlfocal.methods.learning import routed

        return routed.make_variant(type(own.configure(0)))
    module, _, name = own.variant.partition(":")
    variant: Variant = getattr(import_module(module), name)
    return variant


def train_agents(
    method: str, rows: Dataset, config: Any, seeds: Sequence[int],
    on_progress: Progress | None = None, folder: Path | None = None,
) -> Sequence[TrainedAgents]:  # fmt: skip
    """Trains agents for each seed. Where answers are only graded, they ask one model, chosen by the question.

    A killed training resumes from `folder`. Raises InputError for data that cannot be learned from.
    """
    of = _find_variant(method, is_routed=config.has_floor and rows.is_only_graded)
    agents = of.train(rows, config, seeds, on_progress, folder)
    return [replace(agent, method=method) for agent in agents]


def driver_of(agents: TrainedAgents) -> Driver:
    """A driver that runs these agents for a Router."""
    return _variant(agents).driver(agents)


def _variant(agents: TrainedAgents) -> Variant:
    from rlfocal.methods.learning.routed import RoutedAgents

    return _find_variant(agents.method, is_routed=isinstance(agents, RoutedAgents))


def save_checkpoint(agents: TrainedAgents, path: Path) -> None:
    """Writes one seed's agents to a file, which appears whole or not at all."""
    of = _variant(agents)
    write_tensors(path, of.to_parts(agents), CHECKPOINT_FORMAT, of.header.make_metadata(agents))


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> TrainedAgents:
    """Reads one seed's agents, of any variant.

    Raises InputError for a file that is not an intact checkpoint, by its digest, and for agents of a pool
    other than `models`.
    """
    try:
        agents = _read(path)
    except UnusableError as error:
        raise InputError(_shorten_message(f"{path}: {error}; train again with `rlfocal train`")) from error
    if models is not None and agents.models != tuple(models):
        theirs, ours = (", ".join(names) for names in (agents.models, models))
        raise InputError(
            _shorten_message(f"{path} holds agents for {theirs}, not for {ours}; train on this pool")
        )
    return agents


def _read(path: Path) -> TrainedAgents:
    from rlfocal.methods.learning.routed import WEIGHTS_KEY

    about, tensors = read_tensors(path, CHECKPOINT_FORMAT)
    method = str(about.get("method"))
    if is_gone(f"method {method}"):
        raise UnusableError(f"the file is of the method {method}, which is gone")
    if method not in TRAINED_METHODS:
        methods = ", ".join(TRAINED_METHODS)
        raise UnusableError(f"the file is not a valid checkpoint (method: none of {methods})")
    of = _find_variant(method, is_routed=WEIGHTS_KEY in tensors)
    try:
        return of.from_parts(of.header.model_validate_json(json.dumps(about)), tensors)
    except ValidationError as error:
        raise UnusableError(f"the file is not a valid checkpoint ({first_fault(error)})") from error
    except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:  # parts that do not fit
        raise UnusableError(f"the file is not a valid checkpoint ({error})") from error


def _shorten_message(message: str) -> str:
    return shorten(escape_controls(message))

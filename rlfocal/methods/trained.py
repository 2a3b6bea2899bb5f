"""The methods that are trained to checkpoints, one per seed; their settings need no torch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.gone import refuse_gone
from rlfocal.base.names import RL_FOCAL, WITHOUT_TEXTS
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import Range, Space, is_readable
from rlfocal.methods.learning.store import (
    CHECKPOINT_FORMAT,
    UnusableError,
    read_about,
    require_tensorboard,
    write_event_files,
)
from rlfocal.methods.registry import CheckpointStore, Entry, MethodArguments, register
from rlfocal.methods.rl_focal.config import gated_config, literal_config, rl_focal_config
from rlfocal.methods.rl_focal_sequential.config import sequential_config

if TYPE_CHECKING:
    from rlfocal.methods.learning.agents import TrainedAgents

_log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
_TYPICAL_TRAIN_DOCUMENTS = 1_000
"""The number of train rows for which defaults are shown, because some depend on it."""
_CONFIGURE = {
    "rl_focal": rl_focal_config,
    "rl_focal_literal": literal_config,
    "gated_log_linear": gated_config,
    "rl_focal_sequential": sequential_config,
}


def configure(method: str, n_train: int, changes: Mapping[str, Any] | None = None) -> Any:
    """A variant's settings for `n_train` train rows, with these changes.

    Raises InputError for a method that is not RL-Focal's.
    """
    refuse_gone(f"method {method}")
    if method not in _CONFIGURE:
        raise unknown_name("method", method, _CONFIGURE, "RL-Focal")
    own: Callable[[int], Any] = _CONFIGURE[method]
    return replace(own(n_train), **(changes or {}))


def recipe(method: str, settings: Any) -> str:
    """A text that changes whenever the variant's agents would be trained differently.

    Settings that are newer than the revision count once they differ from their defaults.
    """
    own, default = asdict(settings), type(settings)()
    for name in getattr(settings, "later", ()):
        if own[name] == getattr(default, name):
            del own[name]
    return json.dumps([settings.revision, own])


def online_recipe(method: str) -> str:
    """A text that changes whenever agents that were trained alike would decide differently online."""
    revision = getattr(configure(method, 0), "online_revision", None)
    return "" if revision is None else f" online {revision}"


def defaults(method: str) -> Any:
    """The method's own settings. Raises InputError for one that is not RL-Focal's."""
    return configure(method, _TYPICAL_TRAIN_DOCUMENTS)


def check_settings(method: str, names: Iterable[str]) -> None:
    """Raises InputError for a name that is not one of the method's settings."""
    defined = [f.name for f in fields(defaults(method))]
    for name in names:
        if name not in defined:
            raise unknown_name("setting", name, defined, method)


def list_readable(method: str) -> dict[str, Any]:
    """The settings that `read_value` can read, with their defaults."""
    config = defaults(method)
    own = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in own.items() if is_readable(value)}


SEARCH_SPACES: Mapping[str, Mapping[str, Space]] = {
    "rl_focal": {
        "call_penalty": Range(1e-4, 0.02, log=True),
        "weight_ridge": Range(0.5, 50.0, log=True),
        "slots_ridge": Range(3.0, 300.0, log=True),
        "words_ridge": Range(30.0, 3000.0, log=True),
        "core_rate": Range(5e-3, 0.1, log=True),
        "entropy": Range(0.0, 0.03),
        "gae_lambda": Range(0.5, 1.0),
    },
    "gated_log_linear": {
        "size_penalty": Range(5e-3, 0.5, log=True),
        "weight_ridge": Range(0.5, 50.0, log=True),
        "slots_ridge": Range(3.0, 300.0, log=True),
        "words_ridge": Range(30.0, 3000.0, log=True),
        "core_rate": Range(5e-3, 0.1, log=True),
        "steps": Range(100, 1000, log=True),
    },
    "rl_focal_sequential": {
        "size_penalty": Range(0.0, 0.2),
        "shared_ridge": Range(0.5, 50.0, log=True),
        "word_directions": Range(20, 120),
    },
}
"""By method, the settings that `--tune` searches.

`rl_focal_literal` has none, because the paper's text sets them.
"""


@dataclass(frozen=True)
class RLFocal:
    """A method of trained agents. Raises InputError for a method that has none."""

    method: str = RL_FOCAL[0]
    config: Any = None
    """The settings; by default those of the method for that many train rows."""
    store: CheckpointStore | None = None
    """The store of trained agents; without one, nothing is saved."""
    on_progress: Callable[[float], None] | None = None
    """A function that is called with the finished share of a fit, 0 to 1."""
    reads_texts: bool = True
    """Whether agents see the questions' texts.

    Agents that were trained without texts ignore them later, too.
    """
    seeded: bool = True
    changes: Settings = field(default_factory=dict)
    """Settings that replace the method's own, for any number of train rows."""

    def __post_init__(self) -> None:
        check_settings(self.method, self.changes)

    def list_settings(self) -> dict[str, Any]:
        return list_readable(self.method)

    def with_settings(self, given: Mapping[str, Any]) -> RLFocal:
        return replace(self, changes=given)

    def recipe(self, n_train: int) -> str:
        return recipe(self.method, self._settings(n_train))

    @property
    def online_recipe(self) -> str:
        return online_recipe(self.method)

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[TrainedAgents]:
        if not self.reads_texts:
            train = replace(train, questions=(), choices=())
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.methods.variants import save_checkpoint, train_agents

        with_events = self.store is not None and self.store.event_files
        if with_events:
            require_tensorboard()  # before hours of training
        stored = {seed: self.load_agents(train, seed) for seed in seeds}
        fitted = {seed: agents for seed, agents in stored.items() if agents is not None}
        missing = [seed for seed in seeds if seed not in fitted]
        if missing:
            kept = None if self.store is None else self.checkpoint(train, missing[0]).parent
            settings = self._settings(len(train))
            for agents in train_agents(self.method, train, settings, missing, self.on_progress, kept):
                fitted[agents.seed] = agents
                if self.store is not None:
                    save_checkpoint(agents, self.checkpoint(train, agents.seed))
        elif self.on_progress is not None:
            self.on_progress(1.0)
        if with_events:
            for seed, agents in fitted.items():
                write_event_files(agents.history, self.checkpoint(train, seed).with_suffix(""))
        prices = tuple(train.mean_costs.tolist())
        return [replace(fitted[seed], prices=prices) for seed in seeds]

    def checkpoint(self, train: Dataset, seed: int) -> Path:
        """The file of one seed's agents, named by everything that training depends on."""
        assert self.store is not None
        tasks = sorted(set(train.tasks.tolist()))
        rows = tasks[0] if len(tasks) == 1 else "tasks"
        about = f"{train.fingerprint()} {self.recipe(len(train))}"
        if getattr(self._settings(len(train)), "price_penalty", 0):
            about += f" {train.mean_costs.tolist()}"
        digest = sha256(about.encode()).hexdigest()[:12]
        return (
            self.store.folder
            / train.benchmark
            / f"{self.method}-{rows}-{digest}"
            / f"seed-{seed}.safetensors"
        )

    def is_trained(self, train: Dataset, seed: int) -> bool:
        """Whether one seed's agents are saved already, in an undamaged file. Needs no torch."""
        return self._read_metadata(train, seed) is not None

    def is_current(self, train: Dataset, seed: int) -> bool:
        """Whether one seed's agents are saved under the models' current names. Needs no torch."""
        about = self._read_metadata(train, seed)
        return about is not None and about.get("models") == list(train.models)

    def _read_metadata(self, train: Dataset, seed: int) -> dict[str, Any] | None:
        """The metadata of one seed's checkpoint; None if it is missing, damaged or of another training."""
        try:
            about = read_about(self.checkpoint(train, seed), CHECKPOINT_FORMAT)
        except UnusableError:
            return None
        identity = [about.get(name) for name in ("benchmark", "kind", "seed")]
        return about if identity == [train.benchmark, train.kind, seed] else None

    def load_agents(self, train: Dataset, seed: int) -> TrainedAgents | None:
        """One seed's saved agents; None if there are none, or none that can be used, which is logged.

        If models were renamed since, the agents and their file take the new names.
        """
        from rlfocal.methods.variants import load_checkpoint, save_checkpoint

        if self.store is None or not self.store.reuse or not self.checkpoint(train, seed).exists():
            return None
        path, wrong = self.checkpoint(train, seed), "was trained on different data or settings"
        expected = (train.benchmark, train.kind, seed, self._settings(len(train)))
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
        return agents

    def _settings(self, n_train: int) -> Any:
        return self.config or configure(self.method, n_train, self.changes)


def _enter(name: str, asks: str, answers: str, base: str = "", **more: Any) -> None:
    """Registers a trained method.

    `base`: the method whose agents are trained, without the questions' texts, under this name.
    """
    method = base or name
    fields: dict[str, Any] = {
        "role": "rl_focal",
        "reads": ("question", "outputs"),
        "with_task": "as an input",
        "has_budgets": True,
        **more,
    }

    def make(making: MethodArguments) -> RLFocal:
        return RLFocal(method, None, making.store, making.on_progress, reads_texts=not base)

    space = SEARCH_SPACES.get(method, {})
    register(Entry(name, asks, answers, fewest_models=2, make=make, space=space, **fields))(RLFocal)


_enter(
    "rl_focal",
    "the Decider: one pool per document, from the question; it starts from the best constant pools",
    "Fusion's actor, log-linear at its core; both learn by MAPPO from sampled pools and answers, with a "
    "central critic",
    source="RL-Focal (arXiv 2502.04492), Algorithms 1 and 2; departures: docs/agents.md",
)
_enter(
    "rl_focal_sequential",
    "the Decider: after each answer or two, stop or ask the next models, by fitted Q-iteration",
    "softmax regressions over what was said so far",
    with_task="fitted per task",
)
_enter(
    "gated_log_linear",
    "the models that a mask learned from the question switches on",
    "a log-linear ensemble with weights that depend on the question; both fitted by exact expectations over "
    "train labels",
    role="rival",
    protocols=("frozen",),
    needs=("log-probs",),
    source="ours; counterfactual baselines as in COMA (Foerster et al., 2018)",
)
for _name, _base in WITHOUT_TEXTS.items():
    _enter(
        _name,
        f"as `{_base}`, but no agent sees the questions' texts",
        f"as `{_base}`",
        _base,
        role="control",
        reads=("outputs",),
        with_task=None,
        needs=("questions",),
        is_default=False,
        source=f"a control: what reading the questions is worth to `{_base}`",
    )
_enter(
    "rl_focal_literal",
    "the Decider of the paper's text: one pool per document, from the last pool and its focal diversity",
    "Fusion of the paper's text: a network on the selected models' distributions",
    source="RL-Focal (arXiv 2502.04492), to the letter; what the text leaves open is ours: docs/agents.md",
    with_task=None,
    has_budgets=False,
    is_default=False,
    is_in_all=False,
)

"""Adds models to a pool, after checks, and removes them. Estimates what a model is worth to the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlfocal.base import options
from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.new_model.adding import ModelRemoval as ModelRemoval
    from rlfocal.new_model.adding import add_model as add_model
    from rlfocal.new_model.adding import remove_model as remove_model
    from rlfocal.new_model.page import Newcomer as Newcomer
    from rlfocal.new_model.probe import Probe as Probe
    from rlfocal.new_model.probe import probe_newcomer as probe_newcomer

__getattr__ = import_when_used(
    __name__,
    {
        "Newcomer": "rlfocal.new_model.page",
        "Probe": "rlfocal.new_model.probe",
        "ModelRemoval": "rlfocal.new_model.adding",
        "add_model": "rlfocal.new_model.adding",
        "probe_newcomer": "rlfocal.new_model.probe",
        "remove_model": "rlfocal.new_model.adding",
    },
)


@dataclass(frozen=True)
class AdditionRequest:
    """The settings with which a new model is added to a pool. The fields are parameters of `add_model`."""

    backend: options.Backend = None
    limit: options.LimitOfOthers = None
    datasets: options.Datasets = None
    force: options.EvenIfImplausible = False

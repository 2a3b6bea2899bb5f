"""A new model, in one form: tried, added to its pool, extracted, compared."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State

from flows.support.ending import ended
from flows.support.parameters import Count, Name
from flows.support.progress import tell
from rlfocal import new_model as newcomers
from rlfocal.base.errors import RunError
from rlfocal.base.wording import counted
from rlfocal.new_model import Newcomer
from rlfocal.pool import ModelSpec
from rlfocal.pool.specs import Backend


@flow(name="add-model", flow_run_name="add {entry.model} to {pool}", persist_result=False)
def add_model(
    entry: ModelSpec,
    pool: Name,
    warehouse: Name | None = None,
    backend: Backend | None = None,
    limit: Count | None = None,
    datasets: Name | None = None,
    seeds: int = 1,
    until_clear: bool = False,
    force: bool = False,
) -> Newcomer | State[Newcomer]:
    """Check a model's entry, try it, add it to a pool, run the pool's benchmarks, and say what it brings.

    A wrong entry, or a model whose first answers are implausible, changes nothing. A pool that ships with
    rlfocal stays as it is: the model is added to the worker's own copy.

    Args:
        entry: The model, as a pool file describes it: its name, where it is (hf_repo), its size (params_b).
        pool: The pool that the entry is added to: its name, or its YAML file on the worker.
        warehouse: A directory that every worker reaches, or the URI of a Postgres catalogue without its
            password. Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
        backend: The engine. Default: the pool's.
        limit: Only the first N documents of each task. Default: as many as the pool's other models answered.
        datasets: A mirror of the data sets on the worker, made with `rlfocal datasets mirror`. Default: the
            hub.
        seeds: How many seeds (0, 1, ...) RL-Focal is trained with, once with the model and once without it.
            0: not at all.
        until_clear: Extract 100, 200, 400, ... documents of each task, and stop once it is clear that no best
            pool includes the model.
        force: Add the model even if its first answers are implausible.
    """

    def work() -> Newcomer:
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{entry.model.replace('/', '-')}.yaml"
            file.write_text(json.dumps(entry.model_dump(exclude_unset=True)))  # JSON is YAML
            page = newcomers.add_model(
                pool,
                file,
                warehouse=warehouse,
                backend=backend,
                limit=limit,
                datasets=datasets,
                seeds=seeds,
                until_clear=until_clear,
                force=force,
                on_progress=tell,
                say=get_run_logger().info,
            )
        create_markdown_artifact(key="add-model", markdown=page.to_markdown())
        if page.missing:
            n = counted(len(page.missing), "partition")
            raise RunError(f"{n} of {entry.model} missing: {page.missing[0].reason}; run this again")
        return page

    return ended(warehouse, work)

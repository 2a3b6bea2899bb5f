"""The flow that adds a new model: it checks and tries it, adds it to its pool, extracts and compares it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.support.pages import report_progress
from flows.support.parameters import Place, with_final_state
from rlfocal.base import options
from rlfocal.base.errors import RunError
from rlfocal.base.options import takes
from rlfocal.base.wording import count_noun
from rlfocal.new_model import AdditionRequest
from rlfocal.new_model.adding import add_model as add_now
from rlfocal.new_model.page import Newcomer
from rlfocal.pool import ModelSpec


@flow(name="add-model", flow_run_name="add {entry.model} to {pool}", persist_result=False)
@with_final_state
@takes(AdditionRequest)
def add_model(
    entry: ModelSpec, pool: options.Pool, request: AdditionRequest, warehouse: Place = None
) -> Newcomer:
    """Check a model's entry, try it, add it to a pool, run the pool's benchmarks, and say what it brings.

    A wrong entry, or a model whose first answers are implausible, changes nothing. A pool that ships with
    rlfocal stays as it is: the model is added to the worker's own copy.

    Args:
        entry: The model, as a pool file describes it: its name, where it is (hf_repo), its size (params_b).
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{entry.model.replace('/', '-')}.yaml"
        file.write_text(json.dumps(entry.model_dump(exclude_unset=True)))  # JSON is YAML
        say = get_run_logger().info
        page = add_now(pool, file, **vars(request), warehouse=warehouse, on_progress=report_progress, say=say)
    create_markdown_artifact(key="add-model", markdown=page.to_markdown())
    if page.missing:
        n = count_noun(len(page.missing), "partition")
        raise RunError(f"{n} of {entry.model} missing: {page.missing[0].reason}; run this again")
    return page

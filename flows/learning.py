"""Training, evaluation and the report, each as a run of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State

from flows import REPORT
from flows.support.ending import ended
from flows.support.pages import accuracies, publish_boards, report_line
from flows.support.parameters import Count, Name, Names
from rlfocal.base.wording import counted
from rlfocal.evaluation import Evaluation, TrainingReport
from rlfocal.evaluation import evaluate as evaluate_now
from rlfocal.evaluation import train as train_now
from rlfocal.report import write_report
from warehouse import open_warehouse


@flow(name="train", flow_run_name="train {method} on {benchmark}", persist_result=False)
def train(
    benchmark: Name,
    method: Literal["rl_focal", "rl_focal_sequential", "rl_focal_released"] = "rl_focal",
    models: Names | None = None,
    seeds: Count = 3,
    per: Literal["benchmark", "task"] = "benchmark",
    tensorboard: bool = False,
    warehouse: Name | None = None,
) -> TrainingReport | State[TrainingReport]:
    """Train RL-Focal on a benchmark's train rows, one checkpoint per seed. Trained agents stay as they are.

    Args:
        benchmark: A benchmark of the warehouse.
        method: Which of RL-Focal's methods.
        models: Only these models. Default: all that answered the benchmark.
        seeds: How many seeds: 0, 1, ... below this number.
        per: Fit one policy for the benchmark, or one for each of its tasks.
        tensorboard: Write TensorBoard logs of each training beside its checkpoint.
        warehouse: A directory on the worker, or the URI of a Postgres catalogue without its password.
            Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
    """

    def work() -> TrainingReport:
        with open_warehouse(warehouse, read_only=True, create=False) as opened:
            made = train_now(
                opened,
                benchmark,
                method=method,
                models=models,
                seeds=seeds,
                per=per,
                tensorboard=tensorboard,
            )
        held = len(made.checkpoints) - made.trained
        lines = [f"# {method} on {benchmark}", "", f"{made.trained} trained now, {held} before.", ""]
        lines += [f"- `{path}`" for path in made.checkpoints]
        create_markdown_artifact(key="train-checkpoints", markdown="\n".join(lines))
        return made

    return ended(warehouse, work)


@flow(name="evaluate", flow_run_name="evaluate {benchmark}", persist_result=False)
def evaluate(
    benchmark: Name,
    methods: Names | None = None,
    models: Names | None = None,
    seeds: Count = 3,
    per: Literal["benchmark", "task"] = "benchmark",
    protocol: Literal["frozen", "online", "both"] = "frozen",
    budgets: Names | None = None,
    warehouse: Name | None = None,
) -> tuple[Evaluation, ...] | State[tuple[Evaluation, ...]]:
    """Fit methods on train rows, decide on test rows, and store the result. Stored runs are not repeated.

    Args:
        benchmark: A benchmark of the warehouse.
        methods: The methods to run; `all` alone: every method that the data allow. Default: RL-Focal
            beside the usual references.
        models: Only these models. Default: all that answered the benchmark.
        seeds: How many seeds methods that use randomness are trained with: 0, 1, ... below this number.
        per: Fit one policy for the benchmark, or one for each of its tasks.
        protocol: frozen: methods see no test label; online: each is revealed after its answer; both.
        budgets: Also run at these mean costs per document: models (1, 2, all) or cents per 1,000 queries
            (50c). Default: none.
        warehouse: A directory on the worker, or the URI of a Postgres catalogue without its password.
            Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
    """

    def work() -> tuple[Evaluation, ...]:
        with open_warehouse(warehouse, create=False) as opened:
            before = accuracies(opened)
            made = evaluate_now(
                opened,
                benchmark,
                methods=methods,
                models=models,
                seeds=seeds,
                per=per,
                protocol=protocol,
                budgets=budgets or (),
            )
            publish_boards("evaluate-accuracy", [f"# {benchmark}"], made.rows, opened, before)
        for model, reason in made.left_out:
            get_run_logger().warning("left out: %s, which %s", model, reason)
        for method, reason in made.skipped:
            get_run_logger().warning("left out: %s, which %s", method, reason)
        get_run_logger().info("%s computed now", counted(len(made.ran), "run"))
        return made.rows

    return ended(warehouse, work)


@flow(name="report", persist_result=False)
def report(
    path: Name = str(REPORT), paper: bool = False, force: bool = False, warehouse: Name | None = None
) -> Path | State[Path]:
    """Write the HTML report of everything evaluated so far. It stays as it is if nothing has changed.

    Args:
        path: The HTML file to write on the worker.
        paper: Add the paper's accuracy tables, our figures beside theirs.
        force: Rewrite it even if nothing has changed.
        warehouse: A directory on the worker, or the URI of a Postgres catalogue without its password.
            Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
    """

    def work() -> Path:
        with open_warehouse(warehouse, read_only=True, create=False) as opened:
            written = write_report(opened, path, paper=paper, force=force)
        create_markdown_artifact(key="report", markdown=report_line(written))
        return written

    return ended(warehouse, work)

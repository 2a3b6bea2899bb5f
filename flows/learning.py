"""Training, evaluation and the report, each as a flow."""

from dataclasses import replace
from pathlib import Path

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows import report_path
from flows.support.pages import keep_published, publish_boards, read_published, report_line, report_progress
from flows.support.parameters import Place, with_final_state
from rlfocal.base import options
from rlfocal.base.options import takes
from rlfocal.base.wording import count_noun
from rlfocal.evaluation import EvaluationRequest, TrainingRequest
from rlfocal.evaluation.fitting import TrainingReport
from rlfocal.evaluation.fitting import train as train_now
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.running import run_evaluation
from rlfocal.evaluation.storing import Evaluation
from rlfocal.report import write_report
from warehouse import open_warehouse


@flow(name="train", flow_run_name="train {method} on {benchmark}", persist_result=False)
@with_final_state
@takes(TrainingRequest)
def train(request: TrainingRequest, warehouse: Place = None) -> TrainingReport:
    """Train RL-Focal on a benchmark's train rows, one checkpoint per seed. Trained agents are reused.

    Args:
        force: Train again what is trained already.
    """
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        report = train_now(opened, **vars(request), on_progress=report_progress)
    lines = [f"# {request.method} on {request.benchmark}", "", f"{report}.", ""]
    lines += [f"- `{path}`" for path in report.checkpoints]
    create_markdown_artifact(key="train-checkpoints", markdown="\n".join(lines))
    return report


@flow(name="evaluate", flow_run_name="evaluate {benchmark}", persist_result=False)
@with_final_state
@takes(EvaluationRequest, without=("beside", "on_progress"))
def evaluate(request: EvaluationRequest, warehouse: Place = None) -> tuple[Evaluation, ...]:
    """Fit methods on train rows, decide on test rows, and store the result. Stored runs are not repeated."""
    with open_warehouse(warehouse, create=False) as opened:
        report = run_evaluation(opened, replace(request, on_progress=report_progress))
        boards = leaderboard(opened, runs={row.run_id for row in report.rows})
    before = read_published(warehouse)
    publish_boards("evaluate-accuracy", [f"# {request.benchmark}"], boards, before)
    keep_published(warehouse, boards, before)
    for sentence in report.remarks():
        get_run_logger().warning(sentence)
    get_run_logger().info("%s computed now", count_noun(len(report.ran), "run"))
    return report.rows


@flow(name="report", persist_result=False)
@with_final_state
def report(path: options.Name | None = None, force: bool = False, warehouse: Place = None) -> Path:
    """Write the HTML report of everything evaluated so far. It stays as it is if nothing has changed.

    Args:
        path: The HTML file to write on the worker. Default: beside the warehouse.
        force: Rewrite it even if nothing has changed.
    """
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        written = write_report(opened, path or report_path(warehouse), force=force)
    create_markdown_artifact(key="report", markdown=report_line(written))
    return written

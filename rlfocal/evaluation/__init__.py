"""Fits methods on train rows, decides on test rows, and stores and compares the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from rlfocal.base.names import RL_FOCAL, TRAINED, import_when_used
from rlfocal.base.request import Benchmark, Models, Option, Per, Progress, Request, Seeds, Snapshot

if TYPE_CHECKING:
    from rlfocal.evaluation.planning import Candidate as Candidate
    from rlfocal.evaluation.planning import Setup as Setup
    from rlfocal.evaluation.running import EvaluationReport as EvaluationReport
    from rlfocal.evaluation.running import evaluate as evaluate
    from rlfocal.evaluation.storing import Evaluation as Evaluation
    from rlfocal.evaluation.training import TrainingReport as TrainingReport
    from rlfocal.evaluation.training import train as train

__getattr__ = import_when_used(
    __name__,
    {
        "Candidate": "rlfocal.evaluation.planning",
        "Evaluation": "rlfocal.evaluation.storing",
        "EvaluationReport": "rlfocal.evaluation.running",
        "Setup": "rlfocal.evaluation.planning",
        "TrainingReport": "rlfocal.evaluation.training",
        "evaluate": "rlfocal.evaluation.running",
        "train": "rlfocal.evaluation.training",
    },
)


@dataclass(frozen=True)
class EvaluationRequest(Request):
    """Methods to fit on a benchmark's train rows and to compare on its test rows."""

    benchmark: Benchmark
    _: KW_ONLY
    methods: Annotated[
        Sequence[str] | None,
        Option(
            "The methods to run; `single:<model>` is one too; all: every method the data allow.",
            default="the usual ones",
            metavar="M,...|all",
        ),
    ] = None
    models: Models = None
    seeds: Seeds = 3
    per: Per = "benchmark"
    protocol: Annotated[
        Literal["frozen", "online", "both"],
        Option("frozen: methods see no test label; online: each is revealed after its answer; both."),
    ] = "frozen"
    split: Annotated[
        str,
        Option(
            "given: as the documents are marked; last: test on the last 20 % of each task; random: on 20 % "
            "of each task, drawn with seed 0; tasks: on a fifth of the tasks, held out (tasks:2/5: another "
            "fifth); train-last, train-random, train-tasks: of the train documents alone.",
            metavar="given|[train-]last|[train-]random|[train-]tasks",
        ),
    ] = "given"
    budgets: Annotated[
        Sequence[str] | None,
        Option(
            "Also run at these mean costs per document: models (1,2,4,all) or cents per 1,000 queries (50c). "
            "Methods are fitted once and decide at each budget.",
            default="none",
            metavar="B,...",
        ),
    ] = None
    settings: Annotated[
        Sequence[str] | None,
        Option(
            "A setting of one method (knn.k=20) or of all that have it (encoder=DIR); may be repeated. Such "
            "runs stay off the leaderboard.",
            default="the methods' own",
            flags=("--set",),
            metavar="METHOD.NAME=VALUE",
            is_repeated=True,
        ),
    ] = None
    tune: Annotated[
        int,
        Option(
            "First choose each method's settings by N trials on three folds of train, the defaults first; on "
            "tables of their own, where methods without settings to tune stand, too. 0: no tuning.",
            least=0,
            metavar="N",
        ),
    ] = 0
    snapshot: Snapshot = None
    force: Annotated[bool, Option("Repeat runs, and trials, that the warehouse already has.")] = False
    at_once: Annotated[
        int,
        Option("Methods to run at once, each in a process of its own.", 1, flags=("--jobs",), metavar="N"),
    ] = 1
    beside: Sequence[str] | None = None
    """Methods to run beside the usual ones, which then are rlfocal's own alone; None: other packages' too."""
    on_progress: Progress | None = None


@dataclass(frozen=True)
class TrainingRequest(Request):
    """Agents to train on a benchmark's train rows."""

    benchmark: Benchmark
    _: KW_ONLY
    method: Annotated[
        str,
        Option(
            f"Which of RL-Focal's methods: {', '.join(TRAINED)}; +task after rl_focal or gated_log_linear: "
            "agents that read the tasks' names."
        ),
    ] = RL_FOCAL[0]
    models: Models = None
    seeds: Seeds = 3
    per: Per = "benchmark"
    snapshot: Snapshot = None
    force: Annotated[bool, Option("Train again what is trained already.")] = False
    tensorboard: Annotated[bool, Option("Write TensorBoard logs of each training beside its checkpoint.")] = (
        False
    )
    on_progress: Progress | None = None

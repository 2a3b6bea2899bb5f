"""Fits methods on train rows, decides on test rows, and stores and compares the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from rlfocal.base.names import TRAINED, import_when_used
from rlfocal.base.parameters import Benchmark, Models, Name, Names, Option, Per, Seeds, Snapshot
from rlfocal.base.request import Progress, check

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


Methods = Annotated[
    Names | None,
    Option(
        "The methods to run; `single:<model>` is one too; all: every method the data allow.",
        default="the usual ones",
        metavar="M,...|all",
        is_listed=True,
    ),
]
ProtocolOrBoth = Annotated[
    Literal["frozen", "online", "both"],
    Option("frozen: methods see no test label; online: each is revealed after its answer; both."),
]
Split = Annotated[
    Name,
    Option(
        "given: as the documents are marked; last: test on the last 20 % of each task; random: on 20 % "
        "of each task, drawn with seed 0; tasks: on a fifth of the tasks, held out (tasks:2/5: another "
        "fifth); train-last, train-random, train-tasks: of the train documents alone.",
        metavar="given|[train-]last|[train-]random|[train-]tasks",
    ),
]
Budgets = Annotated[
    Names | None,
    Option(
        "Also run at these mean costs per document: models (1,2,4,all) or cents per 1,000 queries (50c). "
        "Methods are fitted once and decide at each budget.",
        default="none",
        metavar="B,...",
        is_listed=True,
    ),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "A setting of one method (knn.k=20) or of all that have it (encoder=DIR); may be repeated. Such "
        "runs stay off the leaderboard.",
        default="the methods' own",
        flags=("--set",),
        metavar="METHOD.NAME=VALUE",
    ),
]
Tune = Annotated[
    int,
    Option(
        "First choose each method's settings by N trials on three folds of train, the defaults first; on "
        "tables of their own, where methods without settings to tune stand, too. 0: no tuning.",
        0,
        metavar="N",
    ),
]
Again = Annotated[bool, Option("Repeat runs, and trials, that the warehouse already has.")]
AtOnce = Annotated[int, Option("Methods to run at once, each in a process of its own.", 1)]
Trained = Annotated[
    Name,
    Option(
        f"Which of RL-Focal's methods: {', '.join(TRAINED)}; +task after rl_focal or gated_log_linear: "
        "agents that read the tasks' names."
    ),
]
Tensorboard = Annotated[bool, Option("Write TensorBoard logs of each training beside its checkpoint.")]


@dataclass(frozen=True)
class EvaluationRequest:
    """Methods to fit on a benchmark's train rows and to compare on its test rows."""

    benchmark: Benchmark
    _: KW_ONLY
    methods: Methods = None
    models: Models = None
    seeds: Seeds = 3
    per: Per = "benchmark"
    protocol: ProtocolOrBoth = "frozen"
    split: Split = "given"
    budgets: Budgets = None
    settings: Settings = None
    tune: Tune = 0
    snapshot: Snapshot = None
    force: Again = False
    at_once: AtOnce = 1
    beside: Sequence[str] | None = None
    """Methods to run beside the usual ones, which then are rlfocal's own alone; None: other packages' too."""
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        check(type(self), vars(self))

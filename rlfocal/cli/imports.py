"""`rlfocal import`: fills the warehouse from files made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.cli.support.commands import group
from rlfocal.cli.support.options import Json, Location, names, print_json
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.exchange.imports.rows import CheckedRows

AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Accept models that cover different documents; record the gaps."),
]
LoggedModel = Annotated[
    str | None,
    typer.Option("--model", help="The model's name.", show_default="the results file's model_name"),
]
LoggedBenchmark = Annotated[
    str | None,
    typer.Option(
        "--benchmark", help="The benchmark's name.", show_default="the one lm-eval's task belongs to"
    ),
]
imports = typer.Typer(
    help="Bring logits and answers made elsewhere into the warehouse.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
group("import", "Data in and out", imports)


@imports.callback()
def _group() -> None: ...


@imports.command("predictions")
def import_predictions(
    docs: Annotated[
        Path, typer.Option(help="benchmark, task, doc_id, label [, question, choices, gold, split].")
    ],
    scores: Annotated[
        Path,
        typer.Option(help="benchmark, task, doc_id, model, and choice_logprobs or answer [, pass, text]."),
    ],
    models: Annotated[
        Path | None, typer.Option(help="model [, family, price, price_input, price_output, ...].")
    ] = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import per-choice scores or answers (Parquet, CSV or JSONL). All or nothing.

    Without a split, the first 80 % of each task are train. Importing the same files again changes nothing.
    """
    from rlfocal.exchange.imports.predictions import read_predictions

    read = partial(read_predictions, docs, scores, models, allow_missing=allow_missing)
    _import(lambda _: read(), warehouse, as_json=as_json)


@imports.command("tables")
def import_tables(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What `rlfocal export tables DIR` wrote.", show_default=False),
    ],
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import another warehouse's tables, complete: answers, runs, corrections. All or nothing.

    From SQLite to Postgres and back, or from another host. Files that were changed are refused. Rows that the
    warehouse has stay as they are.
    """
    from rlfocal.exchange.imports.tables import check_tables
    from rlfocal.exchange.imports.tables import import_tables as write
    from warehouse import open_warehouse

    check_tables(folder)
    with open_warehouse(warehouse) as opened:
        report = write(opened, folder)
    if as_json:
        print_json(report)
    else:
        typer.echo(str(report))


@imports.command("lm-eval")
def import_lm_eval(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders (searched whole) or files of samples_*.jsonl.", show_default=False),
    ],
    model: LoggedModel = None,
    benchmark: LoggedBenchmark = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import what lm-eval wrote with `--log_samples --output_path`. All or nothing.

    Choices come with their log-likelihoods, generated texts with the answers read from them. Importing the
    same logs again changes nothing; of several runs of one task the latest counts.
    """
    from rlfocal.exchange.imports.lm_eval import read_lm_eval

    read = partial(read_lm_eval, paths, model=model, benchmark=benchmark, allow_missing=allow_missing)
    _import(lambda on_progress: read(on_progress=on_progress), warehouse, as_json=as_json)


@imports.command("leaderboard")
def import_leaderboard(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH|ID...",
            help="Folders or files (JSON, JSONL, Parquet), or hub ids of models or of details data sets.",
            show_default=False,
        ),
    ],
    model: LoggedModel = None,
    benchmark: LoggedBenchmark = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import details of the Open LLM Leaderboard v2 (BBH, GPQA, MuSR, MMLU-Pro, ...). All or nothing.

    An id is fetched from the hub: `rlfocal import leaderboard meta-llama/Meta-Llama-3-70B`.
    """
    from rlfocal.exchange.imports.leaderboard import read_leaderboard

    read = partial(read_leaderboard, sources, model=model, benchmark=benchmark, allow_missing=allow_missing)
    _import(lambda on_progress: read(on_progress=on_progress), warehouse, as_json=as_json)


@imports.command("released")
def import_released(
    paths: Annotated[
        list[Path],
        typer.Argument(help="mmlu_hf or gsm8k folders, or bbh_data.pkl.", show_default=False),
    ],
    models: Annotated[
        str | None,
        typer.Option(
            metavar="M,...", help="The models of a pickle's columns.", show_default="those of bbh_data.pkl"
        ),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="The benchmark's name.", show_default="mmlu@released, ...")
    ] = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import the data of the RL-Focal release: CSV, npy and pickle files. All or nothing.

    Only numpy arrays are read from a pickle, and nothing in it is run. Labels stay as they were released: in
    7 of its 24 BBH tasks they do not index the task's own choices.
    """
    from rlfocal.exchange.imports.released import read_released

    named = names(models)
    read = partial(read_released, paths, models=named, benchmark=benchmark, allow_missing=allow_missing)
    _import(lambda _: read(), warehouse, as_json=as_json)


@imports.command("llmrouterbench")
def import_llmrouterbench(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="results/bench or folders in it (searched whole), or files DATASET/SPLIT/MODEL/TIME.json.",
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None,
        typer.Option(
            help="One benchmark for everything, with tasks DATASET-SPLIT.",
            show_default="DATASET@llmrouterbench-SPLIT",
        ),
    ] = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import results of LLMRouterBench: answers, whether each is right, tokens. All or nothing.

    The score alone says whether an answer is right, not its text; data sets with scores between 0 and 1 are
    left out and listed. Of several runs of a model the latest counts; demos are ignored.
    """
    from rlfocal.exchange.imports.llmrouterbench import read_llmrouterbench

    read = partial(read_llmrouterbench, paths, benchmark=benchmark, allow_missing=allow_missing)
    _import(lambda on_progress: read(on_progress=on_progress), warehouse, as_json=as_json)


@imports.command("routerbench")
def import_routerbench(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="RouterBench's table as CSV or Parquet.", show_default=False),
    ],
    benchmark: Annotated[str, typer.Option(help="The benchmark's name.")] = "routerbench",
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import RouterBench: sample_id, prompt, eval_name, MODEL, MODEL|model_response. All of it or nothing.

    An eval_name becomes a task, and a model's accuracy on it is the mean of its column; tasks with scores
    between 0 and 1 (MT-Bench) are left out and listed. Its own files are pickles, which are refused: loading
    one runs code. If you trust the file, convert it with pandas' `read_pickle(FILE).to_csv(...)`.
    """
    from rlfocal.exchange.imports.routerbench import read_routerbench

    read = partial(read_routerbench, path, benchmark=benchmark, allow_missing=allow_missing)
    _import(lambda on_progress: read(on_progress=on_progress), warehouse, as_json=as_json)


@imports.command("every-eval-ever")
def import_every_eval_ever(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders (searched whole) or files: UUID.json with UUID_samples.jsonl beside it.",
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None, typer.Option(help="The benchmark's name.", show_default="what evaluation_id begins with")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The evaluation_result_id to use if answers have several."),
    ] = None,
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import instance-level results of Every Eval Ever. All or nothing.

    `is_correct` says whether an answer is right. Scores without answers are left out and listed. What
    `rlfocal export every-eval-ever` wrote comes back complete, including its log-probs.
    """
    from rlfocal.exchange.imports.every_eval_ever import read_every_eval_ever

    read = partial(
        read_every_eval_ever, paths, benchmark=benchmark, metric=metric, allow_missing=allow_missing
    )
    _import(lambda on_progress: read(on_progress=on_progress), warehouse, as_json=as_json)


@imports.command("prices")
def import_model_prices(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Parquet, CSV or JSONL: model, and price (cents per 1,000 queries) or price_input and "
            "price_output (cents per million tokens).",
            show_default="the shipped list",
        ),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Set the prices of imported models. All or none. Repeating it writes nothing.

    The shipped list has public list prices of many LLMs, with date and source. A price per million tokens
    also gives a flat price: that of a query of 800 prompt tokens and 200 answered ones.
    """
    from rlfocal.exchange.imports.prices import SHIPPED, import_prices
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        report = import_prices(opened, file or SHIPPED)
    if as_json:
        print_json(report)
    else:
        typer.echo(str(report))


def _import(
    reading: Callable[[Callable[[float], None]], AbstractContextManager[CheckedRows]],
    warehouse: str | None,
    *,
    as_json: bool,
) -> None:
    """Reads and checks first: a wrong file leaves no new warehouse behind."""
    from warehouse import open_warehouse

    with progress_bars() as on_progress:
        read, write = partial(on_progress, "read"), partial(on_progress, "write")
        read(0.0)
        with reading(read) as rows:
            read(1.0)
            write(0.0)
            with open_warehouse(warehouse) as opened:
                report = rows.write(opened)
            write(1.0)
    if as_json:
        print_json(report)
    else:
        typer.echo(str(report))

"""Commands that correct the warehouse: correct-labels, rename-model. Each is a new snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base.wording import counted
from rlfocal.cli.support import completion
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

Model = Annotated[
    str,
    typer.Argument(help="Its name in the warehouse.", show_default=False, autocompletion=completion.model),
]


@command("correct-labels", "Keep a warehouse")
def correct_labels(
    file: Annotated[
        Path,
        typer.Argument(
            help="Parquet, CSV or JSONL: benchmark, task, doc_id, and label or (for answers) gold.",
            show_default=False,
        ),
    ],
    warehouse: Location = None,
) -> Result:
    """Correct documents' labels or gold answers. All or none. Repeating it writes nothing.

    Models' answers stay, so accuracies change at once; evaluations against the old labels stay as history.
    A correction survives importing or extracting the document again with its old label.
    """
    from rlfocal.exchange.imports.labels import correct_from_file
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        n = correct_from_file(opened, file)
        result = {"corrected": n, "snapshot": opened.snapshot()}
    done = f"{counted(n, 'document')} corrected"
    return Result(result, done if n else f"nothing to do: the documents are already as in {file}")


@command("rename-model", "Keep a warehouse")
def rename_model(
    old: Model,
    new: Annotated[str, typer.Argument(help="Its new name.", show_default=False)],
    warehouse: Location = None,
) -> Result:
    """Rename a model everywhere, past evaluations, studies and payments included.

    Also rename it in its pool file. Repeating it writes nothing.
    """
    from rlfocal.evaluation.studies import findings
    from rlfocal.extraction.engines import payments
    from warehouse import open_warehouse
    from warehouse.corrections import rename_model as rename

    with open_warehouse(warehouse, create=False) as opened:
        n = rename(opened, old, new)
        findings.rename_model(opened.location.studies, old, new)
        payments.rename_model(opened.location.payments, old, new)
        result = {"partitions": n, "snapshot": opened.snapshot()}
    done = f"renamed {old} to {new}, with {counted(n, 'partition')}"
    return Result(result, done if n else f"nothing to do: {old} is already {new}")

"""`rlfocal correct-labels`: the right labels and gold answers, as a new snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base.wording import counted
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result


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

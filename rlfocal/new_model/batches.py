"""Draws batches of a probe from strata, reports its progress, and stores its estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.request import Progress
from rlfocal.data.dataset import Dataset
from rlfocal.extraction.running.events import ProbeBatch
from rlfocal.extraction.running.events import Progress as Answered
from rlfocal.extraction.running.probing import Batch, Place
from rlfocal.statistics.sampling import Strata
from warehouse import Warehouse

VERDICT_ERROR_RATE = 0.05
"""The probability that a clear verdict is wrong, over all looks and benchmarks together."""


def draw_batch(data: Dataset, strata: Strata, n: int) -> Batch:
    """The n drawn documents of a benchmark with their probabilities, including those that were asked
    already."""
    chances = strata.probabilities(n)
    batch: dict[Place, dict[int, float]] = {}
    for row in strata.draw(n):
        place = data.benchmark, str(data.tasks[row])
        batch.setdefault(place, {})[int(data.doc_ids[row])] = float(chances[row])
    return batch


def sort_answers(
    data: Dataset, strata: Strata, answers: Sequence[dict[str, Any]]
) -> tuple[Ints, list[dict[str, Any]], int]:
    """The positions in the dataset of the documents that were asked, in order (n,); the answers in that
    order; and the size of the largest draw whose documents were all asked."""
    keys = zip(data.tasks.tolist(), data.doc_ids.tolist(), strict=True)
    place_of = {key: row for row, key in enumerate(keys)}
    by_row = sorted((place_of[answer["task"], answer["doc_id"]], answer) for answer in answers)
    rows = np.array([row for row, _ in by_row], dtype=np.int64)
    sizes = (n for n in range(len(rows), 0, -1) if np.isin(strata.draw(n), rows).all())
    return rows, [answer for _, answer in by_row], next(sizes, 0)


def report_share(on_progress: Progress, model: str, most: int) -> Callable[[ProbeBatch | Answered], None]:
    """A function that turns events into calls of `on_progress`, with the share of the `most` documents that a
    probe may ask."""
    before = 0

    def report(event: ProbeBatch | Answered) -> None:
        nonlocal before
        before, done = (event.n_so_far, 0) if isinstance(event, ProbeBatch) else (before, event.done)
        on_progress(f"probe {model}", min(1.0, (before + done) / most))

    return report


def store_estimates(
    warehouse: Warehouse,
    probe_id: str,
    model: str,
    estimates: Sequence[dict[str, Any]],
    drawn: Sequence[tuple[Dataset, Ints, Floats]],
) -> None:
    """Replaces a probe's rows in `probe_estimates`, and its documents' probabilities in `probe_answers`.

    `drawn` has, for each benchmark, its dataset, the positions of the asked documents (n,), and the
    probability with which each was drawn (n,), NaN for a document outside the draw.
    """
    chances = [
        pa.table(
            {
                "benchmark": [data.benchmark] * len(rows),
                "task": data.tasks[rows].tolist(),
                "doc_id": data.doc_ids[rows],
                "probability": probabilities,
            }
        )
        for data, rows, probabilities in drawn
    ]
    about = {"probe_id": probe_id, "model": model, "estimated_at": datetime.now(UTC)}
    with warehouse.transaction(f"estimates of probe {probe_id}"):
        connection = warehouse.connection
        connection.execute("DELETE FROM probe_estimates WHERE probe_id = ?", [probe_id])
        warehouse.append("probe_estimates", pa.Table.from_pylist([row | about for row in estimates]))
        connection.register("chances", pa.concat_tables(chances))
        connection.execute(
            "UPDATE probe_answers AS a SET probability = nullif(c.probability, 'nan') FROM chances AS c "
            "WHERE a.probe_id = ? AND (a.benchmark, a.task, a.doc_id) = (c.benchmark, c.task, c.doc_id)",
            [probe_id],
        )
        connection.unregister("chances")

"""What an import gathers before it checks: the columns of `docs` and `scores`, and the facts beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa

from warehouse.comparison import Rule
from warehouse.store import PartitionKey

KEY_COLUMNS = {"benchmark": "VARCHAR", "task": "VARCHAR", "doc_id": "BIGINT"}
DOC_COLUMNS = KEY_COLUMNS | {
    "label": "BIGINT",
    "question": "VARCHAR",
    "choices": "VARCHAR[]",
    "gold": "VARCHAR",
    "split": "VARCHAR",
    # What only a log knows: its own hash of a document (a label of -1 stands for no right choice there), ...
    "doc_hash": "VARCHAR",
    "confidential": "BOOLEAN",
    "prompt_hash": "VARCHAR",
    "source_id": "VARCHAR",  # the document's name in the source, where doc_id is only its row
}
SCORE_COLUMNS = KEY_COLUMNS | {
    "model": "VARCHAR",
    "choice_logprobs": "DOUBLE[]",
    "answer": "VARCHAR",
    "pass": "BIGINT",
    "text": "VARCHAR",  # what the answer was read from; the answer itself where it is missing
    "is_greedy": "BOOLEAN[]",
    "choice_tokens": "BIGINT[]",
    "n_tokens": "BIGINT",
    "n_prompt_tokens": "BIGINT",
}
Split = Literal["hash", "first"]
"""Which documents of a task are train where the file has no split: those drawn by a hash of their ids, or the
first."""
OnProgress = Callable[[float], None] | None
"""A function that is called with the share of rows that has been read, 0 to 1."""


@dataclass
class Source(ABC):
    """A source of rows, and the facts that are stored beside them."""

    kind: str
    """The import's name, as in `rlfocal import KIND`."""
    title: str
    """The files or folders that a message about all rows names."""
    allow_missing: bool
    left: list[str] = field(default_factory=list)
    """A sentence for everything else that is left out, with the reason."""
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    details: dict[PartitionKey, Mapping[str, Any]] = field(default_factory=dict)
    """Further settings of a partition; `n_whole` among them is how many documents its task has."""
    facts: defaultdict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Rows of the tables `benchmarks` and `tasks`, by the table's name. A None leaves the stored value."""
    models: pa.Table | None = None
    """Rows of the table `models`, which replace stored ones."""
    prompts: pa.Table | None = None
    """Rows of the table `prompts`. Stored prompts stay as they are."""
    rule: Rule = Rule.DEFAULT
    """How answers are compared."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Models' names in the warehouse, by the names of their files or those in the files."""
    columns: list[str] = field(default_factory=list)
    """A sentence for each given table: what its columns were taken as."""
    ids_are_texts: bool = False
    """Whether documents are identified by source_id or question; doc_id is then only a position."""
    differs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By benchmark, sentences on unused columns that differ between train and test by more than chance."""
    are_logs: bool = False
    """Whether scores are log-likelihoods of texts after one prompt."""
    are_probabilities: bool = False
    """Whether scores were given as probabilities."""
    in_order: bool = False
    """Whether the first documents of each task are train; if not, a hash of their ids draws them."""

    @abstractmethod
    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        """Makes the tables `docs` and `scores`. Raises InputError if there is nothing to import."""

    @abstractmethod
    def place(self, row: int, table: str) -> str:
        """The words that name the place of a row of `docs` or `scores` in a message."""


def title_source(paths: Sequence[str | Path]) -> str:
    """The title of a source of several files or folders."""
    return ", ".join(map(str, paths))

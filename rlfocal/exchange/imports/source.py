"""Sources of an import: the columns of `docs` and `scores`, and the facts that are stored beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
"""The rule that makes documents train where a file has no split: a hash of their ids, or the first of each
task."""
OnProgress = Callable[[float], None] | None
"""A function that is called with the share of the rows that have been read, 0 to 1; or None."""


@dataclass
class Source(ABC):
    """A source of rows for an import, and the facts that are stored beside them."""

    kind: str
    """The import's name, as in `rlfocal import KIND`."""
    title: str
    """The files or folders, as named in messages about all rows."""
    allow_missing: bool
    omissions: list[str] = field(default_factory=list)
    """Sentences on everything that is left out, with reasons."""
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    details: dict[PartitionKey, Mapping[str, Any]] = field(default_factory=dict)
    """Further settings of a partition. The key `n_whole` is the number of documents of its whole task."""
    facts: defaultdict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Rows of the tables `benchmarks` and `tasks`, by the table's name. A None keeps the stored value."""
    models: pa.Table | None = None
    """Rows of the table `models`, which replace stored rows."""
    prompts: pa.Table | None = None
    """Rows of the table `prompts`. Prompts that are stored already stay."""
    rule: Rule = Rule.DEFAULT
    """The rule by which answers are compared with gold answers."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The models' names in the warehouse, by the name of a file, or a name in a file."""
    columns: list[str] = field(default_factory=list)
    """A sentence for each given table on the meaning of its columns."""
    ids_are_texts: bool = False
    """Whether documents are identified by source_id or question, so that doc_id is only a position."""
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Sentences by benchmark, on unused columns that differ between train and test by more than chance."""
    are_logs: bool = False
    """Whether scores are log-likelihoods of texts after a common prompt."""
    are_probabilities: bool = False
    """Whether scores were given as probabilities."""
    in_order: bool = False
    """Whether the first documents of each task are train. Otherwise, a hash of their ids decides."""

    @abstractmethod
    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        """Creates the tables `docs` and `scores`. Raises InputError if there is nothing to import."""

    @abstractmethod
    def place(self, row: int, table: str) -> str:
        """The place of a row of the table `docs` or `scores`, in words for a message."""

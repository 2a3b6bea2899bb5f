"""Checks the rows of any import against each other, then writes them in one transaction, or refuses all. A
scratch DuckDB has the rows in two tables, `docs` and `scores`, with a number for every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import duckdb
import pyarrow as pa

import rlfocal
from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.exchange.imports.faults import (
    add_faults,
    check_coverage,
    check_golds,
    count,
    keep_other_units,
    list_faults,
    list_names,
    make_canonical_answers,
    note_implausible,
)
from rlfocal.exchange.imports.source import Source
from rlfocal.exchange.imports.stored import (
    check_stored,
    compare_as_stored,
    import_lock,
    measure_as_stored,
    number_as_stored,
    split_as_stored,
)
from rlfocal.statistics.homogeneity import Share, count_shares, describe, find_differences
from warehouse import Warehouse, writing
from warehouse.comparison import Rule
from warehouse.limits import memory_settings
from warehouse.scripts import script
from warehouse.store import PartitionKey

P = ParamSpec("P")
SourceT = TypeVar("SourceT", bound="Source")
BATCH_DOCS = 500_000
"""The approximate number of documents written at once. Answers of many more do not fit into memory
together."""


@dataclass(frozen=True)
class ImportReport:
    """The outcome of an import: what it read, left out and wrote. A partition is one model on one task."""

    benchmarks: tuple[str, ...]
    models: tuple[str, ...]
    n_docs: int
    n_scores: int
    n_written: int
    """The number of written partitions."""
    n_unchanged: int
    """The number of partitions that were in the warehouse already."""
    n_unscored: int
    """The number of documents that were left out because no model has a score for them."""
    n_unanswered: int
    """The number of answers that are empty or cannot be read. They are graded as wrong."""
    missing: tuple[tuple[str, str, int], ...]
    """The (benchmark, model, n) of models that lack n documents, which `allow_missing` permits."""
    left: tuple[str, ...] = ()
    """Sentences on everything else that was left out, with reasons."""
    uneven: tuple[tuple[str, str, str, int, int], ...] = ()
    """The (benchmark, task, model, fewest, most) answers per document, for models whose numbers of answers
    differ."""
    notes: tuple[str, ...] = ()
    """Sentences on anything else that a reader of the figures should know."""
    n_replaced: int = 0
    """The number of written partitions that replaced different stored rows."""
    columns: tuple[str, ...] = ()
    """A sentence for each given table on the meaning of its columns."""

    def __str__(self) -> str:
        taken = (
            f"{count_noun(self.n_scores, 'score')} of {count_noun(len(self.models), 'model')} on "
            f"{count_noun(self.n_docs, 'document')} "
            f"({', '.join(self.benchmarks)})"
        )
        written = f"{count_noun(self.n_written, 'partition')} written"
        written += f", {self.n_unchanged:,} already there" if self.n_unchanged else ""
        lines = [f"{taken}: {written if self.n_written else 'nothing new, nothing written'}"]
        lines += [f"models: {', '.join(self.models)}"] * bool(self.columns)
        lines += [f"columns: {'; '.join(self.columns)}"] * bool(self.columns)
        if self.n_replaced:
            before = count_noun(self.n_replaced, "partition")
            lines.append(
                f"replaced: {before}; what stood there is in the snapshot before (`rlfocal snapshots`)"
            )
        if self.n_unscored:
            lines.append(f"left out: {count_noun(self.n_unscored, 'document')} that no model scored")
        if self.n_unanswered:
            lines.append(f"no answer: {count_noun(self.n_unanswered, 'score')} without one, graded as wrong")
        lines += [f"left out: {what}" for what in self.left]
        lines += [
            f"gap: {model} lacks {count_noun(n, 'document')} of {name}" for name, model, n in self.missing
        ]
        for name, task, model, fewest, most in self.uneven:
            lines.append(
                f"uneven: {model} answered documents of {name}/{task} {fewest} to {most} times; "
                "an answer's probability is its share of the answers to its document"
            )
        lines += [f"note: {what}" for what in self.notes]
        return "\n".join(lines)


class Importer(Generic[P, SourceT]):
    """An import that writes what its source has in one transaction, or writes nothing. Repeating it changes
    nothing."""

    def __init__(self, gather: Callable[P, SourceT]) -> None:
        update_wrapper(self, gather)
        self.gather = gather

    @contextmanager
    def read(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[CheckedRows]:
        """Reads and checks a source, before any warehouse is created. Raises InputError, which names the
        wrong rows."""
        source = self.gather(*args, **kwargs)
        with closing(duckdb.connect(config=memory_settings())) as scratch:
            scratch.execute("CREATE TEMP TABLE faults (step INT, file VARCHAR, row BIGINT, reason VARCHAR)")
            source.load(scratch)
            yield _check_rows(scratch, source)

    def __call__(self, warehouse: Warehouse, /, *args: P.args, **kwargs: P.kwargs) -> ImportReport:
        with self.read(*args, **kwargs) as checked:
            return checked.write(warehouse)


@dataclass(frozen=True)
class CheckedRows:
    """Rows of an import that agree with each other and can be written."""

    scratch: duckdb.DuckDBPyConnection
    source: Source

    def write(self, warehouse: Warehouse) -> ImportReport:
        """Commits the partitions that the warehouse lacks, in one transaction. Imports at once write in turn.

        Raises InputError if a document differs from the one that is stored under its id.
        """
        with import_lock(warehouse):
            return self._write_in_turn(warehouse)

    def _write_in_turn(self, warehouse: Warehouse) -> ImportReport:
        self._follow_stored(warehouse)
        self.source.notes += note_implausible(
            self.scratch, are_logs=self.source.are_logs, are_probabilities=self.source.are_probabilities
        )
        fingerprints = warehouse.fingerprints()
        partitions = self.scratch.execute("FROM partitions ORDER BY ALL").to_arrow_table().to_pylist()
        new = [p for p in partitions if fingerprints.get(_key(p)) != p["fingerprint"]]
        if new:
            self._compare_columns()
            _write(self.scratch, self.source, warehouse, new)
        elif (
            self.source.models is not None
            and writing.changed_models(warehouse.connection, self.source.models).num_rows
        ):
            with warehouse.transaction("describe models"):
                writing.put_models(warehouse.connection, self.source.models)
        n_replaced = sum(_key(partition) in fingerprints for partition in new)
        for benchmark in list_names(self.scratch, "benchmark") if new else ():
            found = find_differences(count_shares(warehouse, benchmark, list_names(self.scratch, "model")))
            note = describe(benchmark, [*self.source.differences.get(benchmark, ()), *map(str, found)])
            self.source.notes += [note] if note else []
        return _report(self.scratch, len(new), n_replaced, self.source)

    def _follow_stored(self, warehouse: Warehouse) -> None:
        """Numbers, compares and splits documents as the earlier version that stored them did."""
        scratch, source = self.scratch, self.source
        if source.ids_are_texts and number_as_stored(scratch, warehouse):
            _prepare(scratch, source)
        if source.rule is Rule.DEFAULT and (earlier := compare_as_stored(scratch, warehouse)):
            _prepare(scratch, source)
            note = "compared as the stored answers are, without signs and brackets at the ends of texts"
            source.notes.append(f"{', '.join(earlier)}: {note}")
        if earlier := measure_as_stored(scratch, warehouse, source.rule):
            note = "compared as the stored answers are, so that other units are right, too"
            source.notes.append(f"{', '.join(earlier)}: {note}")
        if not source.in_order and split_as_stored(scratch, warehouse):
            _prepare(scratch, source)

    def _compare_columns(self) -> None:
        """Notes unused columns that differ between train and test, because they are not stored."""
        of_benchmarks: dict[str, list[Share]] = defaultdict(list)
        for benchmark, *share in self.scratch.execute(script("imports/unused_shares")).fetchall():
            of_benchmarks[benchmark].append(Share(*share))
        differing = {name: [*map(str, find_differences(of))] for name, of in of_benchmarks.items()}
        self.source.differences = {name: texts for name, texts in differing.items() if texts}


def _check_rows(scratch: duckdb.DuckDBPyConnection, source: Source) -> CheckedRows:
    """Checks the tables `docs` and `scores` of an import. Raises InputError with the fault; if there are
    several kinds, with a note for each."""
    _rename(scratch, source.names)
    # A missing column is no fault of its rows.
    if not count(scratch, "SELECT count(*) FROM faults WHERE row = 0"):
        scratch.execute(script("imports/faults"))
        make_canonical_answers(scratch, source.rule.canonical)
        keep_other_units(scratch, source.rule)
        check_golds(scratch, source.rule)
        scratch.execute("CREATE TEMP TABLE IF NOT EXISTS unused (row BIGINT, name VARCHAR, value VARCHAR)")
        scratch.execute("CREATE TEMP TABLE IF NOT EXISTS grades (row BIGINT, grade BOOLEAN)")
        scratch.execute(
            "CREATE TEMP TABLE known_splits AS SELECT benchmark, task, doc_id, split FROM docs LIMIT 0"
        )
        _prepare(scratch, source)
        if not source.allow_missing:
            check_coverage(scratch)
    if told := list_faults(scratch, source.place):
        if len(told) == 1:
            raise InputError(told[0])
        refusal = InputError(f"nothing is imported: {len(told)} kinds of fault")
        for fault in told:
            refusal.add_note(fault)
        raise refusal
    return CheckedRows(scratch, source)


def _prepare(scratch: duckdb.DuckDBPyConnection, source: Source) -> None:
    rule = None if source.rule is Rule.DEFAULT else source.rule
    scratch.execute(
        f"SET VARIABLE in_order = {source.in_order}"
    )  # a parameter reaches the last statement only
    scratch.execute(f"SET VARIABLE ids_are_texts = {source.ids_are_texts}")
    scratch.execute(script("imports/prepare"), {"rule": rule})


def _rename(scratch: duckdb.DuckDBPyConnection, names: Mapping[str, str]) -> None:
    """Replaces models' given names by rlfocal's names. Adds a fault for a given name that no model has."""
    there = list_names(scratch, "model")
    if names:  # all at once, or two that change places would become one
        scratch.register("renamed", pa.table({"before": list(names), "after": list(names.values())}))
        scratch.execute("UPDATE scores SET model = after FROM renamed WHERE model = before")
        scratch.unregister("renamed")
    for before, after in names.items():
        if before not in there:
            reason = (
                f"--name {before}={after}: there is no such model or file; the models are {', '.join(there)}"
            )
            add_faults(scratch, 0, "scores", [(0, reason)])


def _key(partition: Mapping[str, Any]) -> PartitionKey:
    return PartitionKey(partition["model"], partition["benchmark"], partition["task"])


def _write(
    scratch: duckdb.DuckDBPyConnection, source: Source, warehouse: Warehouse, new: list[dict[str, Any]]
) -> None:
    _want(scratch, new)
    docs = scratch.execute(
        "SELECT * EXCLUDE (row, given) FROM documents SEMI JOIN wanted USING (benchmark, task) "
        "ORDER BY benchmark, task, doc_id"
    ).to_arrow_table()
    kinds = dict(
        scratch.execute("SELECT benchmark, any_value(label IS NULL) FROM documents GROUP BY 1").fetchall()
    )
    for name, is_answers in kinds.items():
        about = {"kind": "answers", "comparison": source.rule} if is_answers else {"kind": "choices"}
        source.facts["benchmarks"].insert(0, {"benchmark": name, **about})
    message = f"import {source.kind} of {count_noun(len({p['model'] for p in new}), 'model')}"
    with warehouse.transaction(message):
        for table, given in source.facts.items():
            writing.put_facts(warehouse.connection, table, given)
        writing.put_docs(warehouse.connection, docs)
        if source.prompts is not None:
            scratch.register("prompts", source.prompts)
            asked = scratch.execute("FROM prompts SEMI JOIN wanted USING (benchmark, task)").to_arrow_table()
            writing.put_prompts(warehouse.connection, asked)
        if source.models is not None:
            writing.put_models(warehouse.connection, source.models)
        for name in ("choice_rows", "answer_rows"):
            chosen = [p for p in new if (kinds[p["benchmark"]]) == (name == "answer_rows")]
            for batch in _batches(chosen):
                _want(scratch, batch)
                rows = scratch.execute(script(f"imports/{name}")).to_arrow_table()
                records = [_record(p, source) for p in batch]
                writing.put_partitions(warehouse.connection, rows, records)
        if not source.allow_missing:
            check_stored(warehouse, new)


def _want(scratch: duckdb.DuckDBPyConnection, partitions: list[dict[str, Any]]) -> None:
    """Lists partitions in temp.wanted, which the SQL scripts read."""
    scratch.register("named", pa.Table.from_pylist(partitions))
    scratch.execute("CREATE OR REPLACE TEMP TABLE wanted AS SELECT benchmark, task, model FROM named")
    scratch.unregister("named")


def _batches(partitions: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields batches of partitions in storage order, each of about BATCH_DOCS documents."""
    batch: list[dict[str, Any]] = []
    held = 0
    for partition in sorted(partitions, key=lambda p: (p["benchmark"], p["task"], p["model"])):
        if batch and held + partition["n_docs"] > BATCH_DOCS:
            yield batch
            batch, held = [], 0
        batch.append(partition)
        held += partition["n_docs"]
    if batch:
        yield batch


def _record(partition: dict[str, Any], source: Source) -> dict[str, Any]:
    details = dict(source.details.get(_key(partition), {}))
    n_whole = details.pop("n_whole", None)
    differs = source.differences.get(partition["benchmark"])
    return {
        **{name: partition[name] for name in ("model", "benchmark", "task", "fingerprint", "n_docs")},
        "backend": "import",
        "n_whole": n_whole,
        "n_ties": partition["n_ties"],
        "settings": {
            "source": source.kind,
            "missing": partition["missing"],
            **source.settings,
            **details,
            **({"differs": "; ".join(differs)} if differs else {}),
        },
        "versions": {"rlfocal": rlfocal.__version__},
    }


def _report(
    scratch: duckdb.DuckDBPyConnection, n_written: int, n_replaced: int, source: Source
) -> ImportReport:
    missing = scratch.execute(
        "SELECT benchmark, model, count(*) FROM gaps GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return ImportReport(
        benchmarks=list_names(scratch, "benchmark"),
        models=list_names(scratch, "model"),
        n_docs=count(scratch, "SELECT count(*) FROM documents"),
        n_scores=count(scratch, "SELECT count(*) FROM scores"),
        n_written=n_written,
        n_unchanged=count(scratch, "SELECT count(*) FROM partitions") - n_written,
        n_unscored=count(scratch, "SELECT (SELECT count(*) FROM docs) - (SELECT count(*) FROM documents)"),
        n_unanswered=count(scratch, script("imports/unanswered")),
        missing=tuple((benchmark, model, n) for benchmark, model, n in missing),
        left=tuple(source.omissions),
        uneven=tuple(scratch.execute(script("imports/uneven_passes")).fetchall()),
        notes=tuple(source.notes),
        n_replaced=n_replaced,
        columns=tuple(source.columns),
    )

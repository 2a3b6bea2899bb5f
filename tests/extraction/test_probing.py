"""Probes: some documents are asked, batch by batch, and the next extraction asks only for the others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from support.killing import tables
from support.probes import (
    BATCHES,
    JOBS,
    KILLS,
    MODEL,
    N_DOCS,
    ONE,
    SUMS,
    TWO,
    BatchSequence,
    WordEngine,
    drawn,
    extract,
    job,
    probe,
    probe_and_kill,
    probe_answers,
    running,
)
from support.sql import rounded

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.running import probing
from rlfocal.extraction.running.events import ExtractedPartition
from rlfocal.extraction.running.probing import ask_batches
from warehouse import open_warehouse
from warehouse.corrections import remove_from_benchmarks, remove_model
from warehouse.integrity import examine, repair
from warehouse.scripts import definitions

OTHER = MODEL.model_copy(update={"model": "other"})


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose tasks another model has answered."""
    location = tmp_path_factory.mktemp("answered") / "w"
    events = extract(location, WordEngine(), *JOBS, model=OTHER)
    assert sum(isinstance(event, ExtractedPartition) for event in events) == len(JOBS)
    return location


@pytest.fixture
def location(answered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(answered, tmp_path / "w"))


@pytest.fixture(scope="module")
def plain(answered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after an extraction of the model without a probe."""
    location = Path(shutil.copytree(answered, tmp_path_factory.mktemp("plain") / "w"))
    extract(location, WordEngine(), *JOBS)
    return location


@pytest.fixture(scope="module")
def undisturbed(answered: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The answers to a probe that nobody kills."""
    location = Path(shutil.copytree(answered, tmp_path_factory.mktemp("undisturbed") / "w"))
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    return probe_answers(location)


@pytest.fixture(scope="module")
def before(answered: Path) -> dict[str, list[Any]]:
    """What stands there of the other model alone."""
    return everything(answered)


def words(*batches: Any) -> list[str]:
    """What is asked of these batches, in order: tasks as they are listed, documents by number."""
    order = [(of.task.benchmark, of.task.task) for of in JOBS]
    return [f"{place[1]} {i}" for batch in batches for place in order for i in sorted(batch.get(place, ()))]


def records(location: Path) -> list[dict[str, Any]]:
    with open_warehouse(location, read_only=True) as warehouse:
        found = warehouse.query("FROM extractions WHERE model = 'm' ORDER BY task")
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows


def everything(location: Path) -> dict[str, list[Any]]:
    """All tables and views but those of probes, and a macro that reads them."""
    with open_warehouse(location, read_only=True) as warehouse:
        names = [
            what.name
            for what in definitions()
            if what.kind in ("table", "view") and not what.name.startswith("probe_")
        ]
        found = {name: warehouse.rows(f"FROM {name} ORDER BY ALL") for name in names}
        return found | {"scores": rounded(warehouse.rows("FROM model_scores('b')"))}


def test_a_probe_asks_what_was_chosen_and_commits_each_batch_before_it_chooses(
    location: Path, before: dict[str, list[Any]]
) -> None:
    engine, choose = WordEngine(), BatchSequence("p", BATCHES)
    events = probe(location, engine, choose, *JOBS)
    assert engine.asked == words(*BATCHES)
    assert choose.seen == [0, 8, 11, 14]
    assert [(event.model, event.n_docs, event.n_so_far) for event in events] == [
        ("m", 8, 8),
        ("m", 3, 11),
        ("m", 3, 14),
    ]
    assert everything(location) == before, "a model that was only probed stands nowhere else"
    rows = probe_answers(location).to_pylist()
    assert {(row["benchmark"], row["task"], row["doc_id"]): row["probability"] for row in rows} == {
        (*place, i): p
        for batch in BATCHES
        for place, documents in batch.items()
        for i, p in documents.items()
    }
    about = {(row["model"], row["fingerprint"], row["evidence"], row["paid"]) for row in rows}
    assert about == {
        ("m", "of one", "logprobs", None),
        ("m", "of two", "logprobs", None),
        ("m", "of sums", "samples", None),
    }
    assert all(json.loads(row["settings"])["dtype"] == "float32" for row in rows)
    assert not probe(location, engine, choose, *JOBS), "it has ended"
    assert len(engine.asked) == 14


def test_a_document_is_asked_once(location: Path) -> None:
    """A chooser may name one again, and a batch of asked ones alone ends the probe."""
    engine = WordEngine()
    probe(location, engine, BatchSequence("p", [drawn(ONE, 1, 2), drawn(ONE, 2, 3) | drawn(TWO, 2)]), *JOBS)
    assert engine.asked == ["one 1", "one 2", "one 3", "two 2"]
    with running(engine):
        ask_batches(print, location, "p", MODEL, "hf", JOBS, lambda _: drawn(ONE, 2, 3), 1)
    assert len(engine.asked) == 4


def test_an_extraction_asks_only_what_a_probe_did_not(location: Path, plain: Path) -> None:
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    kept = probe_answers(location)
    engine = WordEngine()
    extract(location, engine, *JOBS)
    everyone = {f"{of.task.task} {i}" for of in JOBS for i in range(N_DOCS)}
    assert sorted(engine.asked) == sorted(everyone - set(words(*BATCHES)))
    assert tables(location) == tables(plain)
    with open_warehouse(location) as warehouse:
        seconds = "SELECT task, sum(seconds) FROM probe_answers GROUP BY ALL"
        least = dict(warehouse.rows(seconds))
        assert examine(warehouse).is_sound
    for now, then in zip(records(location), records(plain), strict=True):
        same = ("n_docs", "digest", "n_prompt_tokens", "n_generated_tokens", "n_ties", "evidence", "paid")
        assert {name: now[name] for name in same} == {name: then[name] for name in same}
        assert now["seconds"] > least[now["task"]]
    assert probe_answers(location) == kept
    assert not [
        event for event in extract(location, WordEngine(), *JOBS) if isinstance(event, ExtractedPartition)
    ]


def test_probe_predictions_are_predictions(location: Path) -> None:
    """Once the partitions are whole, both views have the same documents."""
    whole = {(of.task.benchmark, of.task.task): dict.fromkeys(range(N_DOCS), 0.5) for of in JOBS}
    reasons = {"one 4": "filtered", "two 6": "refused"}
    probe(location, WordEngine(reasons=reasons), BatchSequence("p", [whole]), *JOBS)
    engine = WordEngine()
    extract(location, engine, *JOBS)
    assert engine.asked == []
    columns = "benchmark, task, doc_id, prediction, answer, correct"
    with open_warehouse(location, read_only=True) as warehouse:
        found = warehouse.rows(f"SELECT {columns}, probs FROM probe_predictions ORDER BY ALL")
        probs = "SELECT * EXCLUDE (choice, prob), list(prob ORDER BY choice) AS probs FROM choice_probs"
        expected = warehouse.rows(
            f"SELECT {columns}, probs FROM predictions LEFT JOIN ({probs} GROUP BY ALL) "
            "USING (benchmark, task, doc_id, model) WHERE model = 'm' ORDER BY ALL"
        )
        others = warehouse.rows(f"SELECT {columns} FROM predictions WHERE model = 'other' ORDER BY ALL")
    assert [row[:6] for row in found] == [row[:6] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[6] == (theirs[6] and pytest.approx(theirs[6], abs=1e-15))
    assert len(found) == 36
    assert len({row[5] for row in found}) == 2
    assert [row[:3] for row in found if row[3] is row[4] is None] == [("b", "one", 4), ("b", "two", 6)]
    assert [row[:6] for row in found if row[:3] not in {("b", "one", 4), ("b", "two", 6)}] == [
        row for row in others if row[:3] not in {("b", "one", 4), ("b", "two", 6)}
    ]


@pytest.mark.parametrize(
    "where",
    [
        where
        if where in ("asking 13", "writing", "committed")
        else pytest.param(where, marks=pytest.mark.slow)
        for where in KILLS
    ],
)
def test_a_killed_probe_continues(location: Path, plain: Path, undisturbed: pa.Table, where: str) -> None:
    probe_and_kill(str(location), where)
    n_committed = probe_answers(location).num_rows
    committed = {"committed": 8, "choosing 1": 8, "asking 9": 8, "asking 13": 11, "choosing 2": 11}
    saved = {"asking 4": 4, "asking 7": 7, "writing": 8, "asking 13": 2}.get(where, 0)
    assert n_committed == committed.get(where, 0)
    engine = WordEngine()
    probe(location, engine, BatchSequence("p", BATCHES), *JOBS)
    assert len(engine.asked) == 14 - n_committed - saved
    assert probe_answers(location) == undisturbed
    with open_warehouse(location) as warehouse:
        assert list(warehouse.location.shards.iterdir()) == []
        assert examine(warehouse).is_sound
    extract(location, WordEngine(), *JOBS)
    assert tables(location) == tables(plain)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_catalogue_in_postgres(place: str, plain: Path) -> None:
    extract(place, WordEngine(), *JOBS, model=OTHER)
    for where in ("asking 4", "writing", "committed", "choosing 2"):
        probe_and_kill(place, where)
    probe(place, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    with open_warehouse(place) as warehouse:
        assert examine(warehouse).is_sound
        rows = "SELECT count(*), count(DISTINCT (benchmark, task, doc_id)) FROM probe_predictions"
        assert warehouse.rows(rows) == [(14, 14)]
    extract(place, WordEngine(), *JOBS)
    assert tables(place) == tables(plain)


def test_a_longer_limit_asks_only_for_what_is_new(location: Path, plain: Path) -> None:
    extract(location, WordEngine(), job(ONE, 5), job(SUMS, 7))
    [first, second] = (record["seconds"] for record in records(location))
    engine = WordEngine()
    extract(location, engine, *JOBS)
    whole = [f"{task} {i}" for task, n in (("one", 5), ("two", 0), ("sums", 7)) for i in range(n, N_DOCS)]
    assert engine.asked == whole
    assert tables(location) == tables(plain)
    longer = [record["seconds"] for record in records(location)]
    assert longer[0] > first
    assert longer[1] > second


def test_the_newest_probe_of_the_same_engine_counts(location: Path, plain: Path) -> None:
    """Two probes ask the same document twice; rows of other devices and fingerprints are not taken."""
    for probe_id, engine in (
        ("old", WordEngine(reasons={"one 2": "filtered"})),
        ("new", WordEngine(reasons={"one 3": "refused"})),
        ("elsewhere", WordEngine(device="cuda:0")),
    ):
        ids = {"old": (1, 2, 7, 8, 9), "new": (2, 3, 4, 5, 6), "elsewhere": (0, 1, 2, 3)}[probe_id]
        assert probe(location, engine, BatchSequence(probe_id, [drawn(ONE, *ids)]), job(ONE))
        assert engine.asked == [f"one {i}" for i in ids]
    other = replace(job(ONE), fingerprint="another prompt")
    probe(location, WordEngine(), BatchSequence("earlier", [drawn(ONE, 10)]), other)
    engine = WordEngine()
    extract(location, engine, job(ONE))
    assert engine.asked == [f"one {i}" for i in (0, 10, 11)]
    with open_warehouse(location) as warehouse:
        reasons = "SELECT DISTINCT doc_id, unanswered FROM choice_logprobs WHERE unanswered IS NOT NULL"
        assert sorted(warehouse.rows(reasons)) == [(3, "refused: no")]
        taken = "(probe_id = 'new' OR probe_id = 'old' AND doc_id <> 2)"
        [(kept,)] = warehouse.rows(f"SELECT sum(seconds) FROM probe_answers WHERE {taken}")
        [(seconds,)] = warehouse.rows("SELECT seconds FROM extractions WHERE model = 'm'")
        assert kept < seconds < kept + 1


def test_what_may_pass_is_asked_again_by_the_extraction(location: Path, plain: Path) -> None:
    engine = WordEngine(reasons={"one 3": "failed"})
    choose = BatchSequence("p", [drawn(ONE, 1, 3, 5, 7, 9)])
    probe(location, engine, choose, *JOBS)
    assert not probe(location, WordEngine(), choose, *JOBS), "the probe itself does not"
    engine = WordEngine()
    extract(location, engine, job(ONE))
    assert engine.asked == [f"one {i}" for i in (0, 2, 3, 4, 6, 8, 10, 11)]
    with open_warehouse(location) as warehouse, open_warehouse(plain, read_only=True) as expected:
        rows = "FROM choice_logprobs WHERE model = 'm' AND task = 'one' ORDER BY doc_id, choice"
        assert warehouse.rows(rows) == expected.rows(rows)


def test_a_batch_without_enough_answers_is_not_committed(location: Path) -> None:
    silent = {f"one {i}": "failed" for i in (2, 5)}
    choose = BatchSequence("p", BATCHES)
    with pytest.raises(RunError, match="2 of 5 documents have no answer"):
        probe(location, WordEngine(reasons=silent), BatchSequence("q", [drawn(ONE, 2, 3, 4, 5, 6)]), *JOBS)
    assert probe_answers(location).num_rows == 0
    probe(location, WordEngine(reasons=silent), choose, *JOBS)
    assert probe_answers(location).num_rows == 14


def test_a_document_that_the_task_lacks_is_refused(location: Path) -> None:
    with pytest.raises(InputError, match="b/one lacks: 12"):
        probe(location, WordEngine(), BatchSequence("p", [drawn(ONE, 3, 12)]), *JOBS)
    with pytest.raises(InputError, match="b/three lacks: 0"):
        probe(location, WordEngine(), BatchSequence("p", [drawn(("b", "three"), 0)]), *JOBS)


def test_choices_alone_are_scored_with_each_batch(location: Path) -> None:
    """A shard of their texts is used again only for the same texts."""
    place = ("b", "three")
    of = job(place, unconditional=True)
    renamed = tuple(
        replace(d, continuations=tuple(f"{c}{d.doc_id}" for c in "xyz")) for d in of.task.documents
    )
    of = replace(of, task=replace(of.task, documents=renamed))
    undisturbed = Path(shutil.copytree(location, location.parent / "undisturbed"))
    assert isinstance(extract(undisturbed, WordEngine(), of)[-1], ExtractedPartition)
    engine = WordEngine()
    batches = [drawn(place, 1, 2), drawn(place, 3, 4)]
    with patch.object(probing, "rmtree", lambda folder, **_: None):  # as kills after each commit
        probe(location, engine, BatchSequence("p", batches), of)
    assert engine.asked == ["three 1", "three 2", *alone(1, 2), "three 3", "three 4", *alone(3, 4)]
    extract(location, engine, of)
    assert tables(location) == tables(undisturbed)
    values = {
        (row["doc_id"], said["choice"]): said["unconditional_logprob"]
        for row in probe_answers(location).to_pylist()
        for said in row["choices"]
    }
    with open_warehouse(location) as warehouse:
        rows = "SELECT doc_id, choice, unconditional_logprob FROM choice_logprobs WHERE model = 'm'"
        stored = {(doc_id, choice): value for doc_id, choice, value in warehouse.rows(rows)}
    assert values == {key: stored[key] for key in values}
    assert len(set(values.values())) > 1


def alone(*doc_ids: int) -> list[str]:
    return sorted(f"{choice}{doc_id}" for choice in "xyz" for doc_id in doc_ids)


def test_partitions_with_and_without_choices_alone_share_their_rows(location: Path, plain: Path) -> None:
    extract(location, WordEngine(), job(ONE, 8))
    engine = WordEngine()
    extract(location, engine, job(ONE, 8, unconditional=True))
    assert engine.asked == ["x", "y", "z"]
    engine = WordEngine()
    assert not [e for e in extract(location, engine, job(ONE, 8)) if isinstance(e, ExtractedPartition)]
    extract(location, engine, job(ONE))
    assert engine.asked == [f"one {i}" for i in range(8, N_DOCS)]
    with open_warehouse(location) as warehouse, open_warehouse(plain, read_only=True) as expected:
        rows = "FROM choice_logprobs WHERE model = 'm' AND task = 'one' ORDER BY doc_id, choice"
        assert warehouse.rows(rows) == expected.rows(rows)


def test_a_removed_model_leaves_nothing_of_its_probes(location: Path, before: dict[str, list[Any]]) -> None:
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    with open_warehouse(location) as warehouse:
        assert remove_model(warehouse, "m", ["b"]) == 2
        assert warehouse.rows("SELECT DISTINCT benchmark FROM probe_answers") == [("s",)]
        with remove_from_benchmarks(warehouse, "m", ["b", "s"]) as gone:
            assert gone.partitions == 1
        with remove_from_benchmarks(warehouse, "m", ["b", "s"]) as gone:
            assert (gone.partitions, gone.was_known) == (0, True)
        assert warehouse.rows("FROM probe_answers") == []
    assert everything(location) == before
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    with open_warehouse(location) as warehouse:
        assert remove_model(warehouse, "m") == 3
        assert remove_model(warehouse, "m") == 0
        assert warehouse.rows("FROM probe_answers") == []


def test_answers_to_replaced_documents_go(location: Path) -> None:
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    of = job(ONE)
    changed = tuple(replace(document, doc_hash="new") for document in of.task.documents)
    now = replace(of, task=replace(of.task, documents=changed), fingerprint="now", replace_documents=True)
    extract(location, WordEngine(), now)
    with open_warehouse(location) as warehouse:
        assert warehouse.rows("SELECT DISTINCT task FROM probe_answers ORDER BY 1") == [("sums",), ("two",)]


def test_the_doctor_mends_a_document_asked_twice(location: Path) -> None:
    probe(location, WordEngine(), BatchSequence("p", BATCHES), *JOBS)
    whole = probe_answers(location)
    with open_warehouse(location) as warehouse:
        with warehouse.transaction("twice"):
            twice = "INSERT INTO probe_answers FROM probe_answers WHERE doc_id = 3 AND task = 'one'"
            warehouse.connection.execute(twice)
        [fault] = examine(warehouse).keys or ()
        assert (fault.table, fault.key, fault.n) == ("probe_answers", ("p", "b", "one", "3"), 2)
        repair(warehouse)
        assert examine(warehouse).is_sound
    assert probe_answers(location) == whole

"""What another client writes into the tables is refused, or named by the doctor."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rlfocal.cli.app import app
from warehouse import open_warehouse, writing
from warehouse.connecting import attach, connect
from warehouse.locations import locate
from warehouse.upkeep.integrity import Integrity, examine, repair

MODELS = tuple(f"m{at}" for at in range(6))
N_DOCS = 4
REFUSED = (
    "INSERT INTO choice_logprobs BY NAME SELECT * REPLACE (NULL AS {key}) FROM choice_logprobs WHERE {one}",
    "UPDATE choice_logprobs SET {key} = NULL WHERE {one}",
    "UPDATE choice_logprobs SET logprob = NULL WHERE {one}",
    "UPDATE docs SET {document_key} = NULL WHERE task = '{task}'",
    "INSERT INTO models BY NAME SELECT * REPLACE (NULL AS model) FROM models LIMIT 1",
    "UPDATE extractions SET n_docs = NULL WHERE task = '{task}'",
)
"""NULLs where a key or a count needs a value."""
ON_A_PARTITION = (
    "INSERT INTO choice_logprobs FROM choice_logprobs WHERE {one}",
    "INSERT INTO choice_logprobs SELECT c.* FROM choice_logprobs AS c, range(2) WHERE {one}",
    "INSERT INTO choice_logprobs SELECT c.* FROM choice_logprobs AS c, range(2) WHERE {partition}",
    "INSERT INTO choice_logprobs SELECT * REPLACE (99 AS doc_id) FROM choice_logprobs WHERE {one}",
    "INSERT INTO choice_logprobs SELECT * REPLACE (7 AS choice) FROM choice_logprobs WHERE {one}",
    "UPDATE choice_logprobs SET logprob = logprob + 1e-12 WHERE {one}",
    "UPDATE choice_logprobs SET logprob = -logprob WHERE {partition}",
    "UPDATE choice_logprobs SET n_chars = NULL WHERE {one}",
    "UPDATE choice_logprobs SET n_chars = NULL, n_bytes = 1 WHERE {one}",
    "UPDATE choice_logprobs SET doc_id = (doc_id + 1) % 4 WHERE {one}",
    "DELETE FROM choice_logprobs WHERE {one}",
    "DELETE FROM choice_logprobs WHERE {partition} AND doc_id = {doc_id}",
    "DELETE FROM choice_logprobs WHERE {partition}",
    "DELETE FROM extractions WHERE {partition}",
    "INSERT INTO extractions FROM extractions WHERE {partition}",
    "UPDATE extractions SET n_docs = n_docs + 1 WHERE {partition}",
    "UPDATE extractions SET digest = NULL WHERE {partition}",
)
ON_DOCUMENTS = (
    "INSERT INTO docs FROM docs WHERE {document}",
    "INSERT INTO docs SELECT d.* FROM docs AS d, range(2) WHERE {document}",
    "INSERT INTO docs SELECT * REPLACE (99 AS doc_id) FROM docs WHERE {document}",
    "UPDATE docs SET question = 'another', label = 2 WHERE {document}",
    "UPDATE docs SET question = NULL WHERE {document}",
    "UPDATE docs SET choices = list_reverse(choices) WHERE {document}",
    "UPDATE docs SET split = 'train' WHERE {document} AND split = 'test'",
    "DELETE FROM docs WHERE {document}",
    "DELETE FROM docs WHERE task = '{task}'",
    "DELETE FROM doc_digests WHERE task = '{task}'",
)
ON_A_RUN = (
    "INSERT INTO evaluations FROM evaluations WHERE run_id = '{run}'",
    "UPDATE evaluations SET accuracy = accuracy + 0.1 WHERE run_id = '{run}'",
    "UPDATE evaluations SET n = n + 1 WHERE run_id = '{run}'",
    "DELETE FROM evaluations WHERE run_id = '{run}'",
    "INSERT INTO decisions FROM decisions WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET correct = NOT correct WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "DELETE FROM decisions WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "DELETE FROM decisions WHERE run_id = '{run}'",
)


def fill(path: Path, n_tasks: int) -> None:
    """Tasks of four documents with three choices, answered by six models; a run for each task."""
    tasks = [f"t{at}" for at in range(n_tasks)]
    places = [(task, doc_id) for task in tasks for doc_id in range(N_DOCS)]
    docs = [
        {"benchmark": "b", "task": task, "doc_id": at, "doc_hash": f"h{at}", "question": f"q{at}"}
        | {"choices": ["a", "b", "c"], "label": 0, "gold": "a", "split": "test", "confidential": False}
        for task, at in places
    ]
    rows = [
        {"benchmark": "b", "task": task, "doc_id": at, "model": model, "choice": choice, "n_chars": 1}
        | {"logprob": -1.0 - choice - at / 7}
        for task, at in places
        for model in MODELS
        for choice in range(3)
    ]
    records = [
        {"benchmark": "b", "task": task, "model": model, "fingerprint": "f", "n_docs": N_DOCS}
        for task in tasks
        for model in MODELS
    ]
    runs = [
        {"run_id": f"r{at}", "benchmark": "b", "task": task, "method": "x", "n": N_DOCS, "accuracy": 0.5}
        for at in range(n_tasks)
        for task in ("*", "t0")
    ]
    decisions = [
        {"run_id": f"r{at}", "benchmark": "b", "task": "t0", "doc_id": doc_id, "correct": doc_id < 2}
        for at in range(n_tasks)
        for doc_id in range(N_DOCS)
    ]
    with open_warehouse(path) as warehouse, warehouse.transaction("fill"):
        writing.put_docs(warehouse.connection, pa.Table.from_pylist(docs))
        writing.name_models(warehouse.connection, MODELS)
        writing.put_partitions(warehouse.connection, pa.Table.from_pylist(rows), records)
        warehouse.append("evaluations", pa.Table.from_pylist(runs))
        warehouse.append("decisions", pa.Table.from_pylist(decisions))


def write(path: Path, n: int, seed: int) -> list[tuple[str, Callable[[Integrity], bool]]]:
    """Makes `n` writes at random places with a DuckDB of its own: each, and whether an examination names it.

    Writes that a constraint refuses are not among them.
    """
    draw = random.Random(seed)
    n_tasks = n // 4 + 1
    # Tasks whose documents change share no partition with other writes, so that each is named for itself.
    tasks = draw.sample(range(n_tasks), n_tasks)
    for_docs, for_rows = tasks[: n_tasks // 3], tasks[n_tasks // 3 :]
    partitions = draw.sample(
        [(task, model) for task in for_rows for model in MODELS], len(for_rows) * len(MODELS)
    )
    runs = list(range(n_tasks))
    made: list[tuple[str, Callable[[Integrity], bool]]] = []
    with closing(connect(postgres=False)) as client:
        attach(client, locate(path), read_only=False, create=False, snapshot=None)
        for _ in range(n):
            kind = draw.choice(("partition", "partition", "partition", "documents", "run", "null"))
            doc_id, choice = draw.randrange(N_DOCS), draw.randrange(3)
            if kind == "documents" and for_docs:
                task = for_docs.pop()
                document = f"task = 't{task}' AND doc_id = {doc_id}"
                statement = draw.choice(ON_DOCUMENTS).format(document=document, task=f"t{task}")
                made.append((statement, lambda found, t=f"t{task}": t in {f.task for f in found.tasks or ()}))  # type: ignore[misc]
            elif kind == "run" and runs:
                run = f"r{runs.pop()}"
                statement = draw.choice(ON_A_RUN).format(run=run, doc_id=doc_id)
                made.append((statement, lambda found, r=run: r in named_runs(found)))  # type: ignore[misc]
            else:
                task, model = partitions.pop()
                partition = f"task = 't{task}' AND model = '{model}'"
                one = f"{partition} AND doc_id = {doc_id} AND choice = {choice}"
                if kind == "null":
                    key, document_key = draw.choice(("task", "doc_id", "model", "choice")), "doc_id"
                    statement = draw.choice(REFUSED).format(
                        one=one, key=key, document_key=document_key, task=f"t{task}"
                    )
                    with pytest.raises(duckdb.ConstraintException):
                        client.execute(statement)
                    continue
                statement = draw.choice(ON_A_PARTITION).format(one=one, partition=partition, doc_id=doc_id)
                place = (model, f"t{task}")
                made.append((statement, lambda found, p=place: p in named_partitions(found)))  # type: ignore[misc]
            client.execute(statement)
    return made


def named_partitions(found: Integrity) -> set[tuple[str, str]]:
    return {(fault.model, fault.task) for fault in found.partitions or ()}


def named_runs(found: Integrity) -> set[str]:
    keys = {fault.key[0] for fault in found.keys or () if fault.table in ("evaluations", "decisions")}
    return {fault.run_id for fault in found.runs or ()} | {key for key in keys if key is not None}


def test_every_write_is_refused_or_named(tmp_path: Path) -> None:
    fill(tmp_path / "w", 16)
    with open_warehouse(tmp_path / "w") as warehouse:
        clean = examine(warehouse)
    assert clean.is_sound
    made = write(tmp_path / "w", 60, seed=0)
    with open_warehouse(tmp_path / "w") as warehouse:
        found = examine(warehouse)
        assert not any(is_named(clean) for _, is_named in made)
        assert [statement for statement, is_named in made if not is_named(found)] == []
        assert len(found.other_writers) == len(made)
        repair(warehouse)
        assert examine(warehouse).is_sound


def test_duplicates_of_models_are_named_and_removed(tmp_path: Path) -> None:
    fill(tmp_path / "w", 1)
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("twice"):
        warehouse.connection.execute("INSERT INTO models FROM models WHERE model = 'm1'")
    run = CliRunner().invoke
    shown = run(app, ["doctor", "-w", str(tmp_path / "w")], terminal_width=200)
    assert "models m1 is there more than once (2 rows)" in " ".join(shown.output.split())
    run(app, ["doctor", "--repair", "-w", str(tmp_path / "w")])
    with open_warehouse(tmp_path / "w") as warehouse:
        assert examine(warehouse).is_sound
        assert warehouse.rows("SELECT count(*) FROM models") == [(len(MODELS),)]


@pytest.mark.parametrize("intact", [True, False])
def test_an_older_warehouse_gets_constraints_and_digests(tmp_path: Path, intact: bool) -> None:
    """Old digests are compared once more; what a NULL key makes impossible is left to the doctor."""
    fill(tmp_path / "w", 2)
    old = (
        "bit_xor(md5_number(concat_ws('|', doc_id, choice, token_ids, token_logprobs, logprob, n_tokens, "
        "n_chars, n_bytes, is_greedy, n_prompt_tokens, truncated, unconditional_logprob)))::VARCHAR"
    )
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("schema 9"):
        for statement in (
            "CREATE TEMP TABLE x AS FROM choice_logprobs",
            "DROP TABLE choice_logprobs",
            "CREATE TABLE choice_logprobs AS FROM temp.x",
            f"UPDATE extractions SET digest = (SELECT {old} FROM temp.x "
            "WHERE (x.task, x.model) = (extractions.task, extractions.model))",
            "UPDATE schema_version SET version = 9",
            *(
                ()
                if intact
                else ("UPDATE choice_logprobs SET model = NULL WHERE model = 'm0' AND doc_id = 1",)
            ),
        ):
            warehouse.connection.execute(statement)
    with open_warehouse(tmp_path / "w") as warehouse:
        found = examine(warehouse)
        assert [f.task for f in found.tasks or ()] == []
        assert sorted({f.model for f in found.partitions or () if f.model}) == ([] if intact else ["m0"])
        assert {f.table for f in found.keys or ()} == (set() if intact else {"choice_logprobs"})
        bad = "INSERT INTO choice_logprobs BY NAME SELECT 'b' AS benchmark, 't' AS task"
        with pytest.raises(duckdb.ConstraintException):
            warehouse.connection.execute(bad)
        repair(warehouse)
        assert examine(warehouse).is_sound

"""What another client writes into the tables is refused, or named by the doctor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.foreign_rows import MODELS, N_DOCS, benchmark_of, fill
from typer.testing import CliRunner

from rlfocal.cli.app import app
from warehouse import open_warehouse
from warehouse.connecting import attach, connect
from warehouse.integrity import Integrity, examine, repair
from warehouse.locations import locate

Fresh = Callable[[Path], Path]
REFUSED = (
    "INSERT INTO choice_logprobs BY NAME SELECT * REPLACE (NULL AS {key}) FROM choice_logprobs WHERE {one}",
    "UPDATE choice_logprobs SET {key} = NULL WHERE {one}",
    "UPDATE choice_logprobs SET logprob = NULL WHERE {one}",
    "UPDATE docs SET doc_id = NULL WHERE task = '{task}'",
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
ON_ANSWERS = (
    "INSERT INTO answer_passes FROM answer_passes WHERE {one}",
    "INSERT INTO answer_passes SELECT * REPLACE (99 AS doc_id) FROM answer_passes WHERE {one}",
    "INSERT INTO answer_passes SELECT * REPLACE (7 AS pass) FROM answer_passes WHERE {one}",
    "UPDATE answer_passes SET answer = '8' WHERE {one}",
    "UPDATE answer_passes SET answer = NULL WHERE {one}",
    "UPDATE answer_passes SET text = NULL WHERE {one}",
    "UPDATE answer_passes SET pass = pass + 3 WHERE {one}",
    "DELETE FROM answer_passes WHERE {one}",
    "DELETE FROM answer_passes WHERE {partition}",
)
ON_DOCUMENTS = (
    "INSERT INTO docs FROM docs WHERE {document}",
    "INSERT INTO docs SELECT d.* FROM docs AS d, range(2) WHERE {document}",
    "INSERT INTO docs SELECT * REPLACE (99 AS doc_id) FROM docs WHERE {document}",
    "UPDATE docs SET question = 'another', label = 2 WHERE {document}",
    "UPDATE docs SET question = NULL WHERE {document}",
    "UPDATE docs SET choices = list_reverse(coalesce(choices, ['x'])) WHERE {document}",
    "UPDATE docs SET split = 'train' WHERE {document} AND split = 'test'",
    "DELETE FROM docs WHERE {document}",
    "DELETE FROM docs WHERE task = '{task}'",
    "DELETE FROM doc_digests WHERE task = '{task}'",
    "UPDATE docs SET prompt_hash = NULL WHERE {document}",
    "INSERT INTO prompts FROM prompts WHERE {document}",
    "INSERT INTO prompts SELECT * REPLACE (99 AS doc_id) FROM prompts WHERE {document}",
    "UPDATE prompts SET prompt = 'another' WHERE {document}",
    "UPDATE prompts SET doc_id = NULL WHERE {document}",
    "DELETE FROM prompts WHERE {document}",
    "DELETE FROM prompts WHERE task = '{task}'",
)
ON_A_RUN = (
    "INSERT INTO evaluations FROM evaluations WHERE run_id = '{run}'",
    "UPDATE evaluations SET accuracy = accuracy + 0.1 WHERE run_id = '{run}'",
    "UPDATE evaluations SET n = n + 1 WHERE run_id = '{run}'",
    "UPDATE evaluations SET n = NULL WHERE run_id = '{run}'",
    "UPDATE evaluations SET accuracy = NULL WHERE run_id = '{run}'",
    "DELETE FROM evaluations WHERE run_id = '{run}'",
    "INSERT INTO decisions FROM decisions WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET correct = NOT correct WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET correct = NULL WHERE run_id = '{run}'",
    "UPDATE decisions SET benchmark = 'a' WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "DELETE FROM decisions WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "DELETE FROM decisions WHERE run_id = '{run}'",
    "UPDATE decisions SET prediction = 2 WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET pool = ['m9'], rounds = NULL WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET probability = 0.5 WHERE run_id = '{run}' AND doc_id = {doc_id}",
    "UPDATE decisions SET correct = doc_id >= 2 WHERE run_id = '{run}'",
    "UPDATE run_digests SET digest = '1:2:3' WHERE run_id = '{run}'",
    "INSERT INTO run_digests FROM run_digests WHERE run_id = '{run}'",
    "DELETE FROM run_digests WHERE run_id = '{run}'",
    "INSERT INTO training_history FROM training_history WHERE run_id = '{run}'",
)


N_TASKS = len(ON_DOCUMENTS) + 9
"""Tasks whose documents change share no partition with other writes, so that each is named for itself."""
Named = Callable[[Integrity], bool]


def write(path: Path) -> list[tuple[str, Named]]:
    """Makes each write with a DuckDB of its own, at a place of its own: it, and whether it is named."""
    made: list[tuple[str, Named]] = []
    free = [(task, model) for task in range(len(ON_DOCUMENTS), N_TASKS) for model in MODELS]
    partitions = {kind: [one for one in free if benchmark_of(one[0]) == kind] for kind in "ab"}
    with closing(connect(postgres=False)) as client:
        attach(client, locate(path), read_only=False, create=False, snapshot=None)

        def run(statement: str, named: Callable[[Integrity], Collection[Any]], place: Any) -> None:
            client.execute(statement)
            made.append((statement, lambda found: place in named(found)))

        for at, statement in enumerate(ON_DOCUMENTS):
            document = f"task = 't{at}' AND doc_id = {at % N_DOCS}"
            run(statement.format(document=document, task=f"t{at}"), named_tasks, f"t{at}")
        for at, statement in enumerate(ON_A_RUN):
            run(statement.format(run=f"r{at}", doc_id=at % N_DOCS), named_runs, f"r{at}")
        for kind, column, statements in (("b", "choice", ON_A_PARTITION), ("a", "pass", ON_ANSWERS)):
            for at, statement in enumerate(statements):
                task, model = partitions[kind].pop()
                partition = f"task = 't{task}' AND model = '{model}'"
                one = f"{partition} AND doc_id = {at % N_DOCS} AND {column} = {at % 3}"
                written = statement.format(one=one, partition=partition, doc_id=at % N_DOCS)
                run(written, named_partitions, (model, f"t{task}"))
        for statement in REFUSED:
            for key in ("task", "doc_id", "model", "choice"):
                one = "task = 't18' AND model = 'm0' AND doc_id = 0 AND choice = 0"
                with pytest.raises(duckdb.ConstraintException):
                    client.execute(statement.format(one=one, key=key, task="t18"))
    return made


def named_tasks(found: Integrity) -> set[str | None]:
    return {f.task for f in found.tasks or ()} | {f.key[1] for f in found.keys or () if f.table == "prompts"}


def named_partitions(found: Integrity) -> set[tuple[str, str]]:
    return {(fault.model, fault.task) for fault in found.partitions or ()}


def named_runs(found: Integrity) -> set[str]:
    of_runs = ("evaluations", "decisions", "run_digests", "training_history")
    keys = {fault.key[0] for fault in found.keys or () if fault.table in of_runs}
    return {fault.run_id for fault in found.runs or ()} | {key for key in keys if key is not None}


def test_every_write_is_refused_or_named(tmp_path: Path) -> None:
    fill(tmp_path / "w", N_TASKS)
    with open_warehouse(tmp_path / "w") as warehouse:
        clean = examine(warehouse)
    assert clean.is_sound
    made = write(tmp_path / "w")
    with open_warehouse(tmp_path / "w") as warehouse:
        found = examine(warehouse)
        assert not any(is_named(clean) for _, is_named in made)
        assert [statement for statement, is_named in made if not is_named(found)] == []
        assert len(found.other_writers) == len(made)
        repair(warehouse)
        assert examine(warehouse).is_sound


@pytest.mark.slow
def test_duplicate_and_deleted_models_are_named_and_mended(tmp_path: Path) -> None:
    fill(tmp_path / "w", 1)
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("twice"):
        warehouse.connection.execute("INSERT INTO models FROM models WHERE model = 'm1'")
        warehouse.connection.execute("DELETE FROM models WHERE model = 'm2'")
    run = CliRunner().invoke
    shown = " ".join(run(app, ["doctor", "-w", str(tmp_path / "w")], terminal_width=200).output.split())
    assert "models m1 is there more than once (2 rows)" in shown
    assert "models m2 has no row, but answers" in shown
    run(app, ["doctor", "--repair", "-w", str(tmp_path / "w")])
    with open_warehouse(tmp_path / "w") as warehouse:
        assert examine(warehouse).is_sound
        assert warehouse.rows("SELECT count(*) FROM models") == [(len(MODELS),)]


@pytest.mark.slow
def test_lost_prompts_cost_no_answers(tmp_path: Path) -> None:
    """What is not known of a prompt is forgotten; who extracts another model stores it again."""
    fill(tmp_path / "w", 2)
    with open_warehouse(tmp_path / "w") as warehouse:
        before = warehouse.fingerprints()
        with warehouse.transaction("lose"):
            warehouse.connection.execute("DELETE FROM prompts WHERE task = 't1' AND doc_id = 0")
        assert [tuple(task) for task in examine(warehouse).tasks or ()] == [("b", "t1", 0, 0, False, 1)]
        assert [task.task for task in repair(warehouse).tasks] == ["t1"]
        assert examine(warehouse).is_sound
        assert warehouse.fingerprints() == before
        kept = "SELECT task, count(prompt_hash) FROM docs GROUP BY ALL ORDER BY ALL"
        assert warehouse.rows(kept) == [("t0", N_DOCS), ("t1", 0)]

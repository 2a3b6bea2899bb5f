"""Every Eval Ever, both ways: what is written passes its own schemas, and comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import Cli
from support.eval_records import records
from support.every_eval_ever_files import FOREIGN, write

from rlfocal.base.errors import InputError
from rlfocal.exchange.exports.every_eval_ever import EvalExport, export_every_eval_ever
from rlfocal.exchange.imports.every_eval_ever import import_every_eval_ever
from warehouse import Warehouse, open_warehouse

ANSWERED = """
    SELECT task, doc_id, model, prediction, answer, correct, confidence
    FROM predictions WHERE benchmark = ? ORDER BY ALL
"""


@pytest.fixture(scope="module")
def written(filled: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EvalExport]:
    folder = tmp_path_factory.mktemp("eee") / "out"
    return folder, export_every_eval_ever(filled, folder, "b")


def test_it_passes_the_schema_and_has_the_accuracies(
    filled: Warehouse, written: tuple[Path, EvalExport]
) -> None:
    folder, report = written
    found = list(records(folder))
    assert (report.models, report.withheld, report.snapshot) == (("m", "other"), 0, filled.snapshot())
    assert [aggregate["model_info"]["name"] for _, aggregate, _ in found] == ["m", "other"]
    assert report.n_samples == sum(len(lines) for *_, lines in found) == 20
    assert report.n_scores == sum(len(aggregate["evaluation_results"]) for _, aggregate, _ in found) == 4
    for path, aggregate, lines in found:
        model = aggregate["model_info"]["name"]
        assert path.parent == folder / "data" / "b" / aggregate["model_info"]["developer"] / model
        for result in aggregate["evaluation_results"]:
            task = result["evaluation_name"].removeprefix("b/")
            [(n, accuracy, stderr)] = filled.rows(
                "SELECT n, accuracy, stderr FROM accuracy WHERE (benchmark, task, model) = ('b', ?, ?)",
                [task, model],
            )
            assert result["score_details"]["score"] == accuracy
            uncertainty = result["score_details"]["uncertainty"]
            assert uncertainty["num_samples"] == n
            assert uncertainty["standard_error"]["value"] == pytest.approx(stderr, rel=1e-12)
            own = [line for line in lines if line["evaluation_result_id"] == result["evaluation_result_id"]]
            assert sum(line["evaluation"]["score"] for line in own) / len(own) == accuracy
            assert len({line["sample_id"] for line in own}) == n
        for line in lines:
            [said] = [item["extracted_value"] for item in line["answer_attribution"]]
            assert (said in line["input"]["reference"]) == line["evaluation"]["is_correct"]
            assert said in line["input"]["choices"]


def test_the_same_snapshot_gives_the_same_bytes(
    filled: Warehouse, written: tuple[Path, EvalExport], tmp_path: Path
) -> None:
    folder, _ = written
    export_every_eval_ever(filled, tmp_path / "again", "b")
    first, again = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.json*")}
        for root in (folder, tmp_path / "again")
    )
    assert first == again


def test_questions_of_confidential_documents_stay(filled: Warehouse, tmp_path: Path) -> None:
    for benchmark in ("gpqa@chat", "flagged"):
        report = export_every_eval_ever(filled, tmp_path / benchmark, benchmark)
        assert (report.withheld, report.n_samples, report.n_scores) == (5, 0, 1)
        [(_, aggregate, lines)] = records(tmp_path / benchmark)
        assert lines == []
        assert "detailed_evaluation_results" not in aggregate
        assert not list((tmp_path / benchmark).rglob("*.jsonl"))
        whole = export_every_eval_ever(filled, tmp_path / f"{benchmark} whole", benchmark, questions=True)
        assert (whole.withheld, whole.n_samples) == (0, 5)


@pytest.mark.parametrize("benchmark", ["b", "answers", pytest.param("flagged", marks=pytest.mark.slow)])
def test_what_goes_out_comes_back(
    filled: Warehouse, warehouse: Warehouse, tmp_path: Path, benchmark: str
) -> None:
    export_every_eval_ever(filled, tmp_path / "out", benchmark, questions=True)
    assert list(records(tmp_path / "out"))
    report = import_every_eval_ever(warehouse, [tmp_path / "out"], allow_missing=True)
    assert report.benchmarks == (benchmark,)
    assert report.left == report.notes == ()
    assert warehouse.rows(ANSWERED, [benchmark]) == filled.rows(ANSWERED, [benchmark])
    documents = """
        SELECT task, doc_id, doc_hash, question, choices, label, gold, split FROM docs
        WHERE benchmark = ? ORDER BY ALL
    """
    assert warehouse.rows(documents, [benchmark]) == filled.rows(documents, [benchmark])
    scores = (
        "SELECT task, doc_id, model, choice, logprob FROM choice_logprobs WHERE benchmark = ? ORDER BY ALL"
    )
    assert warehouse.rows(scores, [benchmark]) == filled.rows(scores, [benchmark])
    said = (
        "SELECT task, doc_id, model, pass, answer, text FROM answer_passes WHERE benchmark = ? ORDER BY ALL"
    )
    assert warehouse.rows(said, [benchmark]) == filled.rows(said, [benchmark])
    before = warehouse.snapshot()
    assert import_every_eval_ever(warehouse, [tmp_path / "out"], allow_missing=True).n_written == 0
    assert warehouse.snapshot() == before


def test_ids_are_the_hubs(filled: Warehouse, warehouse: Warehouse, tmp_path: Path) -> None:
    """A model's repository on the hub names it to others; here it keeps its own name."""
    export_every_eval_ever(filled, tmp_path / "in", "b")
    import_every_eval_ever(warehouse, [tmp_path / "in"], allow_missing=True)
    with warehouse.transaction("describe"):
        warehouse.connection.execute(
            "UPDATE models SET hf_repo = 'org/m-7b', revision = 'abc', params_b = 7 WHERE model = 'm'"
        )
    report = export_every_eval_ever(
        warehouse, tmp_path / "out", "b", organization="us", relationship="third_party"
    )
    assert report.models == ("m", "other")
    hub, _ = (
        found[1]
        for found in sorted(records(tmp_path / "out"), key=lambda found: found[1]["model_info"]["name"])
    )
    assert hub["model_info"]["id"] == "org/m-7b"
    assert hub["model_info"]["developer"] == "org"
    assert hub["model_info"]["additional_details"] == {
        "deployment_type": "unknown",
        "model_availability": "open_weights",
        "params_b": "7.0",
        "revision": "abc",
    }
    assert hub["source_metadata"]["source_organization_name"] == "us"
    assert (tmp_path / "out" / "data" / "b" / "org" / "m-7b").is_dir()
    assert import_every_eval_ever(warehouse, [tmp_path / "out"], allow_missing=True).n_written == 0


def test_files_that_do_not_belong_together(
    written: tuple[Path, EvalExport], warehouse: Warehouse, tmp_path: Path
) -> None:
    path, aggregate, _ = next(records(written[0]))
    lines = written[0] / aggregate["detailed_evaluation_results"]["file_path"]
    alone = tmp_path / path.name
    alone.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=rf"its answers are not beside it; fetch {lines.name} too"):
        import_every_eval_ever(warehouse, [alone])
    changed = tmp_path / lines.name
    changed.write_bytes(lines.read_bytes().replace(b'"is_correct":true', b'"is_correct":false', 1))
    with pytest.raises(InputError, match=r"its SHA-256 is not the one its aggregate states"):
        import_every_eval_ever(warehouse, [tmp_path])
    changed.unlink()
    del aggregate["detailed_evaluation_results"]
    alone.write_text(json.dumps(aggregate))
    with pytest.raises(InputError, match=r"nothing to import; .*scores without the answers"):
        import_every_eval_ever(warehouse, [tmp_path])
    for content in ("{", "[]", "{}"):
        alone.write_text(content)
        with pytest.raises(InputError, match=r"not valid JSON|not an aggregate"):
            import_every_eval_ever(warehouse, [alone])
    with pytest.raises(InputError, match="there is no file or folder"):
        import_every_eval_ever(warehouse, [tmp_path / "nowhere"])


def test_a_target_that_holds_something_and_unknown_names(filled: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="is not an empty folder"):
        export_every_eval_ever(filled, tmp_path, "b")
    with pytest.raises(InputError, match="benchmark 'c'"):
        export_every_eval_ever(filled, tmp_path / "out", "c")
    with pytest.raises(InputError, match="model 'M'"):
        export_every_eval_ever(filled, tmp_path / "out", "b", models=["M"])
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    report = export_every_eval_ever(filled, tmp_path / "out", "b", models=["other"])
    assert report.models == ("other",)


def test_the_commands(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "a_samples.jsonl", FOREIGN)
    assert (
        "3 scores of 1 model on 3 documents (gsm8k)"
        in cli("import", "every-eval-ever", "a_samples.jsonl").out
    )
    done = cli("export", "every-eval-ever", "-b", "gsm8k", "--out", "out")
    assert (done.code, "1 model, 1 score, 3 lines" in done.out) == (0, True)
    assert len(list(records(tmp_path / "out"))) == 1
    with open_warehouse(tmp_path / "again") as again:
        import_every_eval_ever(again, ["out"])
        assert again.rows("SELECT accuracy FROM accuracy") == [(2 / 3,)]
    assert cli("export", "every-eval-ever", "-b", "gsm8k", "--out", "out").code == 2
    assert cli("export", "every-eval-ever", "-b", "gsm9k", "--out", "new").code == 2
    assert not (tmp_path / "new").exists()
    assert "0.3.0" in cli("export", "every-eval-ever", "--help").out
    assert "evaluation_id" in cli("import", "every-eval-ever", "--help").out

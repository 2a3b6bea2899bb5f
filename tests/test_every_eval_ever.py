"""Every Eval Ever, both ways: what is written passes its own schemas, and comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from test_cli import Cli
from test_cli import cli as cli  # a fixture
from test_export import filled as filled  # a fixture

from rlfocal.errors import InputError
from rlfocal.exporting.every_eval_ever import EvalExport, export_every_eval_ever
from rlfocal.imports.every_eval_ever import import_every_eval_ever
from warehouse import Warehouse, open_warehouse

Row = dict[str, Any]
SCHEMAS = Path(__file__).parent / "every_eval_ever"
ANSWERED = """
    SELECT task, doc_id, model, prediction, answer, correct, confidence
    FROM predictions WHERE benchmark = ? ORDER BY ALL
"""


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def records(folder: Path) -> Iterator[tuple[Path, Row, list[Row]]]:
    """Every aggregate, with its lines, after both passed the schemas and name one another."""
    for path in sorted(folder.rglob("*.json")):
        aggregate = json.loads(path.read_bytes())
        validator("eval").validate(aggregate)
        lines: list[Row] = []
        if stated := aggregate.get("detailed_evaluation_results"):
            beside = folder / stated["file_path"]
            assert beside == path.with_name(f"{path.stem}_samples.jsonl")
            assert stated["checksum"] == sha256(beside.read_bytes()).hexdigest()
            lines = [json.loads(line) for line in beside.read_text(encoding="utf-8").splitlines()]
            assert stated["total_rows"] == len(lines)
        ids = {result["evaluation_result_id"] for result in aggregate["evaluation_results"]}
        for line in lines:
            validator("instance_level_eval").validate(line)
            assert line["evaluation_id"] == aggregate["evaluation_id"]
            assert line["model_id"] == aggregate["model_info"]["id"]
            assert line["evaluation_result_id"] in ids
        assert UUID(path.stem).version == 4
        yield path, aggregate, lines


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


@pytest.mark.parametrize("benchmark", ["b", "answers", "flagged"])
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


def line(sample_id: str, said: str, right: bool, **more: Any) -> Row:
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "gsm8k/org/m/1770000000",
        "model_id": "org/m",
        "evaluation_name": "gsm8k/strict-match",
        "sample_id": sample_id,
        "interaction_type": "single_turn",
        "input": {"raw": f"Question {sample_id}?", "reference": ["18"]},
        "output": {"raw": [f"So it is {said}."]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": said,
                "extraction_method": "regex",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(right), "is_correct": right},
        "token_usage": {"input_tokens": 90, "output_tokens": 7, "total_tokens": 97},
    } | more


def write(path: Path, lines: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


FOREIGN = [line("q10", "18", True), line("q9", "eighteen", True), line("q8", "17", False)]


def test_foreign_answers_are_as_right_as_they_say(warehouse: Warehouse, tmp_path: Path) -> None:
    for each in FOREIGN:
        validator("instance_level_eval").validate(each)
    write(tmp_path / "a_samples.jsonl", FOREIGN)
    other = [each | {"model_id": "org/n", "evaluation_id": "gsm8k/org/n/177"} for each in FOREIGN]
    write(
        tmp_path / "b_samples.jsonl",
        [each | {"evaluation": {"score": 0, "is_correct": False}} for each in other],
    )
    report = import_every_eval_ever(warehouse, [tmp_path])
    assert (report.benchmarks, report.models) == (("gsm8k",), ("org/m", "org/n"))
    assert warehouse.rows("SELECT task, model, accuracy FROM accuracy ORDER BY model") == [
        ("gsm8k-strict-match", "org/m", 2 / 3),
        ("gsm8k-strict-match", "org/n", 0.0),
    ]
    assert warehouse.rows("SELECT doc_id, question, gold FROM docs ORDER BY doc_id") == [
        (i, f"Question q{i + 8}?", "18") for i in range(3)
    ]
    assert warehouse.rows(
        "SELECT answer, text, n_tokens FROM answer_passes WHERE model = 'org/m' ORDER BY doc_id"
    ) == [("17", "So it is 17.", 7), ("18", "So it is eighteen.", 7), ("18", "So it is 18.", 7)]


def test_several_attempts_are_passes(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a_samples.jsonl", [line("1", "18", True), line("1", "3", False), line("1", "3", False)]
    )
    import_every_eval_ever(warehouse, [path])
    assert warehouse.rows("SELECT doc_id, pass, answer FROM answer_passes ORDER BY pass") == [
        (1, 0, "18"),
        (1, 1, "3"),
        (1, 2, "3"),
    ]


def test_one_metric_counts(warehouse: Warehouse, tmp_path: Path) -> None:
    lines = [
        line(str(i), "18", right, evaluation_result_id=metric)
        for metric, right in (("acc,none", True), ("acc_norm,none", False))
        for i in range(2)
    ]
    path = write(tmp_path / "a_samples.jsonl", lines)
    with pytest.raises(
        InputError, match=r"several results an answer \(acc,none, acc_norm,none\); .*--metric"
    ):
        import_every_eval_ever(warehouse, [path])
    import_every_eval_ever(warehouse, [path], metric="acc_norm,none", benchmark="norm")
    import_every_eval_ever(warehouse, [path], metric="acc,none", benchmark="plain")
    assert warehouse.rows("SELECT benchmark, n, accuracy FROM accuracy ORDER BY ALL") == [
        ("norm", 2, 0.0),
        ("plain", 2, 1.0),
    ]


def test_conversations_and_fractions(warehouse: Warehouse, tmp_path: Path) -> None:
    agent = line("1", "18", True, interaction_type="agentic", output=None, evaluation_name="agent")
    graded = line("1", "18", False, evaluation_name="essay", evaluation={"score": 0.5, "is_correct": False})
    report = import_every_eval_ever(warehouse, [write(tmp_path / "a_samples.jsonl", [agent, graded])])
    assert report.left == ("gsm8k/essay (1 score other than 0 and 1, such as 0.5)",)
    assert warehouse.rows("SELECT task, text, correct FROM answer_passes JOIN predictions USING (task)") == [
        ("agent", "18", True)
    ]


WRONG = {
    "another version": (
        FOREIGN[0] | {"schema_version": "1.0.0"},
        r"line 1: schema_version '1.0.0', but 0.2 and",
    ),
    "no grade": ({k: v for k, v in FOREIGN[0].items() if k != "evaluation"}, r"line 1: .*no 'evaluation'"),
    "a contradiction": (
        line("1", "18", True, evaluation={"score": 0, "is_correct": True}),
        r"score 0 .*contradict",
    ),
    "a grade in words": (
        line("1", "18", True, evaluation={"score": 1, "is_correct": "yes"}),
        r"neither true nor",
    ),
    "a score in words": (
        line("1", "18", True, evaluation={"score": "1", "is_correct": True}),
        r"not a number",
    ),
    "no input": (line("1", "18", True, input={"raw": "q"}), r"no 'reference'"),
    "negative tokens": (
        line("1", "1", True, token_usage={"output_tokens": -1}),
        r"-1 is not a count of tokens",
    ),
    "a number as id": (FOREIGN[0] | {"sample_id": 1}, r"sample_id 1 is not text"),
    "another question": (
        line("q9", "18", True, input={"raw": "?", "reference": ["18"]}),
        r"document 1 .*differs",
    ),
    "fewer documents": (
        line("q9", "18", True, model_id="org/n", evaluation_id="gsm8k/org/n/1"),
        r"no row for",
    ),
}


@pytest.mark.parametrize(("last", "reason"), WRONG.values(), ids=WRONG)
def test_bad_lines_are_refused(warehouse: Warehouse, tmp_path: Path, last: Row, reason: str) -> None:
    write(tmp_path / "a_samples.jsonl", [last])
    write(tmp_path / "b_samples.jsonl", FOREIGN)
    before = warehouse.snapshot()
    with pytest.raises(InputError, match=reason):
        import_every_eval_ever(warehouse, [tmp_path])
    assert warehouse.snapshot() == before


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

"""Ten tables as ten people would have them: each is imported by one command, and stored as what it says."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.feather
import pytest
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.tables import import_tables
from warehouse import Warehouse, open_warehouse

N, MODELS, LETTERS = 6, ("llama", "qwen"), "ABC"
LABELS = [i * 2 % 3 for i in range(N)]
IDS = [f"{i:02x}f3-c0de-{i * 7919 % 97}" for i in range(N)]  # in the order in which they are numbered
WORDS = [[f"{word} of {i}" for word in ("none", "some", "all")] for i in range(N)]
LOGPROBS = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (len(MODELS), N)))
"""(models, documents, choices)"""
Command = list[str]


def documents() -> pd.DataFrame:
    return pd.DataFrame({"benchmark": "b", "task": "b", "doc_id": range(N), "label": LABELS})


def wide(columns: str = "logprob_{}") -> pd.DataFrame:
    """A row for a model's scores of a document, a column for each choice."""
    rows = [
        {"model": model, "doc_id": i}
        | {columns.format(c): LOGPROBS[m, i, at] for at, c in enumerate(LETTERS)}
        for m, model in enumerate(MODELS)
        for i in range(N)
    ]
    return pd.DataFrame(rows)


def melted(names: list[list[str]]) -> pd.DataFrame:
    """A row for each choice, which is called as `names` has it."""
    rows = [
        {"doc_id": i, "model": model, "choice": names[i][at], "logprob": LOGPROBS[m, i, at]}
        for i in range(N)
        for m, model in enumerate(MODELS)
        for at in range(3)
    ]
    return pd.DataFrame(rows)


def with_ids(table: pd.DataFrame, name: str = "id") -> pd.DataFrame:
    """Documents called by texts."""
    return table.assign(doc_id=[IDS[i] for i in table["doc_id"]]).rename(columns={"doc_id": name})


def with_labels(table: pd.DataFrame, labels: list[str], name: str = "label") -> pd.DataFrame:
    return table.assign(**{name: [labels[i] for i in table["doc_id"]]})


def letters() -> list[str]:
    return [LETTERS[label] for label in LABELS]


def texts() -> list[str]:
    return [WORDS[i][label] for i, label in enumerate(LABELS)]


def columns_a_choice(folder: Path) -> Command:
    with_labels(wide(), letters(), "answer").to_csv(folder / "t.csv", index=False)
    return ["t.csv", "--benchmark", "b"]


def bare_letters(folder: Path) -> Command:
    renamed = wide("{}").rename(columns={"model": "Model", "doc_id": "item"})
    renamed.assign(key=[letters()[i] for i in renamed["item"]]).to_parquet(folder / "t.parquet")
    return ["t.parquet", "--benchmark", "b", "--columns", "item=doc_id,key=label"]


def a_row_a_choice(folder: Path) -> Command:
    with_labels(melted(WORDS), texts(), "target").to_csv(folder / "t.csv", index=False)
    return ["t.csv", "--benchmark", "b"]


def uuids(folder: Path) -> Command:
    with_ids(with_labels(wide("score_{}"), letters(), "target"), "uuid").to_json(
        folder / "t.jsonl", orient="records", lines=True
    )
    return ["t.jsonl", "--benchmark", "b"]


def probabilities(folder: Path) -> Command:
    table = with_labels(wide("{}"), letters())
    table[list(LETTERS)] = np.exp(table[list(LETTERS)])
    table.to_csv(folder / "t.csv", index=False)
    return ["t.csv", "--benchmark", "b", "--scale", "probability"]


def two_files(folder: Path) -> Command:
    described = with_ids(documents(), "question_id").assign(label=letters(), subject="b")
    words = pd.DataFrame(WORDS, columns=list(LETTERS))
    pd.concat([described.drop(columns=["task"]), words], axis=1).to_csv(folder / "docs.csv", index=False)
    with_ids(wide("{}"), "question_id").to_csv(folder / "scores.csv", index=False)
    return ["--docs", "docs.csv", "--scores", "scores.csv"]


def pandas_with_an_index(folder: Path) -> Command:
    table = with_ids(with_labels(wide("p_{}"), letters(), "gold"))
    table[["p_A", "p_B", "p_C"]] = np.exp(table[["p_A", "p_B", "p_C"]])
    table.set_index("id").to_csv(folder / "t.csv", index_label=False)
    (folder / "t.csv").write_text("," + (folder / "t.csv").read_text())
    return ["t.csv", "--benchmark", "b"]


def arrow(folder: Path) -> Command:
    lists = wide("{}").assign(logprobs=[list(LOGPROBS[m, i]) for m in range(len(MODELS)) for i in range(N)])
    pyarrow.feather.write_feather(
        with_labels(lists.drop(columns=list(LETTERS)), letters()), folder / "t.feather"
    )
    return ["t.feather", "--benchmark", "b"]


def packed(folder: Path) -> Command:
    indices = [["1", "2", "3"]] * N
    table = with_labels(melted(indices), [str(label + 1) for label in LABELS]).assign(dataset="b")
    (folder / "t.csv.gz").write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    return ["t.csv.gz"]


def excels(folder: Path) -> Command:
    table = with_labels(wide("Logprob {}"), letters(), "Correct answer").assign(Subject="b")
    table = table.drop(columns="model")[table["model"] == "llama"]
    table.to_csv(folder / "t.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig")
    return ["t.csv", "--benchmark", "b", "--name", "t.csv=llama"]


BY_IDS, IN_WORDS = (uuids, two_files, pandas_with_an_index), (a_row_a_choice, two_files)
"""What calls documents by texts, and choices."""


def check(warehouse: Warehouse, *, has_ids: bool, has_words: bool, models: tuple[str, ...] = MODELS) -> None:
    """The stored rows are the truth."""
    expected = [
        ("b", "b", i, label, IDS[i] if has_ids else None, WORDS[i] if has_words else None)
        for i, label in enumerate(LABELS)
    ]
    docs = "SELECT benchmark, task, doc_id, label, source_id, choices FROM docs ORDER BY doc_id"
    assert warehouse.rows(docs) == expected
    for m, model in enumerate(models):
        scores = "SELECT logprob FROM choice_logprobs WHERE model = ? ORDER BY doc_id, choice"
        stored = [logprob for (logprob,) in warehouse.rows(scores, [model])]
        np.testing.assert_allclose(np.reshape(stored, (N, 3)), LOGPROBS[m], atol=1e-9)


@pytest.mark.parametrize(
    "table", [*BY_IDS, a_row_a_choice, columns_a_choice, bare_letters, probabilities, arrow, packed, excels]
)
def test_one_command_imports_it(
    table: Callable[[Path], Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = table(tmp_path)
    assert sum(word.startswith("--") for word in command) <= 2
    done = CliRunner().invoke(app, ["import", "predictions", *command, "--warehouse", "w"])
    assert done.exit_code == 0, done.output
    models = ("llama",) if table is excels else MODELS
    assert f"models: {', '.join(models)}" in done.output
    assert "columns: " in done.output
    with open_warehouse("w", read_only=True) as warehouse:
        check(warehouse, has_ids=table in BY_IDS, has_words=table in IN_WORDS, models=models)


def test_frames(warehouse: Warehouse, tmp_path: Path) -> None:
    table = with_ids(with_labels(wide(), letters()))
    import_predictions(warehouse, table, benchmark="b")
    check(warehouse, has_ids=True, has_words=False)
    assert import_predictions(warehouse, table.set_index("id"), benchmark="b").n_written == 0
    export(warehouse, tmp_path / "exported")
    with open_warehouse(tmp_path / "w") as other:
        import_tables(other, tmp_path / "exported")
        check(other, has_ids=True, has_words=False)
    with pytest.raises(InputError, match="give a file, or a frame"):
        import_predictions(warehouse, 7, benchmark="b")  # type: ignore[arg-type]


def test_all_faults_are_told_at_once(unwritten: Warehouse, tmp_path: Path) -> None:
    table = with_labels(wide(), letters())
    table.loc[1, "label"] = "Z?"
    table.loc[[2, 3], "logprob_B"] = np.inf
    table.loc[[4, 5], "model"] = None
    table.loc[8, "logprob_A"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError) as refused:
        import_predictions(unwritten, tmp_path / "t.csv", benchmark="b")
    told = "\n".join([str(refused.value), *refused.value.__notes__])
    for fault in (
        r"nothing is imported: 4 kinds of fault\n",
        r"t.csv, row 8: label 'C' .* which was 'Z\?' in row 2",
        r"row 2: label 'Z\?' is not a letter",
        r"row 3: choice_logprobs .*inf.* finite numbers \(the first of 3 such rows\)",
        r"row 5: no model \(the first of 2 such rows\)",
    ):
        assert re.search(fault, told), told
    bare = wide("{}").drop(columns="model")
    bare["A"] = [*bare["A"].astype(str)[:3], "x", *bare["A"].astype(str)[4:]]
    bare.rename(columns={"doc_id": "ident"}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError) as refused:
        import_predictions(unwritten, tmp_path / "t.csv", columns={"absent": "label"})
    for fault in (
        "--columns absent=label: there is no column 'absent'",
        "no column 'benchmark'; it has ident, A, B, C. Give --benchmark NAME or",
        "no column 'doc_id'; .* Give --columns THEIRS=doc_id",
        "no column 'model'; .* Give --name FILE=MODEL or",
        "row 4: A 'x' is not a number",
    ):
        assert re.search(fault, "\n".join(refused.value.__notes__)), refused.value.__notes__
    assert unwritten.rows("FROM docs") == []


def test_faults_of_a_row_a_choice_name_models_as_the_warehouse_does(unwritten: Warehouse) -> None:
    row = {"doc_id": 0, "label": "A", "model": "/runs/7b", "choice": "A", "logprob": -1.0}
    with pytest.raises(InputError, match=r"llama has the choices \[A, A\]"):
        import_predictions(unwritten, pd.DataFrame([row, row]), benchmark="b", names={"/runs/7b": "llama"})


def test_two_models_may_change_their_names(warehouse: Warehouse) -> None:
    frame = with_labels(wide("logprob_{}"), letters(), "target")
    first, second = sorted(set(frame["model"]))
    import_predictions(warehouse, frame, benchmark="as-given")
    import_predictions(warehouse, frame, benchmark="swapped", names={first: second, second: first})
    with pytest.raises(InputError, match="--name nope=x: there is no such model"):
        import_predictions(warehouse, frame, benchmark="swapped", names={"nope": "x"})
    scores = (
        "SELECT doc_id, choice, logprob FROM choice_logprobs WHERE (benchmark, model) = (?, ?) ORDER BY ALL"
    )
    for one, other in ((first, second), (second, first)):
        assert warehouse.rows(scores, ["as-given", one]) == warehouse.rows(scores, ["swapped", other]) != []


def test_later_models_are_aligned_by_texts_as_ids(warehouse: Warehouse) -> None:
    frame = with_ids(with_labels(wide(), letters())).assign(question=lambda rows: "what is " + rows["id"])
    import_predictions(warehouse, frame[frame["model"] == "llama"], benchmark="b")
    later = frame[frame["model"] == "qwen"].iloc[::-1]
    wrong = later.assign(question=["who is it?", *later["question"][1:]])
    with pytest.raises(InputError, match=f"document {IDS[5]} of b/b"):
        import_predictions(warehouse, wrong, benchmark="b")
    import_predictions(warehouse, later, benchmark="b")
    check(warehouse, has_ids=True, has_words=False)
    assert import_predictions(warehouse, later, benchmark="b").n_written == 0
    assert import_predictions(warehouse, frame.sample(frac=1, random_state=1), benchmark="b").n_written == 0


def test_a_packed_file_expands_within_bounds(
    unwritten: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"model,doc_id,A,B,label\n" + bytes(1 << 20), 9))
    monkeypatch.setattr("rlfocal.exchange.imports.reading.MAX_UNPACKED", 1000)
    with pytest.raises(InputError, match="expands to more than"):
        import_predictions(unwritten, tmp_path / "t.csv.gz", benchmark="b")


def test_a_folder_of_parts(warehouse: Warehouse, tmp_path: Path) -> None:
    table = with_labels(wide(), letters())
    folder = tmp_path / "t.parquet"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.crc").touch()
    for part in range(2):
        table.iloc[part::2].to_parquet(folder / f"part-{part}.snappy.parquet")
    import_predictions(warehouse, folder, benchmark="b")
    check(warehouse, has_ids=False, has_words=False)
    (folder / "notes.txt").touch()
    with pytest.raises(InputError, match="is a folder; give one file"):
        import_predictions(warehouse, folder, benchmark="b")


@pytest.mark.parametrize(
    ("suffix", "yes", "no"),
    [("csv", 1, 0), ("csv", "True", "false"), ("jsonl", True, False), ("parquet", 1.0, 0.0)],
)
def test_grades_alone_are_answers(
    warehouse: Warehouse, tmp_path: Path, suffix: str, yes: object, no: object
) -> None:
    right = {(model, i): (m + i) % 3 > 0 for m, model in enumerate(MODELS) for i in range(N)}
    rows = [
        {"id": IDS[i], "model": model, "correct": yes if is_right else no}
        for (model, i), is_right in right.items()
    ]
    frame, file = pd.DataFrame(rows), tmp_path / f"t.{suffix}"
    match suffix:
        case "csv":
            frame.to_csv(file, index=False)
        case "jsonl":
            frame.to_json(file, orient="records", lines=True)
        case _:
            frame.to_parquet(file)
    import_predictions(warehouse, file, benchmark="b")
    stored = warehouse.rows(
        "SELECT model, source_id, answer IS NOT DISTINCT FROM gold "
        "FROM answer_passes JOIN docs USING (benchmark, task, doc_id)"
    )
    assert {(model, IDS.index(name)): is_right for model, name, is_right in stored} == right


@pytest.mark.parametrize(("gold", "columns"), [({}, {}), ({"gold": ["3", "5"]}, {"response": "text"})])
def test_graded_responses_may_be_texts(
    warehouse: Warehouse, gold: dict[str, list[str]], columns: dict[str, str]
) -> None:
    frame = pd.DataFrame(
        {"id": [0, 1], "model": "llama", "response": ["It is 3.", "It is 4."], "correct": [1, 0]}
    )
    import_predictions(warehouse, frame, benchmark="b")
    stored = warehouse.rows("SELECT answer, text FROM answer_passes ORDER BY doc_id")
    assert stored == [("1", "It is 3."), ("0", "It is 4.")]


def test_what_is_no_grade_is_not_taken_as_one(unwritten: Warehouse) -> None:
    frame = pd.DataFrame({"id": [0, 1], "model": "llama", "correct": [1.0, 0.5]})
    with pytest.raises(InputError, match="no column of scores"):
        import_predictions(unwritten, frame, benchmark="b")

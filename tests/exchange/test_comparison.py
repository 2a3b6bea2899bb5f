"""How answers are compared is the benchmark's: stored with it, the same in tables, SQL and corrections."""

from __future__ import annotations

import csv
import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corrections import correct_from_file
from support.lm_eval_files import DATE, answer_row
from support.prediction_files import choice_docs, choice_scores, write

from rlfocal.base.errors import InputError
from rlfocal.data.outputs import ObservedOutputs
from rlfocal.exchange.imports import rows
from rlfocal.exchange.imports.faults import keep_other_units
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.reading.tables import read_table
from rlfocal.extraction.answers import extract_text
from warehouse import Warehouse
from warehouse.comparison import _RULE_FORMS, Rule, normalise
from warehouse.corrections import remove_model

KEYS = {"benchmark": "b", "task": "t"}
GOLDS = ["[]", "''", "{}", "[(4, 1)]", "Paris", "1.0"]
GIVEN = ["[]", "''", "{}", "[[4, 1]]", "paris", "1.0"]


def tables(folder: Path, golds: list[Any], given: list[Any]) -> tuple[Path, Path]:
    docs = [KEYS | {"doc_id": i, "gold": gold} for i, gold in enumerate(golds)]
    scores = [KEYS | {"doc_id": i, "model": "m", "answer": answer} for i, answer in enumerate(given)]
    return write(folder / "docs.jsonl", docs), write(folder / "scores.jsonl", scores)


@pytest.mark.parametrize(
    ("rule", "golds", "given", "right"),
    [
        ("exact", GOLDS, GIVEN, [True, True, True, False, False, True]),
        ("text", GOLDS, GIVEN, [True, True, True, False, True, True]),
        ("numeric", ["1/2", "1,000", "7"], ["0.5", "$1000", "seven"], [True, True, False]),
        (
            "default",
            ["(4, 1)", "Paris", "1.0", "(4, 1)", "-x", "n!"],
            ["(4,1)", "paris.", "1", "[4, 1]", "x", "n"],
            [True, True, True, False, False, False],
        ),
    ],
)
def test_answers_are_compared_by_the_rule(
    warehouse: Warehouse, tmp_path: Path, rule: Any, golds: list[str], given: list[str], right: list[bool]
) -> None:
    files = tables(tmp_path, golds, given)
    import_predictions(warehouse, *files, comparison=rule)
    assert [c for (c,) in warehouse.rows("SELECT correct FROM outcomes ORDER BY doc_id")] == right
    assert warehouse.rows("FROM benchmarks") == [("b", "answers", None, None, rule)]
    assert import_predictions(warehouse, *files, comparison=rule).n_written == 0
    other: Any = "exact" if rule != "exact" else "default"
    corrected = write(tmp_path / "labels.jsonl", [KEYS | {"doc_id": len(golds) - 1, "gold": given[-1]}])
    if rule == "numeric":
        with pytest.raises(InputError, match="row 1: no gold answer"):
            correct_from_file(warehouse, corrected)
    else:
        correct_from_file(warehouse, corrected)
        last = f"SELECT correct FROM outcomes WHERE doc_id = {len(golds) - 1}"
        assert warehouse.rows(last) == [(True,)]
    plain = tables(tmp_path, ["5"], ["5"])
    with pytest.raises(InputError, match=f"compared by the rule {rule}, not {other}"):
        import_predictions(warehouse, *plain, comparison=other)


def test_the_rule_of_a_router_and_of_generated_texts() -> None:
    said = {"x": "[(4, 1)]", "y": "[[4, 1]]"}
    for rule, n in ((Rule.EXACT, 2), (Rule.DEFAULT, 2)):
        given, _ = ObservedOutputs(["x", "y"], "answers", rule).update(said)
        assert len(given.answers) == n
    text = "It prints two.\nThe answer is: [(4, 'A')]"
    assert extract_text(text, Rule.EXACT) == "[(4, 'A')]"
    assert extract_text(text, Rule.TEXT) == "[(4, 'a')]"


@pytest.mark.parametrize("rule", list(Rule))
def test_canonical_forms_are_their_own(rule: Rule) -> None:
    for text in (*GOLDS, " a  B ", "½", "1/3", "-2/4", "1e50", "ß", "\u0130", "", " "):
        form = rule.canonical(text)
        assert rule.canonical(form) == form


APART = [
    *(
        ("-x", "x"),
        ("-x^2+1", "x^2+1"),
        ("(0,1)", "[0,1]"),
        ("[0,1)", "(0,1]"),
        (r"(2,\infty)", r"[2,\infty)"),
    ),
    *(
        (r"-\pi", r"\pi"),
        ("n!", "n"),
        ("5!", "5"),
        ("(n+1)!", "n+1"),
        ("C++", "C"),
        ("F#", "F"),
        ("A+", "A-"),
    ),
    *(("{1,2}", "(1,2)"), ("(0,100)", "100"), ("<5", ">5"), ("|x|", "x"), ("-(x+1)", "x+1"), ("f'", "f")),
    *(("Na+", "Na"), ("-sin(x)", "sin(x)"), ("-1/2", "1/2"), (r"-\frac12", r"\frac12"), ("50", "-50")),
]
ALIKE = [
    *(("-x", "$-x$"), ("-x", "−x"), ("-x", "**-x**."), ("(0,1)", "( 0, 1 )"), ("(0,1)", r"\left(0,1\right)")),
    *(
        ("n!", r"\(n!\)"),
        ("Paris", "- paris!"),
        ("Paris", '("Paris")'),
        ("B", "(B)."),
        ("-3", "−3"),
        ("-3", "(-3)"),
    ),
    *(
        ("18", "$18.00"),
        ("18", "18 eggs"),
        ("A) Paris", "(A) Paris"),
        ("x", "+x"),
        ("Yes", "Yes!!"),
        ("c++", "C++."),
    ),
    *((r"\{1,2\}", "{1, 2}"), ("(Paris, France)", "Paris, France"), ("f(x)", "f(x).")),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_carries_meaning_is_kept(one: str, other: str) -> None:
    assert Rule.DEFAULT.canonical(one) != Rule.DEFAULT.canonical(other)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_carries_none_is_not(one: str, other: str) -> None:
    assert Rule.DEFAULT.canonical(one) == Rule.DEFAULT.canonical(other) is not None


OTHER_UNITS = [
    *(("5 m", "5 cm"), ("5 km/h", "5 mph"), ("10 square meters", "10 m"), ("$5", "€5"), ("$5", "5 cents")),
    *(("50%", "50 dollars"), ("3 hours", "3 min"), ("20 °C", "20 °F"), ("7 kg", "7 pounds")),
    *(("5 m", "5 cm long"), ("-4 degrees Celsius", "-4 degrees Fahrenheit"), ("2 gallons", "2 liters")),
    ("1,000 grams", "1000 kg"),
]
SAME_UNITS = [
    *(("5 m", "5"), ("5", "5 cm"), ("5 m", "5 meters"), ("5 m", "5.0 Metres."), ("$5", "5 dollars")),
    *(("50%", "50"), ("50%", "50 percent"), ("£5", "5 pounds"), ("5 lb", "5 pounds"), ("18 eggs", "18")),
    *(
        ("18 eggs", "18 apples"),
        ("60 miles per hour", "60 mph"),
        ("20°", "20 degrees"),
        ("20 degrees", "20 °C"),
    ),
    *(("3 hours", "3 hrs"), ("$5", "USD 5"), ("10 m²", "10 square meters"), ("5 in total", "5 cm")),
    *(("10 sq m", "10 meters squared"), ("5 m", "$5$"), ("12 dollars per week", "$12")),
    ("5 m", r"\boxed{5\text{ m}}"),
]


@pytest.mark.parametrize(("gold", "other"), OTHER_UNITS)
def test_another_unit_is_another_answer(gold: str, other: str) -> None:
    assert normalise(gold) == normalise(other)
    for one, two in ((gold, other), (other, gold)):
        form = Rule.DEFAULT.canonical(two, one)
        assert form not in (None, Rule.DEFAULT.canonical(one, one))
        assert Rule.DEFAULT.canonical(form, one) == form == Rule.DEFAULT.canonical(form)


@pytest.mark.parametrize(("gold", "other"), SAME_UNITS)
def test_the_same_unit_under_any_name_and_none(gold: str, other: str) -> None:
    for one, two in ((gold, other), (other, gold)):
        assert Rule.DEFAULT.canonical(two, one) == Rule.DEFAULT.canonical(one, one)


def test_units_in_tables_generated_texts_and_the_router(warehouse: Warehouse, tmp_path: Path) -> None:
    golds = ["5 m", "18 eggs", "7", "$5"]
    files = tables(tmp_path, golds, ["5 cm", "18", "7 km", "5 dollars"])
    report = import_predictions(warehouse, *files)
    right = "SELECT correct FROM outcomes WHERE model = ? ORDER BY doc_id"
    assert warehouse.rows(right, ["m"]) == [(False,), (True,), (True,), (True,)]
    assert any("another unit is wrong" in note for note in report.notes)
    assert extract_text("So the answer is 5 cm.", Rule.DEFAULT, "5 m") != extract_text("It is 5 m.")
    observed = ObservedOutputs(["x", "y", "z"], "answers", Rule.DEFAULT)
    given, _ = observed.update({"x": "5 m", "y": "5 cm", "z": "5 meters"})
    assert given.slots[0] == given.slots[2] != given.slots[1]
    assert len(observed.update({"x": "5 m", "y": "5"})[0].answers) == 1


def test_answers_in_other_units_of_earlier_versions(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tables(tmp_path, ["5 m", "6"], ["5 cm", "6"])
    with monkeypatch.context() as patch:
        patch.setattr(rows, "keep_other_units", lambda scratch, _: keep_other_units(scratch, Rule.TEXT))
        import_predictions(warehouse, *files)
    report = import_predictions(warehouse, *files, names={"m": "later"})
    assert any("as the stored answers are" in note for note in report.notes)
    assert warehouse.rows("SELECT DISTINCT correct FROM outcomes") == [(True,)]


@given(st.text("ab xA5-+!()[]{}<>|$.,;'\"\\*#%−–1 0/^_", max_size=12))
def test_any_form_is_its_own(text: str) -> None:
    form = Rule.DEFAULT.canonical(text)
    assert Rule.DEFAULT.canonical(form) == form


def test_documents_of_earlier_versions_are_compared_as_they_were(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    files = tables(tmp_path, ["-x", "Paris"], ["x", "paris"])
    earlier = partial(normalise, keeps_ends=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warehouse.comparison._RULE_FORMS", {**_RULE_FORMS, Rule.DEFAULT: earlier})
        import_predictions(warehouse, *files)
    right = "SELECT correct FROM outcomes WHERE model = ? ORDER BY doc_id"
    assert warehouse.rows(right, ["m"]) == [(True,), (True,)]
    assert import_predictions(warehouse, *files).n_written == 0
    report = import_predictions(warehouse, *files, names={"m": "later"})
    assert any("as the stored answers are" in note for note in report.notes)
    assert warehouse.rows(right, ["later"]) == [(True,), (True,)]


ALIASES = ["Paris", "Paris, France"]


@pytest.mark.parametrize("form", [".jsonl", ".parquet", ".csv", "numpy"])
def test_a_list_of_golds_is_refused_with_its_row(warehouse: Warehouse, tmp_path: Path, form: str) -> None:
    docs, scores = tables(tmp_path, ["x", ALIASES], ["x", "Paris"])
    if form == ".parquet":
        docs = tmp_path / "docs.parquet"
        rows = [KEYS | {"doc_id": i, "gold": gold} for i, gold in enumerate((["x"], ALIASES))]
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), docs)
    elif form != ".jsonl":
        docs = tmp_path / "docs.csv"
        printed = str(ALIASES) if form == ".csv" else "['Paris' 'Paris, France']"
        with docs.open("w", newline="") as file:
            csv.writer(file).writerows(
                [[*KEYS, "doc_id", "gold"], ["b", "t", 0, "x"], ["b", "t", 1, printed]]
            )
    with pytest.raises(
        InputError, match=rf"row {1 if form == '.parquet' else 2}: gold .*give (one|a) text a row"
    ):
        import_predictions(warehouse, docs, scores)
    assert warehouse.rows("FROM docs") == []


def test_probabilities_are_refused_until_said(warehouse: Warehouse, tmp_path: Path) -> None:
    docs = write(tmp_path / "docs.jsonl", choice_docs(3))
    shares = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    rows = [row | {"choice_logprobs": shares[row["doc_id"]]} for row in choice_scores(3)]
    scores = write(tmp_path / "scores.jsonl", rows)
    for factor in (1, 100):
        listed = [row | {"choice_logprobs": [p * factor for p in row["choice_logprobs"]]} for row in rows]
        percent = write(tmp_path / "percent.jsonl", listed)
        with pytest.raises(InputError, match=r"row 1: all scores of x on b .*--scale probability"):
            import_predictions(warehouse, docs, percent)
    with pytest.raises(InputError, match="are not all probabilities"):
        import_predictions(warehouse, docs, percent, scale="probability")
    scaled = [row | {"choice_logprobs": [p / 2 for p in row["choice_logprobs"]]} for row in rows]
    report = import_predictions(warehouse, docs, write(tmp_path / "scaled.jsonl", scaled))
    assert "all scores of x on b lie between 0 and 1; taken as log-probs" in str(report)
    remove_model(warehouse, "x")
    import_predictions(warehouse, docs, scores, scale="probability")
    for doc_id, expected in enumerate(shares):
        stored = warehouse.rows(
            f"SELECT prob FROM choice_probs WHERE model = 'x' AND doc_id = {doc_id} ORDER BY choice"
        )
        assert [p for (p,) in stored] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        ("DOUBLE[]", "[-1.9 -2.  -.5]", [-1.9, -2.0, -0.5]),
        ("DOUBLE[]", "[-1.9\n -2.e-1]", [-1.9, -0.2]),
        ("DOUBLE[]", "[np.float64(-1.9), np.float64(-2)]", [-1.9, -2.0]),
        ("BOOLEAN[]", "[ True False]", [True, False]),
        ("VARCHAR[]", "['a b' \"it's\"]", ["a b", "it's"]),
        ("DOUBLE[]", "[-1.9 ... -2.0]", None),
        ("DOUBLE[]", "[[1 2]]", None),
        ("DOUBLE[]", "tensor([-1.9, -2.0])", None),
        ("BIGINT[]", "[1, 2.5]", None),
    ],
)
def test_lists_in_csv_files(tmp_path: Path, kind: str, written: str, read: Any) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "k"], [written, 1]])
    if read is not None:
        assert read_table(path, {"a": kind}, ()) == [(1, read)]
        return
    with pytest.raises(InputError, match=r"row 1: a .* is not a list .*separate them by commas"):
        read_table(path, {"a": kind}, ())


def test_packed_files(warehouse: Warehouse, tmp_path: Path) -> None:
    packed = []
    for path in tables(tmp_path, ["5", "7"], ["5", "x"]):
        packed.append(path.with_name(f"{path.name}.gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    assert import_predictions(warehouse, *packed).n_scores == 2
    packed[0].write_bytes(packed[0].read_bytes()[:-9])
    with pytest.raises(InputError, match=r"docs\.jsonl\.gz cannot be read: Truncated"):
        import_predictions(warehouse, *packed)
    log = tmp_path / "log" / f"samples_t_{DATE}.jsonl.gz"
    log.parent.mkdir()
    log.write_bytes(gzip.compress(json.dumps(answer_row(0, "#### 1234", exact_match=1.0)).encode()))
    run = json.dumps({"results": {}, "model_name": "org/m"}).encode()
    log.with_name(f"results_{DATE}.json.gz").write_bytes(gzip.compress(run))
    assert import_lm_eval(warehouse, [log.parent]).models == ("org/m",)
    log.rename(log.with_suffix(".xz"))
    with pytest.raises(InputError, match=r"\.xz is compressed: unpack it first"):
        import_lm_eval(warehouse, [log.parent])


def test_a_grade_that_differs_makes_the_source_the_rule(warehouse: Warehouse, tmp_path: Path) -> None:
    """Letters, wrong-looking right answers, and right-looking wrong ones: each as the log says."""
    rows = [
        answer_row(0, "I count 2, so (B).", target="B", filtered_resps=["B"], exact_match=1.0),
        answer_row(1, "It is (C).", target="C", filtered_resps=["[invalid]"], exact_match=0.0),
        answer_row(2, "So D", target="D", filtered_resps=["D"], exact_match=False),
        answer_row(3, "paris", target="['Paris', 'Paname']", filtered_resps=["Paname"], exact_match=True),
    ]
    path = tmp_path / f"samples_t_{DATE}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = import_lm_eval(warehouse, [path], model="m")
    assert [c for (c,) in warehouse.rows("SELECT correct FROM outcomes ORDER BY doc_id")] == [1, 0, 0, 1]
    assert warehouse.rows("SELECT comparison FROM benchmarks") == [("source",)]
    assert any("graded wrong though it reads like" in note for note in report.notes)
    assert import_lm_eval(warehouse, [path], names=[f"{path}=other"]).models == ("other",)
    with pytest.raises(InputError, match=r"--name nope=other: there is no such model, .* the logs are in /"):
        import_lm_eval(warehouse, [path], model="m", names={"nope": "other"})
    path.write_text(json.dumps(answer_row(0, "x", exact_match=0.5)))
    with pytest.raises(InputError, match="neither right nor wrong"):
        import_lm_eval(warehouse, [path], model="m")

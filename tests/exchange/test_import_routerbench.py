"""`import routerbench`: its wide table, and that its accuracies come through unchanged."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import Cli
from support.routerbench_files import MODELS, ROWS, Row, row, write

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.routerbench import import_routerbench, spoken
from warehouse import Warehouse, open_warehouse


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_accuracy_is_the_mean_of_the_column(warehouse: Warehouse, tmp_path: Path, suffix: str) -> None:
    report = import_routerbench(warehouse, write(tmp_path / f"r{suffix}", ROWS))
    assert (report.n_docs, report.n_scores, report.n_written) == (7, 14, 6)
    for model in MODELS:
        for task in ("mmlu-law", "grade-school-math", "mbpp"):
            column = [given[model] for given in ROWS if given["eval_name"] == task]
            [(n, accuracy)] = warehouse.rows(
                "SELECT n, accuracy FROM accuracy WHERE (model, task) = (?, ?)", [model, task]
            )
            assert (n, accuracy) == (len(column), sum(column) / len(column))
    # In the order of sample_id, and in what words it can be said.
    assert warehouse.rows(
        "SELECT doc_id, model, answer FROM answer_passes WHERE task = 'mmlu-law' ORDER BY doc_id, model DESC"
    ) == [(i, m, a) for i, said in enumerate(["ad", "cc", "ba"]) for m, a in zip(MODELS, said, strict=True)]
    assert warehouse.rows("SELECT doc_id, gold FROM docs WHERE task = 'mmlu-law' ORDER BY doc_id") == [
        (0, "unknown right answer"),
        (1, "c"),
        (2, "b"),
    ]
    assert warehouse.rows(
        "SELECT doc_id, model, answer FROM answer_passes WHERE task <> 'mmlu-law' "
        "ORDER BY task, doc_id, model DESC"
    ) == [
        (0, "gpt-4", "18"),
        (0, MODELS[1], "17"),
        (1, "gpt-4", "1234"),
        (1, MODELS[1], None),
        (0, "gpt-4", "return 0 + 1"),
        (0, MODELS[1], "return 0 + 1"),
        (1, "gpt-4", None),
        (1, MODELS[1], "pass"),
    ]


def test_texts_and_costs_are_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    import_routerbench(warehouse, write(tmp_path / "r.csv", ROWS), benchmark="rb@0shot")
    assert warehouse.rows("SELECT question FROM docs WHERE (task, doc_id) = ('mmlu-law', 0)") == [
        ("Answer with a letter.\n\nIt's mmlu-law.val.8?",)
    ]
    assert warehouse.rows(
        "SELECT text FROM answer_passes WHERE (task, doc_id) = ('mmlu-law', 1) ORDER BY model DESC"
    ) == [("C.",), ("So the answer is (C).",)]
    assert warehouse.rows(
        "SELECT task, sum((settings ->> 'usd')::DOUBLE) FROM extractions GROUP BY task ORDER BY task"
    ) == [("grade-school-math", 1.0), ("mbpp", 1.0), ("mmlu-law", 1.5)]
    before = warehouse.snapshot()
    assert import_routerbench(warehouse, tmp_path / "r.csv", benchmark="rb@0shot").n_written == 0
    assert warehouse.snapshot() == before


def test_lists_of_a_parquet_file_are_the_same_texts(warehouse: Warehouse, tmp_path: Path) -> None:
    """As pandas writes the data set's own lists."""
    listed = [
        given
        | {"prompt": ["Answer with a letter.", f"It's {given['sample_id']}?"]}
        | {f"{m}|model_response": [given[f"{m}|model_response"][2:-2]] for m in MODELS}
        for given in ROWS
    ]
    import_routerbench(warehouse, write(tmp_path / "listed.parquet", listed))
    assert import_routerbench(warehouse, write(tmp_path / "r.csv", ROWS)).n_written == 0


def test_scores_as_pandas_writes_them(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [
        row(f"a.{i}", (given, 1), ("A", "A")) for i, given in enumerate(["True", "False", "1", "0.0", " 1.0"])
    ]
    import_routerbench(warehouse, write(tmp_path / "r.csv", rows))
    assert warehouse.rows("SELECT accuracy FROM accuracy ORDER BY model DESC") == [(0.6,), (1.0,)]


def test_tasks_with_scores_between_are_left_out(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [*ROWS, row("mtbench.0", (0.7, 1.0), ("x", "y"))]
    report = import_routerbench(warehouse, write(tmp_path / "r.csv", rows))
    assert report.left == (
        "eval_name mtbench (1 score other than 0 and 1, such as 0.7: neither right nor wrong)",
    )
    assert report.n_docs == 7
    with pytest.raises(InputError, match="nothing to import; eval_name mtbench"):
        import_routerbench(warehouse, write(tmp_path / "r.csv", rows[-1:]))


def test_a_missing_score_is_a_gap(warehouse: Warehouse, tmp_path: Path) -> None:
    for missing in (None, float("nan"), ""):
        rows = [*ROWS[:2], row("mmlu-law.val.8", (missing, 0.0), ("A", "D"))]
        path = write(tmp_path / ("r.csv" if missing == "" else "r.parquet"), rows)
        with pytest.raises(InputError, match=r"row 3, column 'gpt-4': no score; .*--allow-missing"):
            import_routerbench(warehouse, path)
        with import_routerbench.read(path, allow_missing=True):
            pass
    report = import_routerbench(warehouse, path, allow_missing=True)
    assert report.missing == (("routerbench", "gpt-4", 1),)


def without(name: str) -> list[Row]:
    return [{key: value for key, value in given.items() if key != name} for given in ROWS]


WRONG = {
    "no prompt": (without("prompt"), r"has no column 'prompt'; it has sample_id"),
    "no eval_name": (without("eval_name"), r"has no column 'eval_name'"),
    "no scores": (without("gpt-4"), r"has no column 'gpt-4' with the scores"),
    "no models": (
        [{k: v for k, v in given.items() if "|" not in k} for given in ROWS],
        r"no column MODEL\|model_res",
    ),
    "a score too high": ([row("a.0", (2, 1), ("A", "A"))], r"row 1, column 'gpt-4': score 2.0 is not"),
    "a score in words": ([row("a.0", ("yes", 1), ("A", "A"))], r"row 1, column 'gpt-4': score 'yes' is not"),
    "a row twice": ([ROWS[0], ROWS[1], ROWS[0]], r"row 3: sample_id 'mmlu-law.val.10' as in row 1; keep one"),
    "no sample_id": ([ROWS[0] | {"sample_id": ""}], r"row 1: no sample_id"),
    "a task that climbs": ([ROWS[0] | {"eval_name": "../x"}], r'row 1: task "../x" must not start'),
    "a cost in words": (
        [ROWS[0] | {"gpt-4|total_cost": "free"}],
        r"row 1: gpt-4\|total_cost 'free' is not a number",
    ),
    "no rows": ([], r"has no column 'sample_id'|not a readable CSV"),
}


@pytest.mark.parametrize(("rows", "reason"), WRONG.values(), ids=WRONG)
def test_bad_tables_are_refused(unwritten: Warehouse, tmp_path: Path, rows: list[Row], reason: str) -> None:
    before = unwritten.snapshot()
    with pytest.raises(InputError, match=reason):
        import_routerbench(unwritten, write(tmp_path / "r.csv", rows))
    assert unwritten.snapshot() == before


def test_a_pickle_is_refused_unopened(cli: Cli, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(tmp_path / "sprung"), "w")

    Path("routerbench_0shot.pkl").write_bytes(pickle.dumps(Trap()))
    refused = cli("import", "routerbench", "routerbench_0shot.pkl")
    assert refused.code == 2
    assert "loading a pickle runs any code" in refused.err
    assert (
        "pandas.read_pickle('routerbench_0shot.pkl').to_csv('routerbench_0shot.csv', index=False)"
        in refused.err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["routerbench_0shot.pkl"]
    assert cli("import", "routerbench", "nowhere.csv").code == 2
    assert cli("import", "routerbench", "x.txt").code == 2
    assert "pickles" in cli("import", "routerbench", "--help").out


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        ("A", False, "A"),
        ("(B)", False, "B"),
        ("**C** it is", False, "C"),
        ("D\nbecause", False, "D"),
        ("A man walks", False, None),
        ("I think the answer is B.", False, "B"),
        ("The answer: C, or the answer: D", False, "D"),
        ("return 18", False, None),
        ("3 * 6 = 18.", True, "18"),
        ("", False, None),
    ],
)
def test_spoken(text: str, number: bool, expected: str | None) -> None:
    assert spoken(text, number=number) == expected


@pytest.fixture(scope="module")
def shared_warehouse(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import shutil

    folder = tmp_path_factory.mktemp("property")
    shutil.copytree(empty_warehouse, folder / "w")
    with open_warehouse(folder / "w") as opened:
        yield opened, folder


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(
            st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 1])),
            st.tuples(
                *[st.sampled_from(["A", "B", "A.", "18", "", "['A']", "the answer is A", "\u00df"])] * 2
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_table_keeps_its_accuracies(shared_warehouse: Any, given_rows: list[Any]) -> None:
    warehouse, folder = shared_warehouse
    name = f"b{warehouse.snapshot()}"
    rows = [row(f"{'gsm8k' if i % 3 == 0 else 'x'}.{i}", *each) for i, each in enumerate(given_rows)]
    import_routerbench(warehouse, write(folder / "r.csv", rows), benchmark=name)
    for model in MODELS:
        [(n_right,)] = warehouse.rows(
            "SELECT sum(correct::INT) FROM predictions WHERE (benchmark, model) = (?, ?)", [name, model]
        )
        assert n_right == sum(each[model] for each in rows)

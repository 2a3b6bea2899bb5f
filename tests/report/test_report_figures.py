"""Figures of a board: what each shows, against SQL and against formulas of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pytest
from support.budget_policies import SAYS, FirstOnes, held
from support.rows import put_choices, put_extractions

from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.report import figures
from rlfocal.report.export import export_report, file_name
from rlfocal.report.figures import figures_of
from rlfocal.report.figures.cost import cost
from rlfocal.report.figures.failures import clustered
from rlfocal.report.figures.models import models as coverage
from rlfocal.report.figures.style import CONFIG, in_colours
from rlfocal.report.html import write_report
from warehouse import Warehouse


@pytest.fixture
def board(warehouse: Warehouse) -> Board:
    put_choices(warehouse, SAYS)
    put_extractions(warehouse)
    evaluate(warehouse, "b", methods=["best_single", "plurality"], seeds=1)
    [found] = leaderboard(warehouse)
    return found


def values(spec: dict[str, Any], of: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows of a spec, or of a part of it."""
    names = list(spec["datasets"]) if of is None else [of["data"]["name"]]
    return [row for name in names for row in spec["datasets"][name]]


def test_every_figure_is_vega_lite_and_one_definition_serves_page_and_files(
    warehouse: Warehouse, board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure of somebody's own, which is one file, too."""
    (tmp_path / "their_figures").mkdir()
    (tmp_path / "their_figures" / "dots.py").write_text(
        "import altair as alt\n\nfrom rlfocal.report.figures import Figure, board_figure\n\n\n"
        "@board_figure(place=1.5)\ndef dots(warehouse, board):\n"
        "    chart = alt.Chart(alt.Data(values=[{'x': 1}])).mark_point().encode(x='x:Q')\n"
        "    return Figure(chart, f'Dots of {board.benchmark}.', 'Round.', 'A dot.')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    held(warehouse, FirstOnes(), "2", "all")
    [board] = leaderboard(warehouse)
    before = set(figures_of(warehouse, board))
    monkeypatch.setattr(figures, "_FIGURES", dict(figures._FIGURES))
    drawn = figures_of(warehouse, board, "their_figures", [str(tmp_path / "their_figures")])
    assert set(drawn) - before == {"dots"}
    assert list(drawn)[1] == "dots"
    assert {"cost", "budgets", "pools", "failures", "reliability", "models"} <= set(drawn)
    page = write_report(warehouse, tmp_path / "page.html").read_text("utf-8")
    assert "<b>Dots of b.</b> Round." in page
    assert json.dumps(CONFIG["font"])[1:20] in page
    written = {
        path.relative_to(tmp_path / "out").as_posix(): path
        for path in export_report(warehouse, tmp_path / "out")
    }
    assert {"b/results.csv", "b/results.md", "b/results.tex"} <= set(written)
    for name, figure in drawn.items():
        spec = page.split(f'id="board0-figure-{name}"')[1].split('class="spec">')[1].split("</script>")[0]
        assert json.loads(spec) == json.loads(json.dumps(figure.spec))
        alt.Chart.from_dict(in_colours(figure.spec))  # refused by the schema unless it is valid
        assert figure.spec["description"]
        text = written[f"b/{name}.svg"].read_text("utf-8")
        ElementTree.fromstring(text)
        assert "var(--" not in text
        assert written[f"b/{name}.png"].read_bytes().startswith(b"\x89PNG")


def test_the_front_leaves_out_what_is_beaten(warehouse: Warehouse, board: Board) -> None:
    drawn = cost(warehouse, board)
    assert drawn is not None
    spec = drawn.spec
    points = [p for p in values(spec) if "kind" in p and p["kind"] != "RL-Focal, one seed"]
    [line] = [layer for layer in spec["layer"] if layer.get("mark", {}).get("interpolate") == "step-after"]
    front = {p["name"] for p in values(spec, line)}
    for p in points:
        beaten = any(
            (q["cost"] <= p["cost"] and q["accuracy"] > p["accuracy"])
            or (q["cost"] < p["cost"] and q["accuracy"] >= p["accuracy"])
            for q in points
        )
        assert not (beaten and p["name"] in front)
        assert beaten or any(q["accuracy"] == p["accuracy"] and q["name"] in front for q in points)


def test_models_that_fail_alike_stand_side_by_side() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.random((2, 400)) < 0.5
    fails = np.array([kinds[at % 2] ^ (rng.random(400) < 0.05) for at in range(6)], dtype=float)
    names = [f"m{at}" for at in range(6)]
    r = np.corrcoef(fails)
    pairs = {(names[a], names[b]): float(r[a, b]) for a in range(6) for b in range(a + 1, 6)}
    order = [int(name[1]) % 2 for name in clustered(names, pairs)]
    assert order in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    assert clustered(names[:2], {("m0", "m1"): None}) == names[:2]


def test_a_missing_answer_is_framed(warehouse: Warehouse, board: Board) -> None:
    before = coverage(warehouse, board)
    assert before is not None
    assert "nothing is missing" in before.caption
    model = board.models[0]
    warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = ? AND doc_id = 0", [model])
    found = coverage(warehouse, board)
    assert found is not None
    assert "1 cell of" in found.caption
    [cell] = {json.dumps(p, sort_keys=True) for p in values(found.spec) if p.get("missing")}
    assert json.loads(cell)["model"] == model


def test_titles_become_file_names_that_are_safe_and_apart() -> None:
    titles = ["b", "../b", "a/b", "a b", "b (online)", "con\n", "模型", "x" * 300, "=1"]
    names = [file_name(title) for title in titles]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) < 80 and "/" not in name and not name.startswith(".") for name in names)

"""Figures of a board: what each shows, against SQL and against formulas of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair as alt
import pyarrow as pa
import pytest
from support.budget_policies import SAYS, FirstModels, held
from support.report_lab import MODELS, PRICES, Lab
from support.rows import put_choices, put_extractions

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.data.policy import PHASES
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.methods.trained import list_readable
from rlfocal.report import figures
from rlfocal.report.export import export_report, file_name
from rlfocal.report.figures import figures_of
from rlfocal.report.figures.cost import cost
from rlfocal.report.figures.learning import TITLES, curves, learning
from rlfocal.report.figures.style import CHART_CONFIG, apply_colours
from rlfocal.report.html import write_report
from rlfocal.report.tables import results_table
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
    held(warehouse, FirstModels(), "2", "all")
    [board] = leaderboard(warehouse)
    before = set(figures_of(warehouse, board))
    monkeypatch.setattr(figures, "_FIGURES", dict(figures._FIGURES))
    drawn = figures_of(warehouse, board, "their_figures", [str(tmp_path / "their_figures")])
    assert set(drawn) - before == {"dots"}
    assert list(drawn)[1] == "dots"
    assert {"cost", "pools", "selective"} <= set(drawn)
    page = write_report(warehouse, tmp_path / "page.html").read_text("utf-8")
    assert "<b>Dots of b.</b> Round." in page
    assert json.dumps(CHART_CONFIG["font"])[1:20] in page
    written = {
        path.relative_to(tmp_path / "out").as_posix(): path
        for path in export_report(warehouse, tmp_path / "out")
    }
    assert {"b/results.csv", "b/results.md", "b/results.tex"} <= set(written)
    for name, figure in drawn.items():
        spec = page.split(f'id="board0-figure-{name}"')[1].split('class="spec">')[1].split("</script>")[0]
        assert json.loads(spec) == json.loads(json.dumps(figure.spec))
        alt.Chart.from_dict(apply_colours(figure.spec))  # refused by the schema unless it is valid
        assert figure.spec["description"]
        text = written[f"b/{name}.svg"].read_text("utf-8")
        drawing = ElementTree.fromstring(text)
        assert not any(part.tag.endswith("}rect") for part in drawing), "it has a background"
        assert "var(--" not in text
        assert written[f"b/{name}.png"].read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(figures, "_FIGURES", {})
    export_report(warehouse, tmp_path / "few", methods=["best_single"], columns=["accuracy"])
    rows = (tmp_path / "few" / "b" / "results.csv").read_text("utf-8").splitlines()
    assert (rows[0], [row.partition(",")[0] for row in rows[1:]]) == ("method,accuracy %", ["best_single"])
    # What is wrong is said before anything is drawn.
    monkeypatch.delattr("rlfocal.report.export.draw_side_by_side")
    with pytest.raises(InputError, match="did you mean"):
        export_report(warehouse, tmp_path / "few", methods=["best_singel"])
    with pytest.raises(InputError, match="unknown column 'nope'"):
        export_report(warehouse, tmp_path / "few", columns=["accuracy", "nope"])


def test_the_front_leaves_out_what_is_beaten(warehouse: Warehouse, board: Board) -> None:
    drawn = cost(warehouse, board)
    assert drawn is not None
    spec = drawn.spec
    points = [p for p in values(spec) if "kind" in p]
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


def test_each_of_rl_focals_methods_is_named_and_told_apart(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    put_extractions(warehouse)
    evaluate(warehouse, "b", methods=["best_single", "rl_focal_sequential", "rl_focal"], seeds=1)
    [board] = leaderboard(warehouse)
    ours = {standing.method for standing in board.ours}
    assert len(ours) == 2
    drawn = figures_of(warehouse, board)
    [marks] = [layer for layer in drawn["cost"].spec["layer"] if "shape" in layer["encoding"]]
    scale = marks["encoding"]["shape"]["scale"]
    shapes = [shape for kind, shape in zip(scale["domain"], scale["range"], strict=True) if kind in ours]
    assert len(shapes) == len(set(shapes)) == 2
    scale = drawn["selective"].spec["encoding"]["strokeDash"]["scale"]
    dashes = {kind: dash for kind, dash in zip(scale["domain"], scale["range"], strict=True) if kind in ours}
    assert len(dashes) == len({tuple(dash) for dash in dashes.values()}) == 2


def test_titles_become_file_names_that_are_safe_and_apart() -> None:
    titles = ["b", "../b", "a/b", "a b", "b (online)", "con\n", "模型", "x" * 300, "=1"]
    names = [file_name(title) for title in titles]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) < 80 and "/" not in name and not name.startswith(".") for name in names)


MAIN = ("rl_focal", "rl_focal_sequential")


@pytest.mark.parametrize(("of_ada", "shown"), [(0.0, "0.00"), (None, "–")])
def test_a_free_model_has_a_price_and_an_unknown_price_has_none(
    small_lab: Lab, of_ada: float | None, shown: str
) -> None:
    prices = (of_ada, *PRICES[1:])
    with small_lab.warehouse.transaction("models"):
        small_lab.warehouse.append("models", pa.table({"model": MODELS, "price": prices}))
    right = small_lab.right["facts"]
    for name, model in (("best_single", 0), ("single:bert", 1)):
        small_lab.evaluate(name, right[:, model], [model], prices=prices)
    [board] = leaderboard(small_lab.warehouse)
    drawn = cost(small_lab.warehouse, board)
    assert drawn is not None
    assert ("cents per 1,000" in drawn.description) is (of_ada is not None)
    found = {row[0]: row for row in results_table(board).rows}
    assert shown in found["best_single"]
    assert "20.0" in found["single:bert"]


@pytest.mark.parametrize(
    "method",
    [name if name in MAIN else pytest.param(name, marks=pytest.mark.slow) for name in RL_FOCAL],
)
def test_the_learning_figure_shows_every_phase_of_training(small_lab: Lab, method: str) -> None:
    """Trained here for two episodes of whatever phases the method has: no phase is unknown to the figure."""
    short = [f"{method}.{name}=2" for name in list_readable(method) if name.endswith("_episodes")]
    found = evaluate(small_lab.warehouse, "facts", methods=[method], settings=short, seeds=2)
    runs = [row.run_id for row in found.rows if row.method == method and row.task == "*"]
    means = small_lab.warehouse.rows(
        "SELECT phase, avg(accuracy) FROM training_history WHERE list_contains(?, run_id) "
        "GROUP BY phase, episode ORDER BY episode",
        [runs],
    )
    phases = curves(small_lab.warehouse, runs)
    assert list(phases) == [phase for phase in PHASES if phase in dict(means)]
    assert len(phases) == max(len(short), 1)
    for phase, points in phases.items():
        assert [p["accuracy"] for p in points] == pytest.approx(
            [100 * mean for of, mean in means if of == phase]
        )
        for name in ("accuracy", "asked"):
            assert all(p[f"{name}_low"] <= p[name] <= p[f"{name}_high"] for p in points)
        if phase == "stage":  # over models that have answered
            assert [p["x"] for p in points] == pytest.approx([p["asked"] for p in points])
    [board] = leaderboard(small_lab.warehouse, runs=runs)
    drawn = learning(small_lab.warehouse, board)
    assert drawn is not None
    titles = [panel["title"] for panel in drawn.spec["concat"]]
    assert all(f"{method}, {TITLES[phase]}" in titles for phase in phases)

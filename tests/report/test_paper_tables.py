"""The paper's tables: its figures as printed, ours from what was evaluated."""

from __future__ import annotations

from pathlib import Path

from support.rows import put_choices

from rlfocal.evaluation import evaluate
from rlfocal.methods import entry_of
from rlfocal.report import write_report
from rlfocal.report.paper import paper_tables
from warehouse import Warehouse


def test_ours_stand_beside_theirs(warehouse: Warehouse, tmp_path: Path) -> None:
    says = {"Phi-2b": [True, True, True, False], "Gemma-2b": [False, True, True, True]}
    put_choices(warehouse, says, benchmark="mmlu")
    evaluate(warehouse, "mmlu", methods=["best_single", "plurality"], seeds=1)
    first, *_ = paper_tables(warehouse)
    by_label = {row.label: {cell.benchmark: cell for cell in row.cells} for row in first.rows}
    assert by_label["Phi-2b"]["mmlu"].theirs == 0.5582
    assert by_label["Phi-2b"]["mmlu"].ours == 0.5
    assert by_label["Gemma-2b"]["mmlu"].ours == 1.0
    assert by_label["RL-Focal"]["mmlu"].ours is None
    assert by_label["Gemma-2b"]["gsm8k"].theirs is None
    page = write_report(warehouse, tmp_path / "with.html", paper=True).read_text("utf-8")
    assert "55.82" in page
    assert "55.82" not in write_report(warehouse, tmp_path / "without.html").read_text("utf-8")


def test_every_row_names_a_method_or_a_study_that_there_is(warehouse: Warehouse) -> None:
    for table in paper_tables(warehouse):
        for row in table.rows:
            words = row.command.split()
            assert words[:2] in (["rlfocal", "evaluate"], ["rlfocal", "study"])
            if words[1] == "evaluate":
                assert entry_of(words[words.index("--methods") + 1])

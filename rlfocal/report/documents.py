"""Documents one by one: what every model and RL-Focal said to them, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlfocal.evaluation.leaderboard import Board
from rlfocal.pool import load_benchmarks
from warehouse import Warehouse
from warehouse.scripts import script

ANSWERS = 150_000
"""Answers of models that a page holds, over all benchmarks: beyond that, documents are sampled."""
MOST, LEAST = 2_000, 40
"""Documents of a benchmark."""
LONGEST, LONGEST_CHOICE = 1_200, 200
"""Characters of a question, and of a choice or an answer."""


def documents(
    warehouse: Warehouse, board: Board, boards: int, *, confidential: bool
) -> dict[str, Any] | None:
    """The test documents of a board, a random sample where there are many; None if none was decided.

    `boards`: on the page. Texts of confidential documents are left out unless `confidential`.
    `c`: whether it has choices, `s`: which answer each model gave (-1: none), `p`: percents of each answer by
    each model, `y`: the right one, or -1 if no model gave it, `f`: by method, whom it asked (by rounds), what
    it said, whether it is right, how sure it is.
    """
    runs = {standing.runs[0].run_id: standing.method for standing in board.ours}
    of = [run.run_id for standing in board.standings for run in standing.runs][:1]
    limit = max(min(ANSWERS // len(board.models) // boards, MOST), LEAST)
    hidden = [name for name, one in load_benchmarks().items() if one.confidential]
    about: dict[str, Any] = {"benchmark": board.benchmark, "models": list(board.models), "limit": limit}
    about |= {"runs": list(runs) or of, "hidden": [] if confidential else hidden, "show": confidential}
    about |= {"longest": LONGEST}
    found = warehouse.query(script("queries/documents"), about).to_pylist()
    if not found:
        return None
    tasks = list(dict.fromkeys(row["task"] for row in found))
    rank = {model: at for at, model in enumerate(board.models)}
    shown = [_document(row, rank, runs) | {"t": tasks.index(row["task"])} for row in found]
    seeds = {standing.method: standing.runs[0].seed for standing in board.ours}
    return {"models": board.models, "tasks": tasks, "n": board.n, "documents": shown, "seeds": seeds}


def _document(row: dict[str, Any], rank: dict[str, int], runs: dict[str, str]) -> dict[str, Any]:
    is_choice = row["label"] is not None
    slots: dict[str, int] = {}

    def slot(answer: str) -> int:
        return int(answer) if is_choice else slots.setdefault(answer, len(slots))

    said = [-1] * len(rank)
    shares: list[list[list[int]]] = [[] for _ in rank]
    for one in row["said"] or ():
        at = rank[one["model"]]
        said[at] = -1 if one["said"] is None else slot(one["said"])
        shares[at] = [[slot(part["answer"]), part["percent"]] for part in one["shares"]]
    right = row["label"] if is_choice else slots.get(row["gold"], -1)
    found: dict[str, Any] = {"i": row["doc_id"], "c": is_choice, "s": said, "y": right}
    found["p"] = [_dense(of) for of in shares] if is_choice else shares
    found["f"] = {
        runs[one["run_id"]]: [
            [[rank[m] for m in names if m in rank] for names in one["rounds"]],
            -1 if one["said"] is None else slot(one["said"]),
            int(bool(one["correct"])),
            None if one["probability"] is None else round(100 * one["probability"]),
        ]
        for one in row["decided"] or ()
        if one["run_id"] in runs
    }
    if row["is_open"]:
        found["q"] = row["question"] or ""
        texts: Sequence[str] = row["choices"] or () if is_choice else list(slots)
        found["a"] = [text[:LONGEST_CHOICE] for text in texts]
        if not is_choice and right < 0:
            found["g"] = (row["gold"] or "")[:LONGEST_CHOICE]
    return found


def _dense(shares: Sequence[list[int]]) -> list[int]:
    """Percents by choice."""
    return [percent for _, percent in sorted(shares)]

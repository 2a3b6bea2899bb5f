"""`import released`: the data of the RL-Focal release, in the three layouts its loaders read.

mmlu_hf: MODEL/TASK.csv with a list of four log-likelihoods (`prediction`) and a letter (`label`).
gsm8k: MODEL/{train,test}/run_N_predictions.npy, numbers of shape (questions, runs) with NaN where there was
no answer, and GSM8K's own train.jsonl and test.jsonl beside the models.
A pickle (bbh_data.pkl): [train, test], each a list of one array per task; its columns are every model's
scores, then the label. The labels are taken as they were released.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import Gathered, tracked
from rlfocal.exchange.imports.reading import first_line, read_jsonl, read_table
from rlfocal.exchange.imports.reading.pickles import load_arrays
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress, named
from rlfocal.extraction.answers import extract_answer
from rlfocal.pool import load_benchmarks

PICKLED_MODELS = (
    "meta-llama/Llama-2-70b-chat-hf",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "google/gemma-7b",
    "microsoft/phi-2",
    "mistralai/Mistral-7B-v0.1",
)
"""The order of the models' columns in bbh_data.pkl."""
_LETTERS = "ABCD"
_RUN = re.compile(r"run_(\d+)_predictions\.npy")


@Importer
def import_released(
    paths: Annotated[
        Sequence[str | Path], Option("mmlu_hf or gsm8k folders, or bbh_data.pkl.", is_repeated=True)
    ],
    *,
    models: Annotated[
        Sequence[str] | None,
        Option("The models of a pickle's columns.", default="those of bbh_data.pkl", metavar="M,..."),
    ] = None,
    benchmark: Annotated[str | None, Option("The benchmark's name.", default="mmlu@released, ...")] = None,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> Gathered:
    """Import the data of the RL-Focal release: CSV, npy and pickle files. All or nothing.

    Only numpy arrays are read from a pickle, and nothing in it is run. Labels stay as they were released: in
    7 of its 24 BBH tasks they do not index the task's own choices.
    """
    # Its documents are the release's own rows, which cannot be matched to those of an extraction.
    if benchmark is not None and len(paths) > 1:
        raise InputError(f"--benchmark {benchmark} names one path's benchmark; import each path separately")
    rows = Gathered("released", named(paths), allow_missing)
    for path in tracked([Path(path) for path in paths], on_progress):
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix in (".pkl", ".pickle"):
            _read_pickle(path, rows, models or PICKLED_MODELS, benchmark or "bbh@released")
        elif path.is_dir() and any(path.glob("*/*.csv")):
            _read_letters(path, rows, benchmark or "mmlu@released")
        elif path.is_dir() and any(path.glob("*/*/run_*_predictions.npy")):
            _read_numbers(path, rows, benchmark or "gsm8k@released")
        else:
            raise InputError(
                f"{path} does not have the layout of the release; give a folder of MODEL/TASK.csv, one of "
                "MODEL/{train,test}/run_N_predictions.npy, or a .pkl"
            )
    return rows


def _model(folder: str) -> str:
    """The release writes a hub id's slash as two underscores."""
    return folder.replace("__", "/", 1)


def _read_letters(folder: Path, rows: Gathered, benchmark: str) -> None:
    columns = {"prediction": "DOUBLE[]", "label": "VARCHAR"}
    for path in sorted(folder.glob("*/*.csv")):
        for number, prediction, label in read_table(path, columns, tuple(columns)):
            row = rows.row(f"{path}, row", number)
            if label not in tuple(_LETTERS):
                raise InputError(f"{rows.place(row)}: label {label!r} is not one of {', '.join(_LETTERS)}")
            keys = {"row": row, "benchmark": benchmark, "task": path.stem, "doc_id": number - 1}
            document = {"label": _LETTERS.index(label), "choices": list(_LETTERS)}
            rows.describe(keys | document, ("label",))
            rows.scores.append({**keys, "model": _model(path.parent.name), "choice_logprobs": prediction})
    # The release cuts the whole benchmark once, in the order of its files.
    rows_in_order = sorted(
        (doc for doc in rows.docs if doc["benchmark"] == benchmark), key=lambda d: (d["task"], d["doc_id"])
    )
    for place, doc in enumerate(rows_in_order):
        doc["split"] = "train" if place < len(rows_in_order) * 8 // 10 else "test"


def _read_numbers(folder: Path, rows: Gathered, benchmark: str) -> None:
    questions: list[tuple[str, str]] = []
    for split in ("train", "test"):
        runs, earlier = _runs(folder, split)
        rows.left += [f"{path} (an earlier run)" for path in earlier]
        source = folder / f"{split}.jsonl"
        start = len(questions)
        if source.is_file():
            questions += _questions(source)
        elif runs:
            raise InputError(f"there is no file {source}; put GSM8K's own {split}.jsonl there")
        answers = {path: _array(path) for path in runs}
        # Inference of the slowest model was not complete, and the release cuts the others to it.
        n = min(map(len, answers.values()), default=0)
        rows.left += [
            f"{path}, rows {n + 1} to {len(a)} (another model stops there)"
            for path, a in answers.items()
            if len(a) > n
        ]
        if n > len(questions) - start:
            raise InputError(
                f"{min(answers)} has {n} rows, but {source} has {len(questions) - start} questions; use the "
                "file whose questions were asked"
            )
        for i in range(n):
            question, gold = questions[start + i]
            keys = {"benchmark": benchmark, "task": "main", "doc_id": start + i}
            for path, each in answers.items():
                row = rows.row(f"{path}, row", i + 1)
                if path == min(answers):
                    rows.docs.append({**keys, "row": row, "question": question, "gold": gold, "split": split})
                model = _model(path.parent.parent.name)
                rows.scores += [
                    {**keys, "row": row, "model": model, "pass": p, "answer": _text(number)}
                    for p, number in enumerate(each[i].tolist())
                ]


def _runs(folder: Path, split: str) -> tuple[list[Path], list[Path]]:
    """Every model's longest run, and the others."""
    latest, earlier = [], []
    for model in sorted(folder.glob(f"*/{split}")):
        numbered = [(int(m[1]), path) for path in model.iterdir() if (m := _RUN.fullmatch(path.name))]
        if numbered:
            *others, (_, last) = sorted(numbered)
            latest.append(last)
            earlier += [path for _, path in others]
    return latest, earlier


def _questions(path: Path) -> list[tuple[str, str]]:
    found = []
    for number, row in read_jsonl(path):
        question, answer = row.get("question"), row.get("answer")
        gold = extract_answer(answer) if isinstance(answer, str) else None
        if gold is None or not isinstance(question, str):
            raise InputError(f"{path}, line {number}: expected a question, and an answer after ####")
        found.append((question, gold))
    return found


def _text(number: float) -> str | None:
    return np.format_float_positional(number, trim="-") if np.isfinite(number) else None


def _array(path: Path) -> Floats:
    """Numbers of shape (questions, runs)."""
    try:
        found = np.load(path, allow_pickle=False)
    # What numpy reads may be a broken zip, pickle or header, each with errors of its own.
    except Exception as error:
        raise InputError(f"{path} is not a readable array of numbers: {first_line(error)}") from None
    if not (
        isinstance(found, np.ndarray) and found.ndim in (1, 2) and found.size and found.dtype.kind in "iuf"
    ):
        raise InputError(f"{path}: the array must hold numbers of shape (questions, runs)")
    return np.asarray(found.reshape(len(found), -1), np.float64)


def _read_pickle(path: Path, rows: Gathered, models: Sequence[str], benchmark: str) -> None:
    found = load_arrays(path)
    if not (_is_list(found, 2) and _is_list(found[0]) and _is_list(found[1], len(found[0]))):
        raise InputError(f"{path}: a pickle must be [train, test], each a list of one array per task")
    names = list(load_benchmarks()["bbh"].tasks)
    if len(found[0]) != len(names):
        names = [f"task_{i:02}" for i in range(len(found[0]))]
    for task, parts in zip(names, zip(*found, strict=True), strict=True):
        doc_id = 0
        for split, part in zip(("train", "test"), parts, strict=True):
            where = f"{path}, {split} rows of {task}, row"
            for number, values in enumerate(_check_pickled(where, part, len(models)).tolist(), 1):
                *scores, label = values
                keys = {
                    "row": rows.row(where, number),
                    "benchmark": benchmark,
                    "task": task,
                    "doc_id": doc_id,
                }
                if not float(label).is_integer() or abs(label) >= 2**63:
                    raise InputError(f"{where} {number}: label {label} is not a whole number of 64 bits")
                rows.docs.append({**keys, "label": int(label), "split": split})
                n = len(scores) // len(models)
                rows.scores += [
                    {**keys, "model": model, "choice_logprobs": list(map(float, scores[m * n : (m + 1) * n]))}
                    for m, model in enumerate(models)
                ]
                doc_id += 1


def _is_list(value: Any, length: int | None = None) -> bool:
    return isinstance(value, list) and (length is None or len(value) == length)


def _check_pickled(where: str, part: Any, n_models: int) -> NDArray[Any]:
    if not isinstance(part, np.ndarray) or part.ndim != 2:
        raise InputError(f"{where} 1: not a two-dimensional array")
    width = part.shape[1] - 1
    if width < n_models or width % n_models:
        raise InputError(
            f"{where} 1: {width} scores do not divide among {n_models} models; name the models "
            "of the columns with --models A,B,..."
        )
    return part

"""Implements `import predictions`, which reads logits, probabilities or answers that were made elsewhere, and
the marked answers of golds and answers that are whole solutions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import float_info
from typing import Literal, get_args

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.exchange.imports.columns import GRADES_ONLY
from rlfocal.exchange.imports.faults import add_faults, count
from rlfocal.exchange.imports.graded import report_progress
from rlfocal.exchange.imports.reading import Pairs, read_pairs
from rlfocal.exchange.imports.reading.tables import Frame, RawTable, load_table, open_table, plain_name
from rlfocal.exchange.imports.rows import Importer
from rlfocal.exchange.imports.shapes import load_shapes
from rlfocal.exchange.imports.source import OnProgress, Source, Split
from rlfocal.extraction.answers import read_boxed
from warehouse.comparison import Rule
from warehouse.writing import MODEL_COLUMNS

Comparison = Literal["default", "exact", "numeric", "text"]
Scale = Literal["log", "probability"] | None
_COMPARISON_SENTENCES: dict[str, str] = {
    "default": "numbers as numbers, not in another unit, and other texts without case and outer punctuation",
    "exact": "character by character",
    "numeric": "as numbers",
    "text": "without case and runs of spaces",
}
_LIST_PATTERN = r"""\s*\[\s*([''"]).*[''"]\s*,?\s*\]\s*"""
_GOLD_LISTS = rf"""
INSERT INTO faults SELECT 62, 'docs', row, format(
    'gold ''{{}}'' is a list of texts; give one text a row, or compare answers as they stand with '
    '--comparison exact', gold)
FROM docs WHERE label IS NULL AND regexp_full_match(gold, '{_LIST_PATTERN}')
"""
"""SQL that adds a fault for each gold that is a printed list of texts, because no answer equals it."""
_LIKE_PROBABILITIES = """
SELECT
    min(row), benchmark, model,
    bool_and(abs(list_sum(choice_logprobs) - 1) <= 0.01 OR abs(list_sum(choice_logprobs) - 100) <= 1)
FROM scores WHERE len(choice_logprobs) > 0 GROUP BY benchmark, model
HAVING bool_and(list_min(choice_logprobs) >= 0) AND max(list_max(choice_logprobs)) > 0
    AND (bool_and(list_max(choice_logprobs) <= 1) OR bool_and(abs(list_sum(choice_logprobs) - 100) <= 1))
ORDER BY 1
"""
_ABOVE_ZERO = """
SELECT benchmark, model FROM scores WHERE len(choice_logprobs) > 0 GROUP BY ALL
HAVING min(list_min(choice_logprobs)) > 0 ORDER BY ALL
"""
_MARKED_ANSWER = re.compile(r"####\s*(\S[^\n]*)")


@Importer
def import_predictions(
    table: str | Path | Frame | None = None,
    scores: str | Path | Frame | None = None,
    models: str | Path | None = None,
    *,
    docs: str | Path | Frame | None = None,
    benchmark: str | None = None,
    columns: Pairs = None,
    names: Pairs = None,
    comparison: Comparison = "default",
    scale: Scale = None,
    split: Split = "hash",
    allow_missing: bool = False,
    on_progress: OnProgress = None,
) -> Source:
    """Imports per-choice scores or answers from CSV, Parquet, JSONL, Arrow or a data frame, all or nothing.

    `rlfocal import predictions --help` lists the columns of `docs`, `scores` and `models`, or of one `table`
    for documents and scores. A row has a list of scores, or a column for each choice, or the score of one
    choice. Labels are indices, letters or texts of choices. Ids are numbers or texts. Without a column
    `split`, a hash of its id makes a document train or test; 80 % of each task are train. With split="first",
    the first 80 % are train. Importing the same again changes nothing.
    """
    described = table if docs is None else docs
    if described is None or (docs is not None and table is not None):
        raise InputError("give one table of documents and scores, or two tables, `docs` and `scores`")
    given = {"docs": described, "scores": described if scores is None else scores}
    titles = {
        name: Path(source).name if isinstance(source, str | Path) else "frame"
        for name, source in given.items()
    }
    return _Files(
        "predictions",
        titles["scores"],
        allow_missing,
        settings=titles,
        rule=Rule(comparison),
        in_order=split == "first",
        names=read_pairs("--name", names),
        sources=given,
        benchmark=benchmark,
        column_names=read_pairs("--columns", columns),
        scale=scale,
        models_file=None if models is None else Path(models),
        on_progress=on_progress,
    )


@dataclass(kw_only=True)
class _Files(Source):
    """The files or data frames of `docs` and `scores`; one may hold both."""

    sources: Mapping[str, str | Path | Frame]
    benchmark: str | None
    column_names: Mapping[str, str]
    scale: Scale
    models_file: Path | None
    """The file that describes the models."""
    on_progress: OnProgress
    raw_tables: dict[str, RawTable] = field(default_factory=dict)

    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        for table in report_progress(["docs", "scores"], self.on_progress):
            is_one = table == "scores" and self.sources["scores"] is self.sources["docs"]
            opened = self.raw_tables["docs"] if is_one else open_table(scratch, self.sources[table])
            if not (opened.names and opened.rows.num_rows):
                raise InputError(f"{opened.title} has no rows")
            self.raw_tables[table] = opened
        # A file that names no model may be given one's name.
        files = [
            name for name in (str(self.sources["scores"]), self.settings["scores"]) if name in self.names
        ]
        shapes = load_shapes(
            scratch,
            self.raw_tables["docs"],
            self.raw_tables["scores"],
            self.column_names,
            self.names,
            benchmark=self.benchmark,
            model=self.names[files[0]] if files else None,
            in_order=self.in_order,
        )
        self.names = {before: after for before, after in self.names.items() if before not in files}
        self.columns = [str(shape) for shape in shapes]
        self.ids_are_texts = bool(shapes[0].kinds["doc_id"])
        # An empty cell of a spreadsheet is no answer, whatever the format makes of it.
        scratch.execute("UPDATE scores SET answer = NULL WHERE regexp_full_match(answer, '[\\s\\p{Z}]*')")
        if self.rule is Rule.DEFAULT:
            scratch.execute(_GOLD_LISTS)
        if self.rule is not Rule.EXACT:
            self.notes += _read_solutions(scratch)
        has_answers = count(scratch, "SELECT count(*) FROM docs WHERE label IS NULL")
        if has_answers and shapes[-1].kinds.get("answer") != GRADES_ONLY:
            others = [rule for rule in get_args(Comparison) if rule != self.rule]
            self.notes.append(
                f"answers are compared by the rule {self.rule}, {_COMPARISON_SENTENCES[self.rule]}; "
                f"--comparison {', '.join(others[:-1])} or {others[-1]} compares otherwise"
            )
        score = plain_name(shapes[-1].score_column or "")
        if self.scale is None and score.startswith(("prob", "p_")):
            self.scale = "probability"
        self.are_probabilities = self.scale == "probability"
        self._scale_scores(scratch)
        if "log" in score and "logit" not in score:
            self.notes += [
                f"{given}: all scores of {self.names.get(model, model)} are above 0, where log-probs lie "
                "below; they may be losses, so change their sign"
                for given, model in scratch.execute(_ABOVE_ZERO).fetchall()
            ]
        if self.models_file is not None:
            self.models = _read_models(scratch, self.models_file)

    def place(self, row: int, table: str) -> str:
        return f"{self.raw_tables[table].title}, row {row}" if row else self.raw_tables[table].title

    def _scale_scores(self, scratch: duckdb.DuckDBPyConnection) -> None:
        """Turns probabilities into log-probs.

        If no scale is given, scores that sum to 1 (or 100) are a fault. Other scores from 0 to 1 are taken as
        log-probs, with a note. If `scale` is "probability", numbers outside 0 to 1 are a fault.
        """
        if self.scale == "probability":
            scratch.execute(
                "INSERT INTO faults SELECT 76, 'scores', row, format('{} are not all probabilities, from 0 "
                "to 1; divide percentages by 100, or take log-probs as they are by --scale log', "
                "choice_logprobs::VARCHAR) FROM scores "
                "WHERE list_min(choice_logprobs) < 0 OR list_max(choice_logprobs) > 1"
            )
            logs = f"list_transform(choice_logprobs, lambda p: ln(greatest(p, {float_info.min})))"
            scratch.execute(f"UPDATE scores SET choice_logprobs = {logs}")
        elif self.scale is None:
            for row, benchmark, model, add_up in scratch.execute(_LIKE_PROBABILITIES).fetchall():
                about = f"all scores of {self.names.get(model, model)} on {benchmark}"
                if add_up:
                    reason = (
                        f"{about} add up to 1, or 100, as probabilities do; say what they are: "
                        "--scale probability takes the logarithms of probabilities from 0 to 1, so divide "
                        "percentages by 100; --scale log takes scores as they are"
                    )
                    add_faults(scratch, 75, "scores", [(row, reason)])
                else:
                    self.notes.append(
                        f"{about} lie between 0 and 1; taken as log-probs: --scale probability says otherwise"
                    )


def _read_models(scratch: duckdb.DuckDBPyConnection, path: Path) -> pa.Table:
    """The rows of a file for the table `models`. Raises InputError for a row without a name, and for a model
    described twice."""
    load_table(scratch, "models", path, MODEL_COLUMNS, ("model",))
    wrong = scratch.execute(
        "SELECT max(row), model FROM models GROUP BY model HAVING model IS NULL OR count(*) > 1 ORDER BY 1"
    ).fetchone()
    if wrong is not None:
        reason = "no model" if wrong[1] is None else f"model {wrong[1]} is described twice"
        raise InputError(f"{path}, row {wrong[0]}: {reason}")
    return scratch.execute("SELECT * EXCLUDE row FROM models").to_arrow_table()


def read_marked_answer(solution: str) -> str | None:
    r"""The text behind the last "####" of a solution, else in its last \boxed{}; None if it has neither.

    >>> read = read_marked_answer
    >>> read("3+4=<<3+4=7>>7.\n#### 7"), read(r"so $x = \boxed{-2}$."), read("7")
    ('7', '-2', None)
    """
    marks = _MARKED_ANSWER.findall(solution)
    return marks[-1].strip() if marks else read_boxed(solution).strip() or None


def _read_solutions(scratch: duckdb.DuckDBPyConnection) -> list[str]:
    """Replaces solutions in `docs` and `scores` by their marked answers. Returns a note on each changed
    table. The column `text` keeps the solutions of models."""
    notes = []
    for table, column, noun in (("docs", "gold", "gold"), ("scores", "answer", "answer")):
        rows = scratch.execute(
            f"SELECT DISTINCT {column} FROM {table} WHERE contains({column}, '####') "
            rf"OR contains({column}, '\boxed') OR contains({column}, '\fbox')"
        ).fetchall()
        pairs = [(solution, marked) for (solution,) in rows if (marked := read_marked_answer(solution))]
        if not pairs:
            continue
        before, after = map(list, zip(*pairs, strict=True))
        scratch.register("marked", pa.table({"before": before, "after": after}))
        kept = ", text = coalesce(text, answer)" if table == "scores" else ""
        labels = "label IS NULL AND" if table == "docs" else ""
        changed = scratch.execute(
            f"UPDATE {table} SET {column} = after{kept} FROM marked WHERE {labels} {column} = before"
        ).fetchone()
        scratch.unregister("marked")
        if changed and changed[0]:
            notes.append(
                f"{count_noun(changed[0], noun)} read as what a solution marks by #### or \\boxed; "
                "--comparison exact takes texts as they are"
            )
    return notes

"""Finds the meaning of a given table's columns by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import duckdb

from rlfocal.exchange.imports.faults import add_faults, count
from rlfocal.exchange.imports.reading.tables import RawTable, plain_name
from rlfocal.exchange.imports.source import DOC_COLUMNS, KEY_COLUMNS, SCORE_COLUMNS

_COLUMN_ALIASES = {
    "benchmark": "dataset benchmark_name",
    "task": "subject subset task_name subtask topic category domain section discipline area field",
    "doc_id": "id uuid question_id example_id sample_id item_id document_id qid idx index unnamed:_0 "
    "__index_level_0__",
    "model": "model_name model_id llm",
    "question": "prompt query",
    "choices": "options endings",
    "label": "target gold_label correct_answer correct_choice answer_key answer_index answer_idx",
    "gold": "target reference ground_truth correct_answer",
    "answer": "prediction response",
    "choice_logprobs": "logprobs log_probs logits loglikelihoods scores probs probabilities",
    "choice": "option choice_index choice_idx",
    "logprob": "log_prob loglikelihood logit score prob probability",
}
"""The names under which rlfocal's columns are known elsewhere, the likeliest first."""
INDEX_COLUMNS = ("idx", "index", "unnamed:_0", "__index_level_0__")
KNOWN_COLUMNS = {*" ".join(_COLUMN_ALIASES.values()).split()}
_TASK_NAMES = ("task", "subject", "subset", "task_name")
"""Names that only a column of tasks has. A column with another alias of `task` counts only if it has few
values."""
_NO_NAME = r"^$|^[\s.\p{Z}]|[\s\p{Z}]$|[\p{Cc}\p{Cf}/\\]|[.]{2}"
"""Matches names that no task may have, because files are named after tasks."""
MIN_TASK_DOCUMENTS = 4
"""The least mean number of documents per value that makes a column a possible column of tasks."""
_SCORE_COLUMNS = [
    "logprob",
    "log_prob",
    "logprobs",
    "lp",
    "logit",
    "logits",
    "score",
    "loglikelihood",
    "ll",
    "prob",
    "probs",
    "probability",
    "p",
]
_GRADE_COLUMNS = ("correct", "is_correct", "was_correct", "graded", "grade", "acc", "passed")
"""Names of columns that say by 1 and 0, or true and false, whether an answer is right."""
GRADE_ANSWERS = {"1": "1", "1.0": "1", "true": "1", "0": "0", "0.0": "0", "false": "0"}
"""By grade as a table writes it, the answer that stands for it. The gold answer is then 1."""
GRADES_ONLY = " (grades)"
"""The kind of answers of which only grades are given."""
_TEXT_PREFIXES = ("choice", "option", "ending")
LONG_COLUMNS = {"choice": "VARCHAR", "logprob": "DOUBLE"}


@dataclass
class TableShape:
    """The meaning of the columns of one given table."""

    table: RawTable
    contents: Sequence[str]
    """The tables that can be made from the given table: `docs`, `scores`, or both."""
    score_columns: list[str]
    """The given columns of scores, one for each choice; empty if the scores come in another form."""
    text_columns: list[str]
    """The given columns of choices' texts, one for each choice; empty if the texts come in another form."""
    given_columns: dict[str, str] = field(default_factory=dict)
    """The given column for each of rlfocal's columns."""
    grade_column: str | None = None
    """The given column of grades that no answer is made of, because labels or gold answers decide."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Words on the kind of values that each of rlfocal's columns was read from, such as " (letters)"."""

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns to read, by rlfocal's names."""
        ours = (DOC_COLUMNS if "docs" in self.contents else KEY_COLUMNS) | (
            SCORE_COLUMNS | LONG_COLUMNS if "scores" in self.contents else {}
        )
        ours |= {name: "VARCHAR" for name in ("doc_id", "label") if name in ours}
        wide = {f"wide{number}": "DOUBLE" for number in range(len(self.score_columns))}
        return ours | wide | {f"worded{number}": "VARCHAR" for number in range(len(self.text_columns))}

    @property
    def unused(self) -> list[str]:
        """The given columns that none of rlfocal's columns comes from."""
        used = {*self.given_columns.values(), *self.score_columns, *self.text_columns}
        return [name for name in self.table.names if name not in used]

    @property
    def score_column(self) -> str | None:
        """The given column of the choices' scores, or the first such column; None if there is none."""
        return (
            self.score_columns[0]
            if self.score_columns
            else self.given_columns.get("choice_logprobs", self.given_columns.get("logprob"))
        )

    def __str__(self) -> str:
        taken = [
            (ours if ours == theirs else f"{theirs} as {ours}") + self.kinds.get(ours, "")
            for ours, theirs in self.given_columns.items()
        ]
        for ours, theirs in (("choice_logprobs", self.score_columns), ("choices", self.text_columns)):
            taken += [f"{', '.join(theirs)} as {ours}"] if theirs else []
        return ", ".join(taken) + (f" (not used: {', '.join(self.unused)})" if self.unused else "")


def understand_columns(
    scratch: duckdb.DuckDBPyConnection,
    table: RawTable,
    contents: Sequence[str],
    column_names: Mapping[str, str],
    *,
    are_scored: bool = False,
) -> TableShape:
    """The meaning of a table's columns, by their names. `column_names` maps given names to ours. `are_scored`
    says whether another table scores the choices of these documents."""
    called: dict[str, str] = {}
    for name in table.names:
        called.setdefault(plain_name(column_names.get(name, name)), name)
    called |= {column_names.get(name, name): name for name in table.names}
    has_docs, has_scores = "docs" in contents, "scores" in contents
    wide = (
        _find_choice_columns(called, _SCORE_COLUMNS) if has_scores and "choice_logprobs" not in called else []
    )
    bare = _find_choice_columns(called, ("",))
    if has_scores and not wide and (not has_docs or _are_numbers(scratch, table, bare)):
        wide, bare = bare, []
    worded = (
        (_find_choice_columns(called, _TEXT_PREFIXES) or bare) if has_docs and "choices" not in called else []
    )
    shape = TableShape(table, contents, wide, worded)
    is_melted = has_scores and not wide and all(_find(called, name) for name in LONG_COLUMNS)
    is_listed = has_scores and not wide and not is_melted and _find(called, "choice_logprobs") is not None
    has_choices = are_scored or bool(wide) or is_melted or is_listed
    if has_docs and has_choices and "label" not in called:
        right = [name for name in (*_COLUMN_ALIASES["label"].split(), "answer", "gold") if name in called]
        called |= {"label": called.pop(right[0])} if right else {}
    unwanted = {*(() if is_listed else ("choice_logprobs",)), *(() if is_melted else LONG_COLUMNS)}
    wanted = [name for name in shape.columns if not name[-1].isdigit() and name not in unwanted]
    for name in sorted(wanted, key=lambda name: name not in called):
        # Of choices, `target` is the label, and nobody's `response` counts.
        is_exact = name == "label" or (has_choices and name in ("gold", "answer"))
        column = called.get(name) if is_exact else _find(called, name)
        if name == "task" and column is not None and has_docs:
            column = _find_task(scratch, shape, called)
        if column is not None and column not in (*shape.given_columns.values(), *wide, *worded):
            shape.given_columns[name] = column
    named = [called[name] for name in _GRADE_COLUMNS if name in called]
    graded = next((name for name in named if has_scores and _are_grades(scratch, table, name)), None)
    is_keyed = (
        has_choices or "label" in shape.given_columns or {"gold", "answer"} <= shape.given_columns.keys()
    )
    if has_docs and graded is not None and not is_keyed:
        shape.given_columns.pop("gold", None)
        if (response := shape.given_columns.pop("answer", None)) is not None:
            shape.given_columns.setdefault("text", response)
            if _are_grades(scratch, table, response):
                reason = (
                    f"columns {response!r} and {graded!r} both hold 1 and 0; say what they are: "
                    f"--columns {graded}=gold if it is the right answer, or --columns {response}=text if it "
                    "is a grade"
                )
                add_faults(scratch, 0, "scores", [(0, reason)])
        shape.given_columns["answer"], shape.kinds["answer"] = graded, GRADES_ONLY
    elif not is_melted and graded not in shape.given_columns.values():
        shape.grade_column = graded
    return shape


def _find(called: Mapping[str, str], name: str) -> str | None:
    return next(
        (called[alias] for alias in (name, *_COLUMN_ALIASES.get(name, "").split()) if alias in called), None
    )


def _find_task(
    scratch: duckdb.DuckDBPyConnection, shape: TableShape, called: Mapping[str, str]
) -> str | None:
    """The given column of tasks: one with a name that only such columns have, or one whose few values divide
    the documents."""
    if (named := next((called[name] for name in _TASK_NAMES if name in called), None)) is not None:
        return named
    others = [called[name] for name in _COLUMN_ALIASES["task"].split() if name in called]
    taken = {*shape.given_columns.values(), *shape.score_columns, *shape.text_columns}
    return next(
        (name for name in others if name not in taken and _divides(scratch, shape, called, name)), None
    )


def align_tasks(docs: TableShape, scores: TableShape) -> None:
    """Makes scores take their tasks from the column that the documents take theirs from, or from none. A
    column of tasks with a usual name keeps its meaning."""
    if plain_name(scores.given_columns.get("task", "task")) in _TASK_NAMES:
        return
    del scores.given_columns["task"]
    of_docs = plain_name(docs.given_columns.get("task", ""))
    same = [name for name in scores.unused if plain_name(name) == of_docs]
    scores.given_columns |= {"task": same[0]} if same else {}


def _divides(
    scratch: duckdb.DuckDBPyConnection, shape: TableShape, called: Mapping[str, str], name: str
) -> bool:
    """Whether a column can name tasks. Each of its values needs enough documents. Each document needs one
    value, unless ids restart in each task."""
    keys = {ours: _find(called, ours) for ours in ("doc_id", "question", "model", "choice", "pass")}
    texts = {ours: "NULL" if theirs is None else shape.table.text(theirs) for ours, theirs in keys.items()}
    ids = [texts["doc_id"], texts["question"]]
    if plain_name(keys["doc_id"] or "") in INDEX_COLUMNS:  # it may number rows, not documents
        ids.reverse()
    document = f"coalesce({', '.join(ids)}, row_number() OVER ()::VARCHAR)"
    rest = ", ".join(texts[ours] for ours in ("model", "choice", "pass"))
    scratch.register("raw", shape.table.rows)
    divides = count(
        scratch,
        f"""WITH given AS (
            SELECT {shape.table.text(name)} AS task, {document} AS document, concat_ws(chr(0), {rest}) AS rest
            FROM raw {"WHERE line IS NOT NULL" if shape.table.is_json else ""}
        )
        SELECT {MIN_TASK_DOCUMENTS} * count(DISTINCT task) <= count(DISTINCT (task, document))
            AND bool_and(task IS NOT NULL AND length(task) <= 96 AND task <> '*'
                AND NOT regexp_matches(task, '{_NO_NAME}'))
            AND (count(DISTINCT (task, document)) = count(DISTINCT document)
                OR count(DISTINCT (document, rest)) < count(*))
        FROM given""",
    )
    scratch.unregister("raw")
    return bool(divides)


def _find_choice_columns(called: Mapping[str, str], prefixes: Sequence[str]) -> list[str]:
    """The given columns named after choices: by letters from A or, behind a prefix, also by numbers from 0 or
    1."""
    for prefix in prefixes:
        for mark, first in [(m, f) for m in ("_", "", ".") for f in "a01"] if prefix else [("", "a")]:
            names = (
                f"{prefix}{mark}{chr(ord(first) + number) if first == 'a' else int(first) + number}"
                for number in range(26)
            )
            columns = [called[name] for name in takewhile(called.__contains__, names)]
            if len(columns) > 1:
                return columns
    return []


def _are_numbers(scratch: duckdb.DuckDBPyConnection, table: RawTable, names: Sequence[str]) -> bool:
    """Whether most values of these columns are numbers."""
    if not names:
        return False
    scratch.register("raw", table.rows)
    cells = "UNION ALL ".join(f"SELECT {table.text(name)} AS cell FROM raw " for name in names)
    most = count(scratch, f"SELECT 2 * count(TRY_CAST(cell AS DOUBLE)) > count(cell) FROM ({cells})")
    scratch.unregister("raw")
    return bool(most)


def read_grade(text: str) -> str:
    """The SQL of the answer that stands for a grade; NULL for a blank, and for what is no grade."""
    return f"map {GRADE_ANSWERS}[lower(trim({text}))]"


def _are_grades(scratch: duckdb.DuckDBPyConnection, table: RawTable, name: str) -> bool:
    """Whether a column holds only grades and blanks."""
    scratch.register("raw", table.rows)
    cell = f"nullif(nullif(trim({table.text(name)}), ''), 'nan')"
    all_are = f"bool_and({read_grade(cell)} IS NOT NULL) FILTER ({cell} IS NOT NULL)"
    are = count(scratch, f"SELECT coalesce({all_are}, false) FROM raw")
    scratch.unregister("raw")
    return bool(are)

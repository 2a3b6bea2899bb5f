"""One table in three media: what a cell holds is text in each of them."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db
from rich.console import Console

from rlfocal.base.errors import InputError
from rlfocal.base.tables import Table, escape_latex, escape_markdown

HOSTILE = "<b>a|b</b> [red]_x_ *y*"


def test_a_cell_is_text_in_every_medium() -> None:
    table = Table("name", "n", texts=("why",), title="t")
    table.add(HOSTILE, "1", "no\\reason", style="bold")
    screen = StringIO()
    Console(file=screen, width=100).print(table)
    assert HOSTILE in screen.getvalue()
    header, marks, row = table.markdown()
    assert (header, marks) == ("| name | n | why |", "|---|---:|---|")
    assert row == r"| \<b>a\|b\</b> [red]\_x\_ \*y\* | 1 | no\\reason |"
    html = table.html()
    assert '<tr class="ours"><th scope="row">&lt;b&gt;a|b&lt;/b&gt; [red]_x_ *y*</th><td>1</td>' in html
    assert '<td class="members">no\\reason</td>' in html


@pytest.mark.parametrize(
    ("words", "escaped"),
    [("rl_focal", "rl_focal"), ("_a_", r"\_a\_"), ("`a|_b_`", r"`a\|_b_`"), ("a\\b", r"a\\b")],
)
def test_markdown_keeps_names_and_code_as_they_are(words: str, escaped: str) -> None:
    assert escape_markdown(words) == escaped


NAMES = (
    r"\frac{1}{0} $x^{$ \input{/etc/passwd} \write18",
    "a_b~c^d|e`f''g--h---i ?`!` <<x>> #1 & 100 % \"q\"",
    "</svg><script>alert(1)</script>&amp;",
    "[0.5em] {{ 7 * 7 }} {% raw %} *",
    "−3.1 ± 2 ¢ – déjà",
    "m" * 300,
)
SIGNS = {"textless": "<", "textgreater": ">", "textbar": "|", "textquotesingle": "'"}
SIGNS |= {"textasciicircum": "^", "textasciigrave": "`"}


def read_latex(text: str) -> str:
    """What LaTeX would show. Raises for what it could not read."""
    context = get_default_latex_context_db()
    signs = [MacroTextSpec(name, simplify_repl=sign) for name, sign in SIGNS.items()]
    context.add_context_category("signs", prepend=True, macros=signs)
    reader = LatexNodes2Text(latex_context=context, strict_latex_spaces=True, keep_comments=True)
    return str(reader.latex_to_text(text, tolerant_parsing=False))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=30))
@example(" ".join(NAMES))
def test_latex_shows_names_as_they_are(name: str) -> None:
    assert read_latex(escape_latex(name)) == " ".join(name.split()).replace("−", "-")


def test_a_part_of_a_table_has_the_rows_and_columns_that_were_chosen() -> None:
    table = Table("method", "accuracy %", "± docs", texts=("reads",), title="Methods", caption="50 % right.")
    for name in ("a_b", "c", "d"):
        table.add(name, f"{name} acc", f"{name} docs", f"{name} reads")
    part = table.select(["d", "a_b", "absent"], ["reads", "acc"])
    assert part.header == ("method", "accuracy %", "reads")
    assert part.rows == [("a_b", "a_b acc", "a_b reads"), ("d", "d acc", "d reads")]
    assert part.latex("lab-mmlu", "lab_mmlu").splitlines()[:5] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{lab\_mmlu: Methods. 50 \% right.}",
        r"\label{tab:lab-mmlu}",
        r"\begin{tabular}{lrl}",
    ]
    assert table.select(None, None).csv() == table.csv()
    with pytest.raises(InputError, match=r"unknown column 'cost' in the table 'Methods'\. Known: accuracy %"):
        table.select(None, ["cost"])

"""One table in three media: what a cell holds is text in each of them."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rlfocal.base.tables import Table, escape_markdown

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

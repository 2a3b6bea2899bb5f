"""Tables for terminals, Markdown, HTML, LaTeX and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from markupsafe import Markup
from rich.table import Table as RichTable
from rich.text import Text

from rlfocal.base.errors import unknown_name


class Table:
    """A table: the first column holds names, the next hold numbers, the last hold words.

    Cells are plain text, never markup.
    """

    def __init__(
        self,
        first: str,
        *numbers: str,
        title: str = "",
        caption: str = "",
        wraps: bool = True,
        texts: Iterable[str] = (),
        kept: Collection[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        """A table without rows; `first` and `numbers` are headings.

        `wraps`: whether a long name may take two lines. `texts`: headings of columns of words, after the
        numbers; those also in `kept` are never wrapped. `words`: by term of a heading (without its arrow) or
        a cell, what it means.
        """
        self.title, self.caption, self.wraps = title, caption, wraps
        self.words = dict(words or {})
        self.header = (first, *numbers, *texts)
        self.n_numbers, self.kept = len(numbers), kept
        self.rows: list[tuple[str, ...]] = []
        self._styles: list[str] = []

    def add(self, *cells: str, style: str = "") -> None:
        """Adds a row. `style` is rich's; in HTML, "dim" rows are set aside, and other styled ones are
        RL-Focal's."""
        self.rows.append(cells)
        self._styles.append(style)

    @property
    def explained_terms(self) -> dict[str, str]:
        """The meanings of those terms in `words` that occur in the table, by term."""
        cells = {cell for row in self.rows for cell in row}
        shown = {*map(_drop_arrow, self.header), *cells}
        return {word: meaning for word, meaning in self.words.items() if word in shown}

    @property
    def footnote(self) -> str:
        """The meanings of the table's terms, then its caption."""
        words = [f"{word}: {meaning}." for word, meaning in self.explained_terms.items()]
        return " ".join([*words, *[self.caption] * bool(self.caption)])

    def to_json(self) -> dict[str, Any]:
        """The table as a dict of JSON values, which `from_json` reads."""
        return vars(self) | {"kept": list(self.kept)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The table from what `to_json` returned; lists become tuples again."""
        table = cls("")
        vars(table).update(stored)
        table.header, table.rows = tuple(table.header), [tuple(row) for row in table.rows]
        return table

    def markdown(self) -> list[str]:
        """The table as lines of Markdown."""
        marks = ["---"] + ["---:"] * self.n_numbers + ["---"] * (len(self.header) - 1 - self.n_numbers)
        return [_markdown_row(self.header), f"|{'|'.join(marks)}|", *map(_markdown_row, self.rows)]

    def csv(self) -> str:
        """The table as CSV for spreadsheets: numbers are plain, and no name can be read as a formula."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_write_csv_cell(_drop_arrow(heading)) for heading in self.header)
        writer.writerows(map(_write_csv_cell, row) for row in self.rows)
        return out.getvalue()

    def select(
        self, rows: Collection[str] | None, columns: Sequence[str] | None, title: str | None = None
    ) -> Table:
        """The table with the named rows, and the columns whose headings begin with the given words; None:
        all.

        Raises InputError for words with which no heading begins.
        """
        chosen = Table(
            "", title=self.title if title is None else title, caption=self.caption, words=self.words
        )
        others = range(1, len(self.header))
        for word in columns or ():
            if not any(heading.startswith(word) for heading in self.header[1:]):
                raise unknown_name("column", word, self.header[1:], f"the table {self.title!r}")
        kept = [0, *(i for i in others if columns is None or self.header[i].startswith(tuple(columns)))]
        chosen.header = tuple(self.header[i] for i in kept)
        chosen.n_numbers = sum(0 < i <= self.n_numbers for i in kept)
        for row, style in zip(self.rows, self._styles, strict=True):
            if rows is None or row[0] in rows:
                chosen.add(*(row[i] for i in kept), style=style)
        return chosen

    def latex(self, label: str, table: str = "") -> str:
        r"""The table as a LaTeX `table` with booktabs. `label`: its label after `tab:`. `table`: words before
        its title.

        Names that are not Latin need LuaLaTeX or XeLaTeX.
        """
        after = len(self.header) - 1 - self.n_numbers
        lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in (self.header, *self.rows)]
        head, *body = lines
        title = ": ".join(filter(None, (table, self.title)))
        caption = escape_latex(". ".join(filter(None, (title, self.caption))))
        begin = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}"]
        begin += [
            rf"\begin{{tabular}}{{l{'r' * self.n_numbers}{'l' * after}}}",
            r"\toprule",
            head,
            r"\midrule",
        ]
        return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def html(self, css: str = "text") -> Markup:
        """The table as an HTML `<table>` of class `css`, which scrolls if it is too wide.

        A row with an empty name gets the name of the row above.
        """
        names: list[str] = []
        for row in self.rows:
            names.append(row[0] or (names[-1] if names else ""))
        head = Markup("").join(self._cell("th", "col", *cell) for cell in enumerate(self.header))
        body = Markup("\n").join(
            Markup("<tr{}>{}{}</tr>").format(
                Markup(' class="{}"').format("aside" if style == "dim" else "ours") if style else "",
                self._cell("th", "row", 0, name),
                Markup("").join(self._cell("td", "", column, cell) for column, cell in enumerate(row[1:], 1)),
            )
            for name, row, style in zip(names, self.rows, self._styles, strict=True)
        )
        return Markup(
            '<div class="scroll"><table class="{}">\n'
            "<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table></div>"
        ).format(css, head, body)

    def __rich__(self) -> RichTable:
        """The table as `Console.print` of rich prints it."""
        table = RichTable(
            title=Text(self.title) if self.title else None,
            title_justify="left",
            title_style="bold",
            box=None,
            padding=(0, 0, 0, 1),
            pad_edge=False,
        )
        for column, heading in enumerate(self.header):
            if 0 < column <= self.n_numbers:
                # Wrapped, or an interval is cut where it is too wide.
                wraps = any(" " in row[column] for row in self.rows)
                table.add_column(Text(heading), justify="right", no_wrap=not wraps, overflow="fold")
            else:  # folded and not cut: half a name may be another's
                table.add_column(
                    Text(heading),
                    overflow="fold",
                    no_wrap=not self.wraps if column == 0 else heading in self.kept,
                )
        for row, style in zip(self.rows, self._styles, strict=True):
            table.add_row(*map(Text, row), style=style)
        return table

    def _cell(self, tag: str, scope: str, column: int, text: str) -> Markup:
        attributes = Markup(' scope="{}"').format(scope) if scope else Markup("")
        attributes += Markup(' class="members"') if column > self.n_numbers else ""
        if meaning := self.words.get(_drop_arrow(text)):
            attributes += Markup(' title="{}"').format(meaning)
        if 0 < column <= self.n_numbers:  # an interval breaks before its bracket alone
            text = text.replace(", ", ",\N{NO-BREAK SPACE}")
        return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), attributes, text)


def _drop_arrow(heading: str) -> str:
    return heading.rstrip("↑↓")


def escape_markdown(words: str) -> str:
    """The words, with Markdown's special characters escaped; code in backticks stays."""
    signs = r"[\\|]" if "`" in words else r"[\\|<*]|\b_|_\b|(?<=_)_"
    return re.sub(signs, lambda sign: f"\\{sign[0]}", words)


_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
}
_LATEX |= {
    ">": r"\textgreater{}",
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "¢": r"\textcent{}",
    "[": "{[}",
    "]": "{]}",
}
_LATEX |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
_LATEX |= {"'": r"\textquotesingle{}", "`": r"\textasciigrave{}", "|": r"\textbar{}"}
_WORD_JOINER = "\u2060"
_LATEX |= {_WORD_JOINER: "{}"}


def escape_latex(words: str) -> str:
    """The words on one line, with LaTeX's special characters escaped.

    Characters that change the writing direction are left out.
    """
    plain = re.sub("[\u202a-\u202e\u2066-\u2069]", "", " ".join(words.split()))
    plain = re.sub("-(?=-)", f"-{_WORD_JOINER}", plain)  # two hyphens would become a dash
    return "".join(_LATEX.get(sign, sign) for sign in plain)


def _write_csv_cell(text: str) -> str:
    """A cell as CSV: numbers have a plain minus and no commas, and an apostrophe precedes a would-be
    formula."""
    plain = text.replace("−", "-")
    if re.fullmatch(r"[+-]?[\d,]+(\.\d+)?([eE][+-]?\d+)?", plain):
        return plain.replace(",", "").removeprefix("+")
    if text == "–":
        return ""
    return plain_cell(text)


def plain_cell(text: str) -> str:
    """The text with an apostrophe before it, if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |"

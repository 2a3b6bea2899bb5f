"""The report, from a real warehouse filled with generated answers and decisions."""

from __future__ import annotations

import csv
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from support.report_lab import MODELS, NOON, SKILLS, Lab, printed

from rlfocal.base.errors import InputError
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.report import sections
from rlfocal.report.export import export_report
from rlfocal.report.html import write_report
from warehouse import Warehouse, open_warehouse


def test_the_terminal_table_fits_and_names_every_method(boards: list[Board]) -> None:
    text = printed(boards, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"plurality +89\.00 +– +±1\.81 +89\.00 +6\.00 +135\.0", text)
    assert re.search(r"plurality +\+11\.3 \[\+6\.3, \+16\.4\]", text)


class _Page(HTMLParser):
    """Collects what a browser would complain about or fetch."""

    void = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href"}:
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_self_contained_well_formed_small_and_the_same_again(
    evaluated_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its boards are made side by side or one after the other."""
    path, again = (tmp_path / name / "report.html" for name in ("out", "again"))
    for processes, place in enumerate((path, again), 1):
        monkeypatch.setattr(sections, "cores", lambda n=processes: n)
        write_report(evaluated_lab.warehouse, place, made_at=NOON)
    assert path.read_bytes() == again.read_bytes()
    text = path.read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not page.tags & {"link", "img", "iframe"}
    assert "default-src 'none'" in text
    assert len(text.encode()) < 3_000_000
    assert "&lt;fritz&gt;" in text
    assert "<fritz>" not in text
    assert text.count("<figure id=") == 2 * 2
    assert "2026-01-01 12:00 UTC" in text
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_warehouse_gets_a_page_that_says_what_to_run(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "warehouse") as empty:
        page = write_report(empty, tmp_path / "report.html").read_text("utf-8")
        assert "<code>rlfocal regenerate --pool lab</code>" in page
        Lab(empty, models=MODELS[:2]).add_benchmark("facts", ("birds",), 40, SKILLS[:2], seed=1)
        page = write_report(empty, tmp_path / "report.html").read_text("utf-8")
        assert "<code>rlfocal evaluate -b facts</code>" in page
        with pytest.raises(InputError, match=r"unknown benchmark .facts. in what .rlfocal evaluate. has run"):
            write_report(empty, tmp_path / "other.html", benchmarks=["facts"])
    assert not (tmp_path / "other.html").exists()


HOSTILE = (
    "x^{",
    "$x^{$",
    "$\\frac{1}{0}$ \\1 \\g<0>",
    "#010101 'DejaVu Sans', sans",
    'id="a" href="#b" url(#c)',
    "</svg></style><script>alert(1)</script>&amp;",
    "[/bold] {{ 7 * 7 }} {% raw %}",
    "模型 \N{ROBOT FACE} \u202etxt",
    '=HYPERLINK("http://127.0.0.1")',
    "m" * 300,
)


def test_names_stay_names(warehouse: Warehouse, tmp_path: Path) -> None:
    """On the page, in its figures and on the terminal, whatever a model or a benchmark is called."""
    names = tuple(sorted(HOSTILE))
    lab = Lab(warehouse, models=names)
    with warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": names, "price": np.arange(len(names)) + 1.0}))
    benchmark = '$b_{$ \\1 <b> [/b] "'
    lab.add_benchmark(benchmark, ("$t^{$", "u"), 40, tuple(np.linspace(0.4, 0.9, len(names))), seed=3)
    right = lab.right[benchmark]
    for at, name in enumerate(names):
        lab.evaluate(f"single:{name}", right[:, at], [at], benchmark=benchmark)
    for seed in range(2):
        lab.evaluate("rl_focal", right[:, 0], 3 + seed, benchmark=benchmark, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = write_report(warehouse, tmp_path / "report.html").read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    for name in names:
        assert any(name in words for words in page.words), name
    assert any(benchmark in words for words in page.words)
    written = export_report(warehouse, tmp_path / "out")
    assert all(tmp_path / "out" in path.resolve().parents for path in written)
    drawn = {path.stem: ElementTree.parse(path).getroot() for path in written if path.suffix == ".svg"}
    assert {"cost", "pools"} <= set(drawn)
    [table] = [path for path in written if path.name == "models.csv"]
    with table.open(encoding="utf-8", newline="") as file:
        assert {row["model"] for row in csv.DictReader(file)} == {plain(name) for name in names}
    [table] = [path for path in written if path.name == "models.tex"]
    text = re.sub(r"\$\\(up|down)arrow\$", "", table.read_text("utf-8"))
    assert not re.search(r"(?<!\\)[#%]|(?<!\\)\$(?![-\\])", text)
    shown = printed(leaderboard(warehouse), 400)
    assert all(name in shown for name in names)


def plain(name: str) -> str:
    """As a spreadsheet reads it: never a formula."""
    return f"'{name}" if name.startswith("=") else name

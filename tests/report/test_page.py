"""The page in a browser, and its figures against SQL."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, chromium
from support.rows import put_choices, put_extractions

from rlfocal.evaluation import evaluate
from rlfocal.report import sections, write_report
from warehouse import Warehouse, open_warehouse

MODELS = {f"model-{name}": seed for name, seed in zip("abcdef", (3, 5, 7, 11, 13, 17), strict=True)}

MOST_PRINTED = 600
"""Pixels that a figure may be high: a sheet of A4, turned, less its margins and the caption."""
DIGITS = (2, 2, 2, 3, 3)
"""After the point, of a model's accuracy, its interval, Brier score and log-loss."""
BROKEN = """[...document.querySelectorAll('section:not([hidden]) tbody td:not(.members)')].filter(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map(line => line.top)).size > 1;
}).map(cell => cell.textContent)"""


def _answers(models: list[str], n: int, shift: int) -> dict[str, list[bool]]:
    rng = random.Random(shift)
    return {model: [rng.random() < 0.5 + 0.05 * at for _ in range(n)] for at, model in enumerate(models)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Two benchmarks, evaluated; of the second, the texts are confidential."""
    with open_warehouse(tmp_path_factory.mktemp("page") / "warehouse") as warehouse:
        for shift, name in enumerate(("open", "closed")):
            put_choices(warehouse, _answers(list(MODELS), 120, shift), benchmark=name)
            evaluate(warehouse, name, methods=["best_single", "plurality", "rl_focal_sequential"], seeds=2)
        put_extractions(warehouse)
        warehouse.connection.execute(
            "UPDATE docs SET question = concat('planted ', doc_id), confidential = benchmark = 'closed'"
        )
        yield warehouse


@pytest.fixture(scope="module")
def page(filled: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "cores", lambda: 1)  # a board in a process of its own takes longer
        yield write_report(filled, tmp_path_factory.mktemp("written") / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core that the package bundles; its Python code is not run."""
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("needs axe-playwright-python: make test installs it")
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


def embedded(page: Path, kind: str) -> list[dict[str, Any]]:
    """The JSON of every script element that follows this text."""
    text = page.read_text("utf-8")
    found = re.findall(rf"{kind}>(\{{.*?)</script>", text, re.DOTALL)
    return [json.loads(one) for one in found]


def test_numbers_of_the_page_are_sqls(filled: Warehouse, page: Path) -> None:
    text = page.read_text("utf-8")

    def shown(board: int, table: str, columns: int) -> dict[str, list[float]]:
        part = text.split(f'id="board{board}-{table}"')[1].split("</table>")[0]
        found = re.findall(r'<tr[^>]*><th scope="row"[^>]*>(.*?)</th>(.*?)</tr>', part, re.DOTALL)
        cells = {name: re.findall(r"<td[^>]*>(.*?)</td>", row) for name, row in found}
        return {name: [float(cell) for cell in row[:columns]] for name, row in cells.items()}

    def stored(sql: str, benchmark: str) -> dict[str, list[Any]]:
        return {
            name: [pytest.approx(x, abs=0.51 * 10**-digits) for x, digits in zip(row, DIGITS, strict=False)]
            for name, *row in filled.rows(sql, [benchmark])
        }

    for at, benchmark in enumerate(("closed", "open")):
        assert shown(at, "results", 1) == stored(
            "SELECT method, 100 * avg(accuracy) FROM current_evaluations "
            "WHERE benchmark = ? AND task = '*' GROUP BY method",
            benchmark,
        )
        assert shown(at, "models", 5) == stored(
            "SELECT model, 100 * accuracy, 100 * low, 100 * high, brier, log_loss "
            "FROM model_scores(?, split := 'test')",
            benchmark,
        )
        part = text.split(f'id="board{at}-figure-pools"')[1].split('class="spec">')[1]
        spec: dict[str, Any] = json.loads(part.split("</script>")[0])
        pools = {
            tuple(sorted(MODELS)[place] for place in p["m"]): [p["d"], p["a"]]
            for row in spec["datasets"].values()
            for p in row
        }
        assert len(pools) > 50
        found = filled.rows(
            "SELECT models, focal_diversity, 100 * plurality_accuracy FROM all_pools(?, 6, split := 'test')",
            [benchmark],
        )
        computed = {tuple(sorted(models)): pytest.approx(rest, abs=5.1e-5) for models, *rest in found}
        assert pools == {members: computed[members] for members in pools}


def test_documents_say_what_the_views_say(filled: Warehouse, page: Path) -> None:
    for data in embedded(page, '<script type="application/json"'):
        if "documents" not in data:
            continue
        models, documents = data["models"], data["documents"]
        is_open = "q" in documents[0]
        name = "open" if is_open else "closed"
        assert all(("q" in d) is is_open for d in documents)
        said = {(d["i"], models[m]): (d["s"][m], d["p"][m]) for d in documents for m in range(len(models))}
        rows = filled.rows(
            "SELECT doc_id, model, any_value(o.prediction), list(round(100 * prob)::INT ORDER BY choice) "
            "FROM choice_probs JOIN outcomes AS o USING (benchmark, task, doc_id, model) "
            "WHERE benchmark = ? AND o.split = 'test' GROUP BY ALL",
            [name],
        )
        assert said == {(doc, model): (choice, shares) for doc, model, choice, shares in rows}
        right = filled.rows(
            "SELECT doc_id, correct FROM decisions WHERE run_id = (SELECT run_id FROM runs "
            "WHERE benchmark = ? AND method = 'rl_focal_sequential' AND seed = 0)",
            [name],
        )
        assert {d["i"]: bool(d["f"]["rl_focal_sequential"][2]) for d in documents} == dict(right)


def test_confidential_questions_are_shown_on_request_only(
    filled: Warehouse, page: Path, tmp_path: Path
) -> None:
    n = len(filled.rows("SELECT 1 FROM docs WHERE benchmark = 'open' AND split = 'test'"))
    assert page.read_text("utf-8").count('"planted ') == n
    asked = write_report(filled, tmp_path / "asked.html", benchmarks=["closed"], confidential=True)
    assert asked.read_text("utf-8").count('"planted ') == n


@pytest.mark.slow
def test_questions_of_a_confidential_benchmarks_variant_are_not_shown(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    says = {"a": [True, False, True, False], "b": [False, True, True, True]}
    put_choices(warehouse, says, benchmark="gpqa@mine")
    put_extractions(warehouse)
    warehouse.connection.execute("UPDATE docs SET question = concat('planted ', doc_id)")
    evaluate(warehouse, "gpqa@mine", methods=["best_single"])
    assert '"planted ' not in write_report(warehouse, tmp_path / "page.html").read_text("utf-8")
    asked = write_report(warehouse, tmp_path / "asked.html", confidential=True)
    assert '"planted ' in asked.read_text("utf-8")


@pytest.mark.parametrize(("width", "dark"), [(390, True), (768, False), (1400, False)])
def test_the_first_screen_shows_the_sentence_the_accuracies_and_the_calls(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    browser.look(width=width, dark=dark, height=844)
    at = "(e => (r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect()))"
    table = "document.querySelector('#board0 table.verdicts')"
    heads = browser.run(f"[...{table}.tHead.rows[0].cells].map(cell => cell.textContent)")
    assert heads[1:3] == ["acc %↑", "asked↓"]
    rows = browser.run(f"[...{table}.tBodies[0].rows].map(row => [row.cells[0], row.cells[2]].map({at}))")
    sentence = browser.run(f"{at}(document.querySelector('#board0 .verdict'))")
    for left, top, right, bottom in (sentence, *(cell for row in rows for cell in row)):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= 844
    scrolls = f"(s => s.scrollWidth > s.clientWidth)({table}.parentElement)"
    assert not browser.run(scrolls), "the table of verdicts must fit"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_cut_shows_that_it_scrolls(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    browser.draw_all()
    wide = "[...document.querySelectorAll('.scroll, .jumps')].filter(e => e.scrollWidth > e.clientWidth)"
    shades = f"{wide}.map(e => getComputedStyle(e).backgroundImage.split('linear-gradient').length - 1)"
    assert set(browser.run(shades)) == {4}


@pytest.mark.parametrize("benchmarks", [None, ["open"]])
def test_every_link_leads_somewhere(
    browser: Browser, filled: Warehouse, tmp_path: Path, benchmarks: list[str] | None
) -> None:
    browser.open(write_report(filled, tmp_path / "page.html", benchmarks=benchmarks), width=390)
    links = "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash.slice(1))"
    found = browser.run(links)
    assert len(found) > 4
    assert browser.run(f"{links}.filter(id => !document.getElementById(id))") == []


def test_a_word_is_explained_where_it_stands_and_below_its_table(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    titles = "[...document.querySelectorAll('#board0 table.verdicts [title]')].map(e => e.title)"
    assert any("models asked per document" in title for title in browser.run(titles))
    words = "[...document.querySelectorAll('#board0 details.words dt')].map(e => e.textContent)"
    assert {"asked", "plurality", "rl_focal_sequential"} <= set(browser.run(words))


@pytest.mark.parametrize(
    ("width", "dark", "media"), [(390, False, "screen"), (1400, True, "screen"), (1400, False, "print")]
)
def test_the_page_fits_and_complains_about_nothing(
    browser: Browser, page: Path, width: int, dark: bool, media: str
) -> None:
    browser.open(page, width=width, dark=dark, media=media)
    browser.draw_all()
    assert browser.run("document.querySelectorAll('section:not([hidden]) figure svg').length") >= 3
    assert media == "print" or browser.run(BEYOND) == []
    assert media == "print" or browser.run("document.documentElement.scrollWidth <= innerWidth")
    link = "document.querySelector('.jumps a').getBoundingClientRect().width > 0"
    assert media == "print" or browser.run(link), "the sections cannot be reached"
    assert browser.errors == []
    assert browser.requests == []


def test_in_print_no_number_is_broken_and_every_figure_fits_on_a_sheet(browser: Browser, page: Path) -> None:
    browser.open(page, width=700, media="print")
    browser.draw_all()
    assert browser.run(BROKEN) == []
    height = (
        "Math.max(...[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().height))"
    )
    assert 100 < browser.run(height) < MOST_PRINTED
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_tables_sort_filter_hide_and_copy(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    table = MODELS_TABLE
    column = f"[...{table}.tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[1].textContent)"
    browser.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    falling = [float(one) for one in browser.run(column)]
    browser.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    assert [float(one) for one in browser.run(column)] == sorted(falling)
    assert falling == sorted(falling, reverse=True)
    tools = f"{table}.parentElement.previousElementSibling"
    browser.run(change(f"{tools}.querySelector('input')", "model-c", "input"))
    assert len(browser.run(column)) == 1
    browser.run(f"{tools}.querySelector('.columns input').click()")
    assert browser.run(f"{table}.rows[0].cells[1].hidden")
    copied = "(async () => { let text; navigator.clipboard.writeText = async (t) => { text = t; }; "
    copied += f"{tools}.querySelector('button').click(); return text; }})()"
    lines = browser.run(copied).split("\n")
    assert len(lines) == 2
    assert lines[1].startswith("model-c\t")
    assert len(lines[1].split("\t")) == len(lines[0].split("\t")) == 7


def test_benchmarks_are_picked_and_documents_filtered(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    shown = "[...document.querySelectorAll('section.board')].filter(s => !s.hidden).map(s => s.id)"
    assert browser.run(shown) == ["board0"]
    browser.run(change("document.getElementById('board')", "board1"))
    assert browser.run(shown) == ["board1"]
    browser.draw_all()
    place = "document.querySelector('#board1 .documents')"
    text = browser.run(f"{place}.querySelector('.question').textContent")
    assert text.startswith("planted ")
    options = browser.run(f"[...{place}.querySelector('select').options].map(o => o.textContent)")
    for option in options:
        name, n = re.fullmatch(r"(.*) \((\d+)\)", option).groups()  # type: ignore[union-attr]
        if int(n):
            browser.run(change(f"{place}.querySelector('select')", name))
            assert browser.run(f"{place}.querySelector('.where').textContent") == f"1 of {n}"
    at = "document.querySelector('#board1-figure-cost .chart svg .mark-symbol path')"
    browser.run(f"{at}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({at}.getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    browser.wait("document.querySelector('#vg-tooltip-element.visible')?.textContent.includes('accuracy')")
    assert browser.errors == []


def test_all_benchmarks_are_shown_at_once_on_request(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    shown = "[...document.querySelectorAll('section.board')].filter(s => s.offsetHeight).map(s => s.id)"
    printed = "getComputedStyle(document.querySelector('.printed')).display"
    browser.look(width=1400, media="print")
    assert browser.run(printed) == "block"
    browser.look(width=1400)
    assert browser.run(printed) == "none"
    browser.run(change("document.getElementById('board')", ""))
    assert browser.run(shown) == ["board0", "board1"]
    browser.draw_all()
    bare = "[...document.querySelectorAll('figure')].filter(f => !f.querySelector('svg')).length"
    assert browser.run(bare) == 0
    browser.run("document.querySelector('.jumps a:last-child').click()")
    assert browser.run(shown) == ["board0", "board1"]
    assert browser.run("document.querySelector('#board1 .where').textContent").startswith("1 of")
    browser.look(width=1400, media="print")
    assert browser.run(printed) == "none"
    assert browser.errors == []


def test_the_first_screen_answers_and_the_rest_is_one_click_below(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    verdict = browser.run("document.querySelector('#board0 .verdict').textContent")
    assert "rl_focal_sequential (100.0" in verdict
    table = "document.querySelector('#board0 .scroll table')"
    assert browser.run(f"{table}.getBoundingClientRect().bottom") < 700
    assert browser.run(
        "document.querySelector('#board0-figure-cost svg').getBoundingClientRect().width > 1000"
    )
    assert not browser.run(f"{MODELS_TABLE}.checkVisibility()")
    browser.run("[...document.querySelectorAll('.jumps a')].find(a => a.hash === '#board0-models').click()")
    browser.wait(f"{MODELS_TABLE}.checkVisibility()")


def test_everything_is_reached_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, width=1400)
    browser.draw_all()
    seen = []
    for _ in range(400):
        press(browser, "Tab", 9)
        at = browser.run(FOCUSED)
        seen.append(at[0])
        if at[1] == "Next":
            break
    assert seen[0] == "a.skip"
    assert {"input", "summary", "button", "select#board", "div.scroll", "div.chart"} <= set(seen)
    assert seen.count("div.chart") == browser.run("document.querySelectorAll('#board0 .chart').length")
    where = "document.querySelector('#board0 .where').textContent"
    assert browser.run(where).startswith("1 of")
    press(browser, "Enter", 13)
    assert browser.run(where).startswith("2 of")
    header = f"{MODELS_TABLE}.tHead.rows[0].cells[1]"
    browser.run(f"{header}.querySelector('button').focus()")
    press(browser, "Enter", 13)
    assert browser.run(f"{header}.getAttribute('aria-sort')") == "descending"


@pytest.mark.parametrize(("dark", "width"), [(False, 390), (True, 1400)])
def test_axe_finds_nothing(browser: Browser, page: Path, axe: str, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    browser.draw_all()
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.run(f"{axe}; true")
    rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
    told = "r.violations.map((v) => [v.id, v.help, ...v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200))])"
    violations, n_passed = browser.run(f"axe.run(document, {rules}).then((r) => [{told}, r.passes.length])")
    assert violations == []
    assert n_passed > 20


def press(browser: Browser, key: str, code: int) -> None:
    """One key, as a reader would."""
    about = {"key": key, "code": key, "windowsVirtualKeyCode": code} | (
        {"text": "\r"} if key == "Enter" else {}
    )
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, **about)


def change(element: str, value: str, event: str = "change") -> str:
    """A script that enters a value as a reader would."""
    return f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('{event}')); }})({element})"


MODELS_TABLE = "document.getElementById('board0-models').closest('details').querySelector('table')"
FOCUSED = """((e) => [
  e.tagName.toLowerCase() + (e.id ? '#' + e.id : e.classList[0] ? '.' + e.classList[0] : ''), e.textContent
])(document.activeElement)"""
BEYOND = """[...document.body.querySelectorAll('*')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .filter(e => !e.closest('.scroll, .chart, .columns, .jumps'))
  .map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 30)).slice(0, 5)"""

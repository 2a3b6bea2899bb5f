"""`rlfocal explore`: a real marimo server on loopback, looked at in a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.browser import chromium
from support.cli import Cli
from support.postgres_server import PostgresServer
from support.rows import put_choices, put_extractions
from support.servers import free_port, wait_until_open

from rlfocal.base.errors import InputError
from rlfocal.evaluation import evaluate
from rlfocal.report import live
from warehouse import open_warehouse

N = 80
HOSTILE = "<img src=x onerror=alert(1)> $x^{$ **b** =1+1"
MODELS = {"modest": 3, "good": 5, HOSTILE: 7}
ALL = """((root) => {
  const all = (of) => [...of.querySelectorAll('*')]
    .flatMap((e) => [e, ...(e.shadowRoot ? all(e.shadowRoot) : [])]);
  return all(root);
})(document)"""
"""The elements of a page, those of components included."""
EVERYTHING = (
    f"{ALL}.flatMap((e) => [...e.childNodes].filter((n) => n.nodeType === 3)).map((n) => n.data).join(' ')"
)


def pressed(label: str) -> str:
    """A script that presses a button, wherever it is, and says whether there was one."""
    is_it = f"e.tagName === 'BUTTON' && e.textContent.trim() === {json.dumps(label)}"
    return f"((e) => {{ e?.click(); return Boolean(e); }})({ALL}.find((e) => {is_it}))"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one benchmark that is evaluated, and one where a model lacks answers."""
    path = tmp_path_factory.mktemp("explore") / "warehouse"
    with open_warehouse(path) as warehouse:
        for name in ("first", "second"):
            rights = {model: [i % by != 0 for i in range(N)] for model, by in MODELS.items()}
            put_choices(warehouse, rights, benchmark=name)
        evaluate(warehouse, "first", methods=["best_single", "plurality"], seeds=1)
        put_extractions(warehouse)
        lacking = "DELETE FROM choice_logprobs WHERE benchmark = 'second' AND model = 'good' AND doc_id < 8"
        warehouse.connection.execute(lacking)
    return path


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[str]:
    """The address that the command prints, run where modules of the user's own lie."""
    start = place.parent / "script" / "start.py"
    start.parent.mkdir()
    start.write_text("from rlfocal.cli import main; main()")
    for name in ("warehouse", "altair", "queue"):
        (place.parent / f"{name}.py").write_text("raise RuntimeError('a module of the user')")
    port = free_port()
    options = ["explore", "--warehouse", str(place), "--headless", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, start, *options],
        cwd=place.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            wait_until_open(port)
            yield address
        finally:
            server.kill()


@pytest.mark.slow
def test_the_notebook_shows_the_warehouse_as_it_is_kept(served: str, place: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        browser.look(width=1400)
        browser.call("Page.navigate", url=served)
        for part in ("Leaderboard", "plurality", "focal_diversity", "nothing is missing", HOSTILE):
            browser.wait(f"{EVERYTHING}.includes({json.dumps(part)})", seconds=240)
        browser.wait(pressed("Run"))
        browser.wait(f"{EVERYTHING}.includes('6 rows')")
        with open_warehouse(place) as warehouse:
            [(accuracy,)] = warehouse.rows(
                "SELECT 100 * accuracy FROM current_evaluations WHERE method = 'plurality' AND task = '*'"
            )
            put_choices(warehouse, {"late": [True] * N}, benchmark="third")
            put_extractions(warehouse)
            snapshot = warehouse.snapshot()
        assert f"{accuracy:.2f}" in browser.run(EVERYTHING)
        assert f"snapshot {snapshot}" not in browser.run(EVERYTHING)
        browser.run("document.querySelector('marimo-refresh').shadowRoot.querySelector('button').click()")
        browser.wait(f"{EVERYTHING}.includes('snapshot {snapshot}')")
        assert [error for error in browser.errors if "preload" not in error] == []
        assert all(url.split("/")[2].startswith(("localhost:", "127.0.0.1:")) for url in browser.requests)


def test_who_does_not_know_the_password_sees_nothing(served: str) -> None:
    with urlopen(served.partition("?")[0]) as answer:
        assert "/auth/login" in answer.url


def test_what_is_missing_is_listed_and_statements_only_read(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", str(place))
    second = live.benchmark("second")
    assert second.boards == ()
    assert second.missing == [{"model": "good", "task": "t", "answered": N - 8, "documents": N}]
    assert second.coverage is not None
    assert "1 cell of 3" in second.coverage.caption
    [row] = live.pool_statistics("first", ["modest", "good"])
    with open_warehouse(place, read_only=True) as warehouse:
        [(diversity,)] = warehouse.rows(
            "SELECT focal_diversity FROM pool_diversity('first', ['modest', 'good'], split := 'test')"
        )
    assert row["focal_diversity"] == pytest.approx(diversity, abs=1e-4)
    assert live.query("SELECT 1 AS a, 2 AS a") == ([{"a": 1, "a:2": 2}], "1 row")
    assert live.query("FROM range(20_000)")[1] == "20,000 rows, of which the first 10,000 are shown"
    with pytest.raises(InputError, match="only reads"):
        live.query("DROP TABLE docs")


def test_a_warehouse_in_postgres_is_read(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{postgres.database()}?data={tmp_path / 'data'}"
    with open_warehouse(address) as warehouse:
        put_choices(warehouse, {model: [i % by != 0 for i in range(N)] for model, by in MODELS.items()})
        put_extractions(warehouse)
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", address)
    seen = live.overview()
    assert seen.benchmarks == ("b",)
    assert postgres.password not in seen.name
    assert set(live.benchmark("b").models) == set(MODELS)
    assert live.query("FROM accuracy")[1] == "3 rows"


def test_what_is_wrong_is_said_in_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = cli("explore", "--headless")
    assert lacking.code == 2
    assert "no warehouse" in lacking.err
    monkeypatch.setattr("rlfocal.cli.explore.find_spec", lambda name: None)
    without = cli("explore")
    assert (without.code, without.err.strip().count("\n")) == (2, 0)
    assert "pip install 'rlfocal[explore]'" in without.err

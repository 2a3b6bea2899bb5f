"""Computes results if `--data` is given, marks those of earlier revisions, and writes all into the pages."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.results.gains import write_gains
from benchmarks.results.making import import_data, make, mark, remake
from benchmarks.results.pages import PAGES, RESULTS, fill_page
from benchmarks.results.plan import RESULTS_OF
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.extraction.running.runner import cores
from warehouse import open_warehouse


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="NAME-docs.parquet and NAME-scores.parquet")
    parser.add_argument("--warehouse", default=".rlfocal/results", help="where runs are kept and resumed")
    parser.add_argument("--only", default="", metavar="NAME,...", help="results to make; default: all")
    parser.add_argument("--methods", default="", metavar="NAME,...", help="methods to run; default: all")
    given = parser.parse_args()
    if given.data is not None:
        wanted = [name for name in given.only.split(",") if name] or list(RESULTS_OF)
        for name in wanted:
            if name not in RESULTS_OF:
                raise unknown_name("results", name, RESULTS_OF)
        with open_warehouse(given.warehouse) as warehouse:
            import_data(warehouse, given.data)
            for name in wanted:
                about = warehouse, RESULTS_OF[name], RESULTS / f"{name}.json"
                methods = [method for method in given.methods.split(",") if method]
                seconds = remake(*about, methods, cores()) if methods else make(*about, cores())
                print(f"{name}: {seconds:.0f} s of fitting and deciding", flush=True)
    for path in sorted(RESULTS.glob("*.json")):
        if old := mark(path):
            print(f"{path.name}: marked as of an earlier revision: {', '.join(old)}")
    write_gains(RESULTS / "labels.json")
    for page in PAGES:
        page.write_text(fill_page(page), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

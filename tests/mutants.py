"""`make mutants`: breaks a line of agents, GPU placement or extraction at a time, and sees a fast test fail.

Every mutant is applied alone to a copy of the tree, where the tests named for it have to fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from support.wrong_lines import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 300


def main() -> int:
    """Prints what became of each mutant; 1 if one survived. Arguments: parts of the names to try alone."""
    chosen = [m for m in MUTANTS if not sys.argv[1:] or any(part in m.name for part in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("rlfocal", "warehouse", "flows", "tests", "pools", "benchmarks"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests.split())
        if not passes(copy, " ".join(tests)):
            print("the tests fail on the tree as it is")
            return 1
        survivors = [mutant.name for mutant in chosen if not is_killed(copy, mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    return int(bool(survivors))


def is_killed(copy: Path, mutant: Mutant) -> bool:
    """Whether every test named for it fails; the copy is left as it was."""
    file = copy / mutant.file
    before = file.read_text()
    if before.count(mutant.right) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.right!r} is not there once in {mutant.file}")
    file.write_text(before.replace(mutant.right, mutant.wrong))
    left = [test for test in mutant.tests.split() if passes(copy, test)]
    file.write_text(before)
    print(f"survived {left}" if left else "killed", mutant.name, sep=": ", flush=True)
    return not left


def passes(copy: Path, tests: str) -> bool:
    """Whether these tests pass in the copy."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        + [f"tests/{test}" for test in tests.split()],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=MOST_SECONDS,
    )  # fmt: skip
    # A mutant that cannot be run proves nothing of the tests.
    if run.returncode not in (0, 1) or re.search(r"\d+ error", run.stdout):
        raise SystemExit(run.stdout + run.stderr)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

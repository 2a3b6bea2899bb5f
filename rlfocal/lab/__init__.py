"""The embedded pool: twelve tiny language models, trained from scratch on five generated benchmarks.

The weights ship with the package; `build` makes them again from their seed.
"""

from rlfocal.lab.building import build
from rlfocal.pool.hub import BENCHMARKS_FILE, TASKS_DIR, WEIGHTS_DIR, weights_dir

__all__ = ["BENCHMARKS_FILE", "TASKS_DIR", "WEIGHTS_DIR", "build", "weights_dir"]

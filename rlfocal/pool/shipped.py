"""Where the files of the embedded pool lie, which `rlfocal.lab` makes: weights, lm-eval tasks, benchmarks."""

from __future__ import annotations

from pathlib import Path

from rlfocal.base.errors import unknown

_LAB = Path(__file__).parents[1] / "lab"
WEIGHTS_DIR = _LAB / "weights"
TASKS_DIR = _LAB / "tasks"
BENCHMARKS_FILE = _LAB / "benchmarks.yaml"


def weights_dir(model: str, root: Path = WEIGHTS_DIR) -> Path:
    """The Hugging Face folder of a model of the embedded pool; an unknown model is an InputError."""
    known = sorted(path.parent.name for path in root.glob("*/config.json"))
    if model not in known:
        raise unknown("lab model", model, known, str(root))
    return root / model

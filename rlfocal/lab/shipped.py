"""Where the embedded pool's files lie: weights, lm-eval tasks, benchmarks."""

from __future__ import annotations

from pathlib import Path

from rlfocal.errors import unknown

WEIGHTS_DIR = Path(__file__).parent / "weights"
TASKS_DIR = Path(__file__).parent / "tasks"
BENCHMARKS_FILE = Path(__file__).parent / "benchmarks.yaml"


def weights_dir(model: str, root: Path = WEIGHTS_DIR) -> Path:
    """The Hugging Face folder of a model of the embedded pool; an unknown model is an InputError."""
    known = sorted(path.parent.name for path in root.glob("*/config.json"))
    if model not in known:
        raise unknown("lab model", model, known, str(root))
    return root / model

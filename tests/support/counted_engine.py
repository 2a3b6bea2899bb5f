"""Imported into an extraction's processes: every document that an engine is asked goes into a file.

The environment variable COUNTED names it. A line is a model, a tab, and a digest of the document's prompts.
COUNTED_SECONDS is how much longer each shard takes, for processes that are to meet on a busy machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines import hf

_load = hf.load


def load(model: Any, *rest: Any) -> Any:
    engine = _load(model, *rest)
    for name in ("score", "sample"):
        setattr(engine, name, _counted(model.model, getattr(engine, name)))
    return engine


def _counted(model: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    def counted(documents: Sequence[Document], *rest: Any) -> Any:
        prompts = (repr((d.context, d.continuations, d.question)) for d in documents)
        lines = "".join(f"{model}\t{sha256(text.encode()).hexdigest()}\n" for text in prompts)
        with open(os.environ["COUNTED"], "a", buffering=len(lines) + 1) as file:  # noqa: PTH123
            file.write(lines)  # one write, so that lines of several processes do not mix
        time.sleep(float(os.environ.get("COUNTED_SECONDS", "0")))
        return ask(documents, *rest)

    return counted


hf.load = load  # type: ignore[assignment]

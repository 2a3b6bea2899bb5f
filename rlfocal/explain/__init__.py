"""What trained agents learned, said to people: whom they ask, believe and could do without, on test rows."""

from __future__ import annotations

from rlfocal.explain.findings import Explanation
from rlfocal.explain.running import explain

__all__ = ["Explanation", "explain"]

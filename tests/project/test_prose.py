"""The pages: every link leads somewhere, sentences and pages are short."""

from __future__ import annotations

from pathlib import Path

import prose
import pytest


@pytest.mark.parametrize(
    "page", [*prose.PAGES, *prose.TABLES], ids=lambda page: str(page.relative_to(prose.ROOT))
)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in prose.targets(page):
        path, _, anchor = target.partition("#")
        if "://" in path or target.startswith("mailto:"):
            continue
        at = (page.parent / path).resolve() if path else page
        if not at.exists() or (anchor and anchor not in prose.anchors(at)):
            broken.append(target)
    assert not broken

"""The pages: every link leads somewhere, sentences and pages are short."""

from __future__ import annotations

import re
from pathlib import Path

import prose
import pytest


@pytest.mark.parametrize(
    "page", sorted({*prose.PAGES, *prose.TABLES}), ids=lambda page: str(page.relative_to(prose.ROOT))
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
    if page.name != "contributing.md":  # which names files that its readers write
        assert not [name for name in prose.named_files(page) if not (prose.ROOT / name).exists()]


@pytest.mark.parametrize("page", prose.PAGES, ids=lambda page: str(page.relative_to(prose.ROOT)))
def test_sentences_are_short(page: Path) -> None:
    long = [one for one in prose.sentences(page) if one.words > prose.MAX_SENTENCE_WORDS]
    assert not long, "`python tests/prose.py` lists the longest sentences"


def test_pages_are_few_words() -> None:
    """Tables that are looked up, and what happened, have pages of their own: docs/tables, CHANGELOG.md."""
    assert sum(map(prose.count_words, prose.COUNTED)) <= prose.MAX_WORDS
    assert prose.count_words(prose.README) <= prose.MAX_README_WORDS


def test_the_glossary_is_short_and_defines_each_word_once() -> None:
    text = (prose.ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^ |-]", text, re.MULTILINE)
    terms = [term for row in rows for term in row.split(", ")]
    assert 0 < len(terms) <= prose.MAX_TERMS
    assert len(set(terms)) == len(terms)


def test_sentences_are_counted_as_a_reader_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\n<!-- a comment. -->Run `a b c`, by Doe et al. now. Then [stop\nhere](x.md#y).\n\n"
        "- One\n  item. 90 % are two.\n\n| a cell | another one |\n|---|---|\n\n```bash\nnot this\n```\n"
    )
    assert [one.words for one in prose.sentences(page) if one.words] == [2, 7, 3, 2, 3, 2, 2]
    assert prose.targets(page) == ["x.md#y"]
    assert prose.anchors(page) == {"a-title"}

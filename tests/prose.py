"""The prose of the pages: words, sentences and links.

`python tests/prose.py` prints how many words each page has, and its twenty longest sentences.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
COUNTED = (README, ROOT / "warehouse" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""What the limit of words is for: everything in them, code and tables too, but no comments."""
TABLES = (*sorted((ROOT / "docs" / "tables").glob("*.md")), ROOT / "warehouse" / "COLUMNS.md")
"""Looked up, not read: tables made by scripts, and measurements."""
OTHERS = ("CONTRIBUTING.md", "SECURITY.md", "rivals/README.md", "docs/tables/measured.md")
PAGES = (*COUNTED, *(ROOT / name for name in OTHERS))
"""Those whose sentences are held to a length."""
MAX_WORDS, MAX_README_WORDS, MAX_SENTENCE_WORDS, MAX_TERMS = 24_000, 900, 30, 60

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`+[^`]+`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)|(?<=\|)\n")
_START = re.compile(r"^\s*(?:[-*>]|\d+\.|#+)\s+")
_END = re.compile(r"(?<=[.!?])[*_\")]*\s+(?=[*_\"(]*[^\sa-z*_\"(])")
_ABBREVIATIONS = ("e.g.", "i.e.", "et al.", "vs.", "Eq.")


class Sentence(NamedTuple):
    words: int
    page: str
    text: str


def count_words(page: Path) -> int:
    """Words of a page as `wc -w` counts them, without comments."""
    return len(_COMMENT.sub("", page.read_text("utf-8")).split())


def sentences(page: Path) -> list[Sentence]:
    """The sentences of a page's paragraphs, items and cells; a span of code is one word, a block none."""
    text = _FENCE.sub("\n\n", _COMMENT.sub("", page.read_text("utf-8")))
    text = _LINK.sub(r"\1", _CODE.sub("CODE", text))
    name = page.relative_to(ROOT).as_posix()
    found = []
    for block in _BLOCK.split(text):
        cells = block.strip().strip("|").split(" | ") if block.strip().startswith("|") else [block]
        for cell in cells:
            for sentence in _split(_START.sub("", " ".join(cell.split()))):
                n_words = sum(any(letter.isalnum() for letter in word) for word in sentence.split())
                found.append(Sentence(n_words, name, sentence))
    return found


def _split(text: str) -> list[str]:
    for word in _ABBREVIATIONS:
        text = text.replace(word, word.replace(".", "\0"))
    return [part.replace("\0", ".") for part in _END.split(text) if part.strip()]


def targets(page: Path) -> list[str]:
    """What a page links to, outside its blocks of code."""
    return [found[1] for found in _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))]


def named_files(page: Path) -> set[str]:
    """The files of the repository that a page names."""
    return set(re.findall(r"`((?:rlfocal|tests|flows|benchmarks)/[\w/]+\.\w+)`", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def main() -> None:
    for page in COUNTED:
        print(f"{count_words(page):6d}  {page.relative_to(ROOT)}")
    print(f"{sum(map(count_words, COUNTED)):6d}  in all, of at most {MAX_WORDS}\n")
    chosen = [page for page in PAGES if not sys.argv[1:] or page.name in sys.argv[1:]]
    for one in sorted((s for page in chosen for s in sentences(page)), reverse=True)[:20]:
        print(f"{one.words:3d}  {one.page}: {one.text}")


if __name__ == "__main__":
    main()

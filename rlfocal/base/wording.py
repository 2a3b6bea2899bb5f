"""Counts in words."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """`n` of a regular noun.

    >>> counted(1, "model"), counted(1200, "model")
    ('1 model', '1,200 models')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"

"""Printed text without its line breaks."""

from __future__ import annotations


def unbroken(text: str) -> str:
    """The words with one blank between them."""
    return " ".join(text.split())

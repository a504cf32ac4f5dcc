"""Pages as HTML: one self-contained file, or a fragment for a notebook."""

SUFFIXES = (".html", ".htm")
"""Endings of a page's name."""

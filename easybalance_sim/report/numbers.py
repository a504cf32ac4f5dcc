"""Shares, rates and times as people read them; None is a dash. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Callable


def share(value: float | None) -> str:
    """0.123 → `12.3 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"


def rate(value: float | None) -> str:
    """Three digits, or all before the point."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def tenths(value: float | None) -> str:
    """`1,234.5`."""
    return "–" if value is None else f"{value:,.1f}"


def milliseconds(value: float | None) -> str:
    """Of milliseconds: `12.3 ms`."""
    return "–" if value is None else f"{value:,.0f} ms" if value >= 100 else f"{value:,.1f} ms"


def microseconds(value: float | None) -> str:
    """Of microseconds: `1,234 µs`."""
    return "–" if value is None else f"{value:,.0f} µs" if value >= 100 else f"{value:,.1f} µs"


def times(value: float | None) -> str:
    """A ratio: `1.23 ×`."""
    return "–" if value is None else f"{value:.2f} ×"


def slug(words: str) -> str:
    """A name for files and anchors: small letters, digits and `_`."""
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "x"


def percent(change_frac: float) -> str:
    """0.0123 → `+1.2 %`; no sign where it rounds to nothing."""
    text = f"{100 * change_frac:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def moved(old: float | None, new: float | None, form: Callable[[float | None], str]) -> str:
    """What changed, in percent, of shares in points; a dash where both read alike or one is not known."""
    if old is None or new is None or form(old) == form(new):
        return "–"
    if form is share:
        return f"{100 * (new - old):+.1f} pt"
    return percent(new / old - 1) if old else "new"

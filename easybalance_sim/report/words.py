"""Numbers, changes and names as people read them, the same on the terminal and on a page; None is a dash. Imports
nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

UNKNOWN = "not known (say --model)"


def many(count: int, noun: str) -> str:
    """1 rank, 8 ranks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def capital(text: str) -> str:
    """The same words, the first letter a capital."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A capital and a full stop for what is a line on the terminal."""
    return f"{capital(text)}."


def percent(change_frac: float) -> str:
    """0.0123 → `+1.2 %`; no sign where it rounds to nothing."""
    text = f"{100 * change_frac:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def change(old: float, new: float) -> str:
    """+3.0 %, – where nothing changes, `new` from nothing."""
    if old == new:
        return "–"
    return percent(new / old - 1) if old else "new"


def moved(old: float | None, new: float | None, form: Callable[[float | None], str]) -> str:
    """What changed, in percent, of shares in points; a dash where both read alike or one is not known."""
    if old is None or new is None or form(old) == form(new):
        return "–"
    if form is share:
        return f"{100 * (new - old):+.1f} pt"
    return change(old, new)


def course(old: float, new: float, form: str = "{:.3f}") -> str:
    """`falls from 2.296 to 1.528`, `rises from … to …`, `stays at …` where both look alike; form: with the unit."""
    before, after = form.format(old), form.format(new)
    if before == after:
        return f"stays at {before}"
    return f"{'falls' if new < old else 'rises'} from {before} to {after}"


def listed(names: list[str], most: int = 3) -> str:
    """`a, b and c`; of more than `most` the first ones and how many others there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def duration(seconds: float) -> str:
    """In s, ms or µs."""
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def size(value: float | None) -> str:
    """Bytes in GB, MB, kB or B; `UNKNOWN` for None."""
    if value is None:
        return UNKNOWN
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:,.1f} {name}"
    return f"{value:,.0f} B"


def band_words(band: float) -> str:
    """The error band of a cost model, ±37 %; 0 = nothing was measured that it could be told from."""
    return f"±{100 * band:.0f} %" if band else "not known"


def trusted(cost: Mapping[str, Any]) -> str:
    """What the seconds of two plans can be trusted for. cost: the cost model's `label` and `band_p90`."""
    return (
        f"seconds by {cost['label']}, error band {band_words(cost['band_p90'])} for both plans alike: trust ratios, "
        "not figures"
    )


def amount(count: float) -> str:
    """A count in few digits: whole below ten million, then as 12.3 M or 4.56 G."""
    for least, unit, name in ((1e9, 1e9, "G"), (1e7, 1e6, "M")):
        if abs(count) >= least:
            units = count / unit
            return f"{units:,.0f} {name}" if abs(units) >= 100 else f"{units:.3g} {name}"
    return f"{count:,.0f}"


def share(value: float | None) -> str:
    """0.123 → `12.3 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"


def portion(value: float) -> str:
    """A share in whole percent, 0.123 → `12 %`; what is not quite all or none keeps a digit that says so, `99.6 %`."""
    for digits in range(4):
        text = f"{100 * value:.{digits}f}"
        if value in (0, 1) or 0 < float(text) < 100:
            break
    return f"{text} %"


def rate(value: float | None) -> str:
    """Three digits, or all before the point; many as an `amount`."""
    return "–" if value is None else amount(value) if abs(value) >= 100 else f"{value:.3g}"


def tenths(value: float | None) -> str:
    """`1,234.5`."""
    return "–" if value is None else f"{value:,.1f}"


def rounded(value: float | None) -> str:
    """`1,234`, below a hundred `12.3`."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def milliseconds(value: float | None) -> str:
    """Of milliseconds: `12.3 ms`."""
    return "–" if value is None else f"{rounded(value)} ms"


def microseconds(value: float | None) -> str:
    """Of microseconds: `1,234 µs`."""
    return "–" if value is None else f"{rounded(value)} µs"


def times(value: float | None) -> str:
    """A ratio: `1.23 ×`."""
    return "–" if value is None else f"{value:.2f} ×"


def slug(words: str) -> str:
    """A name for files and anchors: small letters, digits and `_`. Not unique: words of other scripts leave nothing."""
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "x"


def value_at(section: Mapping[str, Any], path: str) -> float | None:
    """The number at `a.b.c`, None where there is none."""
    value: Any = section
    for key in path.split("."):
        value = value[key]
    return None if value is None else float(value)

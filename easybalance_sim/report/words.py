"""Numbers as people read them, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

UNKNOWN = "not known (say --model)"


def many(count: int, noun: str) -> str:
    """1 rank, 8 ranks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def change(old: float, new: float) -> str:
    """+3.0 %, – where nothing changes, `new` from nothing."""
    if old == new:
        return "–"
    return f"{100 * (new / old - 1):+.1f} %" if old else "new"


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

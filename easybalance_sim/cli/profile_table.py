"""What `ebsim profile fit` and `import` print: text for people, one object for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.cli.layout import aligned, filled, kept

if TYPE_CHECKING:
    from easybalance_sim.profiling.collectives import LookUp
    from easybalance_sim.profiling.imported import Fit, Imported

_HEAD = ("error", "mean", "median", "p90")
_NAMES = _HEAD[1:]


def text_of_import(found: Imported) -> str:
    """Numbers and errors of each fit, the errors of each look-up table."""
    parts = list(map(_fit_lines, found.fits))
    if found.look_ups:
        rows = [("looked up, rows held out", *_NAMES), *map(_look_up_line, found.look_ups)]
        parts.append(aligned(rows))
    return "\n\n".join(parts) or filled(
        "a table of the expert part under balanced loads: the formula is anchored on it"
    )


def of_import(found: Imported, written: Path | None) -> dict[str, Any]:
    """The documented JSON; written: the profile's file, None where none was."""
    return {
        "profile": found.profile.name,
        "profile_file": None if written is None else str(written),
        "fits": [_fit(fit) for fit in found.fits],
        "tables": [
            {"name": one.name, "rows": len(one.table.us), "held_out_error": _named(_spread(one.held_out))}
            for one in found.look_ups
        ],
        "dropped": [{"rows": note.rows, "reason": note.reason} for note in found.dropped],
        "notes": list(found.notes),
    }


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "name": fit.name,
        "numbers": fit.numbers,
        "at_bound": list(fit.at_bound),
        "rows": fit.rows,
        "error": _named(fit.errors),
        "held_out": fit.group or None,
        "held_out_error": _named(fit.held_out),
    }


def _named(values: tuple[float, float, float] | None) -> dict[str, float] | None:
    """Shares, not %."""
    return None if values is None else {name: value / 100 for name, value in zip(_NAMES, values, strict=True)}


def _fit_lines(fit: Fit) -> str:
    numbers = " · ".join(kept(f"{name} {value:,.4g}") for name, value in fit.numbers.items())
    rows = [_HEAD, _errors("rows fitted", fit.errors)]
    if fit.held_out is not None:
        rows.append(_errors(f"held-out {fit.group}", fit.held_out))
    lines = [f"{fit.name}, {fit.rows:,} row{'s' * (fit.rows != 1)}", numbers]
    lines += [f"{' and '.join(fit.at_bound)} at the bound of 1: not identified"] if fit.at_bound else []
    return "\n".join([*map(filled, lines), aligned(rows)])


def _look_up_line(one: LookUp) -> tuple[str, ...]:
    values = _spread(one.held_out)
    return _errors(one.name, values) if values else (one.name, "–", "–", "–")


def _spread(errors: tuple[float, ...]) -> tuple[float, float, float] | None:
    import numpy as np

    if not errors:
        return None
    return float(np.mean(errors)), float(np.median(errors)), float(np.percentile(errors, 90))


def _errors(label: str, values: tuple[float, float, float]) -> tuple[str, ...]:
    return label, *(f"{value:.1f} %" for value in values)

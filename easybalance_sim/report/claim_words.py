"""What a capacity claim comes to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from easybalance_sim.report.words import band_words

Claim = Mapping[str, Any]


def untabled(lines: Iterable[str], claim: Claim) -> list[str]:
    """The lines that do not only say in words what a row of a table says."""
    rows = [rung["mechanism"] for rung in claim["rungs"]] + [one["name"] for one in claim["assumptions"]]
    return [line for line in lines if not any(line.startswith(f"{name}:") for name in rows)]


def holds(assumption: Claim) -> str:
    """Whether the claim does under an assumption, and with which mechanisms."""
    return "yes" if assumption["holds_lossless"] else "lossy only" if assumption["holds"] else "no"


def calibrated(claim: Claim) -> str:
    """Whether its seconds are, and how far they may err."""
    return f"not calibrated, error band {band_words(claim['band_p90'])}" if claim["reasons"] else "calibrated"

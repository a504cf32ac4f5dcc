"""What a search for rates comes to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Part = Mapping[str, Any]
ITSELF = "no other plan was taken"


def itself(report: Part) -> bool:
    """Whether a plan was held against itself: no candidate was taken in any pool, and its rates are the same."""
    plans, ends = report["plans"], report["highest_rate"]["stated"]
    same: bool = ends["before"]["rate_per_s"] == ends["after"]["rate_per_s"]
    return same and list(plans["before"]) == list(plans["after"])


def untold(report: Part) -> str:
    """Why two rates are no gain."""
    return ITSELF if itself(report) else f"not told apart, tolerance {100 * report['tolerance']:g} %"

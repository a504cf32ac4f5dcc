"""What a rollout comes to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Part = Mapping[str, Any]
WAYS = {"whole": "whole plan at once", "by-layer": "layer by layer", "in-place": "in place"}
STATUS = {"safe": "SAFE", "unsafe": "UNSAFE", "does-not-fit": "DOES NOT FIT", "unfinished": "NOT FINISHED"}
FITS = {None: "unknown", True: "yes", False: "NO"}
SHORT = 12
"""Digits of a fingerprint that are shown."""


def named(plan: Part) -> str:
    """A plan by its generation."""
    return f"generation {plan['generation']} ({plan['policy']}, {plan['fingerprint'][:SHORT]})"


def replaced(report: Part) -> str:
    """What the plan takes the place of."""
    old = report["current"]
    return "the engine's own placement" if old is None else named(old)


def group(protocol: Part) -> str:
    """How the group that was explored loads, and which guards it goes without."""
    how = "in place" if protocol["in_place"] else "with staging memory"
    return how + (f", without {', '.join(protocol['left_out'])}" if protocol["left_out"] else "")


def meant(report: Part) -> list[str]:
    """Of what safe or unsafe is said: nothing where that was not found out."""
    status = report["outcome"]["status"]
    if status not in ("safe", "unsafe"):
        return []
    how = "stop, load over the old experts" if report["protocol"]["in_place"] else "load beside the old experts"
    out = report["protocol"]["left_out"]
    without = f" (without {', '.join(out)})" if out else ""
    return [
        f"{STATUS[status]} is said of this protocol{without}: all ranks {how} and verify, the plan is published for a "
        "step that none has passed, the old one lives until its last step is over. Engines "
        "do not follow it by themselves"
    ]

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

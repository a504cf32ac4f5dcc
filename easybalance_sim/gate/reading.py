"""A report from its file, and its numbers by their JSON path, with errors that name it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from easybalance_sim.errors import CriteriaError

_REPORT = "give the object that `ebsim plan --format json` or `ebsim replay --format json` prints"


def read_report(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `CriteriaError` for anything else and for lossy settings."""
    fix = "give what `ebsim plan --format json` printed"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CriteriaError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (ValueError, RecursionError) as error:
        raise CriteriaError(f"not JSON: {error}", where=str(path), fix=fix) from error
    if not isinstance(report, dict):
        raise CriteriaError("the file holds no JSON object", where=str(path), fix=fix)
    if report.get("lossy") is True:
        raise CriteriaError("holds lossy router settings, which no gate judges", where=str(path), fix=fix)
    return report


def number(report: Mapping[str, Any], path: str, under: str = "") -> float:
    """The finite number at a path like "plan.step_us.p99"; under: path of `report` itself where it is a part of one.

    Raises `CriteriaError` naming the path.
    """
    found = value(report, path, under)
    as_float = _as_float(found)
    if not math.isfinite(as_float):
        raise CriteriaError(f"is {found!r}, expected a finite number", where=f"report {under}{path}", fix=_REPORT)
    return int(found) if isinstance(found, Integral) else as_float


def value(report: Mapping[str, Any], path: str, under: str = "") -> Any:
    """Whatever is at a path, as in `number`. Raises `CriteriaError` naming the part of it that is missing."""
    found: Any = report
    for depth, key in enumerate(parts := path.split(".")):
        if not isinstance(found, Mapping) or key not in found:
            raise CriteriaError("is missing", where=f"report {under}{'.'.join(parts[: depth + 1])}", fix=_REPORT)
        found = found[key]
    return found


def _as_float(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, Real):
        return math.nan
    try:
        return float(found)
    except OverflowError:
        return math.inf

"""What a saved file holds that a page can be made of: the JSON report of a command, or a plan file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.planfile import FORMAT, PlanDocument, read_plan

OTHERS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"lossy"}), "lossy router settings"),
    (frozenset({"physical_to_logical_map"}), "a placement for an engine"),
    (frozenset({"logical_to_physical_map"}), "a placement for an engine"),
    (frozenset({"initial_global_assignments"}), "a placement for an engine"),
    (frozenset({"moe_layer_count", "layer_list"}), "a placement for an engine"),
    (frozenset({"status", "findings"}), "a verdict of ebsim gate"),
    (frozenset({"steps", "moves"}), "a difference of two plans"),
    (frozenset({"correlation"}), "a comparison with measured times"),
)
"""Keys of what is no report, and what it is."""
PAGE = re.compile(rb"\s*<(?:!doctype|html)", re.IGNORECASE)
"""How an HTML file begins."""
_FIX = "give what a command printed with --format json, or a plan file"


def read_saved(path: Path) -> dict[str, Any]:
    """The JSON object of a report or of a plan file. Raises `UsageError` naming what else the file is, and a number in
    it that is not finite."""
    where = str(path)
    if path.is_dir():
        raise UsageError("is a folder, no report", where=where, fix=_FIX)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=where, fix="check the path") from error
    if content[:4] == b"PAR1":
        raise UsageError("is a trace, no report", where=where, fix="make a report of it: ebsim plan or ebsim replay")
    if PAGE.match(content):
        raise UsageError("is a page already, no report", where=where, fix=_FIX)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        kind = "is cut short, or no JSON" if content.lstrip()[:1] == b"{" else "is no JSON"
        raise UsageError(f"{kind}: {error}", where=where, fix=_FIX) from error
    if not isinstance(found, dict):
        raise UsageError("holds no JSON object", where=where, fix=_FIX)
    for keys, what in OTHERS:
        if keys <= set(found) and not found.get("verdict"):
            raise UsageError(f"is {what}, no report", where=where, fix=_FIX)
    if odd := next(_not_finite(found, ""), None):
        raise UsageError(f"{odd}, expected a finite number", where=where, fix="make the report again")
    return found


def _not_finite(part: Any, at: str) -> Iterator[str]:
    """Where numbers stand that no command writes, and what they are: `plan.step_us.p99 is nan`."""
    if isinstance(part, float) and not math.isfinite(part):
        yield f"{at} is {part}"
    elif isinstance(part, dict):
        for key, one in part.items():
            yield from _not_finite(one, f"{at}.{key}" if at else key)
    elif isinstance(part, list):
        for place, one in enumerate(part):
            yield from _not_finite(one, f"{at}[{place}]")


def is_plan(content: Mapping[str, Any]) -> bool:
    """Whether it is a plan file."""
    return content.get("format") == FORMAT


def report_of(path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The report that a file holds, as a command prints it; of a plan file, what it was accepted by.

    Raises `PlanError` for a plan file that is damaged or was never judged.
    """
    if is_plan(content):
        return report_of_plan(path, read_plan(path))
    if {"lint", "replay"} <= set(content):
        if content["replay"] is None:
            raise UsageError(
                "nothing was replayed: the plan file had errors", where=str(path), fix="mend the plan file"
            )
        return {**content["replay"], "notes": content.get("notes", [])}
    return content


def report_of_plan(path: Path, doc: PlanDocument) -> dict[str, Any]:
    """What a plan file was accepted by, as a report. Raises `PlanError` where it was never judged."""
    if not {"baseline", "plan", "cost"} <= set(doc.evidence):
        raise PlanError("the plan was never judged", where=str(path), fix="replay it: --trace TRACE")
    return {
        **doc.evidence,
        "verdict": doc.verdict,
        "migration": doc.migration,
        "maps": {"layers": list(doc.layer_ids), "replicas": [list(row) for row in doc.replica_counts]},
        "plan_file": str(path),
        "fingerprint": doc.fingerprint(),
        "notes": ["made of the plan file alone: maps of load and time need --trace"],
    }

"""What options may be: one line of an error of the package for everything else, before a file is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import easybalance_sim as ebs
from easybalance_sim.api.kinds import require_kind

TRACE = "there-is-none.parquet"


@pytest.mark.parametrize(
    ("function", "given", "options", "says"),
    [
        (ebs.plan, 5, {}, "traces: 5 is no path, nor several"),
        (ebs.plan, [5], {}, "traces: [5] is no path, nor several"),
        (ebs.plan, TRACE, {"policy": 3}, "policy: 3 is no name, nor several"),
        (ebs.plan, TRACE, {"split": 3}, "split: 3 is no text"),
        (ebs.plan, TRACE, {"criteria": 3}, "criteria: 3 is no path"),
        (ebs.plan, TRACE, {"held_out": "half"}, "held_out: 'half' is no number"),
        (ebs.plan, TRACE, {"window_steps": None}, "window_steps: None is no whole number"),
        (ebs.plan_phases, TRACE, {"policy": 3}, "policy: 3 is no name, nor several"),
        (ebs.replay, TRACE, {"plan": 7}, "plan: 7 is no plan, nor the path of one"),
        (ebs.sweep, TRACE, {"ranks": 2.5}, "ranks: 2.5 is no whole number of 1 to 1024"),
        (ebs.sweep, TRACE, {"redundancy": "0,1"}, "redundancy: '0' is no whole number"),
        (ebs.offload, TRACE, {"batch": [8, 0]}, "batch: 0 is no whole number of 1 or more"),
        (ebs.offload, TRACE, {"cached_share": "half"}, "cached_share: 'half' is no number, nor several"),
        (ebs.explain, "plan.json", {"layer": True}, "layer: True is no whole number"),
        (ebs.lint, 5, {}, "file: 5 is no plan, nor the path of one"),
        (ebs.lint, "map.json", {"engine": None}, "engine: None is no text"),
        (ebs.lint, "map.json", {"previous": 5}, "previous: 5 is no plan, nor the path of one"),
        (ebs.adopt, 5, {"file": "map.json"}, "engine: 5 is no text"),
        (ebs.adopt, "sglang", {"file": 5}, "file: 5 is no path"),
        (ebs.adopt, "sglang", {"file": "map.json", "layers": True}, "layers: True is no whole number of 0 or more"),
        (ebs.diff, "plan.json", {"new": 5}, "new: 5 is no plan, nor the path of one"),
        (ebs.diff, "plan.json", {"new": "plan.json", "staging_slots": None}, "staging_slots: None is no whole number"),
        (ebs.gate, 5, {}, "report: 5 is no report, nor the path of one"),
    ],
)
def test_what_is_of_another_kind_is_refused(
    function: Callable[..., Any], given: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ebs.UsageError) as refusal:
        function(given, **options)
    assert str(refusal.value).startswith(says)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("Traces", (Path("a"), "b")),
        ("Traces", iter(["a"])),
        ("Names", None),
        ("Numbers", np.array([1, 2])),
        ("int", np.int64(3)),
        ("float", 2),
        ("float | None", None),
        ("Steps", object()),
    ],
)
def test_what_is_meant_is_taken(annotation: str, value: Any) -> None:
    require_kind("option", annotation, value)


def test_nothing_is_no_value_where_something_is_needed() -> None:
    with pytest.raises(ebs.UsageError, match="option: None is no number"):
        require_kind("option", "float", None)

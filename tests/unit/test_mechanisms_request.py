"""What a run of mechanisms is refused for before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms.request import PARTS, OffsetRequest, controller_of, require_sound
from easybalance_sim.planning.session import Settings

PLAIN = OffsetRequest(settings=Settings(traces=(Path("trace.parquet"),)))


def test_a_plain_request_and_one_with_everything_that_fits_are_sound(tmp_path: Path) -> None:
    require_sound(PLAIN)
    require_sound(replace(PLAIN, controller="heat-max", gain=0.1, parts=PARTS, output=tmp_path / "offsets.json"))
    require_sound(replace(PLAIN, cap=1.0, choice_us=(("optimum", 0.0),), figure=tmp_path / "front.svg"))
    require_sound(replace(PLAIN, past=(Path("past.parquet"),), past_steps=(5, None), steps=(0, 9)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parts": ("magic",)}, "--part: 'magic' is not known"),
        ({"sensor_ms": 0.0}, "--sensor-ms: 0.0 is no positive number"),
        ({"step_ms": float("inf")}, "--step-ms: inf is no positive number"),
        ({"controller": "layer-P", "gain": float("nan")}, "--gain: nan is no positive number"),
        ({"gain": 0.1}, "a gain of which controller"),
        ({"controller": "P-layer"}, "no controller 'P-layer'"),
        ({"controller": "expert-sign"}, "sign has no safe gain"),
        ({"controller": "layer-P", "cap": 1.1}, "a controller or a cap, not both"),
        ({"cap": 0.99}, "a rank cap of 0.99"),
        ({"cap": float("nan")}, "a rank cap of nan"),
        ({"choice_us": (("magic", 1.0),)}, "--choice-us: 'magic' is not known"),
        ({"choice_us": (("optimum", float("nan")),)}, "nan µs for optimum"),
        ({"choice_us": (("optimum", 1.0),), "parts": ("queue",)}, "needs the part replicas"),
        ({"past_steps": (0, 9)}, "steps of which past"),
        ({"output": Path("x.json")}, "which mechanism is to be written"),
        ({"plan_output": Path("x.json"), "parts": ("queue",)}, "made by the part staggering"),
        ({"plan_output": Path("x.json"), "past": (Path("y"),)}, "first half of its own trace"),
        ({"plan_output": Path("x.svg"), "figure": Path("x.svg")}, "two results in one file"),
        ({"figure": Path("x.png")}, "not an .svg file"),
        ({"figure": Path("/nowhere/x.svg")}, "there is no folder /nowhere"),
    ],
)
def test_what_does_not_fit_together_is_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_sound(replace(PLAIN, **changes))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_what_a_run_reads_is_not_written_over(tmp_path: Path) -> None:
    trace, plan = tmp_path / "trace.parquet", tmp_path / "plan.json"
    for path in (trace, plan):
        path.touch()
    request = replace(PLAIN, settings=Settings(traces=(trace,)), plan=plan, past=(Path("past"),))
    assert request.inputs() == (trace, Path("past"), plan)
    for path in (trace, plan):
        with pytest.raises(UsageError, match="the run reads this file, it would be lost — choose another -o"):
            require_sound(replace(request, output=path, cap=1.1))


def test_controllers_are_a_signal_and_a_law() -> None:
    assert controller_of("layer-P") == ("layer", "P")
    assert controller_of("expert-sign") == ("expert", "sign")
    for name in ("", "layer", "layer-", "-P", "layer-p", "node-P", "layer-P-I"):
        with pytest.raises(UsageError, match="no controller"):
            controller_of(name)

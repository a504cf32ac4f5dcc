"""Options that only `offset` has, and its ranges of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.errors import UsageError

Traces = Annotated[
    list[Path] | None, typer.Argument(metavar="TRACE...", help="Token trace files or folders of one model.")
]
Plan = Annotated[
    Path | None, typer.Option("--plan", metavar="PLAN", help="The placement to act on [the engine's own, contiguous].")
]
Past = Annotated[
    list[Path] | None,
    typer.Option("--past", metavar="TRACE", help="Traffic that placements are made from [the trace's first half]."),
]
Steps = Annotated[
    str,
    typer.Option(
        "--steps", show_default=False, metavar="FIRST:END", help="Only these steps of TRACE; 100: = from 100 on [all]."
    ),
]
PastSteps = Annotated[
    str,
    typer.Option("--past-steps", show_default=False, metavar="FIRST:END", help="Only these steps of --past [all]."),
]
WarmUp = Annotated[int, typer.Option("--warm-up", metavar="N", min=0, help="First steps, in which sensors start.")]
SensorMs = Annotated[float, typer.Option("--sensor-ms", metavar="MS", min=0.001, help="Window that a sensor sums.")]
StepMs = Annotated[
    float | None,
    typer.Option("--step-ms", metavar="MS", min=0.001, help="Length of a step [as recorded, else 25]."),
]
Delay = Annotated[
    int, typer.Option("--delay", metavar="N", min=1, help="Steps until a count is known; 1 = the newest that ran.")
]
ControllerName = Annotated[
    str,
    typer.Option(
        "--controller",
        autocompletion=completing.controllers,
        show_default=False,
        metavar="SIGNAL-LAW",
        help="One router offset in place of the usual: layer, heat or expert, with P, I, PI, sign or max: layer-P.",
    ),
]
Gain = Annotated[
    float | None,
    typer.Option("--gain", metavar="G", help="Of the controller, in score units; refused near instability [safe]."),
]
Cap = Annotated[
    float | None,
    typer.Option(
        "--cap", metavar="C", help="In-step re-routing at C times the mean rank load, in place of the usual caps."
    ),
]
Parts = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        autocompletion=completing.parts,
        metavar="NAME",
        help="Only this part; may be repeated: sensing, feedback, rerouting, replicas, staggering, queue, admission "
        "[all; admission where there are several nodes].",
    ),
]
ChoiceUs = Annotated[
    list[str] | None,
    typer.Option(
        "--choice-us",
        metavar="RULE=µs",
        help="What choosing a replica by this rule is charged in a layer; may be repeated [a measured table].",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Simulate a gain that is refused.")]
Scenario = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="FILE.toml",
        help="A capacity claim instead of a trace: scenarios/easybalance-8xa100.toml is one.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE.json", help="The lossy file of --controller or --cap: no plan."),
]
StaggerOutput = Annotated[
    Path | None, typer.Option("--stagger-output", metavar="PLAN", help="The staggered plan, which is lossless.")
]
Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw the front.")]


def step_range(flag: str, text: str) -> tuple[int, int | None] | None:
    """First and end of "100:700", an end of None of "100:", None of "". Raises `UsageError` for anything else and for
    an empty range."""
    if not text:
        return None
    first, colon, end = text.partition(":")
    if not (colon and first.isascii() and first.isdigit() and end.isascii() and (end.isdigit() or not end)):
        fix = "write 100:700, the end not included, or 100: for all from there on"
        raise UsageError(f"{text!r} is no range of steps", where=flag, fix=fix)
    if not end:
        return int(first), None
    if int(first) >= int(end):
        raise UsageError(f"{text} holds no step", where=flag)
    return int(first), int(end)


def microseconds(texts: list[str] | None) -> tuple[tuple[str, float], ...]:
    """(rule, µs) of each "least-loaded=5". Raises `UsageError` for anything else and a rule that is named twice."""
    found: dict[str, float] = {}
    for text in texts or ():
        rule, equals, number = text.partition("=")
        try:
            value = float(number) if equals and rule not in found else None
        except ValueError:
            value = None
        if value is None:
            raise UsageError(f"{text!r} is no time of a rule", where="--choice-us", fix="write least-loaded=5, once")
        found[rule] = value
    return tuple(found.items())

"""Options that only `rebalance` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing

Current = Annotated[
    Path | None, typer.Option("--current", metavar="PLAN", help="The plan in force at the start [contiguous].")
]
First = Annotated[
    float, typer.Option(min=0.01, max=0.9, metavar="SHARE", help="Share of the windows that make the offline plan.")
]
Loops = Annotated[
    list[str] | None,
    typer.Option(
        "--loop",
        autocompletion=completing.loops,
        metavar="NAME",
        help="Only this loop; may be repeated: never, static, sglang, sglang-chunked, vllm, vllm-sync, "
        "tensorrt-llm, vllm-ascend, guarded [all].",
    ),
]
StepMs = Annotated[
    float,
    typer.Option(min=0.001, metavar="MS", help="Length of an engine step, where a trace tells seconds."),
]
OtherMs = Annotated[float, typer.Option(min=0.0, metavar="MS", help="Of a step outside the MoE layers.")]
PauseS = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="SECONDS", help="Measured stop of a synchronous re-plan [planning and links as estimated]."
    ),
]
Hours = Annotated[
    float,
    typer.Option(
        min=0.0,
        show_default=False,
        metavar="H",
        help="Stretch the windows: the trace lasts H hours [as recorded].",
    ),
]
ColdStart = Annotated[
    bool, typer.Option("--cold-start", help="Loops begin with the plan in force, not with the offline plan.")
]
MinGain = Annotated[
    float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="guarded: seconds that a new plan has to save.")
]
Confirm = Annotated[
    int, typer.Option(min=1, metavar="N", help="guarded: windows after it was made that have to speak for it.")
]
Certainty = Annotated[
    float,
    typer.Option(min=0.0, metavar="Z", help="guarded: standard errors by which its saving has to exceed its price."),
]
Cooldown = Annotated[int, typer.Option(min=0, metavar="WINDOWS", help="guarded: rest after a change.")]
MinInterval = Annotated[
    int, typer.Option(min=1, metavar="WINDOWS", help="guarded: between two changes, even when ranks suddenly run hot.")
]
Horizon = Annotated[
    int, typer.Option(min=1, metavar="WINDOWS", help="guarded: a first guess at how long a regime lasts.")
]
StepLimit = Annotated[
    float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="guarded: slots that one change may fetch.")
]
Sweep = Annotated[
    bool,
    typer.Option("--sweep", help="Try intervals and thresholds: chosen on the first half, judged on the second."),
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        autocompletion=completing.strata,
        metavar="KIND",
        help="Run each on its own: phase, workload, model-revision (of the files).",
    ),
]

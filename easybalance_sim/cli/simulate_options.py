"""Options that only `simulate` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO.toml", help="Model, cluster, requests, SLO (examples: scenarios/).")
]
After = Annotated[
    str,
    typer.Option(
        "--plan",
        autocompletion=completing.placements,
        show_default=False,
        metavar="PLAN|POLICY",
        help="What is served after: auto, a policy, a plan file [the scenario's].",
    ),
]
Before = Annotated[
    str,
    typer.Option(
        "--baseline",
        autocompletion=completing.placements,
        show_default=False,
        metavar="PLAN|POLICY",
        help="What it is held against, likewise.",
    ),
]
Trace = Annotated[
    list[Path] | None,
    typer.Option("--trace", metavar="TRACE", help="Routing from this token trace; may be repeated [the scenario's]."),
]
Arrivals = Annotated[
    list[str] | None,
    typer.Option(
        "--arrivals",
        metavar="[TENANT=]FILE",
        help="Requests from this file: Azure, Mooncake or arrival_s,prompt_tokens,output_tokens; may be repeated "
        "[the scenario's].",
    ),
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="R", help="Requests per second, by stretching time [as they come].")
]
Duration = Annotated[
    float | None, typer.Option("--duration", metavar="SECONDS", help="Requests that come until then [the scenario's].")
]
Overlap = Annotated[
    str,
    typer.Option(
        "--overlap",
        autocompletion=completing.served_overlaps,
        show_default=False,
        metavar="HOW",
        help="Communication behind compute: none or full; both ends are reported [the scenario's].",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Seed of every random choice [the scenario's]."),
]
TtftMs = Annotated[
    float | None, typer.Option("--ttft-ms", metavar="MS", help="SLO: time to the first token [the scenario's].")
]
TpotMs = Annotated[
    float | None, typer.Option("--tpot-ms", metavar="MS", help="SLO: mean time per further token [the scenario's].")
]

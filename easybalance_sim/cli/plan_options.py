"""Options that only `plan` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.errors import UsageError

Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", autocompletion=completing.policies, metavar="NAME", help="Only this policy; may be repeated [all]."
    ),
]
WindowSteps = Annotated[int, typer.Option("--window-steps", metavar="N", min=1, help="Steps per window.")]
Split = Annotated[
    str, typer.Option("--split", autocompletion=completing.splits, metavar="BY", help="time, request or workload.")
]
HeldOut = Annotated[float, typer.Option("--held-out", metavar="SHARE", help="Share that the planner does not see.")]
Forecast = Annotated[
    str,
    typer.Option(
        "--forecast", autocompletion=completing.forecasts, metavar="HOW", help="mean, last, ema-fast or ema-slow."
    ),
]
HalfLife = Annotated[
    float,
    typer.Option("--half-life", show_default=False, metavar="WINDOWS", min=0.0, help="Half-life of an ema [4 or 64]."),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        autocompletion=completing.objectives,
        metavar="WHAT",
        help="What a search balances: auto, tokens or seconds.",
    ),
]
BudgetS = Annotated[
    float,
    typer.Option(
        "--budget-s", show_default=False, metavar="SECONDS", min=0.0, help="Seconds each search may take [no limit]."
    ),
]
MaxMoves = Annotated[
    int | None, typer.Option("--max-moves", metavar="N", min=0, help="Experts that may be fetched, with --current.")
]
MaxMigrationBytes = Annotated[
    int | None,
    typer.Option(
        "--max-migration-bytes", metavar="BYTES", min=0, help="Weight bytes that may be fetched, with --current."
    ),
]
Dispatch = Annotated[
    str,
    typer.Option(
        "--dispatch",
        autocompletion=completing.dispatch_rules,
        metavar="RULE",
        help="How the engine picks a replica: even, sglang-static, sglang-dynamic, vllm, vllm-legacy, tensorrt-llm, "
        "ascend-v1 or ascend-v2.",
    ),
]
Current = Annotated[
    Path | None, typer.Option("--current", metavar="PLAN", help="The plan in force: baseline and candidate.")
]
LostRanks = Annotated[
    str | None,
    typer.Option("--lost-ranks", metavar="R,R", help="Ranks of --current that are gone: plan for those that are left."),
]
PerPhase = Annotated[
    bool, typer.Option("--per-phase", help="A plan for prefill and one for decode: -o plan.json → plan.decode.json.")
]
Force = Annotated[bool, typer.Option("--force", help="Write the plan whatever the verdict (it is inside).")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="PLAN", help="The plan file.")]


def ranks_of(text: str | None) -> tuple[int, ...]:
    """The ranks of "3,7"; none of None. Raises `UsageError` for what is no list of ranks."""
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{text!r} is no list of ranks", where="--lost-ranks", fix="write it as 3,7") from error

"""`ebsim explain`: why an expert has its replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import options
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")],
    layer: Annotated[int | None, typer.Option("--layer", metavar="L", help="This MoE layer, by its id.")] = None,
    expert: Annotated[
        int | None, typer.Option("--expert", metavar="E", help="This expert of the layer, and its replicas.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="R", help="This rank in all layers, or in --layer.")
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", metavar="TRACE", help="The plan's trace, for loads and what-ifs; may be repeated."),
    ] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Say why an expert has its replicas: its load, who holds it, beside whom, and what one fewer or more would do.

    Without --layer and --rank: who is replicated most, and which layers have most excess. A plan file holds no load; of
    the trace that it was made from, the part that it was made from is counted, of another one all. Exit 0.

    \b
    Example: ebsim explain plan.json --layer 7 --expert 26 \\
        --trace traces/tinymoe.parquet
    """
    from easybalance_sim.cli import explain_table
    from easybalance_sim.explaining.run import ExplainRequest, explain_plan

    console = Console()
    request = ExplainRequest(plan=plan, traces=tuple(trace or ()), layer=layer, expert=expert, rank=rank)
    answer = {**explain_plan(request, console), "notes": console.notes}
    emit(json_text(answer) if format is Format.JSON else explain_table.of(answer))

"""`ebsim trace convert`: recordings of other tools and layouts to one packed trace."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.cli.console import Console, emit, say_notes
from easybalance_sim.cli.layout import filled, kept
from easybalance_sim.cli.trace_output import facts_line, parse_layers


class Order(StrEnum):
    """How requests join the queue."""

    SHUFFLED = "shuffled"
    FILE = "file"
    BY_WORKLOAD = "by-workload"


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A recording: file or folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.parquet", help="The trace to write.")],
    concurrency: Annotated[int, typer.Option(help="Requests that run at once.")] = 128,
    order: Annotated[Order, typer.Option(help="How requests join the queue.")] = Order.SHUFFLED,
    arrivals: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Arrival times (column TIMESTAMP); default: no waiting.")
    ] = None,
    step_ms: Annotated[float, typer.Option(help="Length of a step on the arrival clock.")] = 25.0,
    ranks: Annotated[int, typer.Option(help="Source ranks that requests are dealt to in turn.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the shuffled order.")] = 0,
    drain: Annotated[bool, typer.Option(help="Keep the ramp-down, when slots stay empty.")] = False,
    midway: Annotated[bool, typer.Option(help="Meet the first requests midway, not all at their start.")] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=completing.models, help="Known model, or a config.json."),
    ] = None,
    layers: Annotated[str | None, typer.Option(metavar="IDS", help="MoE layer ids: 3-60 or 0,1,2.")] = None,
    experts: Annotated[int | None, typer.Option(min=1, help="Routed experts E.")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Experts per token K.")] = None,
    group_by: Annotated[str | None, typer.Option(metavar="COLUMN", help="Groups of a count table.")] = None,
) -> None:
    """Turn a recording into a packed trace.

    SRC is one of: routed tokens of single requests (request_id, token_pos, experts; no steps), which join a continuous
    batch of --concurrency slots, one decode token per request and step; a count table (layer, counts, and a text column
    that names groups), one count trace per group; or a trace in another layout (lists of ids, one row per layer).

    Without --arrivals the slots are always full: the end, when the queue has run out and slots stay empty, is left out
    unless --drain. The first requests start together; --midway meets each of them with a random share of its tokens
    done, as on a server that has been running. Exit 0 written.

    \b
    Example: ebsim trace convert traces/tinymoe.parquet -o packed.parquet

    \b
    Example: ebsim trace convert routed_tokens/ -o trace.parquet \\
        --model gpt-oss-20b --concurrency 128
    """
    from easybalance_sim.cluster.shapes import load_shape
    from easybalance_sim.trace.conversion import Conversion
    from easybalance_sim.trace.importers import find

    job = Conversion(
        source=source,
        output=output,
        concurrency=concurrency,
        order=order.value,
        arrivals=arrivals,
        step_s=step_ms / 1000,
        ranks=ranks,
        seed=seed,
        drain=drain,
        midway=midway,
        group_by=group_by,
        model=load_shape(model) if model else None,
        layers=parse_layers(layers),
        experts=experts,
        top_k=top_k,
        progress=Console().progress,
    )
    for written in find(source).convert(job):
        known = {name: getattr(written, name) for name in ("kind", "model", "tokens", "steps", "layers")}
        known |= {"experts": written.experts, "top_k": written.top_k}
        emit(filled(f"wrote {kept(written.path)}: {facts_line(known)}"))
        say_notes(written.notes)

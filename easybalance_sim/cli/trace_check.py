"""`ebsim trace check`: is this trace usable, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli.trace_output import Format, by_phase, by_workload, facts, facts_line, say_notes


def check(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Trace files or folders of one model.")],
    format: Annotated[Format, typer.Option("--format", help="How to print the result.")] = Format.TABLE,
) -> None:
    """Read every row once and say `ok`, or name the first fault: file, column, row and layer.

    Exit 0 ok, 2 for a trace that cannot be used.

    Example: ebsim trace check traces/tinymoe.parquet
    """
    from easybalance_sim.trace.dataset import TokenTrace, open_trace

    trace = open_trace(traces)
    scan = trace.check() if isinstance(trace, TokenTrace) else None
    known, notes = facts(trace, scan), scan.notes if scan else ()
    if format is Format.TABLE:
        typer.echo(f"ok {', '.join(str(path) for path in traces)}: {facts_line(known)}")
        say_notes(notes)
        return
    document = {"ok": True, "traces": [str(path) for path in traces], **known}
    document |= {"phases": by_phase(trace, scan), "workloads": by_workload(trace, scan), "notes": list(notes)}
    typer.echo(json.dumps(document, indent=2))

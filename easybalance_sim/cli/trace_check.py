"""`ebsim trace check`: is this trace usable, and what is in it."""

from __future__ import annotations

import json

from easybalance_sim.amounts import Amount
from easybalance_sim.cli.console import Console, Format, emit, say_notes
from easybalance_sim.cli.layout import filled, kept, worded
from easybalance_sim.cli.options import OutputFormat, Traces
from easybalance_sim.cli.trace_output import by_phase, by_workload, facts, facts_line


def check(
    traces: Traces,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Read every row once and say `ok`, or name the first fault: file, column, row and layer.

    Then: which what-ifs of `ebsim offset` it supports, and why not. Exit 0 ok, 2 for a trace that cannot be used.

    \b
    Example: ebsim trace check traces/tinymoe.parquet
    """
    from easybalance_sim.simulate.offsets.support import what_ifs
    from easybalance_sim.trace.dataset import TokenTrace, open_trace

    trace = open_trace(traces)
    scan = None
    if isinstance(trace, TokenTrace):
        scan = trace.check(Console().progress("check", Amount(trace.tokens, "tokens")))
    known, notes = facts(trace, scan), scan.notes if scan else ()
    possible = what_ifs(trace)
    if format is Format.TABLE:
        emit(filled(f"ok {', '.join(map(kept, traces))}: {facts_line(known)}"))
        emit(worded([(f"  {one.name}", "yes" if one.supported else "no", one.why) for one in possible], left=2))
        say_notes(notes)
        return
    document = {"ok": True, "traces": [str(path) for path in traces], **known}
    document |= {"phases": by_phase(trace, scan), "workloads": by_workload(trace, scan), "notes": list(notes)}
    document["what_ifs"] = [one.to_dict() for one in possible]
    emit(json.dumps(document, indent=2))

"""`ebsim trace`: make traces, look at them, check them."""

from __future__ import annotations

import typer

from easybalance_sim.cli.command import Group
from easybalance_sim.cli.trace_check import check
from easybalance_sim.cli.trace_convert import convert
from easybalance_sim.cli.trace_loads import loads
from easybalance_sim.cli.trace_summary import summary
from easybalance_sim.cli.trace_synthesise import synthesise

app = typer.Typer(
    name="trace",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make routing traces (convert, synthesise), look at them (summary), check them (check) "
    "and hand their loads to other simulators (loads).\n\nExit codes are those of `ebsim --help`.\n\n"
    "Example: ebsim trace summary traces/tinymoe.parquet",
)
for _command, _short in (
    (convert, "Turn a recording into a packed trace."),
    (synthesise, "Write a trace whose truth is known."),
    (check, "Say ok, or name the first fault."),
    (summary, "Is there skew, how much, how long?"),
    (loads, "Loads of every rank, for other simulators."),
):
    app.command(short_help=_short)(_command)

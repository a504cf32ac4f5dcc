"""All commands of `ebsim`, mounted."""

from __future__ import annotations

from typing import Annotated

import typer

from easybalance_sim import __version__
from easybalance_sim.cli import (
    adopt,
    capacity,
    compare,
    diff,
    explain,
    export,
    gate,
    history,
    import_,
    init,
    lint,
    offload,
    offset,
    plan,
    precheck,
    profile,
    rebalance,
    replay,
    report,
    rollout,
    simulate,
    sweep,
    trace,
)
from easybalance_sim.cli.command import Group

app = typer.Typer(
    name="ebsim",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(short_help="Write cluster, scenario and gate files for a model.")(init.init)
app.command(short_help="Make a plan and prove it on held-out traffic.")(plan.plan)
app.command(short_help="Judge a plan on recorded traffic.")(replay.replay)
app.command(short_help="How many redundant slots are worth their memory?")(sweep.sweep)
app.command(short_help="Make a page of a saved report.")(report.report)
app.command(short_help="Judge a saved report again.")(gate.gate)
app.command(short_help="Lint, replay and gate in one go, before deploying.")(precheck.precheck)
app.command(short_help="When to re-plan? Control loops side by side.")(rebalance.rebalance)
app.command(short_help="What else would balance, and what it would cost.")(offset.offset)
app.command(short_help="Experts in host memory: how many have to be on the GPU?")(offload.offload)
app.command(short_help="What requests get of a deployment, before and after a plan.")(simulate.simulate)
app.command(short_help="How many requests fit the SLO, and how many GPUs they need.")(capacity.capacity)
app.command(short_help="Measured rank times beside the predicted ones.")(compare.compare)
app.command(short_help="What changes between two plans, in safe steps.")(diff.diff)
app.command(short_help="Why does an expert have its replicas?")(explain.explain)
app.command(short_help="Is taking a plan into service safe, and does it fit?")(rollout.rollout)
app.command(short_help="Keep plans, verify them, go back to one.")(history.history)
app.command(short_help="Write a plan for a serving engine.")(export.export)
app.command(short_help="Make a plan file of what is deployed.")(adopt.adopt)
app.command(short_help="Check what an engine does not.")(lint.lint)
app.command("import", cls=import_.ImportCommand, short_help="Make a trace of what an engine recorded.")(import_.import_)
app.add_typer(profile.app, name="profile", short_help="What is measured of a GPU: list, fit, import.")
app.add_typer(trace.app, name="trace", short_help="Make traces, look at them, check them.")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ebsim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Plan where the experts of a Mixture-of-Experts model live, and prove the plan on traffic it was not made from.

    Exit codes: 0 accepted or ok · 1 rejected by the gate, or a difference · 2 bad input · 3 insufficient evidence · 70
    internal error · 130 interrupted.

    \b
    Example: ebsim plan traces/tinymoe.parquet -o plan.json
    """

"""`ebsim rollout`: taking a plan into service, with everything that may go wrong on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing, options, report_file, rollout_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text


def rollout(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file that is to be taken into service.")],
    current: Annotated[
        Path | None, typer.Option("--current", metavar="PLAN", help="The plan in force [the engine's own placement].")
    ] = None,
    faults: Annotated[
        str,
        typer.Option(
            "--faults",
            autocompletion=completing.faults,
            metavar="NAMES",
            help="pairs: each and any two; all: all in one history too (takes a minute); none; or names with commas.",
        ),
    ] = "pairs",
    ranks: Annotated[int, typer.Option("--ranks", metavar="N", min=1, max=4, help="Ranks of the small group.")] = 3,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=1, max=8, help="Steps that it serves.")] = 3,
    in_flight: Annotated[
        int, typer.Option("--in-flight", metavar="N", min=1, max=4, help="Steps that a rank may be ahead.")
    ] = 2,
    in_place: Annotated[bool, typer.Option("--in-place", help="Stop serving and load over the old experts.")] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out",
            autocompletion=completing.protocol_parts,
            metavar="PART",
            help="Show that it is needed: verify, checksum, dtype, revision, promise, stamps, fence or drain.",
        ),
    ] = None,
    walks: Annotated[
        int, typer.Option("--walks", metavar="N", min=0, max=10_000, help="Random orders on all ranks of the plan.")
    ] = 20,
    seed: options.Seed = 0,
    model: options.Model = "",
    profile: options.Profile = "",
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Take a plan into service in a simulation: what every rank loads, whether it fits, and every order of events.

    All ranks load and verify, the new generation is published at a boundary that none has passed, the old one lives
    until its last step is over. A small group goes through every order of events under each fault, the plan's own
    ranks through random ones. Exit 0 safe, 1 an invariant breaks or the memory is too small, 3 too many states.

    \b
    Example: ebsim rollout plan.json --faults checksum-mismatch,rank-restarts

    \b
    Example: ebsim rollout plan.json --faults none --in-place
    """
    from easybalance_sim.simulate.rollout.run import PAIRS, Request, faults_of, simulate_rollout

    console = Console()
    report_file.require(report, figures, [plan, current])
    request = Request(
        plan=plan, current=current, faults=faults_of(faults), together=faults != PAIRS,
        ranks=ranks, steps=steps, in_flight=in_flight, in_place=in_place, without=frozenset(leave_out or ()),
        walks=walks, seed=seed, model=model, profile=profile,
    )  # fmt: skip
    found, code = simulate_rollout(request, console)
    found["notes"] = console.notes
    emit(json_text(found) if format is Format.JSON else rollout_table.of_rollout(found))
    report_file.write(report, figures, found)
    raise typer.Exit(code)

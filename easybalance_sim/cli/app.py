"""The `ebsim` command: mounts the commands, turns errors into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
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
    rollout,
    simulate,
    sweep,
    trace,
)
from easybalance_sim.errors import EbsimError

INTERRUPTED, INTERNAL = 130, 70

app = typer.Typer(
    name="ebsim",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(short_help="Write cluster, scenario and gate files for a model.")(init.init)
app.command(short_help="Make a plan and prove it on held-out traffic.")(plan.plan)
app.command(short_help="Judge a plan on recorded traffic.")(replay.replay)
app.command(short_help="How many redundant slots are worth their memory?")(sweep.sweep)
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

    Exit codes: 0 accepted or ok · 1 rejected by the gate · 2 bad input · 3 insufficient evidence · 70 internal error.

    \b
    Example: ebsim plan traces/tinymoe.parquet -o plan.json
    """


def main() -> None:
    """Run the command line and exit with its code; a polite kill ends it as an interrupt does, files whole."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(_run())


def _run() -> int:
    try:
        code = int(app(standalone_mode=False) or 0)
    except EbsimError as error:
        return _refuse(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OSError as error:
        if error.filename is None:
            return _internal(error)
        return _refuse(f"{error.filename}: {error.strerror} — check the path", EbsimError.exit_code)
    except Exception as error:
        # Some typer releases use click, others carry their own copy of it: usage errors are known by what they offer.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            if type(error).__name__ == "NoArgsIsHelpError":
                sys.stderr.write(f"{error.format_message()}\n")
                return int(error.exit_code)
            return _refuse(str(error.format_message()), int(error.exit_code))
        return _internal(error)
    # Some typer releases turn the interrupt into this code without a word.
    if code == INTERRUPTED:
        sys.stderr.write("ebsim: interrupted; no file was left half-written\n")
    return code


def _internal(error: Exception) -> int:
    if os.environ.get("EBSIM_DEBUG"):
        traceback.print_exc()
    return _refuse(f"internal error: {type(error).__name__}: {error} (EBSIM_DEBUG=1 shows where)", INTERNAL)


def _refuse(message: str, code: int) -> int:
    line = " ".join(message.split())
    sys.stderr.write(f"ebsim: error: {line}\n")
    return code

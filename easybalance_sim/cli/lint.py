"""`ebsim lint`: everything that is wrong with a placement file, before an engine loads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import completing, options
from easybalance_sim.cli.console import Format, emit
from easybalance_sim.cli.layout import filled, kept, worded
from easybalance_sim.json_text import json_text
from easybalance_sim.report.placement_words import faults

if TYPE_CHECKING:
    from easybalance_sim.exports.linting import Report

SHOWN_PER_RULE = 5


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A placement file of an engine, or a plan file.")],
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            autocompletion=completing.engines,
            metavar="ENGINE",
            help="sglang, tensorrt-llm, vllm, vllm-ascend or omni [plan file].",
        ),
    ] = "",
    ranks: options.EngineRanks = None,
    model: options.EngineModel = "",
    experts: options.EngineExperts = None,
    schema: options.EngineSchema = "",
    redundant: Annotated[
        int | None,
        typer.Option("--redundant", metavar="N", min=0, help="Redundant experts that the engine is told of."),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--previous", metavar="FILE", help="What is loaded now: a file of that engine or a plan file."),
    ] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Check a placement file for all that its engine does not check, and say what the engine would do with it.

    Without --engine FILE is a plan file. What is not said (ranks, model, experts, schema) is as FILE.ebsim.json has it,
    which `ebsim export` wrote; without that it is not checked, which is a warning. Exit 0 nothing wrong but warnings,
    1 with the list of findings, 2 when FILE cannot be read as what it should be.

    \b
    Example: ebsim lint plan.json

    \b
    Example: ebsim lint expert_location.json --engine sglang --ranks 8
    """
    from easybalance_sim.exports.linting import lint_named

    report = lint_named(
        file, engine, ranks=ranks, model=model, experts=experts, schema=schema, redundant=redundant, previous=previous
    )
    emit(json_text(report.to_dict()) if format is Format.JSON else table(report))
    raise typer.Exit(1 if report.errors else 0)


def table(report: Report) -> str:
    """The verdict in one line, then a line per finding, a few of each rule."""
    rows: list[tuple[str, str, str, str]] = []
    shown: dict[tuple[str, str], int] = {}
    for one in report.findings:
        kind = (one.level, one.rule)
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= SHOWN_PER_RULE:
            layer, slot = (
                "" if at is None else f"{name} {at}" for name, at in (("layer", one.layer), ("slot", one.slot))
            )
            rows.append((one.level, layer, slot, one.message))
    found = faults(report.errors, len(report.findings) - report.errors)
    lines = [filled(f"{found}: {kept(report.path)} ({report.title})")]
    if rows:
        lines += ["", worded(rows, left=3)]
    hidden = sum(max(0, count - SHOWN_PER_RULE) for count in shown.values())
    return "\n".join([*lines, *([f"… {hidden} more (--format json lists all)"] if hidden else [])])

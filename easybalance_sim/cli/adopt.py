"""`ebsim adopt`: the placement that an engine runs with, as a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import options
from easybalance_sim.cli.console import emit, say_notes
from easybalance_sim.cli.layout import filled, kept
from easybalance_sim.cli.trace_output import parse_layers
from easybalance_sim.report.placement_words import shape


def adopt(
    engine: options.EngineName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The placement file that the engine runs with.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PLAN", help="The plan file to write.")],
    ranks: options.EngineRanks = None,
    ranks_per_node: options.RanksPerNode = None,
    model: options.EngineModel = "",
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="IDS", help="Ids of the MoE layers, e.g. 3-60 [the model's].")
    ] = None,
    experts: options.EngineExperts = None,
    schema: options.EngineSchema = "",
) -> None:
    """Turn a placement that is deployed into a plan file, for `ebsim replay` to judge and `ebsim plan --current` to
    improve.

    What is not said is as FILE.ebsim.json has it, where `ebsim export` wrote FILE. Rows of dense layers are left out
    where the model is known. The plan carries no evidence, its verdict is "not
    judged". Exit 0 written, 1 with the list of findings when `ebsim lint` finds an error, 2 when FILE cannot be read.

    \b
    Example: ebsim adopt sglang expert_location.json -o deployed.json --ranks 8
    """
    from easybalance_sim.cli.lint import table
    from easybalance_sim.exports.adoption import adopt_file
    from easybalance_sim.exports.deployment import deployment_of
    from easybalance_sim.exports.linting import Report

    deployment = deployment_of(model, ranks=ranks, experts=experts, layers=parse_layers(layers), schema=schema)
    found = adopt_file(file, engine, deployment, ranks_per_node=ranks_per_node, output=output)
    if isinstance(found, Report):
        emit(table(found))
        raise typer.Exit(1)
    emit(filled(f"wrote {kept(output)}: {shape(found.document)}, not judged"))
    say_notes(found.notes)

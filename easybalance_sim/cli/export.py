"""`ebsim export`: a plan as the file that a serving engine loads, and the flags to start it with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import completing, options
from easybalance_sim.cli.console import Format, emit, say_notes
from easybalance_sim.cli.layout import filled, flags, kept
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    from easybalance_sim.exports import Exported
    from easybalance_sim.plan.planfile import PlanDocument


class NotAcceptedError(PlanError):
    """The gate did not accept the plan."""

    exit_code = 1


def export(
    engine: options.EngineName,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file that `ebsim plan` wrote.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="What to write: .json or .pt (sglang), .yaml (tensorrt-llm), .json (vllm-ascend), .npy or .npz "
            "(omni), a folder or the file of --schema (vllm).",
        ),
    ],
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            autocompletion=completing.schemas,
            metavar="NAME",
            help="vllm: plugin (a folder for pip install), or for the pull requests pr41141 (.jsonl), pr49572 (.json), "
            "pr53022 (.json, DeepSeek V4) [plugin].",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            autocompletion=completing.models,
            metavar="NAME|config.json",
            help="The model, when the plan does not name a known one.",
        ),
    ] = "",
    hidden_layers: Annotated[
        int | None,
        typer.Option("--hidden-layers", metavar="N", min=1, help="All layers, dense ones included [the model's]."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also a plan that the gate did not accept.")] = False,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Write a plan in the format of a serving engine, and print the flags to start the engine with.

    What the engine cannot hold is refused with the reason. Beside FILE stands FILE.ebsim.json with the plan's
    fingerprint, its evidence and the sha256 of FILE. Exit 1 for a plan that the gate did not accept, without --force.

    \b
    Example: ebsim export sglang plan.json -o expert_location.json \\
        --hidden-layers 8

    \b
    Example: ebsim export vllm plan.json -o vllm_plan
    """
    from easybalance_sim import exports
    from easybalance_sim.exports.deployment import deployment_for
    from easybalance_sim.plan.planfile import read_plan

    _require_apart(plan, output)
    module = exports.load(engine)
    document = read_plan(plan)
    deployment = deployment_for(document, model, hidden_layers)
    notes = _require_accepted(document, plan, force)
    try:
        written = module.write(document, deployment, output, schema)
    except PlanError as error:
        where = f"{plan}: {error.where}" if error.where else str(plan)
        raise PlanError(error.what, where=where, fix=error.fix) from error
    content = _content(engine, document, written)
    emit(json_text(content) if format is Format.JSON else _table(module.TITLE, written))
    say_notes([*notes, *written.notes])


def _require_apart(plan: Path, output: Path) -> None:
    """Raise `UsageError` where the file or its sidecar would take the place of the plan."""
    from easybalance_sim.exports.sidecar import sidecar_of

    for place in (output, sidecar_of(output)):
        if place.exists() and plan.exists() and place.samefile(plan):
            raise UsageError("this is the plan file, it would be lost", where=str(place), fix="choose another -o")


def _require_accepted(document: PlanDocument, plan: Path, force: bool) -> list[str]:
    status = str(document.verdict.get("status", "not judged")).replace("_", " ")
    if status == "accepted":
        return []
    if not force:
        raise NotAcceptedError(
            f"the plan's verdict is {status}", where=str(plan), fix="--force exports it nevertheless"
        )
    return [f"the plan's verdict is {status}: exported because of --force"]


def _content(engine: str, document: PlanDocument, written: Exported) -> dict[str, object]:
    return {
        "engine": engine,
        "fingerprint": document.fingerprint(),
        "verdict": document.verdict.get("status"),
        "files": [str(path) for path in written.files],
        "launch": list(written.launch),
        "notes": list(written.notes),
    }


def _table(title: str, written: Exported) -> str:
    lines = [filled(f"wrote {kept(path)}") for path in written.files]
    if written.launch:
        lines += ["", f"start {title} with", *(one for line in written.launch for one in flags(line))]
    return "\n".join(lines)

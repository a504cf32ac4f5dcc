"""`ebsim diff`: what changes between two plans, and how to get from one to the other while serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import options
from easybalance_sim.cli.console import Format, aligned, emit

if TYPE_CHECKING:
    from easybalance_sim.plan.difference import Difference
    from easybalance_sim.plan.planfile import PlanDocument

SHOWN_STEPS = 40
PATHS = {"nvlink": "over NVLink", "network": "between nodes", "outside": "from outside (no rank holds them)"}


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The plan in force.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The plan that follows it.")],
    steps: Annotated[bool, typer.Option("--steps", help="Print the steps too.")] = False,
    staging_slots: Annotated[
        int, typer.Option(min=0, metavar="N", help="Experts that a GPU holds beside its slots; 0: serving stops.")
    ] = 1,
    step_mb: Annotated[float, typer.Option(min=0, metavar="MB", help="Most a step may move [no limit].")] = 0.0,
    step_ms: Annotated[float, typer.Option(min=0, metavar="MS", help="Longest that a step may take [no limit].")] = 0.0,
    model: options.Model = "",
    profile: Annotated[str, typer.Option(metavar="NAME|FILE", help="GPU, for its links [the new plan's].")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="Write the steps for a rollout tool.")
    ] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Compare two plans: experts that travel, over which links, for how long; and in which steps to move them.

    Between any two steps every expert has a ready replica, so a step can be put into service before the next one
    begins. Exit 0 when the plans place experts alike, 1 when they differ.

    \b
    Example: ebsim diff old.json new.json --steps --staging-slots 2
    """
    from easybalance_sim.cluster.hardware import load_profile
    from easybalance_sim.files import require_place, write_text
    from easybalance_sim.plan.difference import difference
    from easybalance_sim.plan.migration_steps import Limits
    from easybalance_sim.plan.planfile import read_plan

    if output is not None:
        require_place(output, (old, new))
    before, after = read_plan(old), read_plan(new)
    found = difference(
        before,
        after,
        load_profile(profile or after.topology.profile),
        expert_bytes=_expert_bytes(model, after),
        limits=Limits(staging_slots=staging_slots, step_bytes=int(step_mb * 1e6), step_s=step_ms / 1e3),
    )
    if output is not None:
        write_text(output, found.rollout_text())
    as_json = format is Format.JSON
    emit(json.dumps(found.to_dict(steps=steps), indent=2) if as_json else _table(found, steps=steps))
    raise typer.Exit(0 if found.is_none else 1)


def _expert_bytes(model: str, document: PlanDocument) -> int:
    """Of --model, else what the plan was judged with, else of the known model that it names; 0 = not known."""
    from easybalance_sim.cluster.shapes import find_shape, load_shape

    if model:
        return load_shape(model).expert_bytes
    judged = document.evidence.get("model", {})
    if judged.get("expert_bytes") and not judged.get("assumed"):
        return int(judged["expert_bytes"])
    shape = find_shape(document.model)
    return shape.expert_bytes if shape else 0


def _table(found: Difference, *, steps: bool) -> str:
    parts = [aligned([("", "old", "new"), *_plans(found)], left=1), _summary(found)]
    if steps and found.migration.steps:
        parts.append(_steps(found))
    return "\n\n".join(parts)


def _plans(found: Difference) -> list[tuple[str, str, str]]:
    old, new = found.old, found.new
    return [
        ("policy", old.policy, new.policy),
        ("generation", str(old.generation), str(new.generation)),
        ("fingerprint", old.fingerprint()[:12], new.fingerprint()[:12]),
        ("ranks", str(old.topology.ranks), str(new.topology.ranks)),
        ("slots per layer", str(sum(old.plan_slots_per_rank)), str(sum(new.plan_slots_per_rank))),
    ]


def _summary(found: Difference) -> str:
    if found.is_none:
        return "the same experts in the same slots"
    migration = found.migration
    cells = len(found.new.layers) * sum(found.new.plan_slots_per_rank)
    lines = [f"{migration.moves:,} of {cells:,} slots need an expert from elsewhere, in {len(found.by_layer())} layers"]
    for path, moves in sorted(found.by_path().items()):
        size = f", {_short(moves * found.expert_bytes / 1e6)} MB" if found.expert_bytes else ""
        lines.append(f"  {moves:,} {PATHS[path]}{size}")
    drops = sum(len(step.drops) for step in migration.steps)
    if drops:
        lines.append(f"{drops:,} slots are given up")
    if migration.local:
        lines.append(f"{migration.local:,} experts change their slot on their own GPU, for free")
    lines.append(f"{found.replicas_changed:,} experts get another number of replicas")
    lines.append(_how(found))
    return "\n".join(lines)


def _how(found: Difference) -> str:
    migration = found.migration
    if not found.expert_bytes:
        return f"{len(migration.steps):,} steps; bytes and seconds need the model's widths: --model NAME|config.json"
    took = f"{_short(migration.seconds * 1e3)} ms of transfer"
    if migration.drained:
        return f"serving stops for {took}; {migration.bounced:,} experts wait in host memory meanwhile"
    staging = max((step.staging_slots for step in migration.steps), default=0)
    longest = max((step.seconds for step in migration.steps), default=0.0)
    return (
        f"{len(migration.steps):,} steps, {took} in all, {_short(longest * 1e3)} ms the longest; "
        f"{staging} staging slot{'' if staging == 1 else 's'} per GPU, {_short(staging * found.expert_bytes / 1e6)} MB"
    )


def _steps(found: Difference) -> str:
    rows = [("step", "layers", "experts", "MB", "ms", "staging")]
    for number, step in enumerate(found.migration.steps[:SHOWN_STEPS]):
        touched = {move.layer for move in step.moves} | {drop.layer for drop in step.drops}
        layers = sorted(found.new.layer_ids[layer] for layer in touched)
        span = str(layers[0]) if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"
        known = (_short(step.bytes / 1e6), _short(step.seconds * 1e3)) if found.expert_bytes else ("–", "–")
        rows.append((str(number), span, str(len(step.moves)), *known, str(step.staging_slots)))
    left = len(found.migration.steps) - SHOWN_STEPS
    more = f"\n… {left:,} more; -o FILE.json has all, move by move" if left > 0 else ""
    return aligned(rows, left=2) + more


def _short(value: float) -> str:
    """Three digits that count; whole numbers from 100 on."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"

"""`ebsim diff`: what changes between two plans, and how to get from one to the other while serving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import completing, options
from easybalance_sim.cli.console import Format, emit
from easybalance_sim.cli.layout import aligned, filled
from easybalance_sim.json_text import json_text
from easybalance_sim.report.placement_words import change as change_line

if TYPE_CHECKING:
    from easybalance_sim.plan.difference import Difference

SHOWN_STEPS, SHOWN_LAYERS = 40, 4
PATHS = {
    "nvlink": "over NVLink",
    "network": "between nodes, over RDMA",
    "outside": "from where the weights are stored (no rank holds them)",
}


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The plan in force.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The plan that follows it.")],
    steps: Annotated[bool, typer.Option("--steps", help="Print the steps too.")] = False,
    staging_slots: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Experts that a GPU can hold beside its slots; 0: serving stops for each step."
        ),
    ] = 1,
    step_mb: Annotated[float, typer.Option(min=0, metavar="MB", help="Most a step may move [no limit].")] = 0.0,
    step_ms: Annotated[float, typer.Option(min=0, metavar="MS", help="Longest that a step may take [no limit].")] = 0.0,
    model: options.Model = "",
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE", autocompletion=completing.profiles, help="GPU, for its links [the new plan's]."
        ),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="Write the steps for a rollout tool.")
    ] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Compare two plans: experts that travel, over which links, for how long; and in which steps to move them.

    Between any two steps every expert has a ready replica, so a step can be put into service before the next one
    begins. Layers that gain most come first where NEW was judged against OLD. Exit 0 alike, 1 when they differ.

    \b
    Example: ebsim diff old.json new.json --steps --staging-slots 2
    """
    from easybalance_sim.simulate.rollout.change import ChangeRequest, change

    request = ChangeRequest(
        old=old, new=new, staging_slots=staging_slots, step_mb=step_mb, step_ms=step_ms, model=model, profile=profile,
        output=output,
    )  # fmt: skip
    found = change(request)
    emit(json_text(found.to_dict(steps=steps)) if format is Format.JSON else _table(found, steps=steps))
    raise typer.Exit(0 if found.is_none else 1)


def _table(found: Difference, *, steps: bool) -> str:
    policies = filled(f"{found.old.policy} → {found.new.policy}")
    parts = [f"{policies}\n{aligned([('', 'old', 'new'), *_plans(found)])}", _summary(found)]
    if steps and found.migration.steps:
        parts.append(_steps(found))
    return "\n\n".join(parts)


def _plans(found: Difference) -> list[tuple[str, str, str]]:
    old, new = found.old, found.new
    return [
        ("generation", str(old.generation), str(new.generation)),
        ("fingerprint", old.fingerprint()[:12], new.fingerprint()[:12]),
        ("ranks", str(old.topology.ranks), str(new.topology.ranks)),
        ("slots per layer", str(sum(old.plan_slots_per_rank)), str(sum(new.plan_slots_per_rank))),
    ]


def _summary(found: Difference) -> str:
    migration, lines = found.migration, [change_line(found)]
    if found.is_none:
        return lines[0]
    for path, moves in sorted(found.by_path().items()):
        size = f", {_short(moves * found.expert_bytes / 1e6)} MB" if found.expert_bytes else ""
        lines.append(f"  {moves:,} {PATHS[path]}{size}")
    renamed = found.renamed_moves
    if renamed is not None and renamed < migration.moves:
        lines.append(f"  {renamed:,} would do with ranks renamed layer by layer: make NEW with --current OLD")
    drops = sum(len(step.drops) for step in migration.steps)
    if drops:
        lines.append(f"{_counted(drops, 'slot')} given up")
    if migration.local:
        lines.append(
            f"{_counted(migration.local, 'copy', 'copies')} within a GPU put experts into their slots, for free"
        )
    lines.append(f"another number of replicas in {found.replicas_changed:,} of {_experts(found)} (experts × layers)")
    lines.append(_how(found))
    return "\n".join(map(filled, lines))


def _experts(found: Difference) -> str:
    return f"{found.new.experts * len(found.new.layers):,}"


def _how(found: Difference) -> str:
    migration = found.migration
    steps = _counted(len(migration.steps), "step") + (", layers that gain most first" if found.by_gain else "")
    if not found.expert_bytes:
        return f"{steps}; bytes and seconds need the model's widths: --model NAME|config.json"
    longest = f"{_short(max((step.seconds for step in migration.steps), default=0.0) * 1e3)} ms the longest"
    took = f"{_short(migration.seconds * 1e3)} ms of transfer in all, {longest}"
    if migration.drained:
        aside = f"{_counted(migration.bounced, 'expert')} put aside in host memory meanwhile"
        return f"{steps}, serving stops for each: {took}; {aside}"
    staging = max((step.staging_slots for step in migration.steps), default=0)
    size = _short(staging * found.expert_bytes / 1e6)
    return f"{steps}: {took}; {_counted(staging, 'staging slot')} per GPU, {size} MB"


def _steps(found: Difference) -> str:
    rows = [("step", "layers", "experts", "dropped", "MB", "ms", "staging")]
    for number, step in enumerate(found.migration.steps[:SHOWN_STEPS]):
        layers = sorted(found.new.layer_ids[layer] for layer in step.layers)
        more = f" +{len(layers) - SHOWN_LAYERS}" if len(layers) > SHOWN_LAYERS else ""
        span = ", ".join(map(str, layers[:SHOWN_LAYERS])) + more
        known = (_short(step.bytes / 1e6), _short(step.seconds * 1e3)) if found.expert_bytes else ("–", "–")
        rows.append((str(number), span, str(len(step.moves)), str(len(step.drops)), *known, str(step.staging_slots)))
    left = len(found.migration.steps) - SHOWN_STEPS
    rest = f"\n… {left:,} more; -o FILE.json has all, move by move" if left > 0 else ""
    return aligned(rows, left=2) + rest


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _short(value: float) -> str:
    """Three digits that count; whole numbers from 100 on."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"

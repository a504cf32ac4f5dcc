"""What does it cost? Memory of a GPU and the way from the plan in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cost.memory import USABLE_HBM_FRAC
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Block, Fact, Facts, Figure, Section
from easybalance_sim.report.plan_words import in_percent
from easybalance_sim.report.sections.sides import SIDES
from easybalance_sim.report.words import UNKNOWN, change, duration, many, size


def section(report: Mapping[str, Any]) -> Section:
    """Bytes where the model's widths are known."""
    blocks: list[Block] = [_migration(report), _memory(report)]
    if not report["model"]["assumed"]:
        blocks.append(_bars(report))
    return Section(name="price", title="What does it cost?", lead=_lead(report), blocks=tuple(blocks))


def _lead(report: Mapping[str, Any]) -> str:
    moved = report["migration"]
    said = "Nothing has to be copied" if not moved["moves"] else (
        f"{many(moved['moves'], 'expert')} {'has' if moved['moves'] == 1 else 'have'} to be copied"
        f" ({size(moved['bytes'])}, {duration(moved['seconds'] or 0.0)} over the links)"
    )  # fmt: skip
    if report["model"]["assumed"]:
        return f"{said}. Bytes are those of assumed widths; memory is not known (say --model)."
    old, new = (report[side]["memory_bytes_per_rank"] for side in SIDES)
    if old == new:
        return f"{said}; the experts of the fullest rank take {size(new)}, as before."
    return f"{said}; the experts of the fullest rank take {size(new)} instead of {size(old)} ({change(old, new)})."


def _migration(report: Mapping[str, Any]) -> Facts:
    moved, baseline = report["migration"], report["baseline"]["policy"]
    across = moved.get("cross_node_moves")
    return Facts(
        name="migration",
        title="The way from the baseline",
        facts=(
            Fact(label="experts to copy", value=f"{moved['moves']:,}", note=f"from the baseline ({baseline})"),
            Fact(label="of them between nodes", value="not known" if across is None else f"{across:,}"),
            Fact(label="bytes", value=size(moved["bytes"])),
            Fact(
                label="time over the links", value=duration(moved["seconds"] or 0.0), note="ebsim diff shows the steps"
            ),
        ),
    )


def _memory(report: Mapping[str, Any]) -> Facts:
    memory = report["memory"]
    buffer, lost, share = memory["dispatch_buffer"], memory["kv_tokens_lost"], memory["kv_cache_loss_frac"]
    taken = memory.get("expert_memory_frac")
    return Facts(
        name="memory",
        title="Memory of a GPU under the plan",
        facts=(
            Fact(
                label="KV cache lost to its additional slots",
                value=_lost(lost, share),
                note="" if lost is None or share is None else f"{in_percent(share)} of the KV cache",
            ),
            Fact(label="one more slot in every layer", value=size(memory["bytes_per_redundant_slot"])),
            Fact(label="staging of experts that arrive", value=size(memory["staging_bytes"])),
            Fact(
                label="dispatch buffer of the fullest step",
                value=size(buffer["bytes"]),
                note=f"up to {buffer['sent_per_rank']:,} tokens from a rank, {buffer['tokens_per_rank']:,} copies in",
            ),
            Fact(label="activations of the fullest step", value=size(memory["activation_bytes"])),
            Fact(
                label="experts and staging",
                value=UNKNOWN if taken is None else f"{in_percent(taken)} of the GPU's memory",
                note="; ".join(memory["warnings"]),
            ),
        ),
    )


def _lost(tokens: int | None, share: float | None) -> str:
    if tokens is not None:
        return f"{tokens:,} tokens"
    return UNKNOWN if share is None else in_percent(share)


def _experts(report: Mapping[str, Any]) -> str:
    """How much of the GPU the experts take."""
    taken = report["memory"].get("expert_memory_frac")
    if taken is None:
        return "What share of the GPU the experts take is not known."
    said = f"Experts and staging take {in_percent(taken)} of the GPU's memory"
    if taken <= USABLE_HBM_FRAC:
        return f"{said}."
    return f"{said}, of which engines use {in_percent(USABLE_HBM_FRAC)}: they do not fit."


def _steps(memory: Mapping[str, Any]) -> str:
    """What the fullest step overflows; nothing is left of the memory where the experts themselves do not fit."""
    taken, warnings = memory.get("expert_memory_frac"), memory["warnings"]
    if warnings:
        return f"Watch out: {'; '.join(warnings)}."
    if taken is None:
        return "Whether a step overflows is not known."
    return "No step overflows." if taken <= USABLE_HBM_FRAC else "No step has room."


def _bars(report: Mapping[str, Any]) -> Figure:
    memory = report["memory"]
    parts = (
        ("experts, baseline", report["baseline"]["memory_bytes_per_rank"]),
        ("experts, plan", report["plan"]["memory_bytes_per_rank"]),
        ("staging while it is taken over", memory["staging_bytes"]),
        ("dispatch buffer, fullest step", memory["dispatch_buffer"]["bytes"]),
        ("activations, fullest step", memory["activation_bytes"]),
    )
    known = [(name, value) for name, value in parts if value is not None]
    told = "; ".join(f"{name} {size(value)}" for name, value in known)
    return Figure(
        name="memory_of_a_rank",
        title="Memory of the fullest rank",
        alt=f"Bars of memory: {told}.",
        conclusion=f"{_experts(report)} {_steps(memory)}",
        chart=Bars(
            rows=tuple(name for name, _ in known), row="what",
            series=(Series(name="MB", values=tuple(round(value / 1e6, 3) for _, value in known)),), value="MB of a GPU",
            form="{:,.1f}",
        ),
    )  # fmt: skip

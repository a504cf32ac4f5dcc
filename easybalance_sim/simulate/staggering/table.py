"""The staggering table of several plans as text."""

from __future__ import annotations

from collections.abc import Mapping

from easybalance_sim.simulate.staggering.run import Staggering

HEATS = ("as is", "worst", "random", "mean", "windows", "oracle")
HEAD = (
    "placement",
    *(f"heat {name}" for name in HEATS),
    "B",
    "B gain",
    "M as is -> pairs",
    "S as is -> windows",
    "N as is -> windows",
)


def table(found: Mapping[str, Staggering]) -> str:
    """One line per plan: heat under every labelling (the oracle's has seen the judged steps), then time over balanced
    time with a barrier per layer (B), two micro-batches (M), ranks one layer ahead (S), no barrier (N)."""
    lines = [HEAD, *(_line(name, one) for name, one in found.items())]
    width = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rows = ("  ".join(cell.ljust(wide) for cell, wide in zip(line, width, strict=True)).rstrip() for line in lines)
    return "\n".join(rows)


def _line(name: str, found: Staggering) -> tuple[str, ...]:
    before, after, pairs = found.row("as is"), found.row("windows"), found.row("pairs")
    heats = (found.row(labels) for labels in HEATS)
    return (
        name,
        *(f"{row.heat_mean:.3f}/{row.heat_p99:.2f}" for row in heats),
        f"{before.barrier:.3f}",
        f"{found.barrier_gain:g}",
        f"{before.micro_batches:.3f} -> {pairs.micro_batches:.3f}",
        f"{before.one_ahead:.3f} -> {after.one_ahead:.3f}",
        f"{before.unbound:.3f} -> {after.unbound:.3f}",
    )

"""The `memory` section of a report as lines: what a GPU needs for a plan, its rollout and its fullest step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.layout import filled, worded

UNKNOWN = "not known (say --model)"


def of_memory(memory: Mapping[str, Any]) -> str:
    """The lines, and a warning for each thing that the fullest step overflows."""
    buffer, lost = memory["dispatch_buffer"], memory["kv_tokens_lost"]
    rows = [
        ("memory of a GPU under the plan", ""),
        ("  KV cache lost to its additional slots", UNKNOWN if lost is None else _lost(lost, memory)),
        ("  one more slot in every layer", _bytes(memory["bytes_per_redundant_slot"])),
        ("  staging of experts that arrive", _bytes(memory["staging_bytes"])),
        (
            "  dispatch buffer of the fullest step",
            f"{_bytes(buffer['bytes'])}: up to {buffer['sent_per_rank']:,} tokens sent by a rank, "
            f"{buffer['tokens_per_rank']:,} copies taken in, {buffer['tokens_per_expert']:,} for one slot",
        ),
        ("  activations of the fullest step", _bytes(memory["activation_bytes"])),
    ]
    return "\n".join([worded(rows), *(filled(f"WARNING: {warning}") for warning in memory["warnings"])])


def _lost(tokens: int, memory: Mapping[str, Any]) -> str:
    share = memory["kv_cache_loss_frac"]
    return f"{tokens:,} tokens" + ("" if share is None else f" ({100 * share:.2g} %)")


def _bytes(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,} B"

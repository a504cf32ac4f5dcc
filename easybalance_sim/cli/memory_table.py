"""The `memory` section of a report as lines: what a GPU needs for a plan, its rollout and its fullest step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.layout import filled, worded
from easybalance_sim.report.words import UNKNOWN, size


def of_memory(memory: Mapping[str, Any]) -> str:
    """The lines, and a warning for each thing that the fullest step overflows."""
    buffer, lost = memory["dispatch_buffer"], memory["kv_tokens_lost"]
    rows = [
        ("memory of a GPU under the plan", ""),
        ("  KV cache lost to its additional slots", UNKNOWN if lost is None else _lost(lost, memory)),
        ("  one more slot in every layer", size(memory["bytes_per_redundant_slot"])),
        ("  staging of experts that arrive", size(memory["staging_bytes"])),
        (
            "  dispatch buffer of the fullest step",
            f"{size(buffer['bytes'])}: up to {buffer['sent_per_rank']:,} tokens sent by a rank, "
            f"{buffer['tokens_per_rank']:,} copies taken in, {buffer['tokens_per_expert']:,} for one slot",
        ),
        ("  activations of the fullest step", size(memory["activation_bytes"])),
    ]
    return "\n".join([worded(rows), *(filled(f"WARNING: {warning}") for warning in memory["warnings"])])


def _lost(tokens: int, memory: Mapping[str, Any]) -> str:
    share = memory["kv_cache_loss_frac"]
    return f"{tokens:,} tokens" + ("" if share is None else f" ({100 * share:.2g} %)")

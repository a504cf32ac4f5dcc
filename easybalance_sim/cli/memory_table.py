"""The `memory` section of a report as lines: what a GPU needs for a plan, its rollout and its fullest step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.layout import filled, worded
from easybalance_sim.report.plan_words import in_percent
from easybalance_sim.report.words import UNKNOWN, size


def of_memory(memory: Mapping[str, Any]) -> str:
    """The lines, and a warning for each thing that the fullest step overflows."""
    buffer = memory["dispatch_buffer"]
    rows = [
        ("memory of a GPU under the plan", ""),
        ("  KV cache lost to its additional slots", _lost(memory)),
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


def _lost(memory: Mapping[str, Any]) -> str:
    """Tokens and their share, or the one that is known."""
    tokens, share = memory["kv_tokens_lost"], memory["kv_cache_loss_frac"]
    if tokens is None:
        return UNKNOWN if share is None else f"{in_percent(share)} (tokens: say --model)"
    return f"{tokens:,} tokens" + ("" if share is None else f" ({in_percent(share)})")

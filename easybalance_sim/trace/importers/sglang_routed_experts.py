"""SGLang: replies with `routed_experts` (raw int32 over all hidden layers), one request each.

Source: `.json` or `.jsonl` files, or a folder. The ids are logical; rows run over all hidden layers, so --model or
--layers says which of them are MoE layers (SGLang 0.5.23, `--enable-return-routed-experts`).
"""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.npy_bytes import MAGIC
from easybalance_sim.trace.routed_replies import convert_replies


def convert(job: Conversion) -> list[Converted]:
    """Write the token trace. Raises `TraceError` or `UsageError` naming the reply."""
    return convert_replies(job, "sglang", _ids)


def _ids(blob: bytes, where: str) -> AnyArray:
    if blob.startswith(MAGIC):
        raise TraceError(
            "routed_experts is a .npy array, which vLLM writes", where=where, fix="import it as vllm-routed-experts"
        )
    if len(blob) % 4:
        raise TraceError(
            f"routed_experts has {len(blob):,} bytes, no whole number of int32",
            where=where,
            fix="store the whole reply",
        )
    return np.frombuffer(blob, "<i4")

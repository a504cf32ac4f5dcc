"""vLLM: replies with `routed_experts` (`.npy` over all hidden layers), one request per choice.

Source: `.json` or `.jsonl` files, or a folder. The ids are logical (vLLM 0.33, `--enable-return-routed-experts`).
Rows that hold zeros are dense layers, unless --layers or --model names the MoE layers.
"""

from __future__ import annotations

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.npy_bytes import MAGIC, array_of
from easybalance_sim.trace.routed_replies import convert_replies


def convert(job: Conversion) -> list[Converted]:
    """Write the token trace. Raises `TraceError` or `UsageError` naming the reply."""
    return convert_replies(job, "vllm", _ids)


def _ids(blob: bytes, where: str) -> AnyArray:
    if not blob.startswith(MAGIC):
        raise TraceError(
            "routed_experts is no .npy array; raw int32 is what SGLang writes",
            where=where,
            fix="import it as sglang-routed-experts",
        )
    ids = array_of(blob, where)
    if ids.ndim != 3 or ids.dtype.kind not in "iu" or 0 in ids.shape[1:]:
        raise TraceError(
            f"routed_experts is {str(ids.dtype)[:40]} of shape {str(ids.shape)[:80]}, expected whole numbers of "
            "[tokens, layers, top-k]",
            where=where,
            fix="store the reply as the engine sent it",
        )
    return ids

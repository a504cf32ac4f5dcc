"""Shapes of MoE models: a table of known ones, Hugging Face config.json, or what a trace's metadata says."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHT_BYTES = {"bf16": 2.0, "fp8_block": 1.00024, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4_g32": 0.5625}
"""Bytes per expert weight, scales included (source: measured table headers of aiconfigurator and DeepGEMM)."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What placement and cost need to know of a model.

    layers: absolute ids of the MoE layers · hidden: dispatch width H (the latent width where experts work on one) ·
    intermediate: I of one routed expert · matrices: 3 for gated experts, 2 otherwise · dtype: a key of `WEIGHT_BYTES` ·
    kv_bytes_per_token: KV cache bytes of one token over all layers, 0 = unknown · assumed: True when the widths are a
    stand-in because nobody said the model.
    """

    name: str
    layers: tuple[int, ...]
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    groups: int = 1
    topk_groups: int = 1
    shared_experts: int = 0
    matrices: int = 3
    dtype: str = "fp8_block"
    kv_bytes_per_token: int = 0
    assumed: bool = False

    @property
    def expert_bytes(self) -> int:
        """Weight bytes of one routed expert in one layer."""
        return round(self.matrices * self.hidden * self.intermediate * WEIGHT_BYTES[self.dtype])

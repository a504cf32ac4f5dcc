"""`ModelShape`: the few numbers of an MoE model that placement and cost depend on."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.cluster.attention_shape import AttentionShape
from easybalance_sim.errors import ProfileError

WEIGHT_BYTES = {"bf16": 2.0, "fp8_block": 1.00024, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4_g32": 0.5625}
"""Bytes per expert weight, scales included (source: measured table headers of aiconfigurator and DeepGEMM)."""

_DTYPE_WORDS = {
    "bf16": "bf16 bfloat16 fp16 float16 half fp32 float32",
    "fp8_block": "fp8_block fp8 float8_e4m3fn e4m3 fp8_e4m3",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4_g32": "int4_g32 int4 w4a16 awq gptq",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What placement and cost need to know of a model.

    layers: absolute ids of the MoE layers · hidden_layers: layers in all, dense ones included, 0 = unknown ·
    mtp_layers: absolute ids of multi-token-prediction layers with experts ·
    hidden: dispatch width H (the latent width where experts work on one) · intermediate: I of one routed expert ·
    matrices: 3 for gated experts, 2 otherwise · dtype: a key of `WEIGHT_BYTES` ·
    kv_bytes_per_token: KV cache bytes of one token over the layers whose cache grows with the context, 0 = unknown ·
    attention: None = unknown · model_width: of the residual stream, 0 = `hidden` · dense_intermediate: of the layers
    without experts, 0 = they have no feed-forward part · shared_intermediate: of all shared experts together (and of
    dense feed-forward parts beside the experts), 0 = shared_experts · intermediate · vocab: 0 = unknown ·
    assumed: True when the widths are a stand-in because nobody said the model · source: where the numbers come from.
    Raises `ProfileError` when a number is impossible.
    """

    name: str
    layers: tuple[int, ...]
    hidden_layers: int = 0
    mtp_layers: tuple[int, ...] = ()
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
    attention: AttentionShape | None = None
    model_width: int = 0
    dense_intermediate: int = 0
    shared_intermediate: int = 0
    vocab: int = 0
    assumed: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ProfileError(problem, where=f"model {self.name}")

    def _problem(self) -> str:
        if not self.layers or len(set(self.layers)) != len(self.layers):
            return "MoE layer ids must be distinct, at least one"
        if min(self.hidden, self.intermediate, self.experts, self.top_k, self.groups, self.topk_groups) < 1:
            return "hidden, intermediate, experts, top_k, groups and topk_groups must be ≥ 1"
        if self.top_k > self.experts:
            return f"top_k is {self.top_k} with {self.experts} experts"
        if self.experts % self.groups or self.topk_groups > self.groups:
            return f"{self.experts} experts do not form {self.groups} groups of which {self.topk_groups} are chosen"
        if self.matrices not in (2, 3):
            return f"an expert has {self.matrices} matrices, expected 3 (gated) or 2"
        if self.dtype not in WEIGHT_BYTES:
            return f"weight dtype {self.dtype!r} is not one of {', '.join(WEIGHT_BYTES)}"
        return ""

    @property
    def expert_bytes(self) -> int:
        """Weight bytes of one routed expert in one layer."""
        return round(self.matrices * self.hidden * self.intermediate * WEIGHT_BYTES[self.dtype])

    @property
    def width(self) -> int:
        """Of the residual stream, on which attention, dense layers, shared experts and the head work."""
        return self.model_width or self.hidden

    @property
    def shared_width(self) -> int:
        """Intermediate width of everything that runs beside the routed experts of a layer."""
        return self.shared_intermediate or self.shared_experts * self.intermediate

    @property
    def dense_dtype(self) -> str:
        """Weights outside the routed experts: FP8 checkpoints hold them in FP8, those with 4-bit experts in BF16."""
        return self.dtype if self.dtype == "fp8_block" else "bf16"

    @property
    def dense_layers(self) -> int:
        """Layers without experts, 0 when nobody said how many layers there are."""
        return max(0, self.hidden_layers - len(self.layers))


def weight_dtype(text: str) -> str | None:
    """The `WEIGHT_BYTES` key that a dtype word means ("bfloat16" → "bf16"), None when it means none.

    float32 checkpoints are served in bf16 and count as such.
    """
    word = text.lower().removeprefix("torch.")
    return next((dtype for dtype, words in _DTYPE_WORDS.items() if word in words.split()), None)

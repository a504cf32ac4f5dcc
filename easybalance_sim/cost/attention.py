"""Seconds of what a layer does beside its routed experts, and of a step outside the layers: a roofline with measured
efficiencies.

    layer  = fixed + max(weights, token · tokens) + kv · context + pair · pairs
    shared = shared_fixed + max(shared_weights, shared_token · tokens)      where there are experts

fixed: launches of the dense products, the decoding kernel, and for MLA `HEADWISE_S` · weights: bytes of the
projections over the bandwidth · token: their flops · kv: a token of the context of a decoding
request, the larger of the bytes of its cache and the flops of all heads (absorbed MLA on 128 heads is limited by
flops) · pair: a token of a prompt and one that it attends to. With `tensor_ranks` GPUs per data-parallel rank heads
and shared experts are split, MLA's latent projections and cache are not, and one reduction is added
(`cost.reduction`). Shares of bandwidth and peak: `cost.efficiency`.

Against InferSim's figures for DeepSeek-V3 on the H800 (f2293da, sequences and context of 4,096), µs per layer,
predicted / published: prefill of 8,192 tokens 4,623 / 4,415, of 4,096 2,372 / 2,221; decode of 64 requests 321 / 327,
of 128 455 / 471; shared expert 551 / 518, 285 / 267, 34 / 28, 34 / 31. `HEADWISE_S` is set by the two decode figures;
the others were not fitted.

Left out: norms, rotary embedding, quantisation of activations, the router, expanding a cached prefix of chunked
prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from easybalance_sim.cluster.attention_shape import GQA, MLA, VALUE_BYTES, AttentionShape
from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES, ModelShape
from easybalance_sim.cost.efficiency import Efficiency, Products, efficiency
from easybalance_sim.cost.reduction import reduction_seconds

HEADWISE_S = 45e-6
"""What absorbed MLA takes beside its projections as plain products: one small product per head before and after."""

HOST_S = 1e-3
"""Host seconds of a step. A guess: engines that prepare the next step while this one runs hide it, InferSim counts 5 ms
when decoding and 30 ms for a prompt."""

HEAD_DTYPE = "bf16"
ASSUMED_BAND = 0.50
_STAND_IN_HEAD_DIM, _STAND_IN_KV_HEADS = 128, 8


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Seconds of a layer on one data-parallel rank, see the module; shared_…: what a layer with routed experts has
    more. reasons: what is guessed or left out of this model and GPU · band_p90: relative error."""

    fixed: float
    weights: float
    token: float
    kv: float
    pair: float
    shared_fixed: float = 0.0
    shared_weights: float = 0.0
    shared_token: float = 0.0
    reasons: tuple[str, ...] = ()
    band_p90: float = 0.0

    def seconds(self, tokens: float, context: float = 0.0, pairs: float = 0.0) -> float:
        """Of a layer in a step with so many tokens, cached tokens that are read, and pairs in prompts; 0 without
        tokens."""
        if tokens <= 0:
            return 0.0
        return self.fixed + max(self.weights, self.token * tokens) + self.kv * context + self.pair * pairs

    def shared_seconds(self, tokens: float) -> float:
        """More in a layer with routed experts; 0 without tokens."""
        return self.shared_fixed + max(self.shared_weights, self.shared_token * tokens) if tokens > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class OutsideCost:
    """Seconds of a step outside the MoE layers. host: per step · dense_layers: layers with attention and no experts ·
    weights, token: their feed-forward parts together, max(weights, token · tokens) · head_weights, head_token: the
    head, likewise of one position per request: engines have no use for the others of a prompt."""

    host: float
    dense_layers: int
    weights: float
    token: float
    head_weights: float
    head_token: float
    reasons: tuple[str, ...] = ()

    def seconds(self, tokens: float, requests: float, attention: float) -> float:
        """Of a step with so many tokens of so many requests, attention of one layer taking `attention` seconds."""
        dense = self.dense_layers * attention + max(self.weights, self.token * tokens)
        return self.host + dense + max(self.head_weights, self.head_token * requests)


def attention_seconds(
    shape: ModelShape,
    hardware: HardwareProfile,
    tensor_ranks: int = 1,
    *,
    kv_frac: float = 1.0,
    domains: int = 1,
) -> AttentionCost:
    """Of one layer, the mean over all layers where they differ (sliding windows, linear attention).

    tensor_ranks: GPUs of a data-parallel rank, in so many NVLink `domains` · kv_frac: bytes of the KV cache against
    those at two a value. A model whose attention is not known gets that of `stand_in_attention`, with the reason and a
    wide band. Raises `UsageError` for ranks that do not split over the domains.
    """
    attention, reasons = known_attention(shape)
    speed = efficiency(hardware)
    layers = shape.hidden_layers or len(shape.layers)
    blocks = (attention.blocks or layers) / layers
    full = (attention.full or attention.blocks or layers) / layers
    part = _block(attention, shape, hardware, speed, tensor_ranks, kv_frac)
    shared = _shared(shape, hardware, speed, tensor_ranks)
    reduction = reduction_seconds(hardware, shape.width, tensor_ranks, domains=domains)
    guessed = (speed.reason,) if speed.reason else ()
    return AttentionCost(
        fixed=blocks * part.fixed + reduction.fixed,
        weights=blocks * part.weights,
        token=blocks * part.token + reduction.token,
        kv=full * part.kv,
        pair=full * part.pair,
        shared_fixed=shared.fixed,
        shared_weights=shared.weights,
        shared_token=shared.token,
        reasons=(*reasons, *guessed, *reduction.reasons),
        band_p90=max(speed.band_p90, ASSUMED_BAND if shape.attention is None or attention.note else 0.0),
    )


def outside_seconds(
    shape: ModelShape, hardware: HardwareProfile, tensor_ranks: int = 1, *, host_s: float = HOST_S
) -> OutsideCost:
    """Of a step: host, feed-forward parts of the layers without experts, head. A dense layer whose width is not known
    counts as four times the model's."""
    speed, reasons = efficiency(hardware), [f"host time of a step is taken as {host_s * 1e3:g} ms"]
    if shape.dense_layers and not shape.dense_intermediate and not _without_feed_forward(shape):
        reasons.append("width of the dense layers is assumed")
    if not shape.vocab:
        reasons.append("the head is left out: vocabulary not known")
    dense = _matrices(shape.dense_layers * dense_parameters(shape), shape.dense_dtype, hardware, speed, tensor_ranks)
    head = _matrices(shape.width * shape.vocab, HEAD_DTYPE, hardware, speed, tensor_ranks)
    launches = 2 * shape.dense_layers * _products(speed, shape.dense_dtype).launch_s
    return OutsideCost(
        host=host_s + launches,
        dense_layers=shape.dense_layers,
        weights=dense.weights,
        token=dense.token,
        head_weights=head.weights,
        head_token=head.token,
        reasons=tuple(reasons),
    )


def known_attention(shape: ModelShape) -> tuple[AttentionShape, tuple[str, ...]]:
    """The model's attention, or a stand-in, and what these numbers guess or leave out."""
    if shape.attention is None:
        return stand_in_attention(shape), (f"attention of {shape.name} is assumed: grouped-query, 8 KV heads of 128",)
    left_out = [shape.attention.note] if shape.attention.note else []
    if shape.attention.window:
        left_out.append(f"reading the last {shape.attention.window} tokens in sliding-window layers is left out")
    return shape.attention, tuple(left_out)


def stand_in_attention(shape: ModelShape) -> AttentionShape:
    """Grouped-query attention with heads of 128 over the model's width, 8 of them for keys and values."""
    heads = max(1, shape.width // _STAND_IN_HEAD_DIM)
    return AttentionShape(kind=GQA, heads=heads, kv_heads=min(heads, _STAND_IN_KV_HEADS), head_dim=_STAND_IN_HEAD_DIM)


def dense_parameters(shape: ModelShape) -> int:
    """Weights of the feed-forward part of one layer without experts."""
    if _without_feed_forward(shape):
        return 0
    return shape.matrices * shape.width * (shape.dense_intermediate or 4 * shape.width)


def shared_parameters(shape: ModelShape) -> int:
    """Weights of what runs beside the routed experts of one layer."""
    return shape.matrices * shape.width * shape.shared_width


def _without_feed_forward(shape: ModelShape) -> bool:
    """Layers of hybrid models are either attention or experts."""
    attention = shape.attention
    return attention is not None and 0 < attention.blocks < shape.dense_layers


def _block(
    attention: AttentionShape,
    shape: ModelShape,
    hardware: HardwareProfile,
    speed: Efficiency,
    ranks: int,
    kv_frac: float,
) -> AttentionCost:
    """One attention block."""
    plain = _matrices(
        attention.parameters(shape.width, ranks) * ranks, shape.dense_dtype, hardware, speed, ranks, attention.products
    )
    peak = hardware.peak_flops["bf16"]
    cache_bytes = attention.token_values(ranks) * VALUE_BYTES * kv_frac
    read_s = cache_bytes / (hardware.hbm_bytes_per_s * speed.cache)
    return replace(
        plain,
        fixed=plain.fixed + speed.start_s + (HEADWISE_S if attention.kind == MLA else 0.0),
        kv=max(read_s, attention.context_flops / ranks / (peak * speed.context_flop)),
        pair=attention.pair_flops / ranks / (peak * speed.pair_flop),
    )


def _shared(shape: ModelShape, hardware: HardwareProfile, speed: Efficiency, ranks: int) -> AttentionCost:
    parameters = shared_parameters(shape)
    return _matrices(parameters, shape.dense_dtype, hardware, speed, ranks, 2 if parameters else 0)


def _matrices(
    parameters: float, dtype: str, hardware: HardwareProfile, speed: Efficiency, ranks: int, products: int = 0
) -> AttentionCost:
    """`products` dense products with so many weights together, split over `ranks` GPUs."""
    share = _products(speed, dtype)
    return AttentionCost(
        fixed=products * share.launch_s,
        weights=parameters / ranks * WEIGHT_BYTES[dtype] / (hardware.hbm_bytes_per_s * share.read),
        token=2.0 * parameters / ranks / (hardware.peak_flops[dtype] * share.multiply),
        kv=0.0,
        pair=0.0,
    )


def _products(speed: Efficiency, dtype: str) -> Products:
    return speed.fp8 if dtype == "fp8_block" else speed.bf16

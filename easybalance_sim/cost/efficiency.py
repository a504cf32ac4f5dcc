"""Shares of a GPU's nominal bandwidth and peak that dense products and attention reach, fitted to published tables.

Dense products: t = launch + max(weights / (bandwidth · read), flops / (peak · multiply)), fitted by the mean absolute
log error. Sources and errors (mean / median / p90):

* H800 FP8: DeepGEMM, InferSim f2293da gemm/h800, 99 rows, 10.9 / 8.2 / 28 % (its rows of one 65536 × 128 product, which
  stands for a product per head, are left out) · H20 FP8: gemm/h20, 402 rows, 5.0 / 4.0 / 10 %.
* BF16: cuBLAS on the H200, aiconfigurator 095f58a51 gemm/vllm/0.24.0, 18,688 rows, 9.3 / 6.8 / 21 %.

Attention (InferSim's bench_data):

* cache: FlashInfer on the H800, 8 KV heads, 128 requests of 4K to 64K: 3.15 TB/s of 3.35; on the H20 2.9 to 3.3 of 4.0.
* context_flop: FlashMLA, 128 heads, 64 requests and more of 4K to 64K: 0.48 to 0.57 on the H800 (its own README: 580
  to 660 TFLOP/s, 0.59 to 0.67, and 3.0 TB/s where memory limits), 0.72 to 0.83 on the H20. * pair_flop: causal
  FlashAttention-3 on prompts of 4K to 32K: 0.58 to 0.63 on the H800 with MLA's 192 and 128 wide heads, 0.82 to 0.95 on
  the H20 with 128 wide ones.
* start: smallest time of the decoding kernels, 20 to 35 µs.
"""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.cluster.hardware import HardwareProfile

FIT_BAND = 0.15
SAME_ARCHITECTURE, OTHER_ARCHITECTURE = 0.12, 0.20
"""What is added to the band of numbers that were measured on another GPU, as in the hardware profiles."""


@dataclass(frozen=True, kw_only=True)
class Products:
    """Dense products: seconds of each one, shares of the bandwidth and of the peak."""

    launch_s: float
    read: float
    multiply: float


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """fp8, bf16: of dense products by the dtype of their weights · start_s: of a decoding kernel · cache: share of the
    bandwidth at which KV cache is read · context_flop, pair_flop: shares of the BF16 peak while decoding and in
    prompts · reason: why it is a guess, empty when measured on this GPU · band_p90: relative error."""

    fp8: Products
    bf16: Products
    start_s: float
    cache: float
    context_flop: float
    pair_flop: float
    reason: str = ""
    band_p90: float = FIT_BAND


_BF16 = Products(launch_s=4.1e-6, read=0.81, multiply=0.80)
_HOPPER_FP8 = Products(launch_s=9.2e-6, read=0.84, multiply=0.685)
_H20 = Products(launch_s=4.5e-6, read=0.48, multiply=0.90)


def efficiency(hardware: HardwareProfile) -> Efficiency:
    """Of the profile's GPU, told by its name; any that is not known counts as another architecture than the H800's."""
    name = hardware.name.lower()
    if name == "h20":
        return Efficiency(fp8=_H20, bf16=_H20, start_s=25e-6, cache=0.75, context_flop=0.75, pair_flop=0.87)
    reason, band = _transfer(name)
    return Efficiency(
        fp8=_HOPPER_FP8,
        bf16=_BF16,
        start_s=20e-6,
        cache=0.94,
        context_flop=0.55,
        pair_flop=0.62,
        reason=reason,
        band_p90=FIT_BAND + band,
    )


def _transfer(name: str) -> tuple[str, float]:
    if name == "h800":
        return "", 0.0
    if name in ("h100", "h200"):
        return "attention was measured on the H800", SAME_ARCHITECTURE
    return "attention was measured on the H800, another architecture", OTHER_ARCHITECTURE

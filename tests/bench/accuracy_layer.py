"""Whole layers with measured linear parts: `python -m tests.bench.accuracy_layer` prints each part and the bracket.

The deployments are those of the accuracy table, which takes attention and shared experts as numbers. Here they come
out of the measured GEMM curves and the context of each run, so the two check each other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.expert import expert_cost
from easybalance_sim.cost.network import link_cost
from easybalance_sim.profiling.tables import deepep
from easybalance_sim.profiling.whole_layer import ATTENTION, DENSE, SHARED, GemmCurves, Layer, core_us, rows_us
from tests.bench.accuracy_layers import DEPLOYMENTS, IMBALANCE, KERNELS, SMS, Deployment
from tests.bench.accuracy_rows import DATA, Line

CURVES = DATA / "infersim_gemm" / "gemm" / "h800" / "data.csv"
CONTEXTS = {"DeepSeek production decode": 4989, "SGLang decode, 2x128 requests": 2000}
"""Tokens before the current one; 4096 where the run does not say another."""
CEILING = 0.18
SHAPE = load_shape("deepseek-v3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A published run, attention_us and shared_us of the curves, and the layer that they make."""

    run: Deployment
    attention_us: float
    shared_us: float
    layer: Layer

    @property
    def bracket(self) -> tuple[float, float]:
        """Tokens/s of a GPU, serial and with full overlap."""
        return self.run.tokens / self.layer.serial_s, self.run.tokens / self.layer.overlap_s

    @property
    def holds(self) -> bool:
        serial, overlap = self.bracket
        return serial <= self.run.per_gpu <= overlap

    @property
    def cells(self) -> tuple[str, ...]:
        micros = self.attention_us, self.shared_us, self.layer.expert_us, self.layer.link_us
        hidden = self.layer.hidden(self.run.tokens / self.run.per_gpu)
        speeds = *self.bracket, self.run.per_gpu
        place = "inside" if self.holds else "outside"
        return (self.run.name, *(f"{value:,.0f}" for value in (*micros, *speeds)), f"{hidden:.2f}", place)


def rows() -> list[Row]:
    """The six published points. Raises `ProfileError` where the measured curves are absent."""
    curves = GemmCurves.read(CURVES)
    return [_row(run, curves) for run in DEPLOYMENTS]


def lines(found: list[Row]) -> list[Line]:
    """How many points lie inside."""
    inside = sum(row.holds for row in found)
    return [
        Line(
            item="published whole-layer points inside the bracket, parts from curves", measured=inside,
            target=len(found), rows=len(found), at_most=False, percent=False,
        )
    ]  # fmt: skip


def ceiling(layer: Layer) -> str:
    """What perfect balance gains a prefill layer, against the +18 % that SGLang measured."""
    skewed, experts = layer.skewed(IMBALANCE), layer.skewed(IMBALANCE, links=False)
    gains = skewed.serial_s / layer.serial_s, skewed.overlap_s / layer.overlap_s, experts.serial_s / layer.serial_s
    serial, overlap, alone = (100 * (gain - 1) for gain in gains)
    return (
        f"Perfect balance against {IMBALANCE} in dispatch, experts and combine: +{serial:.0f} % serial, "
        f"+{overlap:.0f} % with full overlap; in experts alone +{alone:.0f} %. SGLang's +18 % is an imbalance of "
        f"{layer.imbalance_of(CEILING):.2f} (serial)."
    )


def main() -> int:
    """Print the table; a line and success where the curves are absent."""
    if not CURVES.is_file():
        sys.stdout.write(f"accuracy_layer: skipped, no measured curves at {CURVES}\n")
        return 0
    found = rows()
    head = "run", "attention µs", "shared µs", "experts µs", "links µs", "serial", "overlap", "measured", "hidden", ""
    text = [" | ".join(cells) for cells in (head, *(row.cells for row in found))]
    prefill = next(row for row in found if row.run.gpu == "h100" and row.run.phase == "prefill")
    sys.stdout.write("\n".join([*text, ceiling(prefill.layer), ""]))
    return 0 if all(line.passed for line in lines(found)) else 1


def _row(run: Deployment, curves: GemmCurves) -> Row:
    # The curves are the H800's; the H100 has the same SMs and is taken to compute as fast.
    hardware = load_profile("h800")
    core = core_us(run.tokens, CONTEXTS.get(run.name, 4096), run.phase, hardware.peak_flops["bf16"])
    attention, shared = curves.us(run.tokens, ATTENTION) + core, curves.us(run.tokens, SHARED)
    # Only the H800 kernels were measured as two bare GEMMs.
    rest = rows_us(run.tokens, hardware.hbm_bytes_per_s) if run.gpu == "h800" else 0.0
    layer = Layer(
        fixed_us=attention + shared + rest,
        expert_us=_expert_us(run),
        link_us=_link_us(run, "dispatch") + _link_us(run, "combine"),
        dense_us=attention + curves.us(run.tokens, DENSE),
        slow_down=SMS / (SMS - run.taken_sms),
    )
    return Row(run=run, attention_us=attention, shared_us=shared, layer=layer)


def _expert_us(run: Deployment) -> float:
    cost = expert_cost(load_profile(run.gpu), SHAPE, run.phase, KERNELS[run.phase])
    each = np.full((1, 1, run.slots), round(run.tokens * SHAPE.top_k / run.slots), np.int32)
    reached = deepep.expected_distinct(min(run.ranks, SHAPE.experts // 2), SHAPE.experts, SHAPE.top_k)
    distinct = np.full((1, 1, 1), round(run.tokens * reached), np.int32)
    seconds, _ = cost.seconds(each, distinct, np.array([0, run.slots], np.int32), np.ones(1))
    return float(seconds[0, 0]) * 1e6


def _link_us(run: Deployment, phase: str) -> float:
    nodes, mode = run.ranks // deepep.GPUS_PER_NODE, "normal" if run.phase == "prefill" else "low_latency"
    low, normal = deepep.low_latency_copies(nodes, SHAPE.top_k), deepep.normal_copies(nodes, SHAPE.experts, SHAPE.top_k)
    rdma, nvlink = (np.full((1, 1, 1), round(run.tokens * each), np.int32) for each in (low, normal)[mode == "normal"])
    return float(link_cost(load_profile(run.gpu), SHAPE, nodes, mode, phase).seconds(rdma, nvlink)[0, 0]) * 1e6


if __name__ == "__main__":
    sys.exit(main())

"""Published throughputs of whole DeepSeek-V3 deployments against the bracket of the cost model.

    serial  = compute + communication · overlap = max(compute, communication), per MoE layer

Compute is attention, shared expert, quantisation and the routed experts; attention and shared expert do not depend on
the placement and are InferSim's measured H800 curves (f2293da), taken for the H100 too. Quantisation and activation are
added for the H800, whose table holds the two GEMMs only. In prefill the SMs that DeepEP takes away slow the overlapped
compute. Three dense layers: attention and a feed-forward as wide as nine shared experts. Norms, rope, gating, sampling,
host gaps and the LM head are left out. Loads are balanced, as they were in the published runs (the production decode
was not).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.expert import expert_cost
from easybalance_sim.cost.network import link_cost
from easybalance_sim.profiling.tables import deepep
from tests.bench.accuracy_rows import Line

MOE_LAYERS, DENSE_LAYERS, SMS, DENSE_WIDTH = 58, 3, 132, 9
IMBALANCE, CEILING = 1.2, 18.0
KERNELS = {"prefill": "deepgemm_contig", "decode": "deepgemm_masked"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """One published run. tokens: of a micro-batch on one GPU · slots: of a rank · per_gpu: measured tokens/s of a GPU ·
    attention_us, shared_us, other_us: parts that do not depend on the placement · taken_sms: by DeepEP."""

    name: str
    gpu: str
    phase: str
    ranks: int
    slots: int
    tokens: int
    attention_us: float
    shared_us: float
    other_us: float = 0.0
    taken_sms: int = 0
    per_gpu: float


# Measured: DeepSeek profile-data and its production report; SGLang's large-scale EP posts of 2025-05.
DEPLOYMENTS = (
    Deployment(
        name="DeepSeek prefill, micro-batches of 8192", gpu="h800", phase="prefill", ranks=32, slots=8, tokens=8192,
        attention_us=4415, shared_us=518, other_us=1282, taken_sms=20, per_gpu=7839,
    ),
    Deployment(
        name="DeepSeek prefill, micro-batches of 4096", gpu="h800", phase="prefill", ranks=32, slots=9, tokens=4096,
        attention_us=2221, shared_us=267, other_us=641, taken_sms=20, per_gpu=7839,
    ),
    Deployment(
        name="SGLang prefill, perfect balance", gpu="h100", phase="prefill", ranks=32, slots=9, tokens=4096,
        attention_us=2221, shared_us=267, taken_sms=24, per_gpu=7417,
    ),
    Deployment(
        name="DeepSeek decode, 2x64 requests", gpu="h800", phase="decode", ranks=128, slots=2, tokens=64,
        attention_us=327, shared_us=28, other_us=10, per_gpu=2324,
    ),
    Deployment(
        name="DeepSeek production decode", gpu="h800", phase="decode", ranks=144, slots=2, tokens=64,
        attention_us=327, shared_us=28, other_us=10, per_gpu=1850,
    ),
    Deployment(
        name="SGLang decode, 2x128 requests", gpu="h100", phase="decode", ranks=72, slots=4, tokens=128,
        attention_us=471, shared_us=31, per_gpu=2785,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """Tokens/s of a GPU without and with full overlap, and the share of the hideable time that the run hid."""

    run: Deployment
    serial: float
    overlap: float
    hidden: float

    @property
    def holds(self) -> bool:
        return self.serial <= self.run.per_gpu <= self.overlap


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """What perfect balance gains in SGLang's prefill, at one share of communication hidden by kernels that take so many
    multiprocessors: % from an imbalance of `IMBALANCE`, and the imbalance that gives `CEILING` %."""

    hidden: float
    taken_sms: int
    gain: float
    needed: float


def layer_lines() -> tuple[list[Line], list[Bracket], list[Ceiling]]:
    """The lines, the brackets, and the ceiling: without overlap, with the overlap that the run implies, with all; for
    communication that takes no multiprocessors, then for what DeepEP takes."""
    brackets = [_bracket(run) for run in DEPLOYMENTS]
    inside = sum(bracket.holds for bracket in brackets)
    taking = brackets[2]
    free = _bracket(replace(taking.run, taken_sms=0))
    ceilings = [_ceiling(one.run, hidden) for one in (free, taking) for hidden in (0.0, one.hidden, 1.0)]
    ceiling = f"SGLang's prefill ceiling (+{CEILING:.0f} %) between the gains from an imbalance of {IMBALANCE}"
    lines = [
        Line(
            item="published whole-layer points inside [serial, overlap]", measured=inside, target=len(brackets),
            rows=len(brackets), at_most=False, percent=False,
        ),
        Line(item=f"{ceiling}, no communication hidden", measured=ceilings[0].gain, target=CEILING, rows=1),
        Line(item=f"{ceiling}, all hidden", measured=ceilings[2].gain, target=CEILING, rows=1, at_most=False),
    ]  # fmt: skip
    return lines, brackets, ceilings


def _ceiling(run: Deployment, hidden: float) -> Ceiling:
    def gain(imbalance: float) -> float:
        skewed, even = (
            serial - hidden * (serial - overlap) for serial, overlap in (_seconds(run, imbalance), _seconds(run, 1.0))
        )
        return (skewed / even - 1) * 100

    needed = brentq(lambda imbalance: gain(imbalance) - CEILING, 1.0, 3.0)
    return Ceiling(hidden=hidden, taken_sms=run.taken_sms, gain=gain(IMBALANCE), needed=float(needed))


def _bracket(run: Deployment) -> Bracket:
    serial_s, overlap_s = _seconds(run, 1.0)
    measured_s = run.tokens / run.per_gpu
    return Bracket(
        run=run,
        serial=run.tokens / serial_s,
        overlap=run.tokens / overlap_s,
        hidden=(serial_s - measured_s) / (serial_s - overlap_s),
    )


def _seconds(run: Deployment, imbalance: float) -> tuple[float, float]:
    """Seconds of a micro-batch through all layers, serial and with full overlap."""
    expert_us, link_us = _expert_us(run) * imbalance, _link_us(run) * imbalance
    compute_us = run.attention_us + run.shared_us + run.other_us + expert_us
    dense_us = DENSE_LAYERS * (run.attention_us + DENSE_WIDTH * run.shared_us)
    slowed_us = compute_us * SMS / (SMS - run.taken_sms)
    layers = compute_us + link_us, max(slowed_us, link_us)
    serial_s, overlap_s = ((MOE_LAYERS * layer_us + dense_us) * 1e-6 for layer_us in layers)
    return serial_s, overlap_s


def _expert_us(run: Deployment) -> float:
    shape = load_shape("deepseek-v3")
    cost = expert_cost(load_profile(run.gpu), shape, run.phase, KERNELS[run.phase])
    each = round(run.tokens * shape.top_k / run.slots)
    reached = deepep.expected_distinct(min(run.ranks, shape.experts // 2), shape.experts, shape.top_k)
    seconds, _ = cost.seconds(
        np.full((1, 1, run.slots), each, np.int32),
        np.full((1, 1, 1), round(run.tokens * reached), np.int32),
        np.array([0, run.slots], np.int32),
        np.ones(1),
    )
    return float(seconds[0, 0]) * 1e6


def _link_us(run: Deployment) -> float:
    nodes = run.ranks // deepep.GPUS_PER_NODE
    mode = "normal" if run.phase == "prefill" else "low_latency"
    copies = deepep.normal_copies(nodes, 256, 8) if mode == "normal" else deepep.low_latency_copies(nodes, 8)
    sent = [np.array([[[round(run.tokens * each)]]], np.int32) for each in copies]
    costs = (
        link_cost(load_profile(run.gpu), load_shape("deepseek-v3"), nodes, mode, phase)
        for phase in ("dispatch", "combine")
    )
    return sum(float(cost.seconds(*sent)[0, 0]) for cost in costs) * 1e6

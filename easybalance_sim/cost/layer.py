"""Seconds of one MoE layer: dispatch, experts, combine, each until its slowest rank is done."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, Int16Array, Int32Array, IntArray, frozen, sealed
from easybalance_sim.cluster.hardware import PHASES, TABLE_MODES, HardwareProfile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.anchored import anchored_cost
from easybalance_sim.cost.expert import ExpertModel, expert_cost
from easybalance_sim.cost.link_tables import table_link
from easybalance_sim.cost.network import PhaseCost, link_cost, require_mode
from easybalance_sim.errors import UsageError

OVERLAPS = ("none", "two-batch", "full")
"""How communication hides behind experts: not at all; two micro-batches taking turns, each of which reads the weights
of its experts; or as much as there is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerSeconds:
    """Seconds of every (step, layer), with barriers: a rank waits for the slowest of each part.

    dispatch, expert, combine: float64[W, L] · active: int16[W, L, R] active slots of each rank · stated: float64[W, L]
    of a layer under the overlap that the user stated, None = serial.
    """

    dispatch: FloatArray
    expert: FloatArray
    combine: FloatArray
    active: Int16Array
    stated: FloatArray | None = None

    @property
    def serial(self) -> FloatArray:
        """float64[W, L] dispatch + expert + combine."""
        return self.dispatch + self.expert + self.combine

    @property
    def overlapped(self) -> FloatArray:
        """float64[W, L] of a layer that hides the shorter of communication and experts behind the longer."""
        return np.maximum(self.dispatch + self.combine, self.expert)

    @property
    def ranked(self) -> FloatArray:
        """float64[W, L] by which plans are ranked: under the stated overlap, else serial."""
        return self.serial if self.stated is None else self.stated


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerCost:
    """The cost of one MoE layer on one cluster, see `layer_cost`.

    slot_start: int32[R+1] first slot of each rank · speed: float64[R] expert time is divided by it · overlap: one of
    `OVERLAPS`. Shared experts, attention and norms are left out: they are the same for every placement.
    """

    profile: str
    expert: ExpertModel
    dispatch: PhaseCost
    combine: PhaseCost
    slot_start: Int32Array
    speed: FloatArray
    overlap: str = "none"

    def seconds(
        self, slot_tokens: Int32Array, distinct: Int32Array, rdma: Int32Array, nvlink: Int32Array
    ) -> LayerSeconds:
        """Seconds per (step, layer).

        slot_tokens: int32[W, L, P] assignments that a slot computes · distinct: int32[W, L, R] distinct tokens that
        arrive at a rank · rdma, nvlink: int32[W, L, R] dispatched copies in the busier direction of each rank; combine
        sends the same copies back.
        """
        whole = self._parts(slot_tokens, distinct, rdma, nvlink)
        if self.overlap == "none":
            return whole
        if self.overlap == "full":
            return replace(whole, stated=whole.overlapped)
        counts = (slot_tokens, distinct, rdma, nvlink)
        first, second = (self._parts(*(sealed((count + more) // 2) for count in counts)) for more in (1, 0))
        sent = first.dispatch + first.combine + second.dispatch + second.combine
        return replace(whole, stated=np.maximum(sent, first.expert + second.expert))

    def _parts(
        self, slot_tokens: Int32Array, distinct: Int32Array, rdma: Int32Array, nvlink: Int32Array
    ) -> LayerSeconds:
        expert, active = self.expert.seconds(slot_tokens, distinct, self.slot_start, self.speed)
        return LayerSeconds(
            dispatch=self.dispatch.seconds(rdma, nvlink),
            expert=expert,
            combine=self.combine.seconds(rdma, nvlink),
            active=active,
        )

    @property
    def copy_bytes(self) -> float:
        """Bytes of one copy of a token there (dispatch) and back (combine)."""
        return self.dispatch.copy_bytes + self.combine.copy_bytes

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the seconds are not calibrated, each reason once; empty when they are."""
        return tuple(dict.fromkeys((*self.expert.reasons, *self.dispatch.reasons, *self.combine.reasons)))

    @property
    def calibrated(self) -> bool:
        """True when every part was measured on this GPU, model width and number of nodes."""
        return not self.reasons

    @property
    def band_p90(self) -> float:
        """90th percentile of the relative error of the worst part (how it was found: `cluster.hardware`)."""
        return max(self.expert.band_p90, self.dispatch.band_p90, self.combine.band_p90)

    @property
    def label(self) -> str:
        """One line: "h200 · fp8_block deepgemm_masked · band ±27 %", then "uncalibrated: …" where it is."""
        parts = (self.profile, self.expert.name, self.dispatch.name, f"band ±{100 * self.band_p90:.0f} %")
        line = " · ".join(filter(None, parts))
        return line if self.calibrated else f"{line} · uncalibrated: {'; '.join(self.reasons)}"


def layer_cost(
    profile: HardwareProfile,
    shape: ModelShape,
    topology: Topology,
    slots_per_rank: IntArray,
    mode: str,
    phase: str,
    *,
    kernel: str = "",
    overlap: str = "none",
) -> LayerCost:
    """The layer cost for plans with `slots_per_rank` (int64[R]) slots.

    mode: all-to-all mode, one of `hardware.MODES` · phase: `prefill` or `decode` chooses the kernel; `unknown` counts
    as decode · kernel: a kernel of the profile by name instead · overlap: one of `OVERLAPS`. Where the profile has the
    user's table the formula is anchored on it. Raises `UsageError` for an unknown mode, phase or overlap,
    `ProfileError` for an unknown kernel.
    """
    if overlap not in OVERLAPS:
        raise UsageError(f"unknown overlap; there are {', '.join(OVERLAPS)}", where=overlap)
    if phase not in (*PHASES, "unknown"):
        raise UsageError(f"unknown phase; there are {', '.join((*PHASES, 'unknown'))}", where=phase)
    formula = expert_cost(profile, shape, "decode" if phase == "unknown" else phase, kernel)
    table = profile.expert_table
    expert: ExpertModel = formula if table is None else anchored_cost(table, formula, topology.ranks)
    return LayerCost(
        profile=profile.name,
        expert=expert,
        dispatch=_phase_cost(profile, shape, topology, mode, "dispatch"),
        combine=_phase_cost(profile, shape, topology, mode, "combine"),
        slot_start=frozen(np.concatenate([[0], np.cumsum(slots_per_rank)]), np.int32),
        speed=topology.speed,
        overlap=overlap,
    )


def _phase_cost(profile: HardwareProfile, shape: ModelShape, topology: Topology, mode: str, phase: str) -> PhaseCost:
    require_mode(mode)
    if mode in TABLE_MODES:
        return table_link(profile, shape, topology.nodes, topology.ranks, mode, phase)
    return link_cost(profile, shape, topology.nodes, mode, phase)

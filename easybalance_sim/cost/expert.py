"""Expert time of a rank from the per-slot token counts of one step.

    A = active slots (count > 0) · M_s = assignments of slot s · P = sum of M_s · U = distinct tokens on the rank
    t_w = A · m·H·I·b / (bw · eff_bw)                         weights of active slots, read once
    t_f = sum_s ceil(M_s / block)·block · 2m·H·I / (peak · eff_flop)      tiles, padding included
    t   = c0 + (t_w^q + t_f^q)^(1/q) + [P·(2H + m·I)·2 + tok·U·2H] / bw            0 when P = 0

H, I: widths · m: matrices per expert (3 gated) · b: bytes per weight. The five numbers c0, eff_bw, eff_flop, q, tok are
fitted per (GPU, dtype, kernel) to tables measured by aiconfigurator (095f58a51) and InferSim (f2293da). Costing needs
the counts of single steps: the same formula on average counts errs by 16-98 % in decode, because ceil() and M > 0 see
experts active that were not. Shared experts are left out: their time does not depend on the placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int16Array, Int32Array, frozen
from easybalance_sim.cluster.hardware import ExpertKernel, HardwareProfile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES, ModelShape
from easybalance_sim.errors import ProfileError


class ExpertModel(Protocol):
    """Anything that turns the counts of a step into expert seconds: the formula, alone or anchored on a table."""

    @property
    def name(self) -> str:
        """What computes the time, for a label."""

    @property
    def band_p90(self) -> float:
        """90th percentile of the relative error, 0 = not known."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the time is not calibrated for this GPU and model; empty when it is."""

    def seconds(
        self, slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray
    ) -> tuple[FloatArray, Int16Array]:
        """float64[W, L] seconds of the slowest rank, int16[W, L, R] active slots."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertCost:
    """The formula of this module with one kernel's parameters.

    kernel: the fitted row · shape: the model · bytes_per_s: HBM bandwidth · peak_flops: of the dtype that computes.
    """

    kernel: ExpertKernel
    shape: ModelShape
    bytes_per_s: float
    peak_flops: float

    @property
    def name(self) -> str:
        """ "fp8_block deepgemm_masked", or "mxfp4 as deepgemm_masked" when the kernel was fitted on another dtype."""
        return f"{self.shape.dtype} {'' if self._own_dtype else 'as '}{self.kernel.kernel}"

    @property
    def band_p90(self) -> float:
        """Held-out 90th percentile of the kernel's error; 20 points more when it was fitted on another dtype."""
        return self.kernel.band_p90 + (0.0 if self._own_dtype else 0.2)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the time is not calibrated; empty when it is."""
        found = []
        if self.shape.assumed:
            found.append("the model's widths are assumed")
        if not self._own_dtype:
            found.append(f"no {self.shape.dtype} kernel was measured, {self.kernel.dtype} parameters stand in")
        if not self.kernel.calibrated:
            found.append(self.kernel.why)
        if not self.shape.assumed and not fits_widths(self.kernel, self.shape):
            widths = f"{self.shape.hidden}×{self.shape.intermediate}"
            found.append(f"model width {widths} lies outside the fitted {_range(self.kernel)}")
        return tuple(found)

    @property
    def _own_dtype(self) -> bool:
        return self.kernel.dtype == self.shape.dtype

    @cached_property
    def params(self) -> FloatArray:
        """float64[7] as `kernels.reference_costs.expert_seconds` lists them."""
        row, shape = self.kernel, self.shape
        weights = shape.matrices * shape.hidden * shape.intermediate
        rows_bytes = 2.0 * (2 * shape.hidden + shape.matrices * shape.intermediate)
        values = [
            row.c0_us * 1e-6,
            weights * WEIGHT_BYTES[shape.dtype] / (self.bytes_per_s * row.eff_bw),
            row.block * 2.0 * weights / (self.peak_flops * row.eff_flop),
            row.q,
            float(row.block),
            rows_bytes / self.bytes_per_s,
            row.tok * 2.0 * shape.hidden / self.bytes_per_s,
        ]
        return frozen(np.array(values))

    def seconds(
        self, slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray
    ) -> tuple[FloatArray, Int16Array]:
        """Seconds of the slowest rank of every (step, layer), and the active slots of every rank.

        slot_tokens: int32[W, L, P] · distinct: int32[W, L, R] · slot_start: int32[R+1] · speed: float64[R].
        Returns float64[W, L] and int16[W, L, R].
        """
        module = kernels.load("auto")
        seconds, active = module.expert_seconds(
            frozen(slot_tokens, np.int32),
            frozen(distinct, np.int32),
            frozen(slot_start, np.int32),
            frozen(speed, np.float64),
            self.params,
        )
        return seconds, active


def expert_cost(profile: HardwareProfile, shape: ModelShape, phase: str, kernel: str = "") -> ExpertCost:
    """The formula with the profile's row for this model and phase, or the row named `kernel`.

    Of the phase's default rows the first of the model's dtype that was fitted on its widths is taken, then the first of
    its dtype, then the first of any dtype (its efficiencies with this dtype's weight bytes and peak; uncalibrated).
    Raises `ProfileError` when no row is left.
    """
    rows = [row for row in profile.experts if (row.kernel == kernel if kernel else phase in row.phases)]
    if not rows:
        wanted = f"kernel {kernel}" if kernel else f"default kernel for {phase}"
        known = ", ".join(sorted({row.kernel for row in profile.experts}))
        raise ProfileError(f"has no {wanted}; kernels are {known}", where=f"profile {profile.name}")
    row = min(rows, key=lambda row: (row.dtype != shape.dtype, not fits_widths(row, shape)))
    return ExpertCost(
        kernel=row, shape=shape, bytes_per_s=profile.hbm_bytes_per_s, peak_flops=profile.peak_flops[shape.dtype]
    )


def fits_widths(row: ExpertKernel, shape: ModelShape) -> bool:
    """Whether the model's widths lie inside the table that the row was fitted on."""
    pairs = ((row.hidden, shape.hidden), (row.intermediate, shape.intermediate))
    return all(not span or span[0] <= width <= span[1] for span, width in pairs)


def _range(row: ExpertKernel) -> str:
    spans = (row.hidden, row.intermediate)
    return "×".join(str(s[0]) if s and s[0] == s[1] else f"{s[0]}-{s[1]}" if s else "any" for s in spans)

"""Seconds of the all-to-all phases around the experts, from the copies on the busiest link of each rank.

    low latency: t = base + per_doubling·log2(N) + max(rdma / bw_rdma, nvlink / bw_nvlink)
    normal:      t = base + per_doubling·[N > 1] + notify(N) + ((rdma / bw_rdma)^q + (nvlink / bw_nvlink)^q)^(1/q)

N: NVLink domains · rdma, nvlink: bytes over each kind of link in the busier direction. Normal mode sends a token once
per distinct remote domain over RDMA and forwards it once per distinct rank over NVLink; low latency sends one copy per
assignment. Coefficients: profile rows, fitted to DeepEP tables of aiconfigurator (095f58a51) and DeepEP docs/legacy.md.
Every measured row is balanced; that the busiest direction sets the time is physics, not validated on skewed traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import log2
from typing import Protocol

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array
from easybalance_sim.cluster.hardware import FITTED_MODES, MODES, TABLE_MODES, CommLink, HardwareProfile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.errors import UsageError

SKEWED_TRAFFIC = "links by the busiest direction: every measured table is balanced, so skew is not validated by data"
LOW_LATENCY_HEADER_BYTES = 16
FP8_SCALE_SHARE = 4 / 128
_FEW_RANKS = 64
_SENT_DTYPE = {"nvfp4": "nvfp4", "fp8_block": "fp8"}
_ROW_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5 + 1 / 16}


class PhaseCost(Protocol):
    """Anything that turns copies into the seconds of one all-to-all phase: fitted rows, or a measured table."""

    @property
    def name(self) -> str:
        """Where the time comes from, for a label; empty for the profile's fitted rows."""

    @property
    def copy_bytes(self) -> float:
        """Bytes of one copy of a token."""

    @property
    def nvlink_bytes_per_s(self) -> float:
        """What another byte inside the domain costs."""

    @property
    def band_p90(self) -> float:
        """90th percentile of the relative error."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the time is not calibrated; empty when it is."""

    def seconds(self, rdma_copies: Int32Array, nvlink_copies: Int32Array) -> FloatArray:
        """float64[W, L] seconds of the slowest rank from int32[W, L, R] copies in its busier directions."""


@dataclass(frozen=True, kw_only=True)
class LinkCost:
    """One all-to-all phase on one topology: the fitted row, the number of NVLink domains, bytes of one copy."""

    link: CommLink
    nodes: int
    copy_bytes: float

    @property
    def name(self) -> str:
        """Empty: the rows of the profile."""
        return ""

    @property
    def nvlink_bytes_per_s(self) -> float:
        """Of the fitted row."""
        return self.link.nvlink_bytes_per_s

    @property
    def band_p90(self) -> float:
        """Of the fitted row."""
        return self.link.band_p90

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the time is not calibrated; empty when it is."""
        found = [] if self.link.calibrated else [self.link.why]
        if self.nodes > self.link.nodes[1]:
            found.append(f"{self.link.mode} {self.link.phase} was measured on at most {self.link.nodes[1]} nodes")
        return tuple(found)

    def seconds(self, rdma_copies: Int32Array, nvlink_copies: Int32Array) -> FloatArray:
        """float64[W, L] seconds of the slowest rank, see `phase_seconds`."""
        return phase_seconds(rdma_copies, nvlink_copies, self.copy_bytes, self.nodes, self.link)


def link_cost(profile: HardwareProfile, shape: ModelShape, nodes: int, mode: str, phase: str) -> LinkCost:
    """The cost of `phase` (dispatch or combine) with the row whose range of domains holds `nodes`, else the widest.

    Raises `UsageError` for a mode that is not fitted.
    """
    require_mode(mode, FITTED_MODES)
    rows = [row for row in profile.links if (row.mode, row.phase) == (mode, phase)]
    inside = [row for row in rows if row.nodes[0] <= nodes <= row.nodes[1]]
    row = inside[0] if inside else max(rows, key=lambda row: row.nodes[1])
    copy_bytes = dispatch_bytes(shape, mode) if phase == "dispatch" else combine_bytes(shape)
    return LinkCost(link=row, nodes=nodes, copy_bytes=copy_bytes)


def phase_seconds(
    rdma_copies: Int32Array, nvlink_copies: Int32Array, copy_bytes: float, nodes: int, params: CommLink
) -> FloatArray:
    """Seconds until the slowest rank is done.

    rdma_copies, nvlink_copies: int32[W, L, R] copies in the busier direction of each rank's RDMA and NVLink ·
    copy_bytes: bytes of one copy · nodes: N. Returns float64[W, L], 0 where nothing is sent.
    """
    if params.q == 0 or not rdma_copies.any():
        # Either link alone decides, so the busiest rank of each will do.
        rdma_copies, nvlink_copies = (_over_ranks(copies)[..., None] for copies in (rdma_copies, nvlink_copies))
    rdma = np.multiply(rdma_copies, copy_bytes / params.rdma_bytes_per_s, dtype=np.float64)
    nvlink = np.multiply(nvlink_copies, copy_bytes / params.nvlink_bytes_per_s, dtype=np.float64)
    transfer = _over_ranks(_busiest_link(rdma, nvlink, params))
    return np.where(transfer > 0, transfer + _fixed_s(params, nodes), 0.0)


def dispatch_bytes(shape: ModelShape, mode: str) -> float:
    """Bytes of one dispatched copy. DeepEP: FP8 with one float scale per 128 values, and a header in low-latency mode.

    H + H/32 (+ 16), whatever the dtype of the weights (source: DeepEP tests/legacy/test_low_latency.py). Other modes:
    `row_bytes` of `sent_dtype`. Raises `UsageError` for an unknown mode.
    """
    require_mode(mode)
    if mode in TABLE_MODES:
        return row_bytes(shape.hidden, sent_dtype(shape, mode, "dispatch"))
    return shape.hidden * (1 + FP8_SCALE_SHARE) + (LOW_LATENCY_HEADER_BYTES if mode == "low_latency" else 0)


def sent_dtype(shape: ModelShape, mode: str, phase: str) -> str:
    """Dtype of the rows that a looked-up mode sends, one of `hardware.SENT_DTYPES`."""
    return _SENT_DTYPE.get(shape.dtype, "bf16") if (mode, phase) == ("nvlink", "dispatch") else "bf16"


def row_bytes(hidden: int, dtype: str) -> float:
    """Bytes of one copy of a token; NVFP4 with one scale byte per 16 values."""
    return hidden * _ROW_BYTES[dtype]


def combine_bytes(shape: ModelShape) -> float:
    """Bytes of one copy on the way back: BF16, 2H."""
    return 2.0 * shape.hidden


def require_mode(mode: str, known: tuple[str, ...] = MODES) -> None:
    """Raise `UsageError` unless `mode` is one of `known`."""
    if mode not in known:
        raise UsageError(f"unknown all-to-all mode; there are {', '.join(known)}", where=mode)


def _over_ranks(values: AnyArray) -> AnyArray:
    """[W, L] the largest of all ranks of [W, L, R]; rank by rank, which for few of them is 8 times as fast as along the
    last axis."""
    if values.shape[-1] > _FEW_RANKS:
        return np.asarray(values.max(axis=-1))
    return np.asarray(reduce(np.maximum, np.moveaxis(values, -1, 0)))


def _busiest_link(rdma: FloatArray, nvlink: FloatArray, params: CommLink) -> FloatArray:
    if params.q == 0 or not rdma.any():
        return np.maximum(rdma, nvlink)
    high, low = np.maximum(rdma, nvlink), np.minimum(rdma, nvlink)
    share = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    return np.asarray(high * (1.0 + share**params.q) ** (1.0 / params.q))


def _fixed_s(params: CommLink, nodes: int) -> float:
    doublings = log2(max(nodes, 1)) if params.mode == "low_latency" else float(nodes > 1)
    return (params.base_us + params.per_doubling_us * doublings + _notify_us(params, nodes)) * 1e-6


def _notify_us(params: CommLink, nodes: int) -> float:
    if not params.notify_us:
        return 0.0
    known_nodes = [float(row[0]) for row in params.notify_us]
    return float(np.interp(float(nodes), known_nodes, [row[1] for row in params.notify_us]))

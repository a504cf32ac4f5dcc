"""Bounded fit of one all-to-all phase (`cost.network`) and look-ups in its table.

    t = base + per_doubling·d(N) + max or q-norm of (rdma / bw_rdma, nvlink / bw_nvlink)

d(N) is log2(N) in low latency and [N > 1] in normal mode. Bandwidths stay at or under the nominal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.hardware import ExpertTable
from easybalance_sim.cost.look_up import FARTHEST_EXTRAPOLATION
from easybalance_sim.cost.profiles import table_us
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.fit import each_group
from easybalance_sim.profiling.rows import LinkRow

_SOFT = 0.1
_STARTS = ((20.0, 5.0, 0.85, 0.5, 3.0), (40.0, 15.0, 0.8, 0.6, 6.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkNumbers:
    """The fitted numbers, as `cluster.hardware.CommLink` names them; q = 0 is the plain maximum."""

    base_us: float
    per_doubling_us: float
    rdma_bytes_per_s: float
    nvlink_bytes_per_s: float
    q: float


def link_us(numbers: LinkNumbers, rows: Sequence[LinkRow]) -> FloatArray:
    """float64[N] µs of every row, without notify."""
    rdma = np.array([row.rdma_bytes for row in rows]) / numbers.rdma_bytes_per_s * 1e6
    nvlink = np.array([row.nvlink_bytes for row in rows]) / numbers.nvlink_bytes_per_s * 1e6
    nodes = np.array([row.nodes for row in rows])
    doublings = np.where([row.mode == "normal" for row in rows], (nodes > 1) * 1.0, np.log2(nodes))
    high, low = np.maximum(rdma, nvlink), np.minimum(rdma, nvlink)
    if numbers.q:
        share = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
        high = high * (1.0 + share**numbers.q) ** (1.0 / numbers.q)
    return np.asarray(numbers.base_us + numbers.per_doubling_us * doublings + high)


def fit_link(rows: Sequence[LinkRow], nominal_rdma: float, nominal_nvlink: float) -> LinkNumbers:
    """The bounded fit of rows of one mode and phase; nominal: bytes/s, one direction.

    Raises `ProfileError` for fewer rows than numbers.
    """
    smooth = bool(rows) and rows[0].mode == "normal"
    if len(rows) < 5:
        raise ProfileError(f"{len(rows)} rows cannot fit 5 numbers", where="profile fit", fix="add rows")
    measured = np.array([row.us for row in rows])

    def numbers(values: FloatArray) -> LinkNumbers:
        return LinkNumbers(
            base_us=float(values[0]),
            per_doubling_us=float(values[1]),
            rdma_bytes_per_s=float(values[2] * nominal_rdma),
            nvlink_bytes_per_s=float(values[3] * nominal_nvlink),
            q=float(values[4]) if smooth else 0.0,
        )

    def residuals(values: FloatArray) -> FloatArray:
        return np.asarray(np.log(link_us(numbers(values), rows) / measured))

    low, high = (0.1, 0.0, 0.02, 0.02, 1.0), (500.0, 200.0, 1.0, 1.0, 25.0)
    tries = [
        least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_SOFT, x_scale="jac")
        for start in _STARTS
    ]
    return numbers(min(tries, key=lambda found: float(found.cost)).x)


def cross_link_us(
    rows: Sequence[LinkRow], groups: Sequence[object], nominal_rdma: float, nominal_nvlink: float
) -> FloatArray:
    """float64[N] µs of every row from a fit that saw no row of its group."""
    us = np.zeros(len(rows))
    for held in each_group(groups):
        train = [row for row, out in zip(rows, held, strict=True) if not out]
        us[held] = link_us(
            fit_link(train, nominal_rdma, nominal_nvlink), [row for row, out in zip(rows, held, strict=True) if out]
        )
    return us


def looked_up(rows: Sequence[LinkRow]) -> tuple[FloatArray, FloatArray]:
    """Measured and looked-up µs of every second inner point of each curve, from a table of the others.

    The look-up is the one of the user's own tables (`cost.profiles.table_us`); two equal sizes are averaged.
    """
    measured: list[float] = []
    found: list[float] = []
    for held in each_group([row.curve for row in rows]):
        sizes, times = _curve([row for row, inside in zip(rows, held, strict=True) if inside])
        if len(sizes) < 5:
            continue
        keep = np.ones(len(sizes), bool)
        keep[1:-1:2] = False
        table = ExpertTable(
            tokens=tuple(sizes[keep]), us=tuple(times[keep]), calibrated=True, source="every second point"
        )
        measured += times[~keep].tolist()
        found += table_us(table, np.minimum(sizes[~keep], FARTHEST_EXTRAPOLATION * sizes[keep][-1])).tolist()
    return np.array(measured), np.array(found)


def _curve(rows: Sequence[LinkRow]) -> tuple[FloatArray, FloatArray]:
    sizes = np.unique([row.size for row in rows]).astype(np.float64)
    return sizes, np.array([np.mean([row.us for row in rows if row.size == size]) for size in sizes])

"""Seconds of an all-to-all inside one NVLink domain, looked up in measured tables: of NCCL, and of TensorRT-LLM's own.

A token is sent once to every distinct rank that holds one of its experts. The table is read at the bytes that leave the
busiest rank, in the busier direction (`cost.look_up`). NCCL sends BF16 rows both ways; TensorRT-LLM sends what the
experts compute in, and BF16 back. Sources: aiconfigurator 095f58a51, `nccl_perf` and `trtllm_alltoall_perf`. As with
the other modes, every row was measured with all ranks sending as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from easybalance_sim.arrays import FloatArray, Int32Array
from easybalance_sim.cluster.hardware import HardwareProfile, LinkTable
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.look_up import looked_up_us, tail_slope
from easybalance_sim.cost.network import row_bytes, sent_dtype
from easybalance_sim.errors import ProfileError, UsageError


@dataclass(frozen=True, kw_only=True)
class TableLink:
    """One all-to-all phase (a `PhaseCost`). ranks: of the domain · copy_bytes: of one copy."""

    table: LinkTable
    ranks: int
    copy_bytes: float

    @property
    def name(self) -> str:
        """ "nccl table of 8 ranks"."""
        return f"{self.table.mode} table of {self.table.ranks} ranks"

    @property
    def band_p90(self) -> float:
        """90th percentile of the error of looking up rows that are not in the table."""
        return self.table.band_p90

    @property
    def nvlink_bytes_per_s(self) -> float:
        """What more bytes cost at the end of the table."""
        return 1e6 / max(tail_slope(self.table.sent_bytes, self.table.us), 1e-12)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the time is not calibrated; empty when it is."""
        found = [] if self.table.calibrated else [self.table.why]
        if self.ranks != self.table.ranks:
            found.append(f"no {self.table.mode} table of {self.ranks} ranks: that of {self.table.ranks}")
        return tuple(found)

    def seconds(self, rdma_copies: Int32Array, nvlink_copies: Int32Array) -> FloatArray:
        """float64[W, L] seconds of the slowest rank; no copy leaves the domain.

        Raises `ProfileError` beyond 4 times the table's largest message.
        """
        sent = nvlink_copies.max(axis=-1) * self.copy_bytes
        us = looked_up_us(
            self.table.sent_bytes, self.table.us, sent, what="bytes that a rank sends", where=self.table.source
        )
        return us * 1e-6


def table_link(profile: HardwareProfile, shape: ModelShape, nodes: int, ranks: int, mode: str, phase: str) -> TableLink:
    """The table of `phase` (dispatch or combine) that is nearest: of the dtype that is sent, then in ranks.

    Raises `UsageError` for several NVLink domains, `ProfileError` when the profile has no table of the mode.
    """
    if nodes > 1:
        raise UsageError(
            f"{mode} was measured inside one NVLink domain only, the cluster has {nodes}",
            where="--all-to-all",
            fix="choose normal or low_latency",
        )
    tables = [table for table in profile.link_tables if table.mode == mode and phase in table.phases]
    if not tables:
        raise ProfileError(
            f"has no table of the {mode} all-to-all",
            where=f"profile {profile.name}",
            fix="import one (ebsim profile import), or choose normal or low_latency",
        )
    dtype = sent_dtype(shape, mode, phase)
    table = min(tables, key=lambda table: (table.dtype != dtype, abs(log2(table.ranks / ranks))))
    return TableLink(table=table, ranks=ranks, copy_bytes=row_bytes(shape.hidden, dtype))

"""Seconds of adding up what the GPUs of a tensor-parallel group computed: an all-reduce (or its two halves, a
reduce-scatter before and an all-gather after something, which take as long together).

    one NVLink domain   t = fixed + bytes / bandwidth
    N domains           t = that inside one + 2 · (N - 1) · (message + bytes / ranks / network)

bytes: of the sum, on every rank. Between domains each GPU reduces its share, bytes over all `ranks`, with the GPU of
the same place in every other domain, over its own network card. Sources: NCCL 2.29.2 all_reduce of 16-bit values on 2,
4 and 8 GPUs, 4 KiB to 64 MiB (aiconfigurator 095f58a51), fitted by the mean absolute log error: 5 to 13 %, p90 12 to
40 % (where NCCL changes its algorithm, at some MiB). Network: send_recv between nodes with H100 (vidur 7d47513), 19 µs
and 35.9 of nominally 50 GB/s. Kernels of engines for small sums are faster than NCCL; that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.errors import UsageError

MESSAGE_S, NETWORK_SHARE = 19e-6, 35.9 / 50
"""Of a message between domains: seconds, and the share of the nominal bandwidth."""

FITTED = {
    "h100": {2: (7.1e-6, 209e9), 4: (10.9e-6, 190e9), 8: (18.2e-6, 162e9)},
    "h200": {2: (7.2e-6, 243e9), 4: (10.8e-6, 191e9), 8: (18.2e-6, 162e9)},
    "b200": {2: (11.0e-6, 396e9), 4: (16.1e-6, 214e9), 8: (26.5e-6, 237e9)},
    "gb200": {2: (11.6e-6, 396e9), 4: (16.7e-6, 212e9)},
}
"""Profile → GPUs → fixed seconds and bytes per second. Other GPUs: the H100's, by the nominal NVLink bandwidths."""

_MEASURED_NVLINK = 450e9
_BAND, _SCALED_BAND = 0.25, 0.12


@dataclass(frozen=True, kw_only=True)
class ReductionSeconds:
    """Of one reduction: `fixed` + `token` · tokens; both 0 on one GPU. reasons: why it is a guess, empty when measured
    · band_p90: relative error."""

    fixed: float = 0.0
    token: float = 0.0
    reasons: tuple[str, ...] = ()
    band_p90: float = 0.0

    def seconds(self, tokens: float) -> float:
        """Of `tokens` rows, 0 for none."""
        return self.fixed + self.token * tokens if tokens > 0 else 0.0


def reduction_seconds(
    hardware: HardwareProfile, width: int, ranks: int, *, domains: int = 1, value_bytes: float = 2.0
) -> ReductionSeconds:
    """An all-reduce of [tokens, width] over `ranks` GPUs, as many in each of `domains` NVLink domains.

    Raises `UsageError` for ranks that do not split evenly.
    """
    if ranks < 1 or domains < 1 or ranks % domains:
        raise UsageError(f"{ranks} ranks in {domains} NVLink domains", fix="give as many to each")
    row_bytes = width * value_bytes
    inside = _inside(hardware, row_bytes, ranks // domains)
    if domains == 1:
        return inside
    network = hardware.inter_node_bytes_per_s * NETWORK_SHARE
    return ReductionSeconds(
        fixed=inside.fixed + 2 * (domains - 1) * MESSAGE_S,
        token=inside.token + 2 * (domains - 1) * row_bytes / ranks / network,
        reasons=(*inside.reasons, "a reduction over the network is put together from single messages"),
        band_p90=inside.band_p90 + _SCALED_BAND,
    )


def _inside(hardware: HardwareProfile, row_bytes: float, ranks: int) -> ReductionSeconds:
    if ranks == 1:
        return ReductionSeconds()
    name = hardware.name.lower()
    table = FITTED.get(name, FITTED["h100"])
    nearest = min(table, key=lambda measured: abs(log2(measured / ranks)))
    fixed, bytes_per_s = table[nearest]
    reasons = [] if nearest == ranks else [f"no reduction of {ranks} GPUs was measured: that of {nearest}"]
    if name not in FITTED:
        bytes_per_s *= hardware.nvlink_bytes_per_s / _MEASURED_NVLINK
        reasons.append("reductions were measured on the H100; scaled by the nominal NVLink bandwidth")
    band = _BAND + _SCALED_BAND * len(reasons)
    return ReductionSeconds(fixed=fixed, token=row_bytes / bytes_per_s, reasons=tuple(reasons), band_p90=band)

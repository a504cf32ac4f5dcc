"""The way from where experts are kept to the GPU: bytes per second, and the time until they begin to come."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.errors import UsageError, did_you_mean

USABLE_FRAC = 0.8
"""Of the nominal rate, that copies and reads are taken to reach: an assumption. `ebsim profile measure` times copies
from the host; give what it says in GB/s."""

PCIE_LATENCY_S, DRIVE_LATENCY_S = 10e-6, 100e-6
NOMINAL_GB_PER_S = {"pcie4": 32.0, "pcie5": 64.0, "pcie6": 128.0, "nvme": 8.0}
"""One direction: 16 lanes of a generation; a drive on 4 lanes of generation 4 (2 GB/s a lane)."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """bytes_per_s: that a GPU gets of it · latency_s: from asking to the first byte."""

    name: str
    bytes_per_s: float
    latency_s: float


def link_of(text: str) -> Link:
    """The link of a name in `NOMINAL_GB_PER_S`, or of GB/s as a number, which is taken as it is.

    Raises `UsageError` for anything else.
    """
    if text in NOMINAL_GB_PER_S:
        latency_s = DRIVE_LATENCY_S if text == "nvme" else PCIE_LATENCY_S
        return Link(name=text, bytes_per_s=NOMINAL_GB_PER_S[text] * USABLE_FRAC * 1e9, latency_s=latency_s)
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        known = ", ".join(NOMINAL_GB_PER_S)
        raise UsageError(
            f"{text!r} is no link",
            where="--host",
            fix=f"{did_you_mean(text, NOMINAL_GB_PER_S)}choose {known}, or GB/s like 55",
        )
    return Link(name=f"{rate:g} GB/s", bytes_per_s=rate * 1e9, latency_s=PCIE_LATENCY_S)

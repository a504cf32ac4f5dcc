"""`Profiles`: which routed requests the requests in service stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import Int32Array, frozen


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiles:
    """prefill, decode: int32[N] row of `StepModel.mean` by which a request's prompt tokens, and those it writes, are
    spread over the ranks."""

    prefill: Int32Array
    decode: Int32Array

    def __post_init__(self) -> None:
        for name in ("prefill", "decode"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))

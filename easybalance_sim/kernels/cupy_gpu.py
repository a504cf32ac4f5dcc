"""Every kernel for a machine with a GPU: those with a `.cu` twin run there, all others as in `numba_cpu`.

Integers are the same, bit for bit, on either device. The search alone finds other placements here, of many walks the
best.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from easybalance_sim.kernels import cuda, numba_cpu
from easybalance_sim.kernels.cupy_counts import count_windows
from easybalance_sim.kernels.cupy_dispatch import dispatch
from easybalance_sim.kernels.cupy_scoring import score_plans
from easybalance_sim.kernels.cupy_search import search
from easybalance_sim.kernels.cupy_tiles import compiled

__all__ = [*numba_cpu.__all__]

TWINS = (count_windows, dispatch, score_plans, search)
"""Kernels that run on the GPU."""


def __getattr__(name: str) -> Any:
    """Kernels without a twin."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(numba_cpu, name)


def fault() -> str:
    """Why no GPU can be used here; empty when the kernels compile and the first one counts right."""
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "there is no device"
        for name in cuda.ENTRIES:
            compiled(name).compile()
        counted = np.zeros((1, 1, 2), np.int64)
        count_windows(np.ones((3, 1, 1), np.uint8), np.zeros(3, np.int32), counted)
        if counted.tolist() != [[[0, 3]]]:
            return f"it counts three tokens as {counted.tolist()}"
    # Drivers, toolkits and wheels that do not fit each other fail in many ways, and each means: not here.
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
    return ""


def device_name() -> str:
    """What the device calls itself."""
    name: bytes = cupy.cuda.runtime.getDeviceProperties(0)["name"]
    return name.decode()

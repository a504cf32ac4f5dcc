"""The GPU to measure, where there is one."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from easybalance_sim.kernels import NO_CUPY


def open_gpu() -> Any:
    """A `cupy_timing.Gpu`. Raises RuntimeError with the reason where no GPU, or a part of cupy, can be used."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module("easybalance_sim.kernels.cupy_timing").Gpu()
    # Drivers, toolkits and wheels that do not fit each other fail in many ways, and each means: not here.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            raise RuntimeError(NO_CUPY) from error
        raise RuntimeError(f"{type(error).__name__}: {error}".splitlines()[0]) from error

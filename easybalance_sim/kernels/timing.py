"""The GPU to measure, where there is one, and what can be measured on it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from easybalance_sim.kernels import NO_CUPY

DTYPES = ("bf16", "fp16")
"""What cuBLAS multiplies through cupy; FP8 and narrower need cuBLASLt or kernels of an engine."""

COPY_DEVICE, COPY_HOST, COPY_PEER = "copy-device", "copy-host", "copy-peer"
"""Copies within the GPU, from page-locked host memory, to another GPU."""


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

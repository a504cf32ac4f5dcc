"""What can be measured on a GPU."""

from __future__ import annotations

DTYPES = ("bf16", "fp16")
"""What cuBLAS multiplies through cupy; FP8 and narrower need cuBLASLt or kernels of an engine."""

COPY_DEVICE, COPY_HOST, COPY_PEER = "copy-device", "copy-host", "copy-peer"
"""Copies within the GPU, from page-locked host memory, to another GPU."""

"""CUDA sources, one kernel a file: the same functions as the CPU kernels, compiled by cupy, NVRTC or (in tests) g++."""

from __future__ import annotations

from pathlib import Path

NAMES = ("count_windows", "dispatch", "turns")
"""Each file `NAME.cu` has a kernel `NAME_uint8` and one `NAME_uint16`, after the type of the ids."""

OPTIONS = ("--std=c++17", "--fmad=false")
"""How they are compiled everywhere: no fused multiply-add, so that floats round as on the CPU."""


def source(name: str) -> str:
    """The text of a kernel's file. Raises ValueError for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise ValueError(f"no CUDA kernel {name!r}; there are {', '.join(NAMES)}")
    return Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")

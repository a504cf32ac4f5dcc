"""CUDA sources, one kernel a file: the same functions as the CPU kernels, compiled by cupy, NVRTC or (in tests) g++."""

from __future__ import annotations

from pathlib import Path

ENTRIES = {
    "count_windows": ("count_windows_uint8", "count_windows_uint16"),
    "dispatch": ("dispatch_uint8", "dispatch_uint16"),
    "score_plans": ("score_plans",),
    "search": ("search",),
    "turns": ("turns_uint8", "turns_uint16"),
    "words": ("fill_words", "read_words"),
}
"""Kernels of each file `NAME.cu`: one for each type of ids where there are ids. `words` serves measurements."""

OPTIONS = ("--std=c++17", "--fmad=false")
"""How they are compiled everywhere: no fused multiply-add, so that floats round as on the CPU."""


def source(name: str) -> str:
    """The text of a kernel's file. Raises ValueError for a name that is not in `ENTRIES`."""
    if name not in ENTRIES:
        raise ValueError(f"no CUDA kernel {name!r}; there are {', '.join(ENTRIES)}")
    return Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")

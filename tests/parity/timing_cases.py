"""Layers that are timed, held against numpy: for a GPU and for what stands in for one."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from tests.cuda_on_cpu.stand_in_timing import BF16, FP16, floats

KINDS = {"bf16": (BF16, 2**-7), "fp16": (FP16, 2**-10)}
"""cuBLAS's number of a dtype, and the rounding of its results."""

HIDDEN, INTERMEDIATE, SLOTS, ACTIVE, TOKENS, RUN = 96, 80, 5, 2, 3, 1


def values(words: Any, dtype: str, *shape: int) -> FloatArray:
    """float32[shape] of the first halves in device memory."""
    return floats(words.get().view(np.uint16)[: int(np.prod(shape))], KINDS[dtype][0]).reshape(shape)


def layer_problems(gpu: Any, dtype: str, matrices: int) -> list[str]:
    """Which of the two GEMMs of a timed layer is not the product of its active experts."""
    experts = gpu.experts(HIDDEN, INTERMEDIATE, matrices, SLOTS, dtype)
    parts = experts.layer(ACTIVE, TOKENS)
    gpu.timed(1, lambda _: parts(RUN))
    first, wide = experts.first_slot(RUN, ACTIVE), (matrices - 1) * INTERMEDIATE
    up = values(experts._up, dtype, SLOTS, wide, HIDDEN)[first : first + ACTIVE]
    down = values(experts._down, dtype, SLOTS, HIDDEN, INTERMEDIATE)[first : first + ACTIVE]
    given = values(experts.given, dtype, ACTIVE, TOKENS, HIDDEN)
    between = values(experts.between, dtype, ACTIVE, TOKENS, wide)
    out = values(experts.out, dtype, ACTIVE, TOKENS, HIDDEN)
    wanted = {
        "up": (between, np.einsum("sth,swh->stw", given, up)),
        "down": (out, np.einsum("sti,shi->sth", between[:, :, :INTERMEDIATE], down)),
    }
    rounding = KINDS[dtype][1]
    return [
        name for name, (found, product) in wanted.items()
        if not np.allclose(found, product, rtol=rounding, atol=rounding * float(np.abs(product).max()))
    ]  # fmt: skip


def unread(gpu: Any, size: int) -> bool:
    """Whether a timed read of `size` bytes of random words misses any of them."""
    words = gpu.words(size)
    gpu.timed(1, lambda _: [lambda: gpu._read(words)])
    return int(np.bitwise_xor.reduce(gpu._found.get())) != int(np.bitwise_xor.reduce(words.get()))

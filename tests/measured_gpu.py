"""A GPU whose times follow the expert formula, and rows as it would be measured: for tests of `profile measure`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray

BYTES_PER_S, FLOPS = 4.8e12, 9.89e14
"""Nominal, of the profile h200 in bf16."""


class FakeGpu:
    """c0, eff_bw, eff_flop, q, block of the formula; noise: sigma of the factor on every run · room: bytes of weights,
    and tokens per layer, for which there is memory · asked: what was measured, in order."""

    def __init__(
        self,
        *,
        numbers: tuple[float, float, float, float] = (12.0, 0.8, 0.7, 2.0),
        block: int = 64,
        noise: float = 0.01,
        gpus: int = 1,
        room: tuple[float, float] = (1e18, 1e18),
        read_bytes_per_s: float = 4.3e12,
    ) -> None:
        self.about: Any = SimpleNamespace(name="NVIDIA H200", l2_bytes=50 << 20, gpus=gpus)
        self.numbers, self.block, self.noise, self.room = numbers, block, noise, room
        self.read_bytes_per_s = read_bytes_per_s
        self.asked: list[tuple[Any, ...]] = []
        self.random = np.random.default_rng(100)

    def experts(self, hidden: int, intermediate: int, matrices: int, slots: int, dtype: str) -> FakeExperts:
        if 2 * matrices * hidden * intermediate * slots > self.room[0]:
            raise MemoryError
        return FakeExperts(self, hidden, intermediate, matrices)

    def read(self, size: int, repeats: int) -> FloatArray:
        self.asked.append(("read", size))
        return self.noisy(5 + size / self.read_bytes_per_s * 1e6, repeats)

    def copy(self, what: str, size: int, repeats: int, peer: int = 0) -> FloatArray:
        self.asked.append((what, size, peer))
        speed = {"copy-device": 2e12, "copy-host": 5e10}.get(what, 3.8e11 / max(peer, 1))
        return self.noisy(8 + size / speed * 1e6, repeats)

    def reaches(self, peer: int) -> bool:
        return peer == 1

    def noisy(self, us: float, repeats: int) -> FloatArray:
        return np.asarray(us * np.exp(self.noise * self.random.standard_normal(repeats)))


class FakeExperts:
    """The formula of `cost.expert`, written out anew, split 2:1 between the GEMMs."""

    def __init__(self, gpu: FakeGpu, hidden: int, intermediate: int, matrices: int) -> None:
        self.gpu, self.hidden, self.intermediate, self.matrices = gpu, hidden, intermediate, matrices

    def times(self, active: int, tokens: int, repeats: int) -> FloatArray:
        self.gpu.asked.append(("experts", active, tokens))
        if active * tokens > self.gpu.room[1]:
            raise MemoryError
        each = self.gpu.noisy(self.us(active, tokens), repeats)
        return np.stack([each * 2 / 3, each / 3], axis=1)

    def us(self, active: int, tokens: int) -> float:
        c0, eff_bw, eff_flop, q = self.gpu.numbers
        weights = self.matrices * self.hidden * self.intermediate
        padded = -(-tokens // self.gpu.block) * self.gpu.block
        read = active * weights * 2 / (BYTES_PER_S * eff_bw)
        multiplied = active * padded * 2 * weights / (FLOPS * eff_flop)
        rows = active * tokens * (2 * self.hidden + self.matrices * self.intermediate) * 2 / BYTES_PER_S
        return float(c0 + 1e6 * ((read**q + multiplied**q) ** (1 / q) + rows))


def quiet(_: str, __: int) -> Callable[[int], None]:
    """No progress."""
    return lambda units: None

"""Random uses of experts for tests of caches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """What the kernels take, of `steps` steps of `layers` layers × `experts`."""

    start: IntArray
    item: Int32Array
    tokens: Int32Array
    priority: FloatArray
    group: Int32Array
    items: int

    @property
    def positions(self) -> int:
        return len(self.start) - 1

    @property
    def caches(self) -> int:
        return int(self.group.max()) + 1

    def empty(self) -> tuple[Int32Array, IntArray, FloatArray]:
        """Stacks, their lengths and values of empty caches, to be changed."""
        stack: Int32Array = np.full((self.caches, self.items), -1, np.int32)
        return stack, np.zeros(self.caches, np.int64), np.full(self.items, -np.inf)


def asked(seed: int, steps: int = 30, layers: int = 2, experts: int = 6, whole: bool = False, ties: int = 50) -> Asked:
    """Uniform sets of 1 to E experts with random priorities, of which many are equal where `ties` is small."""
    rng = np.random.default_rng(seed)
    sets = []
    for p in range(steps * layers):
        chosen = rng.permutation(experts)[: rng.integers(1, experts + 1)]
        sets.append(np.sort(chosen) + (p % layers) * experts)
    item = np.concatenate(sets)
    return Asked(
        start=frozen(np.cumsum([0, *map(len, sets)]), np.int64),
        item=frozen(item, np.int32),
        tokens=frozen(rng.integers(1, 9, len(item)), np.int32),
        priority=frozen(rng.integers(0, ties, len(item)), np.float64),
        group=frozen(np.zeros(layers) if whole else np.arange(layers), np.int32),
        items=layers * experts,
    )


def wanted(seed: int, asked: Asked, most: int = 3) -> tuple[IntArray, Int32Array]:
    """Random items to fetch ahead for each position: start int64[P+1] and items."""
    rng = np.random.default_rng([seed, 1])
    layers = len(asked.group)
    experts = asked.items // layers
    lists = [
        rng.permutation(experts)[: rng.integers(0, most + 1)] + p % layers * experts for p in range(asked.positions)
    ]
    return frozen(np.cumsum([0, *map(len, lists)]), np.int64), frozen(np.concatenate(lists), np.int32)

"""Greedy EPLB for a DeepSeek-V3 sized model: the compiled kernel against the same greedy in plain numpy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen

LAYERS, EXPERTS, RANKS, SLOTS = 58, 256, 32, 9


def numpy_greedy(weight: FloatArray, ranks: int, slots: int) -> Int32Array:
    """All layers at once: one vectorised step per spare slot, then one per replica."""
    layers, experts = weight.shape
    row = np.arange(layers)
    count: IntArray = np.ones((layers, experts), np.int64)
    for _ in range(ranks * slots - experts):
        count[row, (weight / count).argmax(axis=1)] += 1
    unit = weight / count
    order = np.argsort(-unit, axis=1, kind="stable")
    queue = np.stack([np.repeat(order[layer], count[layer, order[layer]]) for layer in row])
    load, used = np.zeros((layers, ranks)), np.zeros((layers, ranks), np.int64)
    out = np.full((layers, ranks, slots), -1, np.int32)
    for at in range(ranks * slots):
        expert = queue[:, at]
        closed = (used == slots) | (out == expert[:, None, None]).any(axis=2)
        rank = np.where(closed, np.inf, load).argmin(axis=1)
        out[row, rank, used[row, rank]] = expert
        load[row, rank] += unit[row, expert]
        used[row, rank] += 1
    return out.reshape(layers, -1)


def best_ms(work: Callable[[], object], repeats: int) -> float:
    """Fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


@pytest.mark.bench
def test_greedy_is_faster_than_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    weight = frozen(np.random.default_rng(0).lognormal(0, 1, (LAYERS, EXPERTS)))
    slots = frozen(np.full(RANKS, SLOTS), np.int64)
    greedy = kernels.load("numba").greedy
    assert (greedy(weight, slots) == numpy_greedy(weight, RANKS, SLOTS)).all()
    compiled, plain = (
        best_ms(lambda: greedy(weight, slots), 50),
        best_ms(lambda: numpy_greedy(weight, RANKS, SLOTS), 3),
    )
    with capsys.disabled():
        print(
            f"\ngreedy {LAYERS}×{EXPERTS} → {RANKS * SLOTS} slots on {RANKS} ranks, one core: "
            f"{compiled:.2f} ms, {plain / compiled:.0f}× a plain numpy greedy ({plain:.0f} ms)"
        )
    assert compiled < plain / 2

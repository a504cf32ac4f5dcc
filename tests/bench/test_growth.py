"""How time grows with tokens, layers, experts, ranks, windows and candidates: seconds per size and the exponent of a
straight line through their logarithms.

EBSIM_BENCH_MTOKENS (64 unless set) is the longest trace in millions of tokens; it is read from memory, one batch over
and over under rising step numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.load.counting import Windowing, count_windows
from easybalance_sim.replay.engine import links, replay, subject
from easybalance_sim.replay.expected import even_imbalances
from easybalance_sim.trace.schema import TokenBatch, TraceMeta
from tests.replay_cases import batch_of, cost_of, random_plan

MILLION = 2**20
BATCH, STEP, TOP_K = 2**16, 4096, 4
LONGEST = int(os.environ.get("EBSIM_BENCH_MTOKENS", "64"))
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Size:
    """The letters of the README; `tokens` in batches."""

    batches: int = 8
    layers: int = 8
    experts: int = 64
    ranks: int = 8
    windows: int = 64
    candidates: int = 200

    @property
    def slots(self) -> int:
        """Per rank."""
        return self.experts // self.ranks + 1


def batch_like(size: Size) -> TokenBatch:
    """One batch of whole steps; distinct experts of uneven weight."""
    rng = np.random.default_rng(0)
    race = rng.standard_exponential((BATCH, size.experts), np.float32) * np.linspace(1, 3, size.experts)
    ids = np.argpartition(race, TOP_K, axis=1)[:, :TOP_K]
    layers = np.stack([ids[rng.permutation(BATCH)] for _ in range(size.layers)], axis=1)
    rows = np.arange(BATCH)
    return batch_of(rows // STEP, rows % size.ranks, layers)


def tiled(batch: TokenBatch, times: int) -> Iterator[TokenBatch]:
    for number, one in enumerate(repeat(batch, times)):
        yield replace(one, step=frozen(one.step + number * (BATCH // STEP)))


def replaying(size: Size, rule: str) -> Callable[[], object]:
    batch, topology = batch_like(size), uniform(size.ranks, 8, size.slots)
    plan = random_plan(0, size.layers, size.experts, topology.slots_per_rank)
    item = subject(plan, topology, rule, cost_of(plan, topology, mode="normal", top_k=TOP_K), 0)
    route = links(topology, "normal")
    return lambda: replay(tiled(batch, size.batches), [item], route, Windowing(steps=16), size.ranks)


def counting(size: Size) -> Callable[[], object]:
    batch = batch_like(size)
    meta = TraceMeta(
        kind="tokens", layers=tuple(range(size.layers)), experts=size.experts, top_k=TOP_K, ranks=size.ranks
    )
    return lambda: count_windows(tiled(batch, size.batches), meta, Windowing(steps=16))


def placing(size: Size) -> Callable[[], object]:
    loads = frozen(np.random.default_rng(0).lognormal(0, 1, (size.layers, size.experts)))
    slots, greedy = frozen(np.full(size.ranks, size.slots), np.int64), kernels.load().greedy
    return lambda: greedy(loads, slots)


def scoring(size: Size) -> Callable[[], object]:
    tokens: AnyArray = np.random.default_rng(0).poisson(100, (size.windows, size.layers, size.experts))
    slots = uniform(size.ranks, 8, size.slots).slots_per_rank
    plans = [random_plan(seed, size.layers, size.experts, slots) for seed in range(size.candidates)]
    return lambda: even_imbalances(frozen(tokens), plans, np.ones(size.ranks))


SMALL, BIG = Size(), Size(layers=58, experts=256, ranks=32, candidates=50)
MORE_TOKENS = [replace(SMALL, layers=2, batches=2**n * MILLION // BATCH) for n in range(LONGEST.bit_length())]
GROWTH: Mapping[str, tuple[Callable[[Size], Callable[[], object]], str, Sequence[Size]]] = {
    "replay even, T": (lambda size: replaying(size, "even"), "batches", MORE_TOKENS),
    "replay vllm, T": (lambda size: replaying(size, "vllm"), "batches", MORE_TOKENS),
    "count, T": (counting, "batches", MORE_TOKENS),
    "replay even, L": (
        lambda size: replaying(size, "even"), "layers", [replace(SMALL, layers=n) for n in (4, 8, 16, 32)]
    ),
    "replay even, E": (
        lambda size: replaying(size, "even"), "experts", [replace(SMALL, experts=n) for n in (32, 64, 128, 256)]
    ),
    "replay even, R": (lambda size: replaying(size, "even"), "ranks", [replace(SMALL, ranks=n) for n in (8, 16, 32)]),
    "greedy, L": (placing, "layers", [replace(BIG, layers=n) for n in (29, 58, 116, 232)]),
    "greedy, E": (placing, "experts", [replace(BIG, experts=n) for n in (128, 256, 512, 1024)]),
    "greedy, R": (placing, "ranks", [replace(BIG, ranks=n) for n in (8, 16, 32, 64, 128)]),
    "scoring, C": (scoring, "candidates", [replace(BIG, candidates=n) for n in (25, 50, 100, 200)]),
    "scoring, W": (scoring, "windows", [replace(BIG, windows=n) for n in (64, 128, 256, 512)]),
    "scoring, L": (scoring, "layers", [replace(BIG, layers=n) for n in (29, 58, 116)]),
    "scoring, E": (scoring, "experts", [replace(BIG, experts=n) for n in (128, 256, 512)]),
    "scoring, R": (scoring, "ranks", [replace(BIG, ranks=n) for n in (8, 16, 32, 64, 128)]),
}  # fmt: skip


def fastest(works: Sequence[Callable[[], object]]) -> tuple[list[float], list[float]]:
    """Seconds and CPU seconds of each, sizes in turn, so that other work on the machine slows all of them."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, mine in zip(works, times, strict=True):
            begin, used = time.perf_counter(), time.process_time()
            work()
            mine.append((time.perf_counter() - begin, time.process_time() - used))
    return [min(one[0] for one in mine) for mine in times], [min(one[1] for one in mine) for mine in times]


@pytest.mark.bench
@pytest.mark.parametrize("name", GROWTH)
def test_growth(name: str, publish: Callable[[str], None]) -> None:
    """CPU seconds tell the exponent better than the clock where other programs run."""
    prepare, axis, sizes = GROWTH[name]
    works = [prepare(size) for size in sizes]
    works[0]()
    values = [getattr(size, axis) for size in sizes]
    seconds, used = fastest(works)
    by_clock, by_cpu = (float(np.polyfit(np.log(values), np.log(spent), 1)[0]) for spent in (seconds, used))
    scale = BATCH / MILLION if axis == "batches" else 1
    points = ", ".join(f"{value * scale:g}: {spent:.3g} s" for value, spent in zip(values, seconds, strict=True))
    publish(f"{name}: exponent {by_clock:.3f}, of CPU seconds {by_cpu:.3f} ({points})")
    assert by_cpu < 1.2

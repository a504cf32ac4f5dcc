"""Throughput of the CUDA kernels: `python -m tests.bench.gpu_check`, on a machine with a GPU.

Every result is compared with numba's before it is timed. A kernel's bytes are those that it has to read and write
at the least, each once; next to them stands what a copy within the device reaches, reading and writing counted. The
search, which finds other placements than numba's, is held against it by objective.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, HASH
from tests.parity.cases import Counted, Dispatched, entries, scored
from tests.parity.search_cases import case, misjudged, rules_broken
from tests.replay_cases import random_plan

REPEATS = 5


class Size(NamedTuple):
    """Of the traffic and the cluster."""

    tokens: int = 1 << 18
    step_tokens: int = 4096
    layers: int = 58
    experts: int = 256
    top_k: int = 8
    ranks: int = 32
    slots: int = 9
    plans: int = 1000
    copied_bytes: int = 2 << 30
    proposals: int = 200_000


class Row(NamedTuple):
    """One line of the table. bytes: that the kernels have to move at the least · work: assignments, or scores."""

    name: str
    bytes: int
    work: int
    run: Callable[[Any], Any]


def ids(size: Size) -> AnyArray:
    """uint8[T, L, K]: low ids are hot; an expert may be chosen twice, which no kernel minds."""
    drawn = np.random.default_rng(0).integers(0, size.experts, (2, size.tokens, size.layers, size.top_k), np.uint8)
    return frozen(drawn.min(axis=0))


def rows_of(size: Size) -> Iterator[Row]:
    """What is timed."""
    chosen = ids(size)
    steps = -(-size.tokens // size.step_tokens)
    step = np.arange(size.tokens) // size.step_tokens
    start = np.zeros((steps, size.layers, size.experts), np.int64)
    counts = Counted(chosen, frozen(step, np.int32), start)
    yield Row("count_windows", chosen.nbytes + start.nbytes, chosen.size, counts.run)
    for name, rule in (("even", EVEN), ("vllm", HASH), ("tensorrt-llm", BLOCKS)):
        for per_node in (True, False):
            given = traffic(size, chosen, step, rule, per_node)
            turns = 0 if rule == HASH else 8 * chosen.size + chosen.nbytes
            moved = chosen.nbytes + turns + sum(out.nbytes for out in given.counts())
            how = "per node" if per_node else "per assignment"
            yield Row(f"dispatch, {name}, {how}", moved, chosen.size, given.run)
    plans = scored(0, size.plans, size.layers, size.experts, 64, [size.slots] * size.ranks)
    read = plans.tokens.nbytes + plans.expert_of_slot.nbytes
    cells = size.plans * size.layers * len(plans.tokens)
    yield Row("score_plans", read + 8 * cells, cells, plans.run)


def traffic(size: Size, chosen: AnyArray, step: AnyArray, rule: int, per_node: bool) -> Dispatched:
    """Steps of equal size whose tokens come from the ranks in turn."""
    plan = random_plan(0, size.layers, size.experts, [size.slots] * size.ranks)
    node = frozen(np.arange(size.ranks) // 8, np.int32)
    token = np.arange(size.tokens)
    first = np.flatnonzero(np.diff(step, prepend=-1))
    return Dispatched(
        experts=chosen,
        step_start=frozen(np.append(first, size.tokens), np.int64),
        step=frozen(step[first], np.int64),
        source=frozen(token % size.step_tokens % size.ranks, np.int16),
        row=frozen(token % size.step_tokens // size.ranks, np.int32),
        replica_start=plan.replica_start,
        replica_slot=plan.replica_slot,
        table=frozen(np.full((1, 1, 1), -1), np.int32),
        rank_of_slot=plan.rank_of_slot,
        node=node,
        entry=entries(node),
        rule=rule,
        seed=0,
        per_node=per_node,
    )


def equal(first: Any, second: Any) -> bool:
    """Integers bit for bit, scores up to rounding."""
    if isinstance(first, dict):
        return all(np.array_equal(first[name], second[name]) for name in first)
    return bool(np.allclose(first, second, rtol=1e-12, atol=0, equal_nan=True))


def best_s(run: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def copy_bytes_per_s(cupy: Any, size: int) -> float:
    """Bytes read and written by a copy within the device, the best of a few."""
    source, target = cupy.zeros(size, np.uint8), cupy.zeros(size, np.uint8)
    return max(2 * size / elapsed_s(cupy, lambda: cupy.copyto(target, source)) for _ in range(REPEATS))


def between(cupy: Any, run: Callable[[], object]) -> tuple[Any, Any]:
    """Events before and after what `run` puts in the current stream."""
    begin, end, stream = cupy.cuda.Event(), cupy.cuda.Event(), cupy.cuda.get_current_stream()
    begin.record(stream)
    run()
    end.record(stream)
    return begin, end


def elapsed_s(cupy: Any, run: Callable[[], object]) -> float:
    """Seconds on the device between the begin and the end of what `run` puts in the current stream."""
    begin, end = between(cupy, run)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3


@contextmanager
def kernel_times(cupy: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Events around every kernel that is launched inside."""
    tiles, events = sys.modules["easybalance_sim.kernels.cupy_tiles"], []

    def timed(name: str, entry: str) -> Callable[..., None]:
        launch = tiles.kernel(name, entry)

        def launch_between(*given: Any, **more: Any) -> None:
            events.append(between(cupy, lambda: launch(*given, **more)))

        return launch_between

    users = ("cupy_counts", "cupy_dispatch", "cupy_scoring", "cupy_search")
    patches = [mock.patch.object(sys.modules[f"easybalance_sim.kernels.{user}"], "kernel", timed) for user in users]
    for patch in patches:
        patch.start()
    try:
        yield events
    finally:
        for patch in patches:
            patch.stop()


def kernels_s(cupy: Any, run: Callable[[], object]) -> float:
    """Seconds that kernels alone take, the best of a few runs."""
    times = []
    for _ in range(REPEATS):
        with kernel_times(cupy) as events:
            run()
        times.append(sum(float(cupy.cuda.get_elapsed_time(*pair)) for pair in events) / 1e3)
    return min(times)


def table(gpu: Any, cpu: Any, cupy: Any, size: Size) -> Iterator[str]:
    """The lines. Raises ValueError where the devices disagree."""
    copied = copy_bytes_per_s(cupy, size.copied_bytes)
    yield f"{gpu.device_name()}, {len(os.sched_getaffinity(0))} CPU cores; device copy {copied / 1e9:,.0f} GB/s"
    yield "| kernel | M/s, kernels | GB/s | of the copy | M/s, whole call | numba, M/s | whole call to numba |"
    yield "|---|---|---|---|---|---|---|"
    yield from (line(gpu, cpu, cupy, row, copied) for row in rows_of(size))


def line(gpu: Any, cpu: Any, cupy: Any, row: Row, copied: float) -> str:
    """One row measured. copied: bytes/s of a device copy. Raises ValueError where the devices disagree."""
    if not equal(row.run(gpu), row.run(cpu)):
        raise ValueError(f"{row.name}: the GPU differs from the CPU")
    alone = kernels_s(cupy, lambda: row.run(gpu))
    whole, numba = best_s(lambda: row.run(gpu), REPEATS), best_s(lambda: row.run(cpu), 2)
    million, speed = row.work / 1e6, row.bytes / alone
    return (
        f"| {row.name} | {million / alone:,.0f} | {speed / 1e9:,.0f} | {100 * speed / copied:.0f} % "
        f"| {million / whole:,.0f} | {million / numba:,.0f} | {numba / whole:.1f}× |"
    )


def search_line(gpu: Any, cpu: Any, cupy: Any, size: Size) -> str:
    """The search measured. Raises ValueError where a placement breaks a rule or has another value than is said."""
    problem = case(0, size.layers, size.experts, [size.slots] * size.ranks, windows=64)
    slots, lowest = problem.run(gpu, size.proposals)
    if wrong := rules_broken(problem, slots) or misjudged(problem, slots, lowest):
        raise ValueError(f"search: {wrong[0]}")
    _, on_cpu = problem.run(cpu, size.proposals)
    alone = kernels_s(cupy, lambda: problem.run(gpu, size.proposals))
    whole, numba = (best_s(partial(problem.run, module, size.proposals), 2) for module in (gpu, cpu))
    search = sys.modules["easybalance_sim.kernels.cupy_search"]
    chains = search.chains_of(size.layers, search.Shape(slots.shape[1], size.ranks, size.experts, 64))
    cold = max(search.FEWEST_COLD, size.proposals // search.COLD_SHARE)
    steps = size.layers * (size.proposals + cold)
    return (
        f"search: {size.layers} layers × {chains} chains × {size.proposals:,} proposals (and {cold:,} cold): "
        f"{chains * steps / alone / 1e6:,.0f} M proposals/s, {alone / (steps / size.layers) * 1e9:,.0f} ns for one of "
        f"every chain; whole call {whole:.2f} s; numba {numba:.2f} s, {steps / numba / 1e6:,.0f} M proposals/s; "
        f"objective to numba's {(lowest / on_cpu).mean():.4f}"
    )


def main() -> int:
    """The exit code: 2 without a GPU."""
    if kernels.gpu_fault():
        print(f"no GPU can be used: {kernels.gpu_fault()}", file=sys.stderr)
        return 2
    devices = kernels.load("cuda"), kernels.load("numba"), sys.modules["cupy"]
    for line in table(*devices, Size()):
        print(line, flush=True)
    print(search_line(*devices, Size()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

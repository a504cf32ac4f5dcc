"""Kernels on traffic in memory, on one core: CPU seconds of the process, the fastest of several runs in turn.

Each is compared with vectorised numpy that makes the same counts of the same tokens, and must agree with it first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.kernels.threads import share
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import Links, links
from easybalance_sim.replay.expected import even_imbalance, even_rank_tokens
from easybalance_sim.replay.tally import imbalance
from tests.bench.test_replay_speed import CASES, Case, skewed_ids
from tests.replay_cases import random_plan

TOKENS = {"gpt-oss decode": 2**18, "deepseek-v3 prefill": 2**16}
RULES = ("even", "vllm", "vllm-legacy", "sglang-static", "sglang-dynamic", "tensorrt-llm", "ascend-v2")
BLOCK = 4096
REPEATS = 5


class Traffic(NamedTuple):
    """Steps of equal size whose tokens come from the ranks in turn. ids: [T, L, K] · mode: of the exchange."""

    ids: AnyArray
    step_tokens: int
    plan: Plan
    route: Links
    mode: str

    @property
    def steps(self) -> int:
        return len(self.ids) // self.step_tokens

    def source(self) -> AnyArray:
        return frozen(np.arange(len(self.ids)) % self.plan.ranks, np.int16)

    def row(self) -> AnyArray:
        return frozen(np.arange(len(self.ids)) % self.step_tokens // self.plan.ranks, np.int32)


class Counts(NamedTuple):
    """What `dispatch` adds to."""

    slot_tokens: AnyArray
    distinct: AnyArray
    rdma: AnyArray
    nvlink: AnyArray
    rank_pairs: AnyArray
    node_pairs: AnyArray


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    share(1)
    yield
    share(0)


def traffic(case: Case, tokens: int) -> Traffic:
    topology = uniform(case.ranks, 8, case.slots)
    blocks = [skewed_ids(case, BLOCK, first) for first in range(0, tokens, BLOCK)]
    return Traffic(
        ids=frozen(np.concatenate(blocks)),
        step_tokens=case.step_tokens,
        plan=random_plan(0, case.layers, case.experts, frozen(topology.slots_per_rank)),
        route=links(topology, case.mode),
        mode=case.mode.replace("_", " "),
    )


def zeros(given: Traffic, steps: int) -> Counts:
    plan, nodes = given.plan, given.route.nodes
    ranks = (np.zeros((steps, plan.layers, plan.ranks), np.int32) for _ in range(3))
    pairs = (np.zeros((n, n), np.int64) for n in (plan.ranks, nodes))
    return Counts(np.zeros((steps, plan.layers, plan.slots), np.int32), *ranks, *pairs)


def dispatching(given: Traffic, rule: str) -> Callable[[], Counts]:
    """The whole replay kernel: slots, ranks, bytes of every link, pairs of ranks and of nodes."""
    plan, route, steps = given.plan, given.route, np.arange(given.steps + 1)
    choice = prepare(rule, plan, route.node, 0)
    start, step = frozen(steps * given.step_tokens, np.int64), frozen(steps[:-1], np.int64)
    source, row, out = given.source(), given.row(), zeros(given, given.steps)

    def run() -> Counts:
        for array in out:
            array.fill(0)
        kernels.load("numba").dispatch(
            given.ids, start, step, source, row, plan.replica_start, plan.replica_slot, choice.table,
            plan.rank_of_slot, route.node, route.entry, choice.code, choice.seed, route.per_node, 1, *out,
        )  # fmt: skip
        return out

    return run


def dispatch_in_numpy(given: Traffic) -> Counts:
    """vLLM's rule, a few thousand tokens at a time; busier directions of links are left out."""
    out, source, row = zeros(given, given.steps), given.source(), given.row()
    for first in range(0, len(given.ids), BLOCK):
        tokens = slice(first, first + BLOCK)
        _block_in_numpy(given, given.ids[tokens], source[tokens], row[tokens], first // given.step_tokens, out)
    return out


def _block_in_numpy(given: Traffic, ids: AnyArray, source: AnyArray, row: AnyArray, step: int, out: Counts) -> None:
    plan, layer = given.plan, np.arange(given.plan.layers)[:, None]
    pick = (row.astype(np.int64) * 2654435769 & 0xFFFFFFFF)[:, None, None] % plan.replicas[layer, ids]
    slot = plan.replica_slot[layer, plan.replica_start[layer, ids] + pick]
    steps = len(ids) // given.step_tokens
    cell = (np.arange(len(ids)) // given.step_tokens)[:, None, None] * plan.layers + layer
    shape = (steps, plan.layers, plan.slots)
    out.slot_tokens[step : step + steps] = np.bincount(
        (cell * plan.slots + slot).ravel(), minlength=np.prod(shape)
    ).reshape(shape)
    rank = plan.rank_of_slot[slot]
    hit = np.zeros((len(ids), plan.layers, plan.ranks), np.bool_)
    np.put_along_axis(hit, rank, True, axis=2)
    starts = np.arange(0, len(ids), given.step_tokens)
    out.distinct[step : step + steps] = np.add.reduceat(hit, starts, axis=0, dtype=np.int32)
    node = given.route.node
    if given.route.per_node:
        reached = np.logical_or.reduceat(hit, np.flatnonzero(np.diff(node, prepend=-1)), axis=2)
        np.add.at(out.rank_pairs, source, hit.sum(axis=1))
        np.add.at(out.node_pairs, node[source], reached.sum(axis=1))
    else:
        flat = np.bincount(
            (source.astype(np.int64)[:, None, None] * plan.ranks + rank).ravel(), minlength=plan.ranks**2
        )
        pairs = flat.reshape(plan.ranks, plan.ranks)
        out.rank_pairs[:] += pairs
        np.add.at(out.node_pairs, (node[:, None], node[None, :]), pairs)


def counted(given: Traffic, steps: int) -> IntArray:
    """int64[W, L, E] assignments per window of so many steps."""
    windows = given.steps // steps
    out = np.zeros((windows, given.plan.layers, given.plan.experts), np.int64)
    window = frozen(np.arange(len(given.ids)) // (steps * given.step_tokens), np.int32)
    kernels.load("numba").count_windows(given.ids, window, out)
    return out


def counted_in_numpy(given: Traffic, steps: int) -> IntArray:
    plan, size = given.plan, steps * given.step_tokens
    shape = (given.steps // steps, plan.layers, plan.experts)
    out = np.zeros(shape[0] * shape[1] * shape[2], np.int64)
    at_once = max(size, BLOCK)
    for first in range(0, len(given.ids), at_once):
        ids = given.ids[first : first + at_once]
        window = np.arange(len(ids)) // size
        cell = (window[:, None, None] * plan.layers + np.arange(plan.layers)[:, None]) * plan.experts + ids
        found = np.bincount(cell.ravel())
        begin = first // size * plan.layers * plan.experts
        out[begin : begin + len(found)] += found
    return out.reshape(shape)


def pairs(given: Traffic) -> IntArray:
    """int64[L, E, E] co-activation."""
    out = np.zeros((given.plan.layers, given.plan.experts, given.plan.experts), np.int64)
    kernels.load("numba").coactivation(given.ids, out)
    return out


def pairs_in_numpy(given: Traffic) -> IntArray:
    """One bincount of all ordered pairs per layer and block of tokens; products of one-hot matrices take longer."""
    experts = given.plan.experts
    out = np.zeros((given.plan.layers, experts, experts), np.int64)
    for layer, table in enumerate(out):
        for first in range(0, len(given.ids), BLOCK):
            ids = given.ids[first : first + BLOCK, layer].astype(np.int64)
            flat = np.bincount((ids[:, :, None] * experts + ids[:, None, :]).ravel(), minlength=experts**2)
            table += flat.reshape(table.shape)
    return out


def cpu_s(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """CPU seconds of the fastest run of each; in turn, so that other work on the machine slows all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, its in zip(works, times, strict=True):
            begin = time.process_time()
            work()
            its.append(time.process_time() - begin)
    return [min(its) for its in times]


def told(name: str, what: str, assignments: int, ours: float, numpy: float) -> str:
    million = assignments / 1e6
    return f"| {name} | {what} | {million / ours:,.0f} | {million / numpy:,.1f} | {numpy / ours:.0f}× |"


def even_lines(name: str, given: Traffic) -> Iterator[str]:
    """Rank loads under an even split: all that `even` needs where nobody asks for copies."""
    plan, speed = given.plan, np.ones(given.plan.ranks)
    for steps, what in ((1, "even, rank loads of every step"), (16, "even, rank loads of windows of 16 steps")):
        works = (
            lambda steps=steps: even_imbalance(counted(given, steps), plan, speed),
            lambda steps=steps: imbalance(even_rank_tokens(counted_in_numpy(given, steps), plan)),
        )
        np.testing.assert_allclose(works[0](), works[1](), rtol=1e-12)
        ours, numpy = cpu_s(works, REPEATS)
        yield told(name, what, given.ids.size, ours, numpy)


def dispatch_lines(name: str, given: Traffic) -> Iterator[str]:
    specified = dispatch_in_numpy(given)
    found = dispatching(given, "vllm")()
    for field in ("slot_tokens", "distinct", "rank_pairs", "node_pairs"):
        np.testing.assert_array_equal(getattr(found, field), getattr(specified, field))
    runs = [dispatching(given, rule) for rule in RULES]
    for run in runs:
        assert run().slot_tokens.sum() == given.ids.size
    (numpy,) = cpu_s([lambda: dispatch_in_numpy(given)], 2)
    for rule, ours in zip(RULES, cpu_s(runs, REPEATS), strict=True):
        yield told(name, f"{rule}, whole replay, {given.mode}", given.ids.size, ours, numpy)


def pair_lines(name: str, given: Traffic) -> Iterator[str]:
    np.testing.assert_array_equal(pairs(given), pairs_in_numpy(given))
    ours, numpy = cpu_s([lambda: pairs(given), lambda: pairs_in_numpy(given)], 3)
    yield told(name, "co-activation", given.ids.size, ours, numpy)


@pytest.mark.bench
@pytest.mark.parametrize("name", TOKENS)
def test_kernel_speed(name: str, publish: Callable[[str], None]) -> None:
    given = traffic(CASES[name], TOKENS[name])
    lines = [*even_lines(name, given), *dispatch_lines(name, given), *pair_lines(name, given)]
    publish("| trace | what | M assignments/s | numpy, M/s | ratio |\n|---|---|---|---|---|\n" + "\n".join(lines))
    assert all(float(line.rstrip("× |").rpartition(" ")[2]) > 2 for line in lines)


@pytest.mark.bench
def test_many_ranks_and_small_steps(publish: Callable[[str], None]) -> None:
    lines = []
    for mode in ("low_latency", "normal"):
        case = replace(CASES["deepseek-v3 prefill"], ranks=256, slots=2, mode=mode)
        every = traffic(case, 2 * BLOCK)
        for each in (1, 8, 16):
            given = every._replace(step_tokens=each * case.ranks)
            run = dispatching(given, "vllm")
            assert run().slot_tokens.sum() == given.ids.size
            (ours,) = cpu_s([run], REPEATS)
            lines.append(f"256 ranks, {given.mode}, {each} tokens per rank: {given.ids.size / ours / 1e6:.0f} M/s")
    publish("\n".join(lines))

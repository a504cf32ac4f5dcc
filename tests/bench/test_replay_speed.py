"""Whole replay from packed Parquet (decode, dispatch, loads, layer seconds) against the counts alone in plain numpy.

And against its two halves alone: bare pyarrow decoding the same columns, the kernel on ids in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, IntArray, frozen, sealed
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.kernels.threads import cores
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import Subject, links, outcomes, subject, tally
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import TokenBatch, TraceMeta
from easybalance_sim.trace.writer import token_trace_writer
from tests.replay_cases import batch_of, random_plan

REPEATS = 5
COLUMNS = ["step", "request", "position", "phase", "source_rank", "workload", "experts"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, its steps and its cluster."""

    model: str
    layers: int
    experts: int
    top_k: int
    step_tokens: int
    tokens: int
    ranks: int
    slots: int
    mode: str
    phase: str


CASES = {
    "gpt-oss decode": Case(
        model="gpt-oss-20b", layers=24, experts=32, top_k=4, step_tokens=64, tokens=2**20, ranks=8, slots=5,
        mode="low_latency", phase="decode",
    ),
    "deepseek-v3 prefill": Case(
        model="deepseek-v3", layers=58, experts=256, top_k=8, step_tokens=4096, tokens=2**18, ranks=32, slots=9,
        mode="normal", phase="prefill",
    ),
}  # fmt: skip


def skewed_ids(case: Case, tokens: int, seed: int) -> AnyArray:
    """[T, L, K] distinct experts of lognormal weights that are the layer's own; K largest of weighted uniforms."""
    rng = np.random.default_rng(seed)
    power = np.random.default_rng(0).lognormal(0, 0.7, (case.layers, case.experts)).astype(np.float32)
    ids = np.empty((tokens, case.layers, case.top_k), np.uint8)
    for layer in range(case.layers):
        race = rng.standard_exponential((tokens, case.experts), np.float32) * power[layer]
        ids[:, layer] = np.argpartition(race, case.top_k, axis=1)[:, : case.top_k]
    return ids


def write(path: Path, case: Case) -> TokenTrace:
    """A packed trace; its ids have been checked once, as on any second pass."""
    meta = TraceMeta(
        kind="tokens", layers=tuple(range(case.layers)), experts=case.experts, top_k=case.top_k, ranks=case.ranks
    )
    block = 16384
    with token_trace_writer(path, meta, ("(none)",), level=3) as writer:
        for first in range(0, case.tokens, block):
            rows = np.arange(first, first + block)
            writer.append(batch_of(rows // case.step_tokens, rows % case.ranks, skewed_ids(case, block, first)))
    trace = open_trace([path])
    assert isinstance(trace, TokenTrace)
    trace.check()
    return trace


def numpy_counts(trace: TokenTrace, plan: Plan) -> int:
    """The counts of a replay under vLLM's rule, a few bincounts per step: tokens per slot, copies per pair of ranks,
    distinct tokens per rank. Returns the assignments counted.
    """
    layer, total = np.arange(plan.layers)[:, None], 0
    for experts, source in steps(trace):
        row = np.arange(len(source)) // plan.ranks
        pick = (row * 2654435769 & 0xFFFFFFFF)[:, None, None] % plan.replicas[layer, experts]
        slot = plan.replica_slot[layer, plan.replica_start[layer, experts] + pick]
        tokens = np.bincount((slot + layer * plan.slots).ravel(), minlength=plan.layers * plan.slots)
        rank = plan.rank_of_slot[slot] + layer * plan.ranks
        pairs = np.bincount((rank + source[:, None, None] * (plan.layers * plan.ranks)).ravel())
        hit = np.zeros((len(source), plan.layers * plan.ranks), np.bool_)
        np.put_along_axis(hit, rank.reshape(len(source), -1), True, axis=1)
        total += int(tokens.sum())
        assert pairs.sum() >= hit.sum(axis=0).sum()
    return total


def steps(trace: TokenTrace) -> Iterator[tuple[AnyArray, IntArray]]:
    """Ids and source ranks of one step at a time."""
    for batch in trace.batches():
        cuts = np.flatnonzero(np.diff(batch.step)) + 1
        sources = np.split(batch.source_rank.astype(np.int64), cuts)
        yield from zip(np.split(batch.experts, cuts), sources, strict=True)


def best_s(work: Callable[[], object], repeats: int) -> float:
    """Fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def replay_once(trace: TokenTrace, item: Subject, case: Case, topology: Topology) -> None:
    work = partial(
        tally,
        subjects=[item],
        route=links(topology, case.mode),
        windowing=Windowing(steps=16),
        recorded_ranks=case.ranks,
    )
    (outcome,) = outcomes(trace.map(work), [item])
    assert outcome.tokens == case.tokens


def decode_once(trace: TokenTrace) -> None:
    """The columns that a replay reads, as pyarrow gives them."""
    file = pq.ParquetFile(trace.paths[0])
    tokens = sum(batch.num_rows for batch in file.iter_batches(batch_size=65536, columns=COLUMNS))
    assert tokens == trace.scan().tokens


def kernel_once(batches: Sequence[TokenBatch], item: Subject, case: Case, topology: Topology) -> None:
    """The kernel alone on all cores, whole steps at a time as in a replay."""
    plan, route = item.plan, links(topology, case.mode)
    for batch in batches:
        first = np.flatnonzero(np.diff(batch.step, prepend=batch.step[0] - 1))
        shape = (len(first), plan.layers, plan.ranks)
        out = [
            np.zeros((len(first), plan.layers, plan.slots), np.int32),
            *(np.zeros(shape, np.int32) for _ in range(3)),
        ]
        pairs = np.zeros((plan.ranks, plan.ranks), np.int64), np.zeros((route.nodes, route.nodes), np.int64)
        row = sealed(kernels.load().local_rows(batch.step, batch.source_rank, plan.ranks))
        kernels.load().dispatch(
            batch.experts, sealed(np.append(first, batch.tokens)), sealed(batch.step[first].astype(np.int64)),
            batch.source_rank, row, plan.replica_start, plan.replica_slot, item.dispatch.table, plan.rank_of_slot,
            route.node, route.entry, item.dispatch.code, item.dispatch.seed, route.per_node, cores(), *out, *pairs,
        )  # fmt: skip
        assert out[0].sum() == batch.experts.size


@pytest.mark.bench
@pytest.mark.parametrize("name", CASES)
def test_replay_speed(name: str, tmp_path: Path, publish: Callable[[str], None]) -> None:
    case = CASES[name]
    trace = write(tmp_path / "trace.parquet", case)
    topology = uniform(case.ranks, 8, case.slots)
    plan = random_plan(0, case.layers, case.experts, frozen(topology.slots_per_rank))
    assignments = case.tokens * case.layers * case.top_k
    assert numpy_counts(trace, plan) == assignments
    plain = best_s(lambda: numpy_counts(trace, plan), 1)
    decode, batches = best_s(lambda: decode_once(trace), REPEATS), list(trace.batches())
    lines = [
        f"{name}: {assignments / 1e6:.0f} M assignments, packed Parquet; numpy counts {rate(assignments, plain)}, "
        f"pyarrow decodes {rate(assignments, decode)}"
    ]
    cost = layer_cost(
        load_profile("h200"), load_shape(case.model), topology, topology.slots_per_rank, case.mode, case.phase
    )
    for rule in ("even", "vllm", "sglang-dynamic"):
        item = subject(plan, topology, rule, cost, 0)
        replay_once(trace, item, case, topology)
        ours = best_s(lambda item=item: replay_once(trace, item, case, topology), REPEATS)  # type: ignore[misc]
        alone = best_s(lambda item=item: kernel_once(batches, item, case, topology), REPEATS)  # type: ignore[misc]
        lines.append(
            f"  replay, {rule}: {rate(assignments, ours)}, {plain / ours:.1f}× numpy; kernel alone "
            f"{rate(assignments, alone)}; whole / slower half {max(decode, alone) / ours:.2f}"
        )
        assert ours < plain
    publish("\n".join(lines))


def rate(assignments: int, seconds: float) -> str:
    return f"{assignments / seconds / 1e6:.0f} M assignments/s"

"""How fast a variant serves steps of a size, and the requests per second that this comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.simulate.capacity.times import flops_per_token
from easybalance_sim.simulate.capacity.variants import REPLICA_RULE, SENSED, Variants
from easybalance_sim.simulate.layer_queue import queue
from easybalance_sim.simulate.layer_queue.micro_batches import jobs_of
from easybalance_sim.simulate.layer_queue.queue import Jobs
from easybalance_sim.simulate.layer_queue.service import Seconds

LOADS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Tokens of a step, of all ranks, that are tried; between them seconds are linear."""
MOST_CELLS = 400_000
"""Steps times layers times experts that a load is tried on."""
FEWEST_STEPS = 8
STEP_BOUND, MEMORY, LARGEST_STEP = "the step bound", "KV cache", "the largest step tried"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Steps of one size. step_s, p99_s: seconds until a request has its next token · tokens_per_s · moved: share of
    assignments that re-routing moved."""

    tokens: int
    step_s: float
    p99_s: float
    tokens_per_s: float
    moved: float


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a variant sustains. qps: requests per second · step_tokens: in flight · step_s: mean seconds of a step ·
    limit: what stands against more · peak_share: of the nominal FLOP/s of all ranks that tokens are worth · moved:
    share of assignments that re-routing moved."""

    qps: float
    tokens_per_s: float
    step_tokens: float
    step_s: float
    limit: str
    peak_share: float
    moved: float


def capacity(variants: Variants, active: frozenset[str]) -> Capacity:
    """The most requests per second with the P99 of a step within its bound and all running requests in memory."""
    points = [point(variants, active, tokens) for tokens in LOADS]
    size = np.array([float(each.tokens) for each in points])
    rate = np.array([each.tokens_per_s for each in points])
    slow = np.array([each.p99_s for each in points])
    bound = variants.scenario.service.step_bound_ms * 1e-3
    slots = int(variants.plan(active).slots_per_rank[0])
    limits = {
        STEP_BOUND: _reaches(size, slow, bound),
        MEMORY: variants.cluster.most_step_tokens(slots),
        LARGEST_STEP: float(size[-1]),
    }
    limit = min(limits, key=lambda name: limits[name])
    tokens = limits[limit]
    return _at(variants, points, np.append(size[size < tokens], tokens), rate, limit)


def _at(variants: Variants, points: list[Point], allowed: FloatArray, rate: FloatArray, limit: str) -> Capacity:
    """The best of the sizes allowed."""
    size = np.array([float(each.tokens) for each in points])
    # Seconds per step are nearly linear in its size, tokens per second are not.
    seconds = np.interp(allowed, size, size / rate)
    reached = np.where(allowed >= size[0], allowed / seconds, 0.0)
    best = int(reached.argmax())
    scenario = variants.scenario
    tokens_per_s = float(reached[best])
    return Capacity(
        qps=tokens_per_s / scenario.traffic.request_tokens,
        tokens_per_s=tokens_per_s,
        step_tokens=float(allowed[best]),
        step_s=float(np.interp(allowed[best], size, [each.step_s for each in points])),
        limit=limit if best == len(allowed) - 1 else "larger steps are slower",
        peak_share=tokens_per_s * flops_per_token(scenario.model) / variants.cluster.peak_flops,
        moved=float(np.interp(allowed[best], size, [each.moved for each in points])),
    )


def _reaches(size: FloatArray, slow: FloatArray, bound: float) -> float:
    """Size at which the seconds pass the bound; 0 where every one does, endless where none does."""
    over = np.flatnonzero(slow > bound)
    if not len(over):
        return float("inf")
    if over[0] == 0:
        return 0.0
    a, b = over[0] - 1, over[0]
    return float(size[a] + (bound - slow[a]) / (slow[b] - slow[a]) * (size[b] - size[a]))


def point(variants: Variants, active: frozenset[str], tokens: int) -> Point:
    """Steps of `tokens` tokens. Micro-batches in flight share them; they do nothing for ranks that wait only at the end
    of a step."""
    scenario = variants.scenario
    cells = scenario.model.layers * scenario.model.experts
    steps = max(FEWEST_STEPS, min(scenario.service.steps, MOST_CELLS // cells))
    queued = "layer_queue" in active and scenario.service.sync == "layer"
    lanes = scenario.mechanisms.lanes if queued else 1
    step = variants.step(active, tokens // lanes, steps * lanes)
    seconds = _seconds(variants, active, step.slot_tokens, tokens // lanes)
    overhead = scenario.service.overhead_ms * 1e-3
    if queued:
        lasts, makespan = _queued(seconds, lanes, tokens // lanes, overhead, scenario.mechanisms.rule)
        return _point(tokens // lanes * lanes, lasts, makespan / steps, step.moved)
    lasts = overhead + (_joined(seconds) if scenario.service.sync == "layer" else _apart(seconds))
    return _point(tokens, lasts, float(lasts.mean()), step.moved)


def _seconds(variants: Variants, active: frozenset[str], slot_tokens: object, tokens: int) -> Seconds:
    plan = variants.plan(active)
    slots = frozen(slot_tokens, np.int32)
    home = np.full((len(slots), plan.ranks), tokens / plan.ranks)
    found = variants.cluster.times(plan).of(slots, home, plan, variants.scenario.model.top_k)
    if not active & SENSED:
        return found
    waiting = variants.cluster.waiting_s(plan, REPLICA_RULE if "replicas" in active else None)
    return replace(found, dispatch=found.dispatch + waiting)


def _joined(seconds: Seconds) -> FloatArray:
    """float64[S] with a barrier after every part of every layer."""
    parts = (seconds.attention, seconds.dispatch, seconds.expert, seconds.combine)
    return np.asarray(sum(part.max(axis=2).sum(axis=1) for part in parts))


def _apart(seconds: Seconds) -> FloatArray:
    """float64[S] when ranks wait for each other only at the end of the step: the busiest rank's own parts."""
    own = seconds.attention + seconds.dispatch + seconds.expert + seconds.combine
    return np.asarray(own.sum(axis=1).max(axis=1))


def _queued(seconds: Seconds, lanes: int, tokens: int, overhead: float, rule: str) -> tuple[FloatArray, float]:
    """float64[B] seconds of each micro-batch, and until all are done."""
    batches = len(seconds.expert)
    lane = frozen(np.arange(batches) % lanes, np.int32)
    jobs = jobs_of(seconds, lane, np.full(batches, float(tokens)))
    delay = jobs.delay.copy()
    delay[:, -1] += overhead
    run = queue.run(Jobs(service=jobs.service, delay=delay, lane=lane, tokens=jobs.tokens), rule)
    return run.finish - run.start, run.makespan_s


def _point(tokens: int, lasts: FloatArray, per_step: float, moved: float) -> Point:
    return Point(
        tokens=tokens,
        step_s=float(lasts.mean()),
        p99_s=float(np.percentile(lasts, 99)),
        tokens_per_s=tokens / per_step,
        moved=moved,
    )

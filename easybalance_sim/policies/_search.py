"""Runs the search kernel for a policy: scaled windows in, plan out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, IntArray, frozen
from easybalance_sim.load.headroom import spread
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem

FEWEST_WINDOWS = 8
MOST_WINDOWS, MOST_SINGLE_STEPS = 256, 1024
"""Sample windows; single steps are noisy, so more of them."""
SMALL_EXPERTS, SMALL_PROPOSALS, PROPOSALS = 64, 600_000, 1_000_000
PROBE_PROPOSALS = 20_000
LANES = 16
"""Windows are padded to whole vector registers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """What the kernel balances.

    tokens: float32[L, E, T] with a mean rank load of 1 in every window, T padded with empty windows · slope, active:
    cost of a token and of an active slot · per_step: float32[T] scales tokens to one step · windows: T
    without the padding.
    """

    tokens: AnyArray
    slope: float
    active: float
    per_step: AnyArray
    windows: int


def from_start(problem: Problem, start: Plan, held: BoolArray | None = None, price: float = 0.0) -> Plan:
    """The plan that the search reaches from `start`.

    held: bool[L, R, E] experts that need no move, None = moves are free · price: per move, in units of a window's mean
    objective. Layers are searched in rounds of a few so that progress shows and a budget is kept.
    """
    ranks = problem.topology.ranks
    samples = scaled(problem, start)
    free = np.ones((start.layers, ranks, start.experts), np.bool_) if held is None else held
    most = -1 if problem.effort.max_moves is None else problem.effort.max_moves
    out, lowest = start.expert_of_slot.copy(), np.zeros(start.layers)
    proposals = _proposals(problem)
    clock, advance = _Budget(problem.effort.budget_s, start.layers), problem.progress("searching", start.layers)
    speed = problem.topology.speed
    for layers, share in _rounds(start.layers, most):
        count = clock.affordable(proposals)
        if count == 0:
            break
        begin = time.perf_counter()
        kernels.load().search(
            frozen(start.expert_of_slot[layers]), start.rank_of_slot, frozen(samples.tokens[layers]),
            frozen(speed.mean() / speed, np.float32), samples.slope, samples.active, samples.per_step,
            frozen(free[layers]), price * samples.windows, share, count, problem.seed + layers.start, out[layers],
            lowest[layers],
        )  # fmt: skip
        clock.spent(time.perf_counter() - begin, layers.stop - layers.start, count)
        advance(layers.stop - layers.start)
    return Plan(expert_of_slot=out, slots_per_rank=start.slots_per_rank, experts=start.experts, policy=start.policy)


def scaled(problem: Problem, start: Plan) -> Samples:
    """Recorded and re-batched windows as the kernel wants them.

    With T windows the deviations from their mean shrink by T / (T + 4): few windows are over-fitted otherwise.
    """
    chosen = sample_windows(problem)
    total = chosen.sum(axis=2, keepdims=True)
    relative = np.where(total > 0, chosen / np.maximum(total, 1), 1 / problem.experts) * problem.topology.ranks
    mean = relative.mean(axis=0)
    relative = mean + len(chosen) / (len(chosen) + 4) * (relative - mean)
    padded = -(-len(chosen) // LANES) * LANES
    tokens = np.zeros((problem.layers, problem.experts, padded), np.float32)
    tokens[:, :, : len(chosen)] = relative.transpose(1, 2, 0)
    size = total[:, :, 0].mean(axis=1) / problem.topology.ranks / max(problem.window_steps, 1.0)
    per_step = np.zeros(padded, np.float32)
    per_step[: len(chosen)] = size
    slope, active = _slot_costs(problem, start, tokens, per_step)
    return Samples(tokens=frozen(tokens), slope=slope, active=active, per_step=frozen(per_step), windows=len(chosen))


def sample_windows(problem: Problem) -> IntArray:
    """int64[T, L, E]: recorded windows, and as many re-batched ones when there are any."""
    most = MOST_SINGLE_STEPS if problem.window_steps <= 1 else MOST_WINDOWS
    if problem.rebatched is None or len(problem.rebatched) == 0:
        return spread(problem.windows, most)
    return np.concatenate([spread(problem.windows, most // 2), spread(problem.rebatched, most // 2)])


def _slot_costs(problem: Problem, start: Plan, tokens: AnyArray, per_step: AnyArray) -> tuple[float, float]:
    """(slope, active) scaled so that the mean rank of the start plan costs 1."""
    if problem.slot_cost is None:
        return 1.0, 0.0
    size = float(per_step[per_step > 0].mean())
    slope, active = problem.slot_cost.token_s * size, problem.slot_cost.active_s
    mean = slope + active * _mean_active(start, tokens, per_step)
    return slope / mean, active / mean


def _mean_active(start: Plan, tokens: AnyArray, per_step: AnyArray) -> float:
    """Expected active slots of a rank in a step, over layers, ranks and windows."""
    layer = np.arange(start.layers)[:, None]
    real = per_step > 0
    per_slot: FloatArray = (
        tokens[layer, start.expert_of_slot][:, :, real] / start.replicas[layer, start.expert_of_slot][:, :, None]
    )
    busy = 1 - np.exp(-per_slot * per_step[real])
    return float(busy.sum(axis=1).mean() / start.ranks)


def _proposals(problem: Problem) -> int:
    if problem.effort.proposals:
        return problem.effort.proposals
    return SMALL_PROPOSALS if problem.experts <= SMALL_EXPERTS else PROPOSALS


def _rounds(layers: int, most_moves: int) -> list[tuple[slice, int]]:
    """Slices of a few layers, and the moves that each of their layers may make."""
    size = max(2, -(-layers // 16))
    share = 1 << 30 if most_moves < 0 else most_moves // layers
    return [(slice(first, min(first + size, layers)), share) for first in range(0, layers, size)]


class _Budget:
    """Turns a time budget into proposals per layer, from the rate measured so far."""

    def __init__(self, seconds: float, layers: int) -> None:
        self._left, self._layers, self._rate = seconds, layers, 0.0
        self._limited = seconds > 0

    def affordable(self, wanted: int) -> int:
        """Proposals per layer of the next round, 0 when the time is up; the first round probes the rate."""
        if not self._limited:
            return wanted
        if self._left <= 0:
            return 0
        if self._rate == 0:
            return min(wanted, PROBE_PROPOSALS)
        return min(wanted, max(1, int(self._left / self._layers * self._rate)))

    def spent(self, seconds: float, layers: int, proposals: int) -> None:
        """A round of `layers` layers took so long."""
        self._left -= seconds
        self._layers = max(1, self._layers - layers)
        self._rate = layers * proposals / max(seconds, 1e-9)

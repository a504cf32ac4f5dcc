"""Runs the search kernel for a policy: scaled windows in, plan out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, IntArray, frozen
from easybalance_sim.load.headroom import FEW_EXPERTS, MANY_EXPERTS, most_windows, spread
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem

FEWEST_WINDOWS = 8
PROPOSALS, SMALL_PROPOSALS = 1_000_000, 600_000
PROPOSALS_PER_WINDOW, MOST_PROPOSALS = 2000, 2_000_000
"""With at most `FEW_EXPERTS`: in proportion to the windows, `SMALL_PROPOSALS` at least."""
PROBE_PROPOSALS = 20_000
LANES = 16
"""Windows are padded to whole vector registers."""
LEAST_PER_STEP = 1e-6
"""Tokens of a rank in a step of a window without traffic: it counts as a window still."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """What the kernel balances.

    tokens: float32[L, E, T] with a mean rank load of 1 in every window, T padded with empty windows · slope, active:
    cost of a token and of an active slot, such that a balanced rank's eighth power is 1 on the mean over the T ·
    per_step: float32[T] scales tokens to one step.
    """

    tokens: AnyArray
    slope: float
    active: float
    per_step: AnyArray


def from_start(
    problem: Problem, start: Plan, held: BoolArray | None = None, price: float = 0.0, *, unit: float = 1.0
) -> Plan:
    """The plan that the search reaches from `start`.

    held: bool[L, R, E] experts that need no move, None = moves are free · price: per move, in units of a window's mean
    objective · unit: what a balanced rank costs; the kernel starts at the temperature that a cost above 1 asks for, so
    a smaller unit keeps it cold. Layers are searched in rounds of a few so that progress shows and a budget is kept.
    """
    samples, speed = scaled(problem, start), problem.topology.speed
    pace = frozen(speed.mean() / speed, np.float32)
    free = np.ones((start.layers, start.ranks, start.experts), np.bool_) if held is None else held
    out, lowest = start.expert_of_slot.copy(), np.zeros(start.layers)
    moves = _Moves(problem.effort.max_moves, _need(start, samples, pace), _fetched(free, start))

    def search(layers: slice, count: int) -> None:
        kernels.load().search(
            frozen(start.expert_of_slot[layers]), start.rank_of_slot, frozen(samples.tokens[layers]), pace,
            samples.slope * unit, samples.active * unit, samples.per_step, frozen(free[layers]),
            price * unit**8 * samples.tokens.shape[2], moves.share(layers), count, problem.seed + layers.start,
            out[layers], lowest[layers],
        )  # fmt: skip

    rounds, advance = moves.rounds(), problem.progress("searching", Amount(start.layers, "layers"))
    clock = _Budget(problem.effort.budget_s, start.layers)
    clock.probe(lambda count: search(rounds[0], count), rounds[0].stop - rounds[0].start)
    for layers in rounds:
        count = clock.affordable(proposals_of(problem))
        if count > 0:
            begin = time.perf_counter()
            search(layers, count)
            clock.spent(time.perf_counter() - begin, layers.stop - layers.start, count)
        moves.spent(layers, _fetched(free, replace(start, expert_of_slot=out)))
        advance(layers.stop - layers.start)
    return replace(start, expert_of_slot=out)


def _fetched(free: BoolArray, plan: Plan) -> IntArray:
    """int64[L] slots whose expert is not among those bool[L, R, E] that cost nothing."""
    layer = np.arange(plan.layers)[:, None]
    fetched: IntArray = (~free[layer, plan.rank_of_slot[None, :], plan.expert_of_slot]).sum(axis=1)
    return fetched


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
    size = total[:, :, 0].mean(axis=1) / problem.topology.ranks / max(_searched(problem)[1], 1.0)
    per_step = np.zeros(padded, np.float32)
    per_step[: len(chosen)] = np.maximum(size, LEAST_PER_STEP)
    slope, active = _slot_costs(problem, start, tokens, per_step)
    # The kernel takes its temperature from the mean over all windows, the empty ones included.
    unit = (padded / len(chosen)) ** (1 / 8)
    return Samples(tokens=frozen(tokens), slope=slope * unit, active=active * unit, per_step=frozen(per_step))


def sample_windows(problem: Problem) -> IntArray:
    """int64[T, L, E]: recorded windows, and those of the requests queued again."""
    recorded, again = _sizes(problem)
    found = spread(_searched(problem)[0], recorded)
    if problem.rebatched is None or not again:
        return found
    return np.concatenate([found, spread(problem.rebatched, again)])


def _sizes(problem: Problem) -> tuple[int, int]:
    """How many recorded windows a search looks at, and how many of requests queued again, which leave the recorded
    ones half the room at least."""
    found, steps = _searched(problem)
    most = most_windows(steps, problem.experts)
    again = 0 if problem.rebatched is None else len(problem.rebatched)
    again = min(again, most // 2 + max(0, most // 2 - len(found)))
    return min(len(found), most - again), again


def _searched(problem: Problem) -> tuple[IntArray, float]:
    """The recorded windows that a search looks at, and their mean steps."""
    if problem.finer is None:
        return problem.windows, problem.window_steps
    return problem.finer, problem.finer_steps


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
    real = per_step > 0
    busy = 1 - np.exp(-_per_slot(start, tokens[:, :, real]) * per_step[real])
    return float(busy.sum(axis=1).mean() / start.ranks)


def _need(start: Plan, samples: Samples, pace: AnyArray) -> FloatArray:
    """float64[L] how much busier the busiest rank is than a balanced one, mean over windows."""
    load = np.add.reduceat(_per_slot(start, samples.tokens), start.slot_start[:-1], axis=1) * pace[:, None]
    mean = np.maximum(load.mean(axis=1), 1e-9)
    need: FloatArray = (load.max(axis=1) / mean)[:, samples.per_step > 0].mean(axis=1) - 1.0
    return np.maximum(need, 1e-9)


def _per_slot(plan: Plan, tokens: AnyArray) -> AnyArray:
    """float32[L, P, T] tokens of each slot, an even share of its expert's."""
    layer = np.arange(plan.layers)[:, None]
    return tokens[layer, plan.expert_of_slot] / plan.replicas[layer, plan.expert_of_slot][:, :, None].astype(np.float32)


def proposals_of(problem: Problem) -> int:
    """Proposals per layer: what the user asks for, else by size.

    With few experts the walk is as long as the windows are many: a long one on few windows learns them by heart.
    """
    if problem.effort.proposals:
        return problem.effort.proposals
    if problem.experts > FEW_EXPERTS:
        return SMALL_PROPOSALS if problem.experts <= MANY_EXPERTS else PROPOSALS
    return min(max(SMALL_PROPOSALS, PROPOSALS_PER_WINDOW * sum(_sizes(problem))), MOST_PROPOSALS)


class _Moves:
    """Hands a limit on moves out to layers: in proportion to their need, the neediest first."""

    def __init__(self, most: int | None, need: FloatArray, fetched: IntArray) -> None:
        self._limited, self._need, self._fetched = most is not None, need, fetched
        self._left = max(0, (most or 0) - int(fetched.sum()))

    def rounds(self) -> list[slice]:
        """Slices of layers that are searched together: as few as keep the device busy, one by one under a limit."""
        count = len(self._need)
        if self._limited:
            return [slice(layer, layer + 1) for layer in np.argsort(-self._need, kind="stable").tolist()]
        size = max(2, -(-count // 16), kernels.layers_at_once())
        return [slice(first, min(first + size, count)) for first in range(0, count, size)]

    def share(self, layers: slice) -> int:
        """Moves that a layer of this round may have made in the end."""
        if not self._limited:
            return 1 << 30
        share = float(self._need[layers].sum() / self._need.sum())
        return int(self._fetched[layers].sum()) + min(self._left, int(np.ceil(self._left * share)))

    def spent(self, layers: slice, fetched: IntArray) -> None:
        """A round is done, after which int64[L] slots are fetched; what it left over goes to the others."""
        if self._limited:
            self._left -= int((fetched - self._fetched)[layers].sum())
            self._fetched = fetched
            self._need[layers] = 0.0


class _Budget:
    """Turns a time budget into proposals per layer, from the rate of the last round."""

    def __init__(self, seconds: float, layers: int) -> None:
        self._left, self._layers, self._rate = seconds, layers, 0.0
        self._limited = seconds > 0

    def probe(self, search: Callable[[int], None], layers: int) -> None:
        """Measure the rate on `layers` layers; compiling comes before and is not on the clock."""
        if self._limited:
            search(1)
            begin = time.perf_counter()
            search(PROBE_PROPOSALS)
            self.spent(time.perf_counter() - begin, layers, PROBE_PROPOSALS)
            self._layers += layers

    def affordable(self, wanted: int) -> int:
        """Proposals per layer of the next round, 0 when the time is up."""
        if not self._limited:
            return wanted
        if self._left <= 0:
            return 0
        return min(wanted, max(1, int(self._left / self._layers * self._rate)))

    def spent(self, seconds: float, layers: int, proposals: int) -> None:
        """A round of `layers` layers took so long."""
        self._left -= seconds
        self._layers -= layers
        self._rate = layers * proposals / max(seconds, 1e-9)

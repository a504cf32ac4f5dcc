"""Whether two distributions are put in the measured order, and how far luck lets any formula do so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, stream
from easybalance_sim.profiling.rows import ExpertRow
from tests.bench.accuracy_rows import Line

# Two names for practically one distribution: which of them was measured slower is the luck of five draws.
TWINS = frozenset({"power_law_1.01", "power_law_1.02"})
TIE = 1.05
MEASURED_DRAWS, SIMULATIONS = 5, 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Luck:
    """The order that a perfect formula would reach on one GPU's rows: on average, and the 5 and 95 % quantiles."""

    gpu: str
    order: Line
    expected: float
    low: float
    high: float


def cells(rows: Sequence[ExpertRow]) -> list[list[int]]:
    """Rows that differ in nothing but the distribution."""
    found: dict[tuple[int, int], list[int]] = {}
    for at, row in enumerate(rows):
        found.setdefault((row.ep, row.tokens), []).append(at)
    return list(found.values())


def order_lines(name: str, rows: Sequence[ExpertRow], us: FloatArray, target: float) -> list[Line]:
    """How often `us` orders two distributions as measured, where the measured lie over 5 % apart: all pairs, those
    without twins, and those that `us` puts over 5 % apart too, where the product takes sides instead of calling a tie.
    """
    pairs, measured = _pairs(rows), np.array([row.us for row in rows])
    twins = np.array([{rows[at].distribution for at in pair} == TWINS for pair in pairs], np.bool_)
    far = _apart(measured, pairs)
    item = "order of two distributions over 5 % apart"
    kinds = (
        (f"{name}, {item}", far),
        (f"{name}, without 1.01 against 1.02, {item}", far & ~twins),
        (f"{name}, order where the model takes sides (both gaps over 5 %)", far & _apart(us, pairs)),
    )
    return [
        Line(
            item=item, measured=_ordered(us, measured, pairs[chosen]), target=target, rows=int(chosen.sum()),
            at_most=False, percent=False,
        )
        for item, chosen in kinds
    ]  # fmt: skip


def luck(gpu: str, rows: Sequence[ExpertRow], draws_us: FloatArray, order: Line) -> Luck:
    """What luck leaves of `order`, were the formula behind `draws_us` (µs, [N, D]) the truth."""
    shares = perfect_shares(draws_us, _pairs(rows))
    low, high = np.percentile(shares, (5, 95))
    return Luck(gpu=gpu, order=order, expected=float(shares.mean()), low=float(low), high=float(high))


def perfect_shares(draws_us: FloatArray, pairs: IntArray, simulations: int = SIMULATIONS, seed: int = 0) -> FloatArray:
    """float64[simulations] how often means of five draws are ordered as the means of all, where over 5 % apart.

    draws_us: float64[N, D] · pairs: int64[P, 2] rows. Every simulation measures all rows anew.
    """
    rng = stream(seed, "luck of five draws")
    truth = draws_us.mean(axis=1)
    shares = np.empty(simulations)
    for at in range(simulations):
        picks = rng.integers(0, draws_us.shape[1], (len(draws_us), MEASURED_DRAWS))
        measured = np.take_along_axis(draws_us, picks, axis=1).mean(axis=1)
        shares[at] = _ordered(truth, measured, pairs[_apart(measured, pairs)])
    return shares


def luck_section(found: Sequence[Luck]) -> list[str]:
    """The section of the report."""
    head = [
        "## What luck allows",
        "",
        "A skewed DeepGEMM masked row is the mean of five unseeded draws, a prediction the mean of many. Were the",
        "formula, fitted on all rows, the truth, its own means of five draws would put two distributions over 5 %",
        f"apart in the order of its predictions this often ({SIMULATIONS} simulated tables, no other noise): more",
        "cannot be expected of a formula that does not know the draws.",
        "",
        "| rows | order, target | measured | of a perfect formula | 5-95 % |",
        "|---|---|---|---|---|",
    ]
    rows = [
        f"| {one.gpu} DeepGEMM masked | ≥ {one.order.target:.3g} | {one.order.measured:.3f} | {one.expected:.3f} "
        f"| {one.low:.3f}-{one.high:.3f} |"
        for one in found
    ]
    beyond = [_beyond(one) for one in found if one.order.target > one.high]
    return [*head, *rows, *(["", *beyond] if beyond else [])]


def _beyond(one: Luck) -> str:
    measured = "inside" if one.low <= one.order.measured <= one.high else "outside"
    return (
        f"The target for {one.gpu}, {one.order.target:.3g}, lies above the upper end of this range "
        f"({one.low:.3f}-{one.high:.3f}); the measured {one.order.measured:.3f} lies {measured}."
    )


def _pairs(rows: Sequence[ExpertRow]) -> IntArray:
    return np.array([pair for cell in cells(rows) for pair in combinations(cell, 2)], np.int64).reshape(-1, 2)


def _apart(us: FloatArray, pairs: IntArray) -> BoolArray:
    both = us[pairs]
    return np.asarray(both.max(axis=1) > TIE * both.min(axis=1))


def _ordered(one: FloatArray, other: FloatArray, pairs: IntArray) -> float:
    """The share of pairs that both order alike; 1 for none."""
    a, b = pairs.T
    right = (one[a] > one[b]) == (other[a] > other[b])
    return float(right.mean()) if len(right) else 1.0

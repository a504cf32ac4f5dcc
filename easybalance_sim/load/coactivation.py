"""Which experts of a layer are chosen together: pairs on one rank or node cost a token one copy instead of two.

What independent choices would give is the quasi-independence model of contingency tables (Goodman, JASA 1968): w_e·w_f
for every pair of different experts, weights such that each expert keeps its number of partners. That a token picks no
expert twice is so allowed for, and hot experts do not look like friends only because both are hot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import pdtrc

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen, require_shape, sealed
from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.schema import TokenBatch

STRONG = 2.0
"""Lift from which a pair counts as strong."""

PAIR_BYTES = 512 << 20
"""What the counts of all pairs may take; of models with more, layers spread over the depth are counted."""

_ROUNDS, _CLOSE = 200, 1e-9


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two experts of a layer. row: of the trace's layers · together: tokens that chose both · lift: observed over
    expected."""

    row: int
    experts: tuple[int, int]
    together: int
    lift: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Coactivation:
    """Pair counts of a trace, or of a part of it: `a + b` merges two.

    pairs: int64[L, E, E] tokens that chose both experts, on the diagonal those that chose the one · rows: int64[L]
    which layers of the trace these are · tokens: how many were looked at. Raises `EbsimError` when shapes do not fit.
    """

    pairs: IntArray
    rows: IntArray
    tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", frozen(self.pairs, np.int64))
        object.__setattr__(self, "rows", frozen(self.rows, np.int64))
        require_shape("Coactivation.pairs", self.pairs, (len(self.rows), None, self.pairs.shape[-1]))

    def __add__(self, other: Coactivation) -> Coactivation:
        if self.pairs.shape != other.pairs.shape or not np.array_equal(self.rows, other.rows):
            raise EbsimError("shards differ in layers or experts", where="Coactivation")
        return replace(self, pairs=sealed(self.pairs + other.pairs), tokens=self.tokens + other.tokens)

    def lift(self) -> FloatArray:
        """float64[L, E, E] observed over expected if choices were independent, given how often each expert is chosen;
        NaN on the diagonal and for experts that no token chose."""
        lift = np.full(self.pairs.shape, np.nan)
        for row, pairs in enumerate(self.pairs):
            mean = expected(pairs)
            np.divide(pairs, mean, out=lift[row], where=mean > 0)
        return sealed(lift)

    def strong_share(self) -> tuple[FloatArray, FloatArray]:
        """float64[L] twice: the share of all pairs of choices that fall on pairs of experts with lift ≥ `STRONG`, and
        the share that would do so by chance (Poisson counts of the expected means); NaN without pairs."""
        shares = [_strong(pairs) for pairs in self.pairs]
        observed, chance = np.array(shares, np.float64).reshape(-1, 2).T
        return frozen(observed), frozen(chance)

    def strongest(self, count: int) -> list[Pair]:
        """The pairs with the largest lift that two standard deviations of their count leave, largest first."""
        found = [
            pair for row, pairs in zip(self.rows.tolist(), self.pairs, strict=True) for pair in _top(row, pairs, count)
        ]
        return [pair for _, pair in sorted(found, key=lambda each: -each[0])[:count]]


class PairCounter:
    """Counts the pairs of a stream of tokens, on all layers or on as many as `PAIR_BYTES` allow (perhaps none)."""

    def __init__(self, layers: int, experts: int) -> None:
        self.rows = counted_layers(layers, experts)
        self._all = len(self.rows) == layers
        self._pairs: IntArray = np.zeros((len(self.rows), experts, experts), np.int64)
        self._tokens = 0

    @property
    def nbytes(self) -> int:
        """Of the counts."""
        return self._pairs.nbytes

    def watching(self, batches: Iterable[TokenBatch]) -> Iterator[TokenBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.add(batch.experts)
            yield batch

    def add(self, experts: AnyArray) -> None:
        """experts: ids [T, L, K]."""
        chosen = experts if self._all else frozen(experts[:, self.rows])
        kernels.load().coactivation(chosen, self._pairs)
        self._tokens += len(experts)

    def counted(self) -> Coactivation:
        """All so far."""
        return Coactivation(pairs=self._pairs, rows=self.rows, tokens=self._tokens)


def counted_layers(layers: int, experts: int) -> IntArray:
    """int64[…] rows of the layers whose pairs are counted: all, or a spread that takes at most `PAIR_BYTES`."""
    count = min(layers, PAIR_BYTES // (8 * experts * experts))
    return frozen(np.linspace(0, layers - 1, count).round(), np.int64)


def expected(pairs: IntArray) -> FloatArray:
    """float64[E, E] pairs that independent choices would make of one layer's int64[E, E], diagonal 0 in both.

    w_e·(Σw − w_e) = partners of e, solved by repeated scaling.
    """
    partners = pairs.sum(axis=1) - np.diag(pairs).astype(np.float64)
    used = partners > 0
    target: FloatArray = partners[used]
    weight: FloatArray = target / np.sqrt(max(target.sum(), 1.0))
    for _ in range(_ROUNDS):
        made = weight * (weight.sum() - weight)
        if np.allclose(made, target, rtol=_CLOSE, atol=0):
            break
        weight = weight * np.sqrt(target / made)
    mean = np.zeros(pairs.shape)
    mean[np.ix_(used, used)] = np.outer(weight, weight)
    np.fill_diagonal(mean, 0)
    return mean


def _upper(pairs: IntArray) -> tuple[AnyArray, AnyArray, IntArray, FloatArray]:
    """Each pair of different experts once, where any is expected: first, second, tokens, expected tokens."""
    mean = expected(pairs)
    first, second = np.nonzero(np.triu(mean, 1))
    return first, second, pairs[first, second], mean[first, second]


def _strong(pairs: IntArray) -> tuple[float, float]:
    _, _, count, mean = _upper(pairs)
    if not len(count):
        return np.nan, np.nan
    # Of a Poisson count X of mean m: E[X; X ≥ n] = m·P(X ≥ n − 1).
    enough = np.ceil(STRONG * mean)
    tail = np.where(enough > 1, pdtrc(np.maximum(enough - 2, 0), mean), 1.0)
    strong = count >= STRONG * mean
    return float(count[strong].sum() / count.sum()), float((mean * tail).sum() / mean.sum())


def _top(row: int, pairs: IntArray, count: int) -> list[tuple[float, Pair]]:
    first, second, tokens, mean = _upper(pairs)
    sure = (tokens - 2 * np.sqrt(tokens)) / mean
    best = np.argsort(-sure, kind="stable")[:count]
    return [
        (
            float(sure[at]),
            Pair(
                row=row,
                experts=(int(first[at]), int(second[at])),
                together=int(tokens[at]),
                lift=float(tokens[at] / mean[at]),
            ),
        )
        for at in best
        if sure[at] > 0
    ]

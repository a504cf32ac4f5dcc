"""The work behind measured rows, in the terms of the expert formula (`cost.expert`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.profiling.draws import RankDraws, Recipe, draw
from easybalance_sim.profiling.rows import ExpertRow

CANDIDATE_DRAWS, KEPT_DRAWS, AVERAGED_DRAWS = 200, 12, 128


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """N measured rows with D draws each.

    us: float64[N] measured · weights: float64[N] m·H·I of an expert · row_values: float64[N] 2H + m·I ·
    hidden: float64[N] · active, pairs, distinct: int64[N, D] active slots, assignments and distinct tokens ·
    tiles: int64[N, D] tokens padded to tiles.
    """

    us: FloatArray
    weights: FloatArray
    row_values: FloatArray
    hidden: FloatArray
    active: IntArray
    tiles: IntArray
    pairs: IntArray
    distinct: IntArray

    def take(self, rows: AnyArray) -> Work:
        """The rows at an index array or mask."""
        return Work(**{name: frozen(getattr(self, name)[rows]) for name in self.__dataclass_fields__})


class Workload:
    """Rebuilds the loads of rows; rows of equal recipe share their draws, whatever their widths and GPU."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._drawn: dict[tuple[Recipe, int], RankDraws] = {}

    def of(self, rows: Sequence[ExpertRow], block: int, *, scattered: bool = False) -> Work:
        """The work of `rows` with tiles of `block` tokens.

        A row with recorded distinct tokens takes the draws nearest to them, any other the average over draws.
        scattered: the kernel passes the tokens of all ranks through scatter and gather (contiguous tables).
        """
        loads = [self.loads(row) for row in rows]
        draws = max(len(load.counts) for load in loads)
        picks = [np.arange(draws) % len(load.counts) for load in loads]
        counts = [load.counts[pick] for load, pick in zip(loads, picks, strict=True)]
        distinct = np.array([load.distinct[pick] for load, pick in zip(loads, picks, strict=True)])
        if scattered:
            distinct = np.repeat([[row.tokens] for row in rows], draws, axis=1)
        return Work(
            us=frozen([row.us for row in rows], np.float64),
            weights=frozen([1.0 * row.matrices * row.hidden * row.intermediate for row in rows]),
            row_values=frozen([2.0 * row.hidden + row.matrices * row.intermediate for row in rows]),
            hidden=frozen([row.hidden for row in rows], np.float64),
            active=frozen([(load > 0).sum(axis=1) for load in counts]),
            tiles=frozen([(-(-load // block) * block).sum(axis=1) for load in counts]),
            pairs=frozen([load.sum(axis=1) for load in counts]),
            distinct=frozen(distinct),
        )

    def loads(self, row: ExpertRow) -> RankDraws:
        """The loads of the timed rank: its recorded counts, the draws nearest to what arrived, or draws to average."""
        if row.counts:
            counts = np.array([row.counts])
            return RankDraws(counts=frozen(counts), distinct=frozen(np.minimum(counts.sum(axis=1), row.tokens)))
        recipe = Recipe(
            tokens=row.tokens, experts=row.experts, top_k=row.top_k, ranks=row.ep, alpha=row.alpha, eplb=row.eplb,
            slots=row.slots, older_draws=row.older_draws,
        )  # fmt: skip
        if row.arrived < 0:
            return self._draw(recipe, AVERAGED_DRAWS)
        return self._draw(recipe, CANDIDATE_DRAWS).nearest(row.arrived, KEPT_DRAWS)

    def _draw(self, recipe: Recipe, draws: int) -> RankDraws:
        key = recipe, draws
        if key not in self._drawn:
            self._drawn[key] = draw(recipe, draws, self._seed)
        return self._drawn[key]

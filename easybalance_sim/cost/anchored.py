"""Expert time from the user's table of balanced loads, and from the formula what skew makes of it.

    t(M) = t_table(P) · formula(M) / formula(P dealt evenly over the slots of the table's rank)

M: tokens of the slots of a rank · P: their sum, at which the table is looked up (`cost.profiles.table_us`). What the
formula gets wrong of a kernel's level cancels, so a table of any kernel and GPU will do; what it says of active
experts, padding and additional slots stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import FloatArray, Int16Array, Int32Array, IntArray, frozen
from easybalance_sim.cluster.hardware import ExpertTable
from easybalance_sim.cost.expert import ExpertCost
from easybalance_sim.cost.profiles import table_us

ANCHORED_BAND_P90 = 0.29
"""Worst P90 of measured tables anchored on their balanced rows, by their own kernel's formula or another's
(`tests/bench/accuracy_anchored.py`): Triton on one rank 6-13 %, DeepGEMM masked 14-26 %, Triton on 8 ranks 19-29 %."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AnchoredCost:
    """Anchored expert time (an `ExpertModel`).

    table: measured under balanced loads · formula: of the base profile's kernel · slots: of a rank when the table was
    measured.
    """

    table: ExpertTable
    formula: ExpertCost
    slots: int

    @property
    def name(self) -> str:
        """ "expert table FILE, skew by fp8_block deepgemm_masked"."""
        return f"expert table {Path(self.table.source).name}, skew by {self.formula.name}"

    @property
    def band_p90(self) -> float:
        """`ANCHORED_BAND_P90`; the table's own error is not known."""
        return ANCHORED_BAND_P90

    @property
    def reasons(self) -> tuple[str, ...]:
        """Empty for a table that says it is calibrated; without the model's widths what skew does is a guess."""
        found = () if self.table.calibrated else (self.table.why,)
        return (*found, "the model's widths are assumed") if self.formula.shape.assumed else found

    def seconds(
        self, slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray
    ) -> tuple[FloatArray, Int16Array]:
        """As `ExpertCost.seconds`. Raises `ProfileError` for a rank with over 4 times the table's largest tokens."""
        by_rank = _by_rank(slot_tokens, slot_start)
        arriving = by_rank.sum(axis=-1, dtype=np.int64)
        skewed, active = self._formula(by_rank, distinct)
        even = self._balanced(arriving)
        skew = np.divide(skewed, even, out=np.zeros_like(skewed), where=even > 0)
        us = table_us(self.table, arriving) * skew
        return np.asarray((us / speed).max(axis=-1) * 1e-6), active

    def level(self, arriving: float) -> float:
        """Table over formula under a balanced load of `arriving` assignments at a rank, or the nearest in the table."""
        at = np.array([[[int(np.clip(arriving, max(1.0, self.table.tokens[0]), self.table.tokens[-1]))]]])
        return float(table_us(self.table, at)[0, 0, 0] * 1e-6 / self._balanced(at)[0, 0, 0])

    def _balanced(self, arriving: IntArray) -> FloatArray:
        """float64[W, L, R] seconds of the table's rank under balanced loads of int64[W, L, R] assignments.

        They belong to as many distinct tokens as uniform choices would bring: a rank that is hot because tokens choose
        several of its experts moves fewer rows than a balanced one with as many assignments.
        """
        distinct = np.rint(arriving * self.tokens_of_assignment)
        return self._formula(dealt_evenly(arriving, self.slots), frozen(distinct, np.int32))[0]

    @cached_property
    def tokens_of_assignment(self) -> float:
        """Distinct tokens per assignment that reach `slots` of the experts, choices being uniform."""
        shape, own = self.formula.shape, min(self.slots, self.formula.shape.experts)
        reached = 1 - comb(shape.experts - own, shape.top_k) / comb(shape.experts, shape.top_k)
        return reached * shape.experts / (own * shape.top_k)

    def _formula(self, by_rank: Int32Array, distinct: Int32Array) -> tuple[FloatArray, Int16Array]:
        """Seconds and active slots of every rank alone, [W, L, R]: each is given to the formula as a layer of its own.

        by_rank: int32[W, L, R, S] · distinct: int32[W, L, R].
        """
        steps, layers, ranks, slots = by_rank.shape
        seconds, active = self.formula.seconds(
            by_rank.reshape(steps, layers * ranks, slots),
            distinct.reshape(steps, layers * ranks, 1),
            frozen([0, slots], np.int32),
            self._one,
        )
        return seconds.reshape(steps, layers, ranks), active.reshape(steps, layers, ranks)

    @cached_property
    def _one(self) -> FloatArray:
        return frozen(np.ones(1))


def anchored_cost(table: ExpertTable, formula: ExpertCost, ranks: int) -> AnchoredCost:
    """The table anchored; one that does not say its slots was measured without redundancy on `ranks` ranks."""
    return AnchoredCost(table=table, formula=formula, slots=table.slots or -(-formula.shape.experts // ranks))


def dealt_evenly(arriving: IntArray, slots: int) -> Int32Array:
    """int32[..., slots] assignments dealt over slots one after another."""
    each, more = np.divmod(arriving[..., None], slots)
    return frozen(each + (np.arange(slots) < more), np.int32)


def _by_rank(slot_tokens: Int32Array, slot_start: Int32Array) -> Int32Array:
    """int32[W, L, R, S] of int32[W, L, P]; ranks with fewer than S slots get empty ones, which cost nothing."""
    own = np.diff(slot_start)
    steps, layers, _ = slot_tokens.shape
    if (own == own[0]).all():
        return slot_tokens.reshape(steps, layers, len(own), int(own[0]))
    padded = np.zeros((steps, layers, len(own), int(own.max())), np.int32)
    padded[:, :, np.arange(own.max()) < own[:, None]] = slot_tokens
    return frozen(padded, np.int32)

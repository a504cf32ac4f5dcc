"""Which tokens of a trace take part: phase, workloads, side of the split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, mixed
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.split import HELD_OUT, Split
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import PHASES, TokenBatch

_USUAL = Windowing()


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """A filter over token batches.

    phase: code or None for all · workloads: codes or None for all · split, side: the side to keep, or None for both ·
    without: tokens that this other selection holds are left out · every, windowing: keep one in `every` windows.
    """

    phase: int | None = None
    workloads: tuple[int, ...] | None = None
    split: Split | None = None
    side: int = 0
    without: Selection | None = None
    every: int = 1
    windowing: Windowing = _USUAL

    def batches(self, trace: TokenTrace) -> Iterator[TokenBatch]:
        """The chosen tokens of `trace`, see `of`."""
        return self.of(trace.batches())

    def of(self, batches: Iterable[TokenBatch]) -> Iterator[TokenBatch]:
        """The chosen tokens, batches without any left out; a step keeps only its chosen tokens."""
        for batch in batches:
            keep = self.mask(batch)
            if keep is None:
                yield batch
            elif keep.any():
                yield batch.select(keep)

    def may_hold(self, first_step: IntArray, last_step: IntArray) -> BoolArray:
        """bool[n] whether spans of steps (int64[n] first and last) may hold a token to keep."""
        found = np.ones(len(first_step), np.bool_)
        if self.split is not None and self.split.boundary >= 0:
            held = last_step >= self.split.boundary
            found &= held if self.side == HELD_OUT else first_step < self.split.boundary
        if self.every > 1 and self.windowing.length:
            first, last = first_step // self.windowing.length, last_step // self.windowing.length
            blocks = first // self.every, last // self.every
            inside = [(first <= kept) & (kept <= last) for kept in map(self._sampled, blocks)]
            found &= inside[0] | inside[1] | (blocks[1] - blocks[0] > 1)
        return found

    def _sampled(self, block: IntArray) -> IntArray:
        """int64[…] the window that is kept of each `every`: any, so that a rhythm of the traffic does no harm."""
        chosen: IntArray = block * self.every + (mixed(block) % np.uint64(self.every)).astype(np.int64)
        return chosen

    def of_side(self, split: Split, side: int) -> Selection:
        """The same filter on one side of a split."""
        return replace(self, split=split, side=side)

    def sampled(self, every: int, windowing: Windowing) -> Selection:
        """The same filter on one in `every` windows."""
        return replace(self, every=every, windowing=windowing)

    def mask(self, batch: TokenBatch) -> BoolArray | None:
        """bool[T] tokens to keep, None for all."""
        parts: list[BoolArray] = []
        if self.phase is not None:
            parts.append(batch.phase == self.phase)
        if self.workloads is not None:
            parts.append(np.isin(batch.workload, self.workloads))
        if self.split is not None:
            parts.append(self.split.mask(batch, self.side))
        if self.every > 1:
            ids = self.windowing.ids(batch)
            parts.append(ids == self._sampled(ids // self.every))
        if self.without is not None:
            out = self.without.mask(batch)
            parts.append(np.zeros(batch.tokens, np.bool_) if out is None else ~out)
        return np.logical_and.reduce(parts) if parts else None


def phase_filter(name: str | None) -> int | None:
    """Code of a phase name. Raises `UsageError` for an unknown one."""
    if name is None:
        return None
    if name not in PHASES:
        raise UsageError(
            f"no phase {name!r}", where="--phase", fix=f"{did_you_mean(name, PHASES)}choose {', '.join(PHASES)}"
        )
    return PHASES.index(name)


def workload_filter(names: Sequence[str], known: Sequence[str]) -> tuple[int, ...] | None:
    """Codes of workload names, None for no names. Raises `UsageError` naming the workloads the trace has."""
    if not names:
        return None
    for name in names:
        if name not in known:
            raise UsageError(
                f"the trace has no workload {name!r}", where="--workload", fix=f"it has {', '.join(known)}"
            )
    return tuple(known.index(name) for name in names)

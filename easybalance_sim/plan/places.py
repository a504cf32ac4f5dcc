"""Which slot of its rank every expert stands in while a migration goes on, and what is out of place at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import Int32Array, IntArray

EMPTY = -1


@dataclass(frozen=True, kw_only=True)
class Shift:
    """An expert that is copied to another slot of its rank. layer: row of the plan · place, to: from and to which of
    the rank's slots, 0-based."""

    layer: int
    expert: int
    rank: int
    place: int
    to: int


class Places:
    """The slots of all ranks, changed as the migration goes on.

    before, after: for each rank int32[L, S_r] experts in its slots; a rank has as many slots as the larger of the two.
    """

    def __init__(self, before: Sequence[Int32Array], after: Sequence[Int32Array]) -> None:
        wide = [max(had.shape[1], has.shape[1]) for had, has in zip(before, after, strict=True)]
        self._now = [_widened(had, slots) for had, slots in zip(before, wide, strict=True)]
        self._after = [_widened(has, slots) for has, slots in zip(after, wide, strict=True)]

    def change(self, layer: int, rank: int, leaves: int, arrives: int) -> int:
        """The slot of the rank that `arrives` (-1 = nobody) takes: its own one if that is empty once `leaves` (-1 =
        nobody) has left, else the one that falls free; the latter where nobody arrives."""
        slots = self._now[rank][layer]
        place = _free(slots) if leaves == EMPTY else int((slots == leaves).argmax())
        slots[slots == leaves] = EMPTY
        if arrives != EMPTY:
            own = np.flatnonzero((self._after[rank][layer] == arrives) & (slots == EMPTY))
            place = int(own[0]) if len(own) else place
            slots[place] = arrives
        return place

    def shifts(self) -> list[Shift]:
        """What fills every slot as in `after`, once each rank holds the experts that it has there."""
        return [
            Shift(
                layer=layer,
                expert=int(after[layer, to]),
                rank=rank,
                place=int((now[layer] == after[layer, to]).argmax()),
                to=to,
            )
            for rank, (now, after) in enumerate(zip(self._now, self._after, strict=True))
            for layer, to in np.argwhere((now != after) & (after != EMPTY)).tolist()
        ]


def cycles(shifts: Sequence[Shift]) -> int:
    """How many rings the shifts close: each needs a place beside the slots for one expert."""
    comes = {(shift.layer, shift.rank, shift.to): shift.place for shift in shifts}
    found = 0
    while comes:
        (layer, rank, first), at = comes.popitem()
        while (layer, rank, at) in comes:
            at = comes.pop((layer, rank, at))
        found += at == first
    return found


def _free(slots: IntArray) -> int:
    """The first empty slot, else the first with an expert that an earlier slot of the rank holds too."""
    empty = np.flatnonzero(slots == EMPTY)
    if len(empty):
        return int(empty[0])
    return int(np.setdiff1d(np.arange(len(slots)), np.unique(slots, return_index=True)[1])[0])


def _widened(experts: Int32Array, slots: int) -> IntArray:
    """int64[L, slots] with `EMPTY` slots at the end."""
    wide = np.full((len(experts), slots), EMPTY, np.int64)
    wide[:, : experts.shape[1]] = experts
    return wide

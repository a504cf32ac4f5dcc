"""Which experts keep their rank but change their slot against the placement that is loaded now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from easybalance_sim.exports.checks import MOVED, Rules
from easybalance_sim.exports.engine_file import EngineFile
from easybalance_sim.plan.lint import Finding


def check_moves(rules: Rules, file: EngineFile, previous: EngineFile, ranks: int | None) -> list[Finding]:
    """A finding for each layer in which an expert stays on a rank but changes its slot there.

    ranks: EP size, for files that do not list devices. Layers, ranks and slots that only one of the two has are not
    compared: other rules speak of those.
    """
    findings = []
    before = dict(zip(previous.layers, _by_rank(previous, ranks), strict=True))
    for layer, after in zip(file.layers, _by_rank(file, ranks), strict=True):
        moved = [move for old, new in zip(before.get(layer, ()), after, strict=False) for move in _moved(old, new)]
        if moved:
            expert, old, new = moved[0]
            more = f" ({len(moved) - 1} more in this layer)" if len(moved) > 1 else ""
            what = f"expert {expert} stays on its rank but moves from slot {old} to slot {new}{more}"
            findings += rules.found(MOVED, what, layer=layer, slot=new)
    return findings


Placed = dict[Any, int]
"""Slot (of the whole layer) of each expert on one rank."""


def _by_rank(file: EngineFile, ranks: int | None) -> list[list[Placed]]:
    placed = []
    for row, values in enumerate(file.rows):
        sizes = file.ranks_of_rows[row] if file.ranks_of_rows is not None else _even(len(values), ranks)
        placed.append(_cut(values, sizes))
    return placed


def _even(slots: int, ranks: int | None) -> Sequence[int]:
    if not ranks or ranks < 1 or slots % ranks:
        return ()
    return (slots // ranks,) * ranks


def _cut(values: Sequence[Any], sizes: Sequence[int]) -> list[Placed]:
    start, cut = 0, []
    for size in sizes:
        cut.append({value: start + at for at, value in enumerate(values[start : start + size]) if type(value) is int})
        start += size
    return cut


def _moved(old: Placed, new: Placed) -> list[tuple[Any, int, int]]:
    return [(expert, old[expert], slot) for expert, slot in new.items() if old.get(expert, slot) != slot]

"""Fillers: second copies on the same rank that give the layers of an adopted placement the same slots.

A plan has the same slots in every layer, a deployed placement may not. An expert that one rank alone serves may have a
second copy there without a change of any rank's load; such a copy is in the plan's books, never in an engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from easybalance_sim.errors import PlanError
from easybalance_sim.exports.engine_file import EngineFile
from easybalance_sim.plan.planfile import PlanDocument

ADOPTED, FILLERS = "adopted", "fillers"
"""Where the evidence of a plan has its fillers: `adopted.fillers`, slots by layer id."""


def filled_up(file: EngineFile) -> tuple[EngineFile, dict[int, list[int]]]:
    """Every rank with as many slots in each layer as in its fullest one; the slots that were added, by layer.

    Raises `PlanError` where a rank of a smaller layer serves no expert alone.
    """
    devices = file.ranks_of_rows or ()
    wanted = tuple(max(sizes) for sizes in zip(*devices, strict=True))
    rows, added = [], {}
    for row, sizes, layer in zip(file.rows, devices, file.layers, strict=True):
        filled, slots = _fill(row, sizes, wanted, f"{file.path}: layer {layer}")
        rows.append(filled)
        if slots:
            added[layer] = slots
    return replace(file, rows=tuple(rows), ranks_of_rows=(wanted,) * len(rows)), added


def _fill(
    row: Sequence[int], sizes: Sequence[int], wanted: Sequence[int], where: str
) -> tuple[tuple[int, ...], list[int]]:
    filled: list[int] = []
    added: list[int] = []
    start, replicas = 0, Counter(row)
    for rank, (size, room) in enumerate(zip(sizes, wanted, strict=True)):
        held = row[start : start + size]
        alone = [expert for expert in held if replicas[expert] == 1]
        if room > size and not alone:
            raise PlanError(
                f"rank {rank} has {size} slots here and {room} in other layers, and serves no expert alone",
                where=where,
                fix="give every layer the same slots",
            )
        filled += held
        added += range(len(filled), len(filled) + room - size)
        filled += [alone[at % len(alone)] for at in range(room - size)]
        start += size
    return tuple(filled), added


def fillers_of(document: PlanDocument) -> Mapping[int, frozenset[int]]:
    """The slots of a plan that hold fillers, by layer id; none in a plan that was not adopted."""
    adopted = document.evidence.get(ADOPTED)
    by_layer = adopted.get(FILLERS) if isinstance(adopted, dict) else None
    if not isinstance(by_layer, dict):
        return {}
    return {
        record.layer: frozenset(slot for slot in by_layer[str(record.layer)] if type(slot) is int)
        for record in document.layers
        if isinstance(by_layer.get(str(record.layer)), list | tuple)
    }


def filled_experts(document: PlanDocument) -> Mapping[int, frozenset[int]]:
    """The experts whose only doubles on a rank are fillers, by layer id."""
    fillers = fillers_of(document)
    return {
        record.layer: frozenset(expert for slot, expert in enumerate(record.expert_of_slot) if slot in slots)
        for record in document.layers
        if (slots := fillers.get(record.layer))
    }

"""What a placement file of a serving engine says, read as it stands and not yet believed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.errors import PlanError
from easybalance_sim.plan.lint import Finding
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class EngineFile:
    """A placement as an engine's file holds it, before any check.

    path: the file · layers: the id that the file gives each row (its key, or its number) · rows: for each layer the
    values of its slots in slot order, whatever they are · ranks_of_rows: for each layer the slots of each rank where
    the format lists devices, None where slots are dealt evenly · slots: what the file declares, None when it does
    not · experts, redundant: E and slots beyond it where the file says them · schema: which of the engine's formats
    it is in, where there are several · findings: what already struck the reader (unknown keys, wrong types).
    """

    path: Path
    layers: tuple[int, ...]
    rows: tuple[tuple[Any, ...], ...]
    ranks_of_rows: tuple[tuple[int, ...], ...] | None = None
    slots: int | None = None
    experts: int | None = None
    redundant: int | None = None
    schema: str = ""
    findings: tuple[Finding, ...] = ()

    def plan(self, experts: int, ranks: int, policy: str) -> Plan:
        """The placement, rows in file order; slots are dealt evenly over `ranks` unless the file lists devices.

        Raises `PlanError` where the rows are no placement (ragged rows, unknown ids, an expert without replica).
        """
        where = str(self.path)
        widths = {len(row) for row in self.rows}
        if len(widths) != 1:
            raise PlanError(f"rows of {min(widths, default=0)} to {max(widths, default=0)} slots", where=where)
        if not all(type(value) is int and value.bit_length() < 32 for row in self.rows for value in row):
            raise PlanError("a slot holds something that is no expert id", where=where)
        return Plan(
            expert_of_slot=np.array(self.rows, np.int64),
            slots_per_rank=np.array(self._slots_per_rank(widths.pop(), ranks)),
            experts=experts,
            policy=policy,
        )

    def _slots_per_rank(self, slots: int, ranks: int) -> list[int]:
        if self.ranks_of_rows is not None:
            if len(set(self.ranks_of_rows)) != 1 or len(self.ranks_of_rows[0]) != ranks:
                raise PlanError(
                    f"not the same {ranks} devices with the same slots in every layer", where=str(self.path)
                )
            return list(self.ranks_of_rows[0])
        if ranks < 1 or slots % ranks:
            raise PlanError(f"{slots} slots cannot be dealt evenly to {ranks} ranks", where=str(self.path))
        return [slots // ranks] * ranks


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What the engine that loads a file is started with, as far as it is known; None = not known.

    ranks: EP size · experts: routed experts E · hidden_layers: all layers of the model, dense ones included ·
    moe_layers: absolute ids of the MoE layers · mtp_layers: absolute ids of MTP layers with experts ·
    redundant: slots beyond E that the engine is told of · model: its name, "" = not known ·
    model_type: of its config.json, "" = not known · groups: expert groups of its router ·
    node_of_rank: NVLink domain of each rank, () = not known · schema: which of the engine's formats it is told to
    read, "" = not known.
    """

    ranks: int | None = None
    experts: int | None = None
    hidden_layers: int | None = None
    moe_layers: tuple[int, ...] | None = None
    mtp_layers: tuple[int, ...] = ()
    redundant: int | None = None
    model: str = ""
    model_type: str = ""
    groups: int | None = None
    node_of_rank: tuple[int, ...] = ()
    schema: str = ""

    @property
    def layers_with_drafts(self) -> int | None:
        """How many layers the model has with its MTP layers, of which none counts twice; None = not known."""
        hidden = self.hidden_layers
        return None if hidden is None else hidden + sum(layer >= hidden for layer in self.mtp_layers)

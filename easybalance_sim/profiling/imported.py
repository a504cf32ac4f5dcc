"""What an import made of a table: the profile, the fits and look-up tables in it, what was left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.collectives import LookUp
from easybalance_sim.profiling.rows import Dropped, ExpertRow, LinkRow, Table

AT_BOUND = 0.9995


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """One fitted row. name: kernel or phase · numbers: what was fitted · rows: how many rows taught it · group: what
    was held out · errors: mean, median and p90 in % of the rows fitted · held_out: of rows whose group the fit did not
    see, None where there are too few to hold any out."""

    name: str
    numbers: dict[str, float]
    rows: int
    group: str
    errors: tuple[float, float, float]
    held_out: tuple[float, float, float] | None

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Efficiencies that ended at their bound of 1: not identified."""
        return tuple(name for name in ("eff_bw", "eff_flop") if self.numbers.get(name, 0.0) > AT_BOUND)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The base profile with the table's rows in it, the fits and look-up tables behind them, notes on dropped rows, and
    other notes (rows taken otherwise than they stand among them)."""

    profile: HardwareProfile
    fits: tuple[Fit, ...] = ()
    look_ups: tuple[LookUp, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()


def spread(predicted: FloatArray, measured: FloatArray) -> tuple[float, float, float]:
    """Mean, median and p90 of the absolute errors in %."""
    error = np.abs(predicted / measured - 1) * 100
    return float(error.mean()), float(np.median(error)), float(np.percentile(error, 90))


def require_rows(table: Table[ExpertRow] | Table[LinkRow]) -> None:
    """Raise `ProfileError` with the reasons when no row of the table is left."""
    if not table.rows:
        notes = "; ".join(map(str, table.dropped)) or "it is empty"
        raise ProfileError(f"no row can be fitted: {notes}", where=table.source, fix="give another table")

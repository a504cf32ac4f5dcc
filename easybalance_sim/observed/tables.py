"""Measured rank times and predicted loads as tables of one grain: by step, layer and rank, or means and sums of them.

A table of times says by its columns what it holds: `layer` missing = all MoE layers of a step together, `step` missing
= the mean over the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from easybalance_sim.errors import UsageError
from easybalance_sim.trace.tables import READABLE, read_table

KEYS = ("step", "layer", "rank")
_TIMES = "give a .csv or .parquet with rank, us and, where known, step, layer and tokens"
_LOADS = "give what `ebsim trace loads -o` wrote, or a plan file with --trace"


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Measured times. keys: those of `KEYS` that the table has · frame: columns keys, `us` and maybe `tokens`."""

    keys: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def steps(self) -> frozenset[int] | None:
        """The steps that were measured, None where times are means over steps."""
        return frozenset(self.frame["step"].tolist()) if "step" in self.keys else None


def read_observed(path: Path) -> Observed:
    """The table of measured times. Raises `UsageError` for missing columns, impossible values, or a key twice; a row
    without a time is refused, too."""
    frame = _read(path, _TIMES)
    keys = tuple(key for key in KEYS if key in frame.columns)
    for column in ("rank", "us"):
        if column not in frame.columns:
            raise UsageError(f"has no column {column}", where=str(path), fix=_TIMES)
    columns = [*keys, "us", *(["tokens"] if "tokens" in frame.columns else [])]
    numbers = frame[columns].apply(pd.to_numeric, errors="coerce")
    _require(numbers, keys, path)
    return Observed(keys=keys, frame=numbers.astype(dict.fromkeys(keys, np.int64)).astype({"us": np.float64}))


def _read(path: Path, fix: str) -> pd.DataFrame:
    if path.suffix not in READABLE:
        raise UsageError("is neither .csv nor .parquet", where=str(path), fix=fix)
    return read_table(path)


def _require(numbers: pd.DataFrame, keys: tuple[str, ...], path: Path) -> None:
    if numbers.empty:
        raise UsageError("holds no row", where=str(path), fix=_TIMES)
    for column in numbers.columns:
        values = numbers[column].to_numpy(np.float64)
        bad = ~np.isfinite(values) | (values < 0)
        if column in keys:
            bad |= values != np.floor(values)
        if bad.any():
            first = int(np.flatnonzero(bad)[0]) + 1
            raise UsageError(f"{column} of row {first} is no number that can be", where=str(path), fix=_TIMES)
    twice = numbers.duplicated(list(keys))
    if twice.any():
        row = numbers[twice].iloc[0]
        named = ", ".join(f"{key} {int(row[key])}" for key in keys)
        raise UsageError(f"{named} is there twice", where=str(path), fix="give one row each: the mean of repeats")


def read_loads(path: Path) -> pd.DataFrame:
    """What `ebsim trace loads -o` wrote: columns step, steps, layer, rank, tokens. Raises `UsageError` otherwise."""
    frame = _read(path, _LOADS)
    missing = [name for name in ("step", "steps", "layer", "rank", "assignments") if name not in frame.columns]
    if missing:
        raise UsageError(
            f"has no column {missing[0]}",
            where=str(path),
            fix=_LOADS,
        )
    found: pd.DataFrame = frame[["step", "steps", "layer", "rank", "assignments"]]
    return found.rename(columns={"assignments": "tokens"})


def at_grain(loads: pd.DataFrame, observed: Observed, where: str) -> pd.DataFrame:
    """Predicted loads as the measured times are: layers added up, steps averaged where the table does not have them.

    loads: columns step, steps (that a row is the mean of), layer, rank, tokens and maybe us. Raises `UsageError` where
    single steps were measured and the loads are means of several.
    """
    values = [name for name in ("tokens", "us") if name in loads.columns]
    if "layer" not in observed.keys:
        loads = loads.groupby(["step", "steps", "rank"], as_index=False)[values].sum()
    if "step" in observed.keys:
        if (loads["steps"] > 1).any():
            raise UsageError(
                "rows are means of several steps, the times are of single ones",
                where=where,
                fix="write the loads without --window-steps, or leave step out of the times",
            )
        return loads[[*observed.keys, *values]]
    weighed = loads.assign(**{name: loads[name] * loads["steps"] for name in values})
    sums = weighed.groupby([key for key in observed.keys if key != "step"])[[*values, "steps"]].sum()
    return sums[values].div(sums["steps"], axis=0).reset_index()

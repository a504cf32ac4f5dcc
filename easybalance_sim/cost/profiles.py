"""The user's own measurement of the expert part: a CSV or Parquet table with the columns `tokens` and `us`.

`tokens` are the assignments that arrive at a rank in one layer and step, `us` the microseconds of its expert part.
Between two rows time is linear in tokens; below the first it is flat; above the last it follows the least-squares slope
of the last three rows (never downwards), up to 4 times the largest tokens.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.arrays import FloatArray, Int16Array, Int32Array, IntArray
from easybalance_sim.cluster import hardware
from easybalance_sim.cluster.hardware import ExpertTable, HardwareProfile
from easybalance_sim.errors import ProfileError

NETWORK_PROFILE = "h200"
FARTHEST_EXTRAPOLATION = 4
_COLUMNS = ("tokens", "us")


def load_profile(name_or_path: str) -> HardwareProfile:
    """A profile of the package, the user's TOML profile, or the user's table (.csv, .parquet) with the H200's network.

    Raises `ProfileError` with one line.
    """
    path = Path(name_or_path)
    if path.suffix not in (".csv", ".parquet"):
        return hardware.load_profile(name_or_path)
    return msgspec.structs.replace(
        hardware.load_profile(NETWORK_PROFILE), name=f"{NETWORK_PROFILE} network", expert_table=load_table(path)
    )


def load_table(path: Path) -> ExpertTable:
    """Read the table. Raises `ProfileError` naming the file and the row: a column is missing, a value is not a finite
    number, tokens do not rise strictly, a time is not positive, fewer than two rows."""
    rows = list(_parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path))
    last = 0.0
    for number, (tokens, us) in enumerate(rows, start=1):
        where = f"{path}: row {number}"
        if not (isfinite(tokens) and isfinite(us)):
            raise ProfileError("tokens and us must be finite numbers", where=where, fix="remove the row")
        if tokens <= last or us <= 0:
            raise ProfileError(
                "tokens must be > 0 and rise strictly, us must be > 0", where=where, fix="sort the table"
            )
        last = tokens
    if len(rows) < 2:
        raise ProfileError("a table needs at least two rows", where=str(path), fix="measure more token counts")
    return ExpertTable(
        tokens=tuple(tokens for tokens, _ in rows), us=tuple(us for _, us in rows), calibrated=True, source=str(path)
    )


def table_us(table: ExpertTable, tokens: FloatArray | IntArray) -> FloatArray:
    """µs at each token count, any shape; 0 at 0 tokens.

    Raises `ProfileError` beyond 4 times the table's largest tokens.
    """
    x, t = np.array(table.tokens), np.array(table.us)
    most = float(np.max(tokens, initial=0))
    if most > FARTHEST_EXTRAPOLATION * x[-1]:
        raise ProfileError(
            f"{most:g} tokens at a rank are more than {FARTHEST_EXTRAPOLATION} times the table's largest ({x[-1]:g})",
            where=table.source,
            fix="measure larger token counts",
        )
    tail = slice(-min(3, len(x)), None)
    slope = max(0.0, float(np.polyfit(x[tail], t[tail], 1)[0]))
    inside = np.interp(tokens, x, t)
    beyond = slope * np.maximum(np.asarray(tokens) - x[-1], 0.0)
    return np.where(np.asarray(tokens) > 0, inside + beyond, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCost:
    """Expert time looked up in the user's table by the assignments that arrive at a rank (an `ExpertModel`)."""

    table: ExpertTable

    @property
    def name(self) -> str:
        """ "expert table FILE"."""
        return f"expert table {Path(self.table.source).name}"

    @property
    def band_p90(self) -> float:
        """0: the table's own error is not known."""
        return 0.0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Empty: the user measured it."""
        return ()

    def seconds(
        self, slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray
    ) -> tuple[FloatArray, Int16Array]:
        """As `ExpertCost.seconds`; `distinct` does not matter here."""
        first = slot_start[:-1]
        rank_tokens = np.add.reduceat(np.asarray(slot_tokens, np.int64), first, axis=-1)
        active = np.add.reduceat((slot_tokens > 0).astype(np.int16), first, axis=-1)
        rank_us = table_us(self.table, rank_tokens)
        return np.asarray((rank_us / speed).max(axis=-1) * 1e-6), active


def _csv_rows(path: Path) -> Iterator[tuple[float, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True)
            _require_columns(reader.fieldnames or (), path)
            for number, row in enumerate(reader, start=1):
                yield _number(row["tokens"], path, number), _number(row["us"], path, number)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check --profile") from error


def _parquet_rows(path: Path) -> Iterator[tuple[float, float]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check --profile") from error
    _require_columns(table.column_names, path)
    columns = (table.column(name).to_pylist() for name in _COLUMNS)
    for number, (tokens, us) in enumerate(zip(*columns, strict=True), start=1):
        yield _number(tokens, path, number), _number(us, path, number)


def _require_columns(names: object, path: Path) -> None:
    missing = [name for name in _COLUMNS if name not in list(names)]  # type: ignore[call-overload]
    if missing:
        raise ProfileError(f"column {missing[0]} is missing", where=str(path), fix="columns are tokens,us")


def _number(value: object, path: Path, row: int) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ProfileError(f"{value!r} is not a number", where=f"{path}: row {row}", fix="remove the row") from error

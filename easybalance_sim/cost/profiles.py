"""The user's own measurement of the expert part: a CSV or Parquet table with the columns `tokens` and `us`.

`tokens` are the assignments that arrive at a rank in one layer and step, all its experts equally loaded, `us` the
microseconds of its expert part. An optional column `slots` says how many experts the rank held, the same in every row.
Times between the rows: `cost.look_up`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster import hardware
from easybalance_sim.cluster.hardware import ExpertTable, HardwareProfile
from easybalance_sim.cost.look_up import looked_up_us
from easybalance_sim.errors import ProfileError

BASE_PROFILE = "h200"
_COLUMNS = ("tokens", "us")
_SLOTS = "slots"


def load_profile(name_or_path: str) -> HardwareProfile:
    """A profile of the package, the user's TOML profile, or a table (.csv, .parquet) on top of one: `h100+table.csv`.

    Links and the effect of skew come from the profile before the `+`, the H200's where only a table is named. Raises
    `ProfileError` with one line.
    """
    base, table = base_and_table(name_or_path)
    if not table:
        return hardware.load_profile(base)
    return msgspec.structs.replace(hardware.load_profile(base or BASE_PROFILE), expert_table=load_table(Path(table)))


def base_and_table(name_or_path: str) -> tuple[str, str]:
    """The two halves of `h100+table.csv`; an empty one where only a profile or only a table is named."""
    if Path(name_or_path).suffix not in (".csv", ".parquet"):
        return name_or_path, ""
    base, plus, table = name_or_path.partition("+")
    return (base, table) if plus and not Path(name_or_path).is_file() else ("", name_or_path)


def load_table(path: Path) -> ExpertTable:
    """Read the table. Raises `ProfileError` naming the file and the row: a column is missing, a value is not a finite
    number, tokens do not rise strictly, a time is not positive, slots differ or are no whole number, fewer than two
    rows."""
    rows = list(_parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path))
    last = 0.0
    for number, (tokens, us, slots) in enumerate(rows, start=1):
        where = f"{path}: row {number}"
        if not all(map(isfinite, (tokens, us, slots))):
            raise ProfileError("tokens, us and slots must be finite numbers", where=where, fix="remove the row")
        if tokens <= last or us <= 0:
            raise ProfileError(
                "tokens must be > 0 and rise strictly, us must be > 0", where=where, fix="sort the table"
            )
        if slots != rows[0][2] or not slots.is_integer() or slots < 0:
            raise ProfileError("slots must be one whole number in all rows", where=where, fix="one table per slots")
        last = tokens
    if len(rows) < 2:
        raise ProfileError("a table needs at least two rows", where=str(path), fix="measure more token counts")
    return ExpertTable(
        tokens=tuple(row[0] for row in rows),
        us=tuple(row[1] for row in rows),
        slots=int(rows[0][2]),
        calibrated=True,
        source=str(path),
    )


def table_us(table: ExpertTable, tokens: FloatArray | IntArray) -> FloatArray:
    """µs at each token count, any shape; 0 at 0 tokens.

    Raises `ProfileError` beyond 4 times the table's largest tokens.
    """
    return looked_up_us(table.tokens, table.us, tokens, what="tokens at a rank", where=table.source)


def _csv_rows(path: Path) -> Iterator[tuple[float, float, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True)
            _require_columns(reader.fieldnames or (), path)
            for number, row in enumerate(reader, start=1):
                yield _row(row["tokens"], row["us"], row.get(_SLOTS, 0), f"{path}: row {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check --profile") from error


def _parquet_rows(path: Path) -> Iterator[tuple[float, float, float]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check --profile") from error
    _require_columns(table.column_names, path)
    for number, row in enumerate(table.to_pylist(), start=1):
        yield _row(row["tokens"], row["us"], row.get(_SLOTS, 0), f"{path}: row {number}")


def _require_columns(names: object, path: Path) -> None:
    missing = [name for name in _COLUMNS if name not in list(names)]  # type: ignore[call-overload]
    if missing:
        raise ProfileError(f"column {missing[0]} is missing", where=str(path), fix="columns are tokens,us")


def _row(tokens: object, us: object, slots: object, where: str) -> tuple[float, float, float]:
    return _number(tokens, where), _number(us, where), _number(slots, where)


def _number(value: object, where: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ProfileError(f"{value!r} is not a number", where=where, fix="remove the row") from error

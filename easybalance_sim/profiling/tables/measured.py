"""What `ebsim profile measure` writes and reads back: one row per measurement, cells that do not apply are empty.

    ebsim_measured    1, the version of this layout
    what              experts | read | copy-device | copy-host | copy-peer
    device            the GPU's name
    us                median µs of the runs; us_low, us_high: their 10th and 90th percentile
    runs              how many were timed
    bytes             experts: weights of the active ones · read, copies: what was read or copied
    peer              copy-peer: index of the GPU that was copied to
    dtype, hidden, intermediate, matrices, slots, active, tokens_per_expert, up_us, down_us
                      experts: each of the `active` of `slots` slots has as many tokens; medians of either GEMM

Columns may stand in any order and others are passed over, so that tables of one GPU and dtype can be joined.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path

from easybalance_sim.errors import ProfileError
from easybalance_sim.kernels.measurable import COPY_DEVICE, COPY_HOST, COPY_PEER
from easybalance_sim.profiling.rows import ExpertRow, Table

VERSION = 1
KERNEL = "cublas_batched"
"""cuBLAS, strided batched GEMM: what cupy can run over many experts at once."""

EXPERTS, READ = "experts", "read"
WHAT = (EXPERTS, READ, COPY_DEVICE, COPY_HOST, COPY_PEER)
_WEIGHTS = {"bf16": "bf16", "fp16": "bf16"}
_MOST, _MOST_SLOTS = 1 << 24, 1 << 16
_VERSION_COLUMN = "ebsim_measured"
_ALWAYS = ("what", "device", "us", "bytes")
_OF_EXPERTS = ("dtype", "hidden", "intermediate", "matrices", "slots", "active", "tokens_per_expert")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One row, as the module says. -1 and "": does not apply."""

    what: str
    device: str
    us: float
    us_low: float
    us_high: float
    runs: int
    bytes: int
    peer: int = -1
    dtype: str = ""
    hidden: int = -1
    intermediate: int = -1
    matrices: int = -1
    slots: int = -1
    active: int = -1
    tokens_per_expert: int = -1
    up_us: float = -1.0
    down_us: float = -1.0

    @property
    def bytes_per_s(self) -> float:
        """Of weights, a read or a copy."""
        return self.bytes / self.us * 1e6

    def cells(self) -> dict[str, object]:
        """What applies, by column."""
        return {name: value for name, value in asdict(self).items() if value not in ("", -1)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A table read back. experts: for a fit · dtype: of `WEIGHT_BYTES` · read_bytes_per_s: of the largest read, 0 =
    none · peer_bytes_per_s: of the largest copies to other GPUs, the slowest of them, 0 = none."""

    device: str
    dtype: str
    experts: Table[ExpertRow]
    read_bytes_per_s: float
    peer_bytes_per_s: float


def table_text(rows: Iterable[Measurement]) -> str:
    """The rows as CSV."""
    columns = [_VERSION_COLUMN, *(field.name for field in fields(Measurement))]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in row.cells().items()}
        writer.writerow({_VERSION_COLUMN: VERSION} | cells)
    return text.getvalue()


def read(path: Path) -> Measured:
    """The table of `path`.

    Raises `ProfileError` naming the file and row: unreadable, another layout, not a number, a number that cannot be,
    rows of several GPUs or dtypes.
    """
    rows = tuple(_rows(path))
    device = _one("GPUs", [row.device for row in rows], path)
    dtype = _one("dtypes", [row.dtype for row in rows if row.what == EXPERTS], path)
    source = f"ebsim profile measure on {device}" + (" in fp16" if dtype == "fp16" else "")
    return Measured(
        device=device,
        dtype=_WEIGHTS.get(dtype, "bf16"),
        experts=Table(source=source, rows=tuple(_expert_row(row) for row in rows if row.what == EXPERTS)),
        read_bytes_per_s=_largest(rows, READ),
        peer_bytes_per_s=_largest(rows, COPY_PEER),
    )


def _largest(rows: tuple[Measurement, ...], what: str) -> float:
    size = max((row.bytes for row in rows if row.what == what), default=0)
    return min((row.bytes_per_s for row in rows if (row.what, row.bytes) == (what, size)), default=0.0)


def _one(what: str, values: list[str], path: Path) -> str:
    different = sorted(set(values))
    if len(different) > 1:
        raise ProfileError(f"rows of several {what}: {', '.join(different)}", where=str(path), fix="split the table")
    return next(iter(different), "")


def _expert_row(row: Measurement) -> ExpertRow:
    idle = row.slots - row.active
    return ExpertRow(
        us=row.us,
        hidden=row.hidden,
        intermediate=row.intermediate,
        matrices=row.matrices,
        experts=row.slots,
        top_k=1,
        ep=1,
        slots=row.slots,
        tokens=row.active * row.tokens_per_expert,
        distribution="balanced",
        counts=(row.tokens_per_expert,) * row.active + (0,) * idle,
        kernel=KERNEL,
    )


def _rows(path: Path) -> Iterator[Measurement]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = {_VERSION_COLUMN, *_ALWAYS} - set(reader.fieldnames or ())
            if missing:
                raise ProfileError(
                    f"column {min(missing)} is missing", where=str(path), fix="give a table of ebsim profile measure"
                )
            for number, raw in enumerate(reader, start=1):
                yield _row(raw, f"{path}: row {number}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check the path") from error


def _row(raw: dict[str, str | None], where: str) -> Measurement:
    cells = {field.name: str(raw.get(field.name) or "").strip() for field in fields(Measurement)}
    if raw[_VERSION_COLUMN] != str(VERSION):
        raise ProfileError(f"layout {raw[_VERSION_COLUMN]!r}, expected {VERSION}", where=where, fix="measure again")
    if cells["what"] not in WHAT:
        raise ProfileError(f"what is {cells['what']!r}, not one of {', '.join(WHAT)}", where=where)
    empty = next((name for name in _ALWAYS if not cells[name]), "")
    if empty:
        raise ProfileError(f"{empty} is empty", where=where, fix="remove the row")
    kinds = {field.name: field.type for field in fields(Measurement)}
    try:
        values = {name: _value(str(kinds[name]), text) for name, text in cells.items() if text}
        row = Measurement(**({"us_low": -1.0, "us_high": -1.0, "runs": 0} | values))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ProfileError(f"not a measurement: {error}", where=where, fix="remove the row") from error
    problem = _problem(row)
    if problem:
        raise ProfileError(problem, where=where, fix="remove the row")
    return row


def _value(kind: str, text: str) -> str | int | float:
    return text if kind == "str" else int(text) if kind == "int" else float(text)


def _problem(row: Measurement) -> str:
    if not (isfinite(row.us) and row.us > 0 and row.bytes > 0):
        return "us and bytes must be finite and > 0"
    if row.what != EXPERTS:
        return ""
    empty = next((name for name in _OF_EXPERTS if getattr(row, name) in ("", -1)), "")
    if empty:
        return f"experts need {empty}"
    if row.dtype not in _WEIGHTS:
        return f"dtype {row.dtype!r} is not one of {', '.join(_WEIGHTS)}"
    if row.matrices not in (2, 3) or min(row.hidden, row.intermediate, row.tokens_per_expert) < 1:
        return "widths and tokens must be > 0, matrices 2 or 3"
    if max(row.hidden, row.intermediate, row.tokens_per_expert) > _MOST or row.slots > _MOST_SLOTS:
        return f"widths and tokens end at {_MOST:,}, slots at {_MOST_SLOTS:,}"
    return "" if 1 <= row.active <= row.slots else f"{row.active} active of {row.slots} slots"

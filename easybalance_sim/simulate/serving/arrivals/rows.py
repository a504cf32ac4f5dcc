"""Rows of a request trace, made into a `Workload`: checked, sorted, and what was mended is said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray
from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.serving.workload import Workload

MOST_TOKENS = 2**24
_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class Reading:
    """limit: requests to read from the top of a file, 0 = all · prefix_blocks: blocks that the prefix cache of the
    whole deployment keeps, 0 = none; only for traces that say which prefixes requests share · spread_ticks: requests
    that a coarse clock stamps alike come evenly until its next tick."""

    limit: int = 0
    prefix_blocks: int = 0
    spread_ticks: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """N requests as a file has them. arrival_s: float64[N] · prompt, output, cached: int64[N] tokens · tenant: names
    [N] or one for all · mended: what was done to them so far."""

    arrival_s: FloatArray
    prompt: IntArray
    output: IntArray
    cached: IntArray
    tenant: list[str] | str
    mended: tuple[str, ...] = ()


def read_csv(path: Path, limit: int) -> pd.DataFrame:
    """The cells of a CSV file as text, columns by their trimmed names; row i of the frame is row i + 2 of the file.
    Raises `TraceError` for a file that is no table or has no rows."""
    try:
        frame = pd.read_csv(
            path, dtype=str, keep_default_na=False, nrows=limit or None, skip_blank_lines=False, encoding="utf-8-sig"
        )
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        line = (str(error).strip().splitlines() or ["empty"])[-1]
        raise TraceError(f"no table: {line}", where=str(path), fix="give a CSV file with a header") from error
    if frame.empty:
        raise TraceError("holds no requests", where=str(path), fix="give a row per request")
    # A blank line at the end of a file is no request.
    blank = (frame == "").all(axis=1)
    return frame[~blank].rename(columns=lambda name: str(name).strip())


def tokens(frame: pd.DataFrame, field: str, path: Path) -> IntArray:
    """int64[N] whole numbers from 0 on. Raises `TraceError` with row and field of the first that is none."""
    values = numbers(frame, field, path)
    bad = ~((values >= 0) & (values <= MOST_TOKENS) & (values == np.floor(values)))
    if bad.any():
        refuse(frame, field, bad, path, f"give a whole number of tokens up to {MOST_TOKENS}")
    return values.astype(np.int64)


def numbers(frame: pd.DataFrame, field: str, path: Path) -> FloatArray:
    """float64[N] finite numbers. Raises `TraceError` with row and field of the first that is none."""
    values = pd.to_numeric(frame[field], errors="coerce").to_numpy(np.float64)
    if not np.isfinite(values).all():
        refuse(frame, field, ~np.isfinite(values), path, "give a number")
    return values


def refuse(frame: pd.DataFrame, field: str, bad: BoolArray, path: Path, fix: str) -> NoReturn:
    """Raise `TraceError` for the first marked row."""
    at = int(np.argmax(bad))
    shown = " ".join(str(frame[field].iloc[at]).split())[:_SHOWN]
    raise TraceError(f"is {shown!r}", where=f"{path}: row {int(frame.index[at]) + 2}: {field}", fix=fix)


def workload(rows: Rows, path: Path, layout: str) -> Workload:
    """Requests in order of arrival. A prompt or an answer of 0 tokens (a request that was cut off or failed) counts as
    1 token: its other part was work all the same."""
    order = np.argsort(rows.arrival_s, kind="stable")
    late = int((np.diff(rows.arrival_s) < 0).sum())
    names = [rows.tenant] * len(order) if isinstance(rows.tenant, str) else rows.tenant
    tenants = tuple(dict.fromkeys(names))
    index = {name: place for place, name in enumerate(tenants)}
    prompt = np.maximum(rows.prompt, 1)
    none = {"prompt": int((rows.prompt < 1).sum()), "output": int((rows.output < 1).sum())}
    mended = [f"{count:,} with no {part} count as 1 token" for part, count in none.items() if count]
    mended += [f"{late:,} rows out of order were sorted"] if late else []
    said = "".join(f"; {one}" for one in (*rows.mended, *mended))
    return Workload(
        arrival_s=rows.arrival_s[order],
        prompt_tokens=prompt[order],
        output_tokens=np.maximum(rows.output, 1)[order],
        cached_tokens=np.minimum(rows.cached, prompt - 1)[order],
        tenant=np.array([index[name] for name in names])[order],
        tenants=tenants,
        source=f"{path.name}, {layout}: {len(order):,} requests{said}",
    )

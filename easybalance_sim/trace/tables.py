"""Foreign tables that importers read: what columns they have, texts as codes, arrival times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.files import open_parquet

READABLE = (".parquet", ".csv")


def column_names(path: Path) -> tuple[str, ...]:
    """Columns of a Parquet file or a CSV header; of a folder: none.

    Raises `TraceError` when the file is neither, empty or truncated.
    """
    if path.is_dir():
        return ()
    if path.suffix == ".csv":
        return tuple(_csv(path, nrows=0).columns)
    with path.open("rb") as stream:
        if path.suffix != ".parquet" and stream.read(4) != b"PAR1":
            raise TraceError("neither Parquet nor .csv", where=str(path), fix="give one of the two")
    return tuple(open_parquet(path).schema_arrow.names)


def read_table(path: Path) -> pd.DataFrame:
    """The whole of a small Parquet or CSV table. Raises `TraceError` when it cannot be parsed."""
    if path.suffix == ".csv":
        return _csv(path)
    try:
        frame: pd.DataFrame = open_parquet(path).read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"damaged Parquet file: {_first_line(error)}", where=str(path), fix="copy it again") from error
    return frame


def file_says(path: Path) -> dict[str, str]:
    """Plain key-value metadata of a Parquet file (model, num_experts, top_k …); empty for CSV."""
    raw = {} if path.suffix == ".csv" else open_parquet(path).schema_arrow.metadata or {}
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}


def read_arrivals(path: Path) -> FloatArray:
    """float64[A] seconds since the first arrival, sorted: the TIMESTAMP column of a CSV (dates or numbers, seconds).

    Raises `TraceError` when the column is missing or cannot be read.
    """
    frame = _csv(path)
    if "TIMESTAMP" not in frame.columns or frame.empty:
        raise TraceError("column TIMESTAMP is missing or empty", where=str(path), fix="give a CSV of arrival times")
    column = frame["TIMESTAMP"]
    try:
        seconds = (
            column.to_numpy(np.float64)
            if pd.api.types.is_numeric_dtype(column)
            else pd.to_datetime(column).to_numpy("datetime64[ns]").astype(np.int64) / 1e9
        )
    except (ValueError, TypeError) as error:
        raise TraceError(
            f"column TIMESTAMP: {_first_line(error)}", where=str(path), fix="give dates or seconds"
        ) from error
    if not np.isfinite(seconds).all():
        raise TraceError("column TIMESTAMP: some rows have no time", where=str(path), fix="drop those rows")
    return np.sort(seconds - seconds.min())


def text_codes(values: Iterable[Any]) -> tuple[AnyArray, list[str]]:
    """Codes of texts and the texts, in order of first appearance."""
    codes, texts = pd.factorize(pd.Series(values, dtype=str))
    return codes.astype(np.int64), [str(text) for text in texts]


def first_present(columns: Iterable[str], candidates: Iterable[str]) -> str | None:
    """The first of the candidate names that is a column."""
    known = set(columns)
    return next((name for name in candidates if name in known), None)


def _csv(path: Path, nrows: int | None = None) -> pd.DataFrame:
    try:
        return pd.read_csv(path, nrows=nrows)
    except OSError as error:
        raise TraceError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise TraceError(f"not a CSV table: {_first_line(error)}", where=str(path), fix="check the file") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

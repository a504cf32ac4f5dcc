"""The loads of steps as a table, CSV or Parquet, written as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from easybalance_sim.errors import UsageError
from easybalance_sim.files import replacing, require_place
from easybalance_sim.replay.loads import PHASE_NAMES, StepLoads

SUFFIXES = (".csv", ".parquet")
MEASURES = {
    "assignments": "assignments",
    "local_tokens": "local_tokens",
    "activated_experts": "activated",
    "busiest_expert_tokens": "busiest",
}
"""Column → field of `StepLoads`; in a window the mean over its steps."""
_DIGITS = 3


def require_output(path: Path, keep: Sequence[Path]) -> None:
    """Raise `UsageError` for an ending that is none of `SUFFIXES` or a place that cannot be written."""
    if path.suffix not in SUFFIXES:
        raise UsageError("a table of loads is .csv or .parquet", where=str(path), fix="choose another -o")
    require_place(path, keep)


@contextmanager
def loads_writer(path: Path, layers: Sequence[int], whole: bool) -> Iterator[Callable[[StepLoads], None]]:
    """Call the result with loads in order; the file is there, whole, after the block. layers: absolute ids · whole:
    measures are whole numbers, as in single steps of a token trace."""
    schema = _schema(whole)
    with replacing(path) as temporary:
        writer: Any = (
            pa.csv.CSVWriter(temporary, schema)
            if path.suffix == ".csv"
            else pa.parquet.ParquetWriter(temporary, schema, compression="zstd")
        )
        with writer:
            yield lambda loads: writer.write_table(_table(loads, layers, schema))


def _schema(whole: bool) -> pa.Schema:
    measure = pa.int32() if whole else pa.float64()
    return pa.schema(
        [
            ("step", pa.int64()),
            ("steps", pa.int32()),
            ("phase", pa.string()),
            ("layer", pa.int32()),
            ("rank", pa.int32()),
            ("step_tokens", measure),
            *((column, measure) for column in MEASURES),
        ]
    )


def _table(loads: StepLoads, layers: Sequence[int], schema: pa.Schema) -> pa.Table:
    count, depth, ranks = loads.assignments.shape
    each, steps = depth * ranks, loads.steps[:, None, None]
    columns = {
        "step": np.repeat(loads.step, each),
        "steps": np.repeat(loads.steps, each),
        "phase": np.repeat(np.array(PHASE_NAMES)[loads.phase], each),
        "layer": np.tile(np.repeat(layers, ranks), count),
        "rank": np.tile(np.arange(ranks), count * depth),
        "step_tokens": np.repeat(loads.tokens / loads.steps, each),
        **{column: (getattr(loads, field) / steps).ravel() for column, field in MEASURES.items()},
    }
    rounded = {
        name: np.round(values, _DIGITS) if values.dtype.kind == "f" else values for name, values in columns.items()
    }
    arrays = [pa.array(rounded[field.name]).cast(field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)

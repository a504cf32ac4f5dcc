"""How fast layouts of a trace are decoded, for docs/decisions.md: `python -m tests.docs.trace_layouts`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.ebsim_process import SAMPLE

REPEATS, RUNS = 8, 3


def layouts() -> dict[str, pa.Table]:
    """The choices of the sample trace, several times over: packed, a column each, lists."""
    packed = pa.concat_tables([pq.read_table(SAMPLE, columns=["experts"])] * REPEATS).combine_chunks()["experts"]
    width = packed.type.byte_width
    flat = np.frombuffer(packed.chunk(0).buffers()[1], np.uint8)[: len(packed) * width]
    values, ids = pa.array(flat), flat.reshape(-1, width)
    offsets = pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32))
    return {
        "packed": pa.table({"experts": packed}),
        "a column per choice": pa.table({f"c{at}": np.ascontiguousarray(ids[:, at]) for at in range(width)}),
        "list": pa.table({"experts": pa.ListArray.from_arrays(offsets, values)}),
        "fixed-size list": pa.table({"experts": pa.FixedSizeListArray.from_arrays(values, width)}),
    }


def main() -> None:
    """Print million tokens per second and the size of each layout's file (zstd), one thread, fastest of three."""
    with tempfile.TemporaryDirectory() as folder:
        for name, table in layouts().items():
            path = Path(folder) / "layout.parquet"
            pq.write_table(table, path, compression="zstd", row_group_size=32_768)
            seconds = []
            for _ in range(RUNS):
                began = time.process_time()
                pq.read_table(path, use_threads=False)
                seconds.append(time.process_time() - began)
            print(f"{name}: {len(table) / min(seconds) / 1e6:.1f} M tokens/s, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

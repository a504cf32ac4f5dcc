"""Makes traces/tinymoe.parquet, a sample of whole requests from the full recording.

python traces/make_sample.py tokens.parquet traces/tinymoe.parquet
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.writer import token_trace_writer

SHARE = 0.38
SEED = 20
LEVEL = 19


def main(source: Path, output: Path) -> None:
    """Keep a seeded random share of the requests, all their tokens, at the steps in which they ran."""
    trace = open_trace([source])
    if not isinstance(trace, TokenTrace):
        raise SystemExit(f"{source}: not a token trace")
    requests = trace.scan().request
    kept = requests[np.random.default_rng(SEED).random(len(requests)) < SHARE]
    meta = msgspec.structs.replace(
        trace.meta,
        ranks=8,
        hidden=128,
        intermediate=64,
        matrices=3,
        weight_dtype="bf16",
        origin={"sample_of": source.name, "request_share": SHARE, "seed": SEED},
    )
    with token_trace_writer(output, meta, trace.workloads, level=LEVEL) as writer:
        for batch in trace.batches():
            writer.append(batch.select(np.isin(batch.request, kept)))
    print(f"{output}: {len(kept)} of {len(requests)} requests, {output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

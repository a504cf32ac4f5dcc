"""Makes traces/tinymoe_scores.parquet: consecutive whole steps of the recording that holds every expert's score.

python traces/make_scored_sample.py steps_660_1300_all_scores.parquet traces/tinymoe_scores.parquet
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from easybalance_sim.simulate.steps.recorded import in_range
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.writer import token_trace_writer

FIRST, END = 900, 1000
LEVEL = 19


def main(source: Path, output: Path) -> None:
    """Keep the steps with all their tokens, so that a step is what the router saw."""
    trace = open_trace([source])
    if not isinstance(trace, TokenTrace):
        raise SystemExit(f"{source}: not a token trace")
    meta = msgspec.structs.replace(
        trace.meta,
        ranks=8,
        hidden=128,
        intermediate=64,
        matrices=3,
        weight_dtype="bf16",
        origin={"sample_of": source.name, "first_step": FIRST, "end_step": END},
    )
    tokens = 0
    with token_trace_writer(output, meta, trace.workloads, level=LEVEL) as writer:
        for batch in in_range(trace.batches(scores=True), FIRST, END):
            writer.append(batch)
            tokens += batch.tokens
    print(f"{output}: {tokens} tokens, {output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

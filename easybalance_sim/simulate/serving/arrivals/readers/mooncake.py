"""Mooncake traces: JSON lines of timestamp (ms), input_length, output_length and hash_ids of 512-token prefix blocks.

Source: kvcache-ai/Mooncake (Qin et al., "Mooncake", FAST 2025). An id stands for a block with all that is in front of
it, so that equal ids at the front of two prompts mean an equal prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.serving.arrivals.prefix_cache import PrefixCache
from easybalance_sim.simulate.serving.arrivals.rows import MOST_TOKENS, Reading, Rows, workload
from easybalance_sim.simulate.serving.workload import Workload

BLOCK_TOKENS = 512
_FIELDS = ('"timestamp"', '"input_length"', '"output_length"')
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[int] = []


def matches(head: str) -> bool:
    """A JSON object with the three fields that must be there."""
    return head.startswith("{") and all(field in head for field in _FIELDS)


def read(path: Path, reading: Reading) -> Workload:
    """The requests, the earliest at 0 s. Prompts find their prefix in one cache of the whole deployment that keeps the
    `prefix_blocks` blocks used last. Raises `TraceError` with file, line and field."""
    lines = list(islice(_lines(path), reading.limit or None))
    if not lines:
        raise TraceError("holds no requests", where=str(path), fix="give a JSON object per request")
    stamps = np.array([line.timestamp for line in lines], np.float64) / 1000
    # The cache sees requests in the order in which they come, which need not be the file's.
    cached = np.zeros(len(lines), np.int64)
    cache = PrefixCache(reading.prefix_blocks)
    for place in np.argsort(stamps, kind="stable"):
        line = lines[place]
        cached[place] = BLOCK_TOKENS * cache.visit(line.hash_ids, (line.input_length - 1) // BLOCK_TOKENS)
    mended = [f"prefix cache of {reading.prefix_blocks:,} blocks of 512 tokens"] if reading.prefix_blocks else []
    arrival, tick = _spread(stamps) if reading.spread_ticks else (stamps, 0.0)
    if tick:
        mended.append(f"stamps tick every {tick:g} s, the requests of a tick come evenly until the next")
    rows = Rows(
        arrival_s=arrival - arrival.min(),
        prompt=np.array([line.input_length for line in lines], np.int64),
        output=np.array([line.output_length for line in lines], np.int64),
        cached=cached,
        tenant=path.stem,
        mended=tuple(mended),
    )
    return workload(rows, path, "Mooncake trace")


def _lines(path: Path) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    with path.open("rb") as stream:
        for number, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                yield decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise TraceError(
                    f"{error}", where=f"{path}: line {number}", fix="give timestamp, input_length, output_length"
                ) from error


def _spread(stamps: FloatArray) -> tuple[FloatArray, float]:
    """Arrival of each request and the tick, 0 where stamps are as fine as arrivals: no two stamps alike, or most."""
    times, which, alike = np.unique(stamps, return_inverse=True, return_counts=True)
    if len(times) < 2 or len(times) * 2 > len(stamps):
        return stamps, 0.0
    tick = float(np.median(np.diff(times)))
    until = np.append(np.minimum(np.diff(times), tick), tick)
    order = np.argsort(which, kind="stable")
    rank = np.empty(len(stamps), np.int64)
    rank[order] = np.arange(len(stamps)) - np.repeat(np.cumsum(alike) - alike, alike)
    return stamps + until[which] * rank / alike[which], tick

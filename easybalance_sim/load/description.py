"""What `ebsim trace summary` needs of a token trace, from one pass: window counts and pairs of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from easybalance_sim.load.coactivation import Coactivation, PairCounter
from easybalance_sim.load.counting import Windowing, count_windows, sampling
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import TokenBatch, TraceMeta

Part = tuple[LoadWindows, Coactivation]


def describe(
    trace: TokenTrace, windowing: Windowing, advance: Callable[[int], None]
) -> tuple[LoadWindows, Coactivation, int]:
    """Counts per window, of one in how many windows these are (all but in very long traces), and pairs of all tokens.

    advance: called with the tokens done.
    """
    meta = trace.meta
    every = sampling(trace.scan(), meta, windowing)
    work = partial(_count, meta=meta, windowing=windowing, chosen=Selection().sampled(every, windowing))
    state_bytes = PairCounter(len(meta.layers), meta.experts).nbytes
    windows, together = _count([], meta=meta, windowing=windowing, chosen=Selection())
    for more, pairs in trace.map(work, advance=advance, state_bytes=state_bytes):
        windows, together = windows + more, together + pairs
    return windows, together, every


def _count(batches: Iterable[TokenBatch], *, meta: TraceMeta, windowing: Windowing, chosen: Selection) -> Part:
    pairs = PairCounter(len(meta.layers), meta.experts)
    windows = count_windows(chosen.of(pairs.watching(batches)), meta, windowing)
    return windows, pairs.counted()

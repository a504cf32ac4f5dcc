"""Whether a queue was still growing when a run ended.

A run is short: at a rate that is a little too high no request may be late yet. With more requests than are served the
wait of a request that comes at t is what has piled up by then over what is served per second, so that it grows by
rate / served - 1 seconds per second: the slope of the waits is the overload itself. It is fitted to means over equal
parts of the scored time, whose scatter says how sure it is.
"""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray
from easybalance_sim.simulate.serving.pools import Service
from easybalance_sim.simulate.serving.results import tpot_s, ttft_s

PARTS, FEWEST = 8, 4
"""Of the scored time, and the requests that each needs."""
SURE = 3.0
"""Standard errors by which a slope must stand out."""
ALIKE = 1.2
"""Where more tokens than these times come in the second half, waits grow with the requests and say nothing."""


def growth(service: Service, scored: BoolArray) -> float:
    """Seconds of wait per second of arrivals, 0 where no growth is sure. scored: bool[N] requests to judge by. Waits:
    to the first token, and for a place in the decode pool, the travel of the cache included."""
    waits = ttft_s(service)
    if len(service.handed_over):
        first, second = service.runs
        waits = waits.copy()
        waits[service.handed_over] += second.start_s - first.finish_s[service.handed_over]
    slope, _, _ = _trend(service, scored, waits)
    return slope


def rise(service: Service, scored: BoolArray) -> float:
    """By which share of its mean the time per token rose over the scored time, 0 where that is not sure: a deployment
    that is still filling."""
    slope, mean, span = _trend(service, scored & (service.workload.output_tokens > 1), tpot_s(service))
    return slope * span / mean if mean > 0 else 0.0


def _trend(service: Service, scored: BoolArray, values: FloatArray) -> tuple[float, float, float]:
    """Slope over arrival, 0 unless it is sure and upwards; mean; seconds from the first to the last arrival."""
    load = service.workload
    chosen = scored & ~np.isnan(values)
    arrival = load.arrival_s[chosen]
    span = float(np.ptp(arrival)) if len(arrival) else 0.0
    if not span > 0 or _more_comes(arrival, (load.prompt_tokens + load.output_tokens)[chosen]):
        return 0.0, 0.0, span
    part = np.minimum(((arrival - arrival[0]) / span * PARTS).astype(np.int64), PARTS - 1)
    count = np.bincount(part, minlength=PARTS)
    if count.min() < FEWEST:
        return 0.0, 0.0, span
    means = np.bincount(part, values[chosen], PARTS) / count
    middle = (np.arange(PARTS) - (PARTS - 1) / 2) * span / PARTS
    slope = float(middle @ means / (middle @ middle))
    left = means - means.mean() - slope * middle
    error = float(np.sqrt(left @ left / (PARTS - 2) / (middle @ middle)))
    return (slope if slope > SURE * error else 0.0), float(means.mean()), span


def _more_comes(arrival: FloatArray, tokens: AnyArray) -> bool:
    late = arrival >= (arrival[0] + arrival[-1]) / 2
    return bool(tokens[late].sum() > ALIKE * tokens[~late].sum())

"""Time of a step from the rank loads of its layers, under four rules of who waits for whom.

Times are in assignments: a rank that is the only one to wait for takes one unit per assignment. Only tokens count, no
matrix tiles and no network. x[l, r] is the load of rank r in layer l, L layers, and

* a barrier per layer:  sum over l of max over r of x[l, r].
* two micro-batches a, b, the second one layer behind, share every rank: sum over l = 0…L of max over r of
  (a[l, r] + b[l-1, r]), with a[L] = b[-1] = 0.
* drift: ranks may run `ahead` layers ahead of the slowest. In max-plus terms, all[l] = max over r of end[l, r] and
  end[l, r] = max(end[l-1, r], all[l-1-ahead]) + x[l, r]: a rank begins a layer when it is done with its own part of the
  one before and everybody is done with the one `ahead` + 1 before. 0 is the barrier.
* no barrier inside the step: max over r of sum over l of x[l, r], the limit of drift.

The next layer of a token needs what other ranks made of it in this one, so drift within one batch of tokens is what no
engine does: it stands for several batches in flight, and its times are limits.
"""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray


def barrier(loads: FloatArray) -> FloatArray:
    """float64[S] of loads float64[S, L, R]; any labels of ranks give the same."""
    time: FloatArray = loads.max(axis=2).sum(axis=1)
    return time


def micro_batches(first: FloatArray, second: FloatArray) -> FloatArray:
    """float64[S] of two micro-batches float64[S, L, R], the second one layer behind the first."""
    time: FloatArray = first[:, 0].max(axis=1) + second[:, -1].max(axis=1)
    if first.shape[1] > 1:
        time += (first[:, 1:] + second[:, :-1]).max(axis=2).sum(axis=1)
    return time


def drifting(loads: FloatArray, ahead: int = 1) -> FloatArray:
    """float64[S] of loads float64[S, L, R] when ranks may run `ahead` ≥ 0 layers ahead of the slowest."""
    steps, layers, ranks = loads.shape
    end, everybody = np.zeros((steps, ranks)), np.zeros((layers + ahead + 1, steps))
    for layer in range(layers):
        # Row l + ahead + 1 is layer l, so that layers before the first are done at 0.
        end = np.maximum(end, everybody[layer][:, None]) + loads[:, layer]
        everybody[layer + ahead + 1] = end.max(axis=1)
    time: FloatArray = end.max(axis=1)
    return time


def unbound(loads: FloatArray) -> FloatArray:
    """float64[S] of loads float64[S, L, R] without a barrier inside the step."""
    time: FloatArray = loads.sum(axis=1).max(axis=1)
    return time


def paired(loads: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(float64[S // 2, L, R], same): every two consecutive steps as two micro-batches; of an odd number the first step
    is left out."""
    even = loads[len(loads) % 2 :]
    return even[::2], even[1::2]

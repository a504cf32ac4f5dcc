"""Whether a search over windows can win anything: variance of rank loads beyond chance."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, IntArray

NOISE = 0.03
"""`excess_std` under which windows are chance draws of one mixture and no placement beats the average's."""

FEW_EXPERTS, MANY_EXPERTS = 32, 64
MOST_WINDOWS, MOST_OF_SOME_EXPERTS, MOST_OF_MANY_EXPERTS = 1024, 384, 256


def most_windows(window_steps: float, experts: int) -> int:
    """Windows that a search looks at: fewer where every window costs time, but not of single steps, which are noisy."""
    if experts <= FEW_EXPERTS or window_steps <= 1:
        return MOST_WINDOWS
    return MOST_OF_SOME_EXPERTS if experts <= MANY_EXPERTS else MOST_OF_MANY_EXPERTS


FEW_WINDOWS, FINEST = 128, 8
"""Windows below which a search looks at shorter ones, and how many times shorter at most."""


def searched_steps(windows: int, steps: int) -> int:
    """Steps of the windows that a search should look at when there are so many of `steps` each: half, a fourth or an
    eighth where they are few. Shorter ones are noisier, but twenty windows are learnt by heart."""
    finer = 1
    while finer < FINEST and windows * finer < FEW_WINDOWS and steps // (2 * finer) >= 1:
        finer *= 2
    return steps // finer


def excess_std(tokens: IntArray, expert_of_slot: Int32Array, rank_of_slot: Int32Array, top_k: int = 1) -> float:
    """Deviation over windows of a rank's relative load beyond chance, root mean square over layers.

    tokens: int64[W, L, E], W ≥ 2 · expert_of_slot: int32[L, P] of a plan that is balanced on the average · top_k: K.
    About 0 when tokens are independent draws. Chance is multinomial, times (E - K) / (E - 1) because a token's K
    choices are distinct (exact for equally likely experts). Layers and windows without traffic do not count.
    """
    experts = tokens.shape[2]
    distinct = (experts - top_k) / max(experts - 1, 1)
    layers = [
        _layer_excess(tokens[:, layer], slots, rank_of_slot, distinct) for layer, slots in enumerate(expert_of_slot)
    ]
    found = [excess for excess in layers if excess is not None]
    # Clipped after the mean: chance errs to both sides, layer by layer.
    return float(np.sqrt(max(0.0, float(np.mean(found))))) if found else 0.0


def _layer_excess(tokens: IntArray, slots: Int32Array, rank_of_slot: Int32Array, distinct: float) -> float | None:
    total = tokens.sum(axis=1)
    kept = tokens[total > 0]
    if len(kept) < 2:
        return None
    size, ranks = total[total > 0].astype(np.float64), int(rank_of_slot.max()) + 1
    share = _rank_share(slots, rank_of_slot, tokens.shape[1], ranks)
    # Not a matrix product: the threads of BLAS take 0.1 ms each for it alone, and 16 ms beside other work.
    loads = np.einsum("we,er->wr", kept, share)
    seen = (loads / size[:, None] * ranks).var(axis=0, ddof=1)
    mix = (kept / size[:, None]).mean(axis=0)
    chance = (mix @ share**2 - (mix @ share) ** 2) * (1 / size).mean() * ranks**2
    return float((seen - distinct * chance).mean())


def _rank_share(slots: Int32Array, rank_of_slot: Int32Array, experts: int, ranks: int) -> FloatArray:
    share = np.zeros((experts, ranks))
    np.add.at(share, (slots, rank_of_slot), 1.0)
    shares: FloatArray = share / share.sum(axis=1, keepdims=True)
    return shares


def spread(windows: AnyArray, most: int) -> AnyArray:
    """At most `most` of the windows [W, …], evenly spread over time."""
    if len(windows) <= most:
        return windows
    return windows[np.linspace(0, len(windows) - 1, most).round().astype(np.int64)]

"""Rows and seconds of a serving step, compiled; specification in `reference_serving`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.serving_state import (
    ATTENTION,
    BALANCED,
    CHUNKS,
    COMBINE,
    DECODING,
    DISPATCH,
    EXPERT,
    HIDDEN,
    LOST_COMBINE,
    LOST_DISPATCH,
    LOST_EXPERT,
    OUTSIDE,
    STEP,
    STRIDE,
)


@bare_njit()
def add_rows(sums, rows, times):  # type: ignore[no-untyped-def]
    for layer in range(sums.shape[0]):
        for r in range(sums.shape[1]):
            sums[layer, r] += times * rows[layer, r]


@bare_njit()
def rebuild(requests, model, state):  # type: ignore[no-untyped-def]
    state.mean_sum[:] = 0.0
    state.spread_sum[:] = 0.0
    for d in range(len(state.running)):
        for k in range(state.running[d]):
            i = state.slots[d, k]
            if state.stage[i] == DECODING:
                add_rows(state.mean_sum, model.mean[requests.decode[i]], 1.0)
                add_rows(state.spread_sum, model.spread[requests.decode[i]], 1.0)


@bare_njit()
def _sum_rows(model, state, decodes):  # type: ignore[no-untyped-def]
    """Sums of the step: mean rows in `rows`, their variance in `noisy`."""
    rows, noisy = state.rows, state.noisy
    for l in range(rows.shape[0]):  # noqa: E741
        for r in range(rows.shape[1]):
            rows[l, r] = state.mean_sum[l, r] if decodes else 0.0
            noisy[l, r] = state.spread_sum[l, r] if decodes else 0.0
    for c in range(state.counts[CHUNKS]):
        add_rows(rows, model.mean[state.chunk_row[c]], np.float64(state.chunk[c]))
        add_rows(noisy, model.spread[state.chunk_row[c]], np.float64(state.chunk[c]))


@bare_njit()
def _add_noise(rows, noisy, noise):  # type: ignore[no-untyped-def]
    """Adds normal noise to a layer's rows that keeps their sum; returns the sum."""
    total, variance, moved = 0.0, 0.0, 0.0
    for r in range(len(rows)):
        total += rows[r]
        variance += max(0.0, noisy[r])
        moved += np.sqrt(max(0.0, noisy[r])) * noise[r]
    back = moved / variance if variance > 0.0 else 0.0
    kept = 0.0
    for r in range(len(rows)):
        v = max(0.0, noisy[r])
        rows[r] = max(0.0, rows[r] + np.sqrt(v) * noise[r] - v * back)
        kept += rows[r]
    if kept > total:
        for r in range(len(rows)):
            rows[r] *= total / kept
    return max(0.0, total)


@bare_njit()
def _at(table, rows, knot):  # type: ignore[no-untyped-def]
    """Seconds between the two knots around `rows`, beyond the last one on its slope."""
    g = min(np.int64(np.sqrt(rows) / knot), len(table) - 2)
    if g < 0:
        return table[0]
    low = g * knot * (g * knot)
    return table[g] + (rows - low) / ((2 * g + 1) * knot * knot) * (table[g + 1] - table[g])


@bare_njit()
def _layer_seconds(l, model, load, noise, even_rows, tokens, busy, seconds):  # type: ignore[no-untyped-def]  # noqa: E741
    """Adds a layer's parts to `seconds`; returns (dispatch, expert, combine) as they are and if all were even."""
    expert, first, second = 0.0, 0.0, 0.0
    for r in range(len(load)):
        rows = load[r]
        own = _at(model.expert_s[l, r], rows, model.knot)
        own = max(0.0, own + noise[r] * _at(model.chance_s[l], rows, model.knot))
        busy[r] += own
        expert = max(expert, own)
        first = max(first, rows * model.arrive_s[0, l, r])
        second = max(second, rows * model.arrive_s[1, l, r])
    dispatch = model.link_fixed_s[0] + max(first, tokens * model.leave_s[0, l])
    combine = model.link_fixed_s[1] + max(second, tokens * model.leave_s[1, l])
    even_dispatch = model.link_fixed_s[0] + max(even_rows * model.even_arrive_s[0, l], tokens * model.leave_s[0, l])
    even_combine = model.link_fixed_s[1] + max(even_rows * model.even_arrive_s[1, l], tokens * model.leave_s[1, l])
    even_expert = _at(model.even_expert_s[l], even_rows, model.knot)
    seconds[DISPATCH] += dispatch
    seconds[EXPERT] += expert
    seconds[COMBINE] += combine
    seconds[LOST_DISPATCH] += dispatch - even_dispatch
    seconds[LOST_EXPERT] += expert - even_expert
    seconds[LOST_COMBINE] += combine - even_combine
    return dispatch + combine, expert, even_dispatch + even_combine, even_expert


@bare_njit()
def _attention(model, state):  # type: ignore[no-untyped-def]
    """Seconds of a layer's attention and the most tokens of a data-parallel rank."""
    fixed, weights, token, kv, pair = model.attention
    most, tokens = 0.0, 0
    for d in range(len(state.tokens)):
        own = max(weights, token * state.tokens[d]) + kv * state.reads[d] + pair * state.pairs[d]
        most = max(most, own)
        tokens = max(tokens, state.tokens[d])
    return fixed + most, np.float64(tokens)


@bare_njit()
def step_seconds(model, state, decodes, busy):  # type: ignore[no-untyped-def]
    """Seconds of the step that is put together in `state`; adds its parts to `seconds`, the experts' to `busy`."""
    layers, ranks = state.rows.shape
    _sum_rows(model, state, decodes)
    place = (state.counts[STEP] + 1) * STRIDE % 2**32 % (len(model.noise) - layers * ranks + 1)
    attention, tokens = _attention(model, state)
    host, dense_layers, weights, token = model.outside
    outside = host + max(weights, token * tokens)
    step = outside + dense_layers * attention
    balanced, hidden = step, 0.0
    for l in range(layers):  # noqa: E741
        noise = model.noise[place + l * ranks : place + (l + 1) * ranks]
        total = _add_noise(state.rows[l], state.noisy[l], noise)
        moving, expert, even_moving, even_expert = _layer_seconds(
            l, model, state.rows[l], noise, total / ranks, tokens, busy, state.seconds
        )
        saved = model.hidden * min(moving, attention + expert)
        hidden += saved
        step += attention + moving + expert - saved
        balanced += attention + even_moving + even_expert
        balanced -= model.hidden * min(even_moving, attention + even_expert)
    state.seconds[ATTENTION] += (layers + dense_layers) * attention
    state.seconds[OUTSIDE] += outside
    state.seconds[HIDDEN] += hidden
    state.seconds[BALANCED] += balanced
    return step

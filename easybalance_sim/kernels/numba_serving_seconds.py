"""Rows and seconds of a serving step, compiled; specification in `reference_serving`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.serving_state import DECODING, STRIDE


@bare_njit()
def add_rows(sums, model, q, times):  # type: ignore[no-untyped-def]
    """Adds `times` tokens of routed request q."""
    mean, spread = model.mean, model.spread
    for l in range(sums.shape[1]):  # noqa: E741
        for r in range(sums.shape[2]):
            sums[0, l, r] += times * mean[q, l, r]
        for r in range(sums.shape[2]):
            sums[1, l, r] += times * spread[q, l, r]


@bare_njit()
def rebuild(model, state):  # type: ignore[no-untyped-def]
    state.sums[:] = 0.0
    for d in range(len(state.ranks)):
        sums = state.sums[d % len(state.sums)]
        for k in range(state.ranks[d].running):
            request = state.requests[state.slots[d, k]]
            if request.stage == DECODING:
                add_rows(sums, model, request.decode, 1.0)


@bare_njit()
def _sum_rows(model, state):  # type: ignore[no-untyped-def]
    rows, sums = state.rows, state.sums
    rows[:] = 0.0
    for d in range(len(sums)):
        if state.ranks[d].decodes == 0:
            continue
        for m in range(rows.shape[0]):
            for l in range(rows.shape[1]):  # noqa: E741
                for r in range(rows.shape[2]):
                    rows[m, l, r] += sums[d, m, l, r]
    for c in range(state.totals[0].chunks):
        add_rows(rows, model, state.chunks[c].row, np.float64(state.chunks[c].tokens))


@bare_njit()
def _add_noise(rows, l, noise, place):  # type: ignore[no-untyped-def]  # noqa: E741
    """Adds noise that keeps their sum to the rows of a layer; returns the sum."""
    ranks = rows.shape[2]
    total, variance, moved = 0.0, 0.0, 0.0
    for r in range(ranks):
        total += rows[0, l, r]
        variance += max(0.0, rows[1, l, r])
        moved += np.sqrt(max(0.0, rows[1, l, r])) * noise[place + r]
    back = moved / variance if variance > 0.0 else 0.0
    kept = 0.0
    for r in range(ranks):
        v = max(0.0, rows[1, l, r])
        rows[0, l, r] = max(0.0, rows[0, l, r] + np.sqrt(v) * noise[place + r] - v * back)
        kept += rows[0, l, r]
    if kept > total:
        for r in range(ranks):
            rows[0, l, r] *= max(0.0, total) / kept
    return max(0.0, total)


@bare_njit()
def _attention(ranks, scalars):  # type: ignore[no-untyped-def]
    """Seconds of attention, shared experts included, of a MoE layer and of another; the most tokens and requests of a
    data-parallel rank."""
    most, bare, tokens, served = 0.0, 0.0, np.int64(0), np.int64(0)
    for d in range(len(ranks)):
        own = max(scalars.attention_weights, scalars.attention_token * ranks[d].tokens)
        own += scalars.attention_kv * ranks[d].reads + scalars.attention_pair * ranks[d].pairs
        bare = max(bare, own)
        most = max(most, own + max(scalars.shared_weights, scalars.shared_token * ranks[d].tokens))
        tokens = max(tokens, ranks[d].tokens)
        served = max(served, np.int64(ranks[d].served))
    bare += scalars.attention_fixed
    most += scalars.attention_fixed + scalars.shared_fixed
    return most, bare, np.float64(tokens), np.float64(served)


@bare_njit()
def _knots(rows, knot, last):  # type: ignore[no-untyped-def]
    """The knot at or below `rows`, `last` at most, and how far they are on the way to the next."""
    g = min(np.int64(np.sqrt(rows) / knot), last)
    return g, (rows - (g * knot) * (g * knot)) / ((2 * g + 1) * knot * knot)


@bare_njit()
def step_seconds(model, state, busy):  # type: ignore[no-untyped-def]
    """Seconds of the step that is put together in `state`; adds its parts to `seconds`, the experts' to `busy`."""
    rows, seconds, scalars, knot = state.rows, state.seconds[0], model.scalars[0], model.scalars[0].knot
    expert_s, even_expert_s, chance_rows, noise = model.expert_s, model.even_expert_s, model.chance_rows, model.noise
    arrive_s, even_arrive_s, leave_s = model.arrive_s, model.even_arrive_s, model.leave_s
    layers, ranks, last = rows.shape[1], rows.shape[2], expert_s.shape[2] - 2
    _sum_rows(model, state)
    place = (state.totals[0].step + 1) * STRIDE % 2**32 % (len(noise) - layers * ranks + 1)
    attention, bare, tokens, served = _attention(state.ranks, scalars)
    outside = scalars.host + max(scalars.outside_weights, scalars.outside_token * tokens)
    outside += max(scalars.head_weights, scalars.head_token * served)
    step = outside + scalars.dense_layers * bare
    balanced = step
    for l in range(layers):  # noqa: E741
        even_rows = _add_noise(rows, l, noise, place) / ranks
        expert, first, second = 0.0, 0.0, 0.0
        for r in range(ranks):
            own = rows[0, l, r]
            g, share = _knots(own, knot, last)
            chance = chance_rows[l, g] + share * (chance_rows[l, g + 1] - chance_rows[l, g])
            g, share = _knots(max(0.0, own + noise[place + r] * chance), knot, last)
            here = expert_s[l, r, g] + share * (expert_s[l, r, g + 1] - expert_s[l, r, g])
            busy[r] += here
            expert = max(expert, here)
            first = max(first, own * arrive_s[0, l, r])
            second = max(second, own * arrive_s[1, l, r])
        place += ranks
        g, share = _knots(even_rows, knot, last)
        even_expert = even_expert_s[l, g] + share * (even_expert_s[l, g + 1] - even_expert_s[l, g])
        dispatch = scalars.dispatch_fixed + max(first, tokens * leave_s[0, l])
        combine = scalars.combine_fixed + max(second, tokens * leave_s[1, l])
        even_dispatch = scalars.dispatch_fixed + max(even_rows * even_arrive_s[0, l], tokens * leave_s[0, l])
        even_combine = scalars.combine_fixed + max(even_rows * even_arrive_s[1, l], tokens * leave_s[1, l])
        saved = scalars.hidden * min(dispatch + combine, attention + expert)
        step += attention + dispatch + expert + combine - saved
        balanced += attention + even_dispatch + even_expert + even_combine
        balanced -= scalars.hidden * min(even_dispatch + even_combine, attention + even_expert)
        seconds.dispatch += dispatch
        seconds.expert += expert
        seconds.combine += combine
        seconds.hidden += saved
        seconds.lost_dispatch += dispatch - even_dispatch
        seconds.lost_expert += expert - even_expert
        seconds.lost_combine += combine - even_combine
    seconds.attention += layers * attention + scalars.dense_layers * bare
    seconds.outside += outside
    seconds.balanced += balanced
    return step

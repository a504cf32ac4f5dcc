"""Annealing of placements on sample windows, compiled; specification in `reference_search`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import on_threads

F32 = np.float32
SWAP_SHARE, SWAPS_OF_TEN = np.uint64(3006477107), 7
HOPE, SWAP_LUCK, HAND_OVER_LUCK, CERTAIN_SLOTS = 8.0, 90.0, 150.0, 36
PROPOSALS_PER_COOLING = 64
ACCEPTED_PER_REBUILD = 4096
COLD_SHARE = 20
MANY_EXPERTS, HEAT_OF_MANY = 64, 1.5
FEWEST_COLD = 2000


@bare_njit(inline="always")
def _next(random):  # type: ignore[no-untyped-def]
    random[0] = _step(random[0])
    return (random[0] * np.uint64(2685821657736338717)) >> np.uint64(32)


@bare_njit(inline="always")
def _below(random, bound):  # type: ignore[no-untyped-def]
    return _part(_next(random), bound)


@bare_njit(inline="always")
def _step(x):  # type: ignore[no-untyped-def]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    return x


@bare_njit(inline="always")
def _part(bits, bound):  # type: ignore[no-untyped-def]
    return np.int64((bits * np.uint64(bound)) >> np.uint64(32))


@bare_njit(inline="always")
def _refuses(x, delta, temperature):  # type: ignore[no-untyped-def]
    """By other bits of x than those that made the proposal."""
    drawn = np.float64((x * np.uint64(11400714819323198485)) >> np.uint64(32)) * 2.3283064365386963e-10
    return delta > 0 and drawn >= np.exp(-delta / temperature)


@bare_njit(fastmath=True)
def _power(load, r):  # type: ignore[no-untyped-def]
    total = F32(0)
    for t in range(load.shape[1]):
        v = load[r, t]
        v *= v
        v *= v
        total += v * v
    return np.float64(total)


@bare_njit(fastmath=True)
def _measure(load, r, unit, phi, lean):  # type: ignore[no-untyped-def]
    power, slope = F32(0), 0.0
    for t in range(load.shape[1]):
        v = load[r, t]
        v2 = v * v
        v6 = v2 * v2 * v2
        power += v6 * v2
        slope += np.float64(v * (v6 - unit)) ** 2
    phi[r], lean[r] = power, slope


@bare_njit(fastmath=True)
def _tell_apart(cost, e, last, apart):  # type: ignore[no-untyped-def]
    """Squared distances of expert e's cost to that of experts below `last`; on the diagonal its square."""
    for f in range(last):
        total = F32(0)
        for t in range(cost.shape[1]):
            d = cost[e, t] - F32(e != f) * cost[f, t]
            total += d * d
        apart[e, f] = total
        apart[f, e] = total


@bare_njit(fastmath=True)
def _tell_all_apart(cost, apart):  # type: ignore[no-untyped-def]
    for e in range(len(apart)):
        _tell_apart(cost, e, e + 1, apart)


@bare_njit(fastmath=True)
def _power_moved(load, r, x, i, kx, y, j, ky):  # type: ignore[no-untyped-def]
    """sum_t (load[r] + kx·x[i] + ky·y[j])^8."""
    total = F32(0)
    for t in range(load.shape[1]):
        v = load[r, t] + kx * x[i, t] + ky * y[j, t]
        v *= v
        v *= v
        total += v * v
    return np.float64(total)


@bare_njit(fastmath=True)
def _power_swapped(row_a, row_b, e, f, pace_a, pace_b):  # type: ignore[no-untyped-def]
    total = F32(0)
    for t in range(row_a.shape[0]):
        d = e[t] - f[t]
        v = row_a[t] - d * pace_a
        w = row_b[t] + d * pace_b
        v *= v
        w *= w
        v *= v
        w *= w
        total += v * v + w * w
    return np.float64(total)


@bare_njit(fastmath=True)
def _slot_cost(tokens, e, copies, slope, active, per_step, out, i):  # type: ignore[no-untyped-def]
    share = F32(1.0) / F32(copies)
    if active == 0:
        for t in range(tokens.shape[1]):
            out[i, t] = slope * tokens[e, t] * share
    else:
        for t in range(tokens.shape[1]):
            x = tokens[e, t] * share
            out[i, t] = slope * x + active * (F32(1.0) - np.exp(-x * per_step[t]))


@bare_njit(fastmath=True)
def _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi, lean):  # type: ignore[no-untyped-def]
    """Everything that follows from the slots, free of float32 drift; returns the sixth power of a mean load."""
    count[:] = 0
    has[:] = False
    load[:] = 0
    for p in range(len(slots)):
        count[slots[p]] += 1
        has[rank_of_slot[p], slots[p]] = True
    for e in range(len(count)):
        _slot_cost(tokens, e, count[e], slope, active, per_step, cost, e)
    for p in range(len(slots)):
        r = rank_of_slot[p]
        for t in range(load.shape[1]):
            load[r, t] += cost[slots[p], t] * pace[r]
    windows, total = 0, 0.0
    for t in range(load.shape[1]):
        busy = False
        for r in range(len(phi)):
            busy |= load[r, t] > 0
            total += load[r, t]
        windows += busy
    unit = F32((total / len(phi) / max(windows, 1)) ** 6)
    for r in range(len(phi)):
        _measure(load, r, unit, phi, lean)
    return unit


@bare_njit()
def _moves(slots, rank_of_slot, held):  # type: ignore[no-untyped-def]
    moved = 0
    for p in range(len(slots)):
        if not held[rank_of_slot[p], slots[p]]:
            moved += 1
    return moved


@bare_njit(fastmath=True)
def _hand_over_change(a, e, f, has, cost, load, phi, pace, count, tokens, slope, active, per_step, rows):  # type: ignore[no-untyped-def]
    """Change of F when rank a's slot goes from expert e to f; leaves new costs in rows[0:2], changes in rows[2:4]."""
    _slot_cost(tokens, e, count[e] - 1, slope, active, per_step, rows, 0)
    _slot_cost(tokens, f, count[f] + 1, slope, active, per_step, rows, 1)
    for t in range(rows.shape[1]):
        rows[2, t] = rows[0, t] - cost[e, t]
        rows[3, t] = rows[1, t] - cost[f, t]
    delta = 0.0
    for r in range(len(phi)):
        if r == a:
            delta += _power_moved(load, r, rows, 1, pace[r], cost, e, -pace[r]) - phi[r]
        elif has[r, e] or has[r, f]:
            ke, kf = pace[r] * F32(has[r, e]), pace[r] * F32(has[r, f])
            delta += _power_moved(load, r, rows, 2, ke, rows, 3, kf) - phi[r]
    return delta


@bare_njit(fastmath=True)
def _hand_over(a, e, f, has, cost, load, unit, phi, lean, apart, pace, count, rows):  # type: ignore[no-untyped-def]
    """What `_hand_over_change` looked at is done."""
    for r in range(len(phi)):
        if r == a:
            for t in range(rows.shape[1]):
                load[r, t] += (rows[1, t] - cost[e, t]) * pace[r]
        elif has[r, e] or has[r, f]:
            ke, kf = pace[r] * F32(has[r, e]), pace[r] * F32(has[r, f])
            for t in range(rows.shape[1]):
                load[r, t] += ke * rows[2, t] + kf * rows[3, t]
        else:
            continue
        _measure(load, r, unit, phi, lean)
    has[a, e], has[a, f] = False, True
    count[e] -= 1
    count[f] += 1
    for t in range(rows.shape[1]):
        cost[e, t] = rows[0, t]
        cost[f, t] = rows[1, t]
    _tell_apart(cost, e, len(count), apart)
    _tell_apart(cost, f, len(count), apart)


@bare_njit(fastmath=True)
def _swap(a, b, e, f, has, cost, load, unit, phi, lean, pace):  # type: ignore[no-untyped-def]
    has[a, e], has[b, f], has[a, f], has[b, e] = False, False, True, True
    for t in range(load.shape[1]):
        d = cost[e, t] - cost[f, t]
        load[a, t] -= d * pace[a]
        load[b, t] += d * pace[b]
    _measure(load, a, unit, phi, lean)
    _measure(load, b, unit, phi, lean)


@bare_njit(fastmath=True, inline="always")
def _no_swap(gap, unit, lean, above, luck):  # type: ignore[no-untyped-def]
    """`reference_search.Walk.hopeless` of a swap; lean: of both ranks · above: what is to be outweighed."""
    least = 56.0 * unit * gap + above
    return least > 0 and least * least > luck * SWAP_LUCK * lean * gap


@bare_njit(fastmath=True, inline="always")
def _no_hand_over(apart, count, e, f, unit, lean, most, above, luck):  # type: ignore[no-untyped-def]
    """The same of a slot that goes from e to f; lean: of its rank · most: of any rank."""
    share = np.float64(count[f]) / np.float64(count[f] + 1)
    gap = max((1.0 - share) * (apart[e, e] - share * apart[f, f]) + share * apart[e, f], 0.0)
    rest = apart[e, e] / np.float64(count[e] - 1) + apart[f, f] * share * share / np.float64(count[f])
    least = 28.0 * unit * (gap + rest) + above
    return least > 0 and least * least > luck * HAND_OVER_LUCK * (lean * gap + most * rest)


# numba's own sum and max take seconds to compile.
@bare_njit()
def _total(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for at in range(len(values)):
        total += values[at]
    return total


@bare_njit()
def _largest(values):  # type: ignore[no-untyped-def]
    largest = values[0]
    for at in range(1, len(values)):
        largest = max(largest, values[at])
    return largest


@bare_njit()
def _kept(slots, best, value):  # type: ignore[no-untyped-def]
    for p in range(len(slots)):
        best[p] = slots[p]
    return value


@bare_njit(fastmath=True)
def _anneal(  # type: ignore[no-untyped-def]
    slots, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, hot, cold, random,
    best, count, has, cost, load, phi, lean, apart, rows,
):  # fmt: skip
    """Anneals `slots`, leaves the best placement seen in `best`; returns its value."""
    unit = _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi, lean)
    _tell_all_apart(cost, apart)
    luck = F32(1.0 if len(slots) > CERTAIN_SLOTS else 1e9)
    moved, accepted, x = _moves(slots, rank_of_slot, held), 0, random[0]
    lowest = _kept(slots, best, _total(phi) + price * moved)
    temperature = hot * _total(phi) / len(phi)
    cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
    for proposal in range(proposals):
        if proposal % PROPOSALS_PER_COOLING == 0:
            temperature *= cooling
            most, hope = _largest(lean), HOPE * temperature
        x = _step(x)
        bits = x * np.uint64(2685821657736338717)
        p, bits = _part(bits >> np.uint64(32), len(slots)), bits & np.uint64(4294967295)
        a, e = rank_of_slot[p], slots[p]
        if proposal % 10 < SWAPS_OF_TEN:
            q = _part(bits, len(slots))
            b, f = rank_of_slot[q], slots[q]
            if a == b or e == f or has[b, e] or has[a, f]:
                continue
            shift = np.int64(held[a, e]) + np.int64(held[b, f]) - np.int64(held[a, f]) - np.int64(held[b, e])
            if shift > 0 and moved + shift > most_moves:
                continue
            toll = price * shift
            if _no_swap(np.float64(apart[e, f]), unit, lean[a] + lean[b], toll - hope, luck):
                continue
            delta = _power_swapped(load[a], load[b], cost[e], cost[f], pace[a], pace[b]) + toll - phi[a] - phi[b]
            if _refuses(x, delta, temperature):
                continue
            _swap(a, b, e, f, has, cost, load, unit, phi, lean, pace)
            slots[p], slots[q] = f, e
        else:
            f = _part(bits, len(count))
            shift = np.int64(held[a, e]) - np.int64(held[a, f])
            if e == f or count[e] < 2 or has[a, f] or (shift > 0 and moved + shift > most_moves):
                continue
            toll = price * shift
            if _no_hand_over(apart, count, e, f, unit, lean[a], most, toll - hope, luck):
                continue
            delta = toll
            delta += _hand_over_change(
                a, e, f, has, cost, load, phi, pace, count, tokens, slope, active, per_step, rows
            )
            if _refuses(x, delta, temperature):
                continue
            slots[p] = f
            _hand_over(a, e, f, has, cost, load, unit, phi, lean, apart, pace, count, rows)
        moved += shift
        accepted += 1
        if accepted % ACCEPTED_PER_REBUILD == 0:
            _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi, lean)
        value = _total(phi) + price * moved
        if value < lowest * 0.9999995:
            lowest = _kept(slots, best, value)
    random[0] = x
    return lowest


def _search_layer(  # type: ignore[no-untyped-def]
    start, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, seed, out,
):  # fmt: skip
    (experts, windows), ranks = tokens.shape, len(pace)
    random = np.array([(seed * 2654435769 + 88172645463325252) % 2**64], np.uint64)
    room = (
        np.zeros(experts, np.int64), np.zeros((ranks, experts), np.bool_), np.empty((experts, windows), F32),
        np.empty((ranks, windows), F32), np.empty(ranks), np.empty(ranks), np.empty((experts, experts), F32),
        np.empty((4, windows), F32),
    )  # fmt: skip
    slots, best, few = start.copy(), start.copy(), max(FEWEST_COLD, proposals // COLD_SHARE)
    given = (rank_of_slot, tokens, pace, F32(slope), F32(active), per_step, held, float(price), most_moves)
    low = _anneal(slots, *given, few, 1e-4, 1e-6, random, out, *room)
    heat = HEAT_OF_MANY if experts > MANY_EXPERTS else 1.0
    hot = min(max(heat * (low / (windows * ranks) - 1.0), 1e-3), 0.1)
    slots[:] = out
    lowest = _anneal(slots, *given, proposals, hot, hot / 100, random, best, *room)
    if lowest <= low:
        out[:] = best
    return min(lowest, low)


def search(  # type: ignore[no-untyped-def]
    start, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, seed, out, lowest
):  # fmt: skip
    """Layers on threads: the compiled walk holds no lock, and compiles faster than a parallel loop would."""

    def walk(layer: int) -> None:
        lowest[layer] = _search_layer(  # type: ignore[no-untyped-call]
            start[layer], rank_of_slot, tokens[layer], pace, slope, active, per_step, held[layer], price, most_moves,
            proposals, seed + layer, out[layer],
        )  # fmt: skip

    for _ in on_threads(walk, len(start)):
        pass

"""The synthetic loads behind the power-law rows of measured tables, rebuilt from the published recipe.

One draw: shares of the experts from a power law on [1, 0.8·n] when n·k > E, else on [0.01, 2]; scaled to n·k and
rounded; no expert gets more than n; what overflows or was rounded away goes to the smallest experts, rank by rank.
Without EPLB the busiest rank is timed. In an older recipe they go to the smallest experts of all, ties in index order:
where tokens are few, many more experts of the busiest rank are active. With EPLB, spare slots go one at a time to the
expert with the most tokens per replica, slots in descending load to the least loaded rank with room, and the busiest
rank is timed. Tokens take their slots column by column from the slots in descending count, so the distinct tokens of a
rank are a union of intervals modulo n.

n: tokens over all ranks · k: top-k · E: experts. Source: aiconfigurator 095f58a51, collector recipe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, frozen, stream


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a draw depends on; `slots` (over all ranks) above `experts` needs EPLB.

    older_draws: whether what overflows or was rounded away goes to the smallest experts of all, not rank by rank; with
    EPLB it always does.
    """

    tokens: int
    experts: int
    top_k: int
    ranks: int
    alpha: float
    eplb: bool = False
    slots: int
    older_draws: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class RankDraws:
    """Draws of the timed rank. counts: int64[D, S] assignments of its slots · distinct: int64[D] tokens that arrive."""

    counts: IntArray
    distinct: IntArray

    def nearest(self, arrived: int, keep: int) -> RankDraws:
        """The `keep` draws whose distinct tokens are closest to those recorded."""
        order = np.argsort(np.abs(self.distinct - arrived), kind="stable")[:keep]
        return RankDraws(counts=frozen(self.counts[order]), distinct=frozen(self.distinct[order]))


def draw(recipe: Recipe, draws: int, seed: int = 0) -> RankDraws:
    """`draws` draws of the timed rank; the same recipe and seed give the same draws."""
    # Recipes that differ only in skew or placement share their random numbers, so that luck does not order them.
    rng = stream(seed, f"{recipe.tokens} tokens, {recipe.experts} experts")
    shares = power_law(rng, recipe, draws)
    counts = _balanced(shares, recipe) if recipe.eplb else _by_rank(shares, recipe)
    own = recipe.slots // recipe.ranks
    return RankDraws(counts=frozen(counts[:, :own]), distinct=frozen(distinct_tokens(counts, own, recipe.tokens)))


def power_law(rng: np.random.Generator, recipe: Recipe, draws: int) -> IntArray:
    """int64[D, E] rounded and capped shares of n·k tokens; they do not sum to it yet."""
    wanted = recipe.tokens * recipe.top_k
    low, high = (1.0, 0.8 * recipe.tokens) if wanted > recipe.experts else (0.01, 2.0)
    power = 1.0 - recipe.alpha
    spread = (high**power - low**power) * rng.random((draws, recipe.experts)) + low**power
    shares = spread ** (1.0 / power)
    rounded = np.rint(shares / shares.sum(axis=1, keepdims=True) * wanted).astype(np.int64)
    return np.asarray(np.minimum(rounded, recipe.tokens))


def distinct_tokens(counts: IntArray, own: int, tokens: int) -> IntArray:
    """int64[D] distinct tokens of the first `own` slots of each draw (counts: int64[D, P], at most `tokens` each)."""
    order = np.argsort(-counts, axis=1, kind="stable")
    in_order = np.take_along_axis(counts, order, axis=1)
    starts = np.empty_like(counts)
    np.put_along_axis(starts, order, np.cumsum(in_order, axis=1) - in_order, axis=1)
    first = starts[:, :own] % tokens
    ends = first + counts[:, :own]
    # An interval that passes the last token goes on at the first one.
    begin = np.concatenate([first, np.zeros_like(first)], axis=1)
    end = np.concatenate([np.minimum(ends, tokens), np.maximum(ends - tokens, 0)], axis=1)
    by_start = np.argsort(begin, axis=1, kind="stable")
    begin, end = (np.take_along_axis(edge, by_start, axis=1) for edge in (begin, end))
    reached = np.maximum.accumulate(end, axis=1)
    before = np.concatenate([np.zeros_like(reached[:, :1]), reached[:, :-1]], axis=1)
    return np.asarray(np.maximum(end - np.maximum(begin, before), 0).sum(axis=1))


def _by_rank(shares: IntArray, recipe: Recipe) -> IntArray:
    """int64[D, E] contiguous experts, busiest rank first."""
    counts = completed(shares, recipe) if recipe.older_draws else _in_turns(shares, recipe)
    return _busiest_first(counts, recipe.ranks)


def _in_turns(shares: IntArray, recipe: Recipe) -> IntArray:
    """int64[D, E] the missing tokens go round the ranks, each to its smallest expert."""
    draws, ranks = len(shares), recipe.ranks
    missing = recipe.tokens * recipe.top_k - shares.sum(axis=1)
    quota = missing[:, None] // ranks + (np.arange(ranks) < missing[:, None] % ranks)
    local = shares.reshape(draws * ranks, -1)
    return levelled(local, quota.ravel(), recipe.tokens).reshape(draws, -1)


def _busiest_first(counts: IntArray, ranks: int) -> IntArray:
    """int64[D, E] with the busiest rank of each draw and rank 0 exchanged; of equals the first."""
    by_rank = counts.reshape(len(counts), ranks, -1).copy()
    busiest = by_rank.sum(axis=2).argmax(axis=1)
    rows = np.arange(len(counts))
    by_rank[rows, 0], by_rank[rows, busiest] = by_rank[rows, busiest].copy(), by_rank[rows, 0].copy()
    return by_rank.reshape(len(counts), -1)


def levelled(counts: IntArray, extra: IntArray, most: int) -> IntArray:
    """counts: int64[N, E] after `extra` (int64[N]) ones were added to the smallest, or taken from the largest, in turn.

    No count passes `most` or falls below 0 while others have room.
    """
    if (extra < 0).any():
        taken = levelled(most - counts, np.maximum(-extra, 0), most)
        counts = np.asarray(np.where(extra[:, None] < 0, most - taken, counts))
    added = np.maximum(extra, 0)
    order = np.argsort(counts, axis=1, kind="stable")
    ascending = np.take_along_axis(counts, order, axis=1)
    places = np.arange(1, counts.shape[1] + 1)
    needed = ascending * places - np.cumsum(ascending, axis=1)
    raised = (needed <= added[:, None]).sum(axis=1)
    water = np.take_along_axis(np.cumsum(ascending, axis=1), raised[:, None] - 1, axis=1)[:, 0] + added
    level, rest = water // raised, water % raised
    new = np.where(places <= raised[:, None], level[:, None] + (places <= rest[:, None]), ascending)
    result = np.empty_like(counts)
    np.put_along_axis(result, order, np.where(added[:, None] > 0, np.minimum(new, most), ascending), axis=1)
    return result


def _balanced(shares: IntArray, recipe: Recipe) -> IntArray:
    """int64[D, P] slot counts after EPLB, busiest rank first."""
    counts = completed(shares, recipe)
    load, _ = replicated(counts, recipe.slots)
    placed = _greedy_placement(load, recipe.ranks)
    floor = np.floor(placed).astype(np.int64)
    rest = recipe.tokens * recipe.top_k - floor.sum(axis=1)
    rank = np.argsort(np.argsort(floor - placed, axis=1, kind="stable"), axis=1)
    return np.asarray(floor + (rank < rest[:, None]))


def completed(shares: IntArray, recipe: Recipe) -> IntArray:
    """int64[D, E] with n·k tokens (the recipe of the EPLB rows, and the older one).

    Overflow fills the smallest expert to the cap. Without it single tokens are added, or taken, in ascending order;
    what an empty expert cannot give the largest gives.
    """
    order = np.argsort(shares, axis=1, kind="stable")
    ascending = np.take_along_axis(shares, order, axis=1)
    missing = recipe.tokens * recipe.top_k - shares.sum(axis=1)
    capped: BoolArray = np.any(ascending >= recipe.tokens, axis=1)
    room = recipe.tokens - ascending
    before = np.cumsum(room, axis=1) - room
    filled = np.clip(missing[:, None] - before, 0, room)
    experts = np.arange(shares.shape[1], dtype=np.int64)
    each = np.abs(missing)[:, None]
    turns = each // len(experts) + (experts < each % len(experts))
    grown = ascending + np.where(capped[:, None], filled, turns)
    given = np.minimum(ascending, turns)
    owed = np.where(missing < 0, given.sum(axis=1) + missing, 0)
    shrunk = levelled(ascending - given, owed, recipe.tokens)
    result = np.empty_like(shares)
    np.put_along_axis(result, order, np.where(missing[:, None] < 0, shrunk, grown), axis=1)
    return result


def replicated(counts: IntArray, slots: int) -> tuple[FloatArray, IntArray]:
    """float64[D, P] tokens per slot and int64[D, P] its expert: spare slots go to the most tokens per replica."""
    draws, experts = counts.shape
    rows = np.arange(draws)
    replicas = np.ones_like(counts)
    load = counts.astype(np.float64)
    expert = np.empty((draws, slots), np.int64)
    expert[:, :experts] = np.arange(experts)
    for slot in range(experts, slots):
        hottest = load.argmax(axis=1)
        expert[:, slot] = hottest
        replicas[rows, hottest] += 1
        load[rows, hottest] = counts[rows, hottest] / replicas[rows, hottest]
    return np.take_along_axis(load, expert, axis=1), expert


def _greedy_placement(load: FloatArray, ranks: int) -> FloatArray:
    """float64[D, P] the same slots, rank by rank, the busiest rank first."""
    draws, slots = load.shape
    rows, per_rank = np.arange(draws), slots // ranks
    descending = -np.sort(-load, axis=1)
    totals = np.zeros((draws, ranks))
    open_total = np.zeros((draws, ranks))
    used = np.zeros((draws, ranks), np.int64)
    placed = np.zeros((draws, ranks, per_rank))
    for slot in range(slots):
        rank = open_total.argmin(axis=1)
        place = used[rows, rank]
        placed[rows, rank, place] = descending[:, slot]
        totals[rows, rank] += descending[:, slot]
        used[rows, rank] = place + 1
        open_total[rows, rank] = np.where(place + 1 == per_rank, np.inf, totals[rows, rank])
    busiest = totals.argmax(axis=1)
    placed[rows, 0], placed[rows, busiest] = placed[rows, busiest].copy(), placed[rows, 0].copy()
    return placed.reshape(draws, slots)

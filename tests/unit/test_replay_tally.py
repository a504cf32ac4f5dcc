"""Sums over replayed steps: windows, histograms, totals, on hand-made blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.cost.layer import LayerSeconds
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.tally import StepBlock, Tally, expert_sums, imbalance, rank_sums

PLAN = Plan(
    expert_of_slot=np.array([[0, 1, 2, 0], [2, 2, 1, 0]]), slots_per_rank=np.array([1, 3]), experts=3, policy="hand"
)


def block(
    window: list[int], slot_tokens: Any, *, seconds: float = 1.0, active: int = 1, first_step: int = 0
) -> StepBlock:
    """Steps with the given counts [W, L, P]; every step has 5 tokens, one copy goes from each rank to each."""
    counts = np.array(slot_tokens, np.int32)
    steps = (len(window), PLAN.layers)
    return StepBlock(
        step=np.arange(first_step, first_step + len(window)),
        window=np.array(window),
        tokens=np.full(len(window), 5),
        slot_tokens=counts,
        seconds=LayerSeconds(
            dispatch=np.full(steps, seconds),
            expert=np.full(steps, 2 * seconds),
            combine=np.full(steps, 5 * seconds),
            active=np.full((*steps, PLAN.ranks), active, np.int16),
        ),
        rank_pairs=np.ones((2, 2), np.int64),
        node_pairs=np.full((1, 1), 4),
        peak=Peak(
            sent=int(counts.sum()), arriving=5, rows=int(rank_sums(counts, PLAN).max()), slot_rows=int(counts.max())
        ),
    )


def tallied(*blocks: StepBlock) -> Tally:
    tally = Tally(PLAN)
    for one in blocks:
        tally.add(one)
    return tally


STEP = [[1, 0, 0, 2], [3, 3, 0, 0]]
OTHER = [[0, 1, 1, 1], [0, 0, 6, 0]]


def test_rank_sums_of_ragged_ranks() -> None:
    assert rank_sums(np.array([STEP]), PLAN).tolist() == [[[1, 2], [3, 3]]]


def test_expert_sums() -> None:
    assert expert_sums(np.array([STEP, OTHER]), PLAN).tolist() == [[[3, 0, 0], [0, 0, 6]], [[1, 1, 1], [0, 6, 0]]]
    assert expert_sums(np.array(STEP), PLAN).tolist() == [[3, 0, 0], [0, 0, 6]]


def test_imbalance_is_max_over_mean_and_unknown_without_traffic() -> None:
    found = imbalance(np.array([[3, 1], [2, 2], [0, 0]]))
    assert found[:2].tolist() == [1.5, 1.0]
    assert np.isnan(found[2])


def test_a_slow_rank_is_as_busy_with_less() -> None:
    tokens, speed = np.array([[[4, 2], [3, 3]]]), np.array([1.0, 0.5])
    assert imbalance(tokens, speed)[0] == pytest.approx([1.0, 6 / 4])
    equal = imbalance(tokens, np.array([0.7, 0.7]))
    assert equal.tolist() == imbalance(tokens).tolist() == [[4 / 3, 1.0]]


def test_windows_know_the_speeds_of_their_ranks() -> None:
    tally = Tally(PLAN, np.array([0.5, 1.0]))
    tally.add(block([0], [STEP]))
    outcome = tally.outcome(1.0)
    # Layer 0 has ranks (1, 2), layer 1 (3, 3); capacity 1.5 in both.
    assert outcome.window_imbalance[0] == pytest.approx([1.0, 6 / 4])
    assert (outcome.window_bound <= outcome.window_imbalance + 1e-12).all()
    assert outcome.speed is not None and outcome.speed.tolist() == [0.5, 1.0]


def test_windows_add_up_across_blocks() -> None:
    outcome = tallied(block([0, 0], [STEP, OTHER]), block([0, 1, 1, 1], [STEP, OTHER, OTHER, OTHER])).outcome(1.0)
    # Window 0: layer 0 has ranks (1+0+1, 2+3+2), layer 1 (3+0+3, 3+6+3).
    assert outcome.window_imbalance.tolist() == [[7 / 4.5, 12 / 9], [2.0, 2.0]]
    assert (outcome.tokens, outcome.steps, outcome.tokens_per_step) == (30, 6, 5)


def test_bounds_of_windows_come_from_their_own_experts() -> None:
    """Four slots for three experts on two ranks: any one of them may be halved, its tokens may not."""
    hot = [[12, 0, 0, 12], [1, 0, 0, 0]]
    nothing = [[0] * 4] * 2
    outcome = tallied(block([0], [hot]), block([0, 1, 1], [hot, STEP, nothing])).outcome(1.0)
    # 48 tokens of expert 0, two of expert 2; then 3 tokens of expert 0, of which a rank gets two, and 6 of expert 2.
    assert outcome.window_bound.tolist() == [[1.0, 1.0], [2 / 1.5, 1.0]]


@pytest.mark.parametrize(("last", "windows"), [(1, 2), (2, 3)])
def test_only_a_short_last_window_is_left_out(last: int, windows: int) -> None:
    tally = tallied(block([0], [STEP]), block([1, 1] + [2] * last, [STEP] * (2 + last)))
    assert tally.outcome(1.0).windows == windows


def test_the_only_window_stays() -> None:
    assert tallied(block([4], [STEP])).outcome(1.0).windows == 1


def test_outcome_may_be_asked_for_in_between() -> None:
    tally = tallied(block([0, 0], [STEP, STEP]))
    before = tally.outcome(1.0)
    tally.add(block([1, 1], [OTHER, OTHER]))
    assert before.windows == 1
    assert before.rank_pairs.tolist() == [[1, 1], [1, 1]]
    assert tally.outcome(1.0).window_imbalance.tolist() == [[4 / 3, 1.0], [2.0, 2.0]]


def test_totals() -> None:
    outcome = tallied(block([0, 0], [STEP, OTHER], seconds=1.0), block([1], [STEP], seconds=3.0, active=3)).outcome(7.0)
    assert outcome.expert_tokens.tolist() == [[3 + 1 + 3, 1, 1], [0, 6, 6 + 6]]
    assert outcome.rank_pairs.tolist() == [[2, 2], [2, 2]]
    assert outcome.node_pairs.tolist() == [[8]]
    assert outcome.layer_seconds.tolist() == [[8, 8], [8, 8], [24, 24]]
    assert outcome.layer_seconds.dtype == np.float32
    # Dispatch 1, experts 2, combine 5: all communication takes longer than the experts.
    assert outcome.layer_bracket.tolist() == [[[6, 8], [6, 8]], [[6, 8], [6, 8]], [[18, 24], [18, 24]]]
    assert outcome.active_slots.tolist() == [0, 8, 0, 4]
    assert outcome.phase_share.tolist() == [1 / 8, 2 / 8, 5 / 8]
    assert outcome.copy_bytes == 7.0
    assert not outcome.expected


def test_counts_beyond_32_bits() -> None:
    most = np.iinfo(np.int32).max
    huge: AnyArray = np.full((1, 2, 4), most // 3)
    outcome = tallied(*[block([0], huge) for _ in range(9)]).outcome(1.0)
    assert outcome.expert_tokens[0].tolist() == [18 * (most // 3), 9 * (most // 3), 9 * (most // 3)]
    assert outcome.window_imbalance.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize("windows", [[0], [0, 0], [0, 1], [0, 1, 1, 2], [3, 3, 3, 4, 5, 5]])
@pytest.mark.parametrize("cuts", [0, 1, 2, 3, 5])
def test_tallies_of_parts_join(windows: list[int], cuts: int) -> None:
    """However steps are dealt to parts, some of which may be empty."""
    rng = np.random.default_rng(len(windows))
    blocks = [
        block([window], rng.integers(0, 5, (1, 2, 4)), seconds=rng.random(), first_step=step)
        for step, window in enumerate(windows)
    ]
    whole = tallied(*blocks).outcome(1.0)
    edges = [0, *np.sort(rng.integers(0, len(blocks) + 1, cuts)).tolist(), len(blocks)]
    joined = Tally(PLAN)
    for first, last in pairwise(edges):
        joined.extend(tallied(*blocks[first:last]))
    found = joined.outcome(1.0)
    for name in ("window_imbalance", "window_bound", "layer_seconds", "layer_bracket", "active_slots", "expert_tokens"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)
    assert (found.tokens, found.steps, found.windows) == (whole.tokens, whole.steps, whole.windows)
    assert found.peak == whole.peak
    assert whole.peak.slot_rows == max(one.peak.slot_rows for one in blocks) > 0


def test_of_many_steps_a_fair_sample_of_the_seconds_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easybalance_sim.replay.tally.MOST_SECONDS", 2 * 1000)
    tally, parts = Tally(PLAN), [Tally(PLAN), Tally(PLAN)]
    for first in range(0, 20_000, 100):
        steps = block([0] * 100, [STEP] * 100, seconds=float(first), first_step=first)
        tally.add(steps)
        parts[first >= 15_000].add(steps)
    kept = tally.outcome(1.0).layer_seconds
    assert 500 < len(kept) <= 1000
    assert np.quantile(kept, 0.99) / 8 == pytest.approx(19_800, rel=0.02)
    assert kept.mean() / 8 == pytest.approx(10_000, rel=0.05)
    parts[0].extend(parts[1])
    assert parts[0].outcome(1.0).layer_seconds.tolist() == kept.tolist()
    # A short part before a long one: its few steps are thinned as those of the long one were.
    short, long = Tally(PLAN), Tally(PLAN)
    for first in range(0, 20_000, 100):
        (short if first < 300 else long).add(block([0] * 100, [STEP] * 100, seconds=float(first), first_step=first))
    short.extend(long)
    assert short.outcome(1.0).layer_seconds.tolist() == kept.tolist()


def test_nothing_added() -> None:
    outcome = Tally(PLAN).outcome(1.0)
    assert (outcome.tokens, outcome.steps, outcome.windows, outcome.tokens_per_step) == (0, 0, 0, 0)
    assert outcome.layer_seconds.shape == (0, 2)


@pytest.mark.parametrize("windows", [[0, 0, 1, 1, 1, 2, 2, 2, 3], [0, 1, 2, 3], [0, 0, 1, 2, 2, 3], [5], [0, 0, 1, 1]])
def test_window_sums_in_any_division(windows: list[int]) -> None:
    """Windows as long as one another, all but the ends, or none; and sums beyond 32 bits."""
    rng = np.random.default_rng(len(windows))
    for most in (9, 2**31 - 1):
        counts = rng.integers(0, most, (len(windows), 2, 4))
        found = tallied(block(windows, counts)).outcome(1.0)
        longest = max(map(windows.count, windows))
        cut_short = len(set(windows)) > 1 and windows.count(windows[-1]) < longest
        whole = list(dict.fromkeys(windows))[: -1 if cut_short else None]
        wanted = np.array([imbalance(rank_sums(counts[np.array(windows) == w].sum(axis=0), PLAN)) for w in whole])
        np.testing.assert_allclose(found.window_imbalance, wanted, rtol=1e-12)

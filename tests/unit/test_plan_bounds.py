"""The bounds below which no placement goes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.plan import bounds
from easybalance_sim.plan.bounds import even_split_bound, hierarchical_bound, lower_bound, window_bound


def power_law(skew: float, experts: int = 256) -> FloatArray:
    """float64[1, E] loads of rank^-skew."""
    loads: FloatArray = (np.arange(1.0, experts + 1) ** -skew)[None]
    return loads


def equal(ranks: int, slots_per_rank: int) -> IntArray:
    return np.full(ranks, slots_per_rank)


@pytest.mark.parametrize(
    ("loads", "ranks", "slots", "expected"),
    [
        ([6.0, 6.0, 6.0, 6.0], 2, 4, 1.0),  # mean binds
        ([9.0, 1.0, 1.0, 1.0], 4, 4, 3.0),  # a single replica holds 9 of 12
        ([9.0, 1.0, 1.0, 1.0], 4, 5, 1.5),  # two replicas of 4.5
        ([9.0, 1.0, 1.0, 1.0], 2, 8, 1.0),  # never more replicas than ranks: 4.5 against a mean of 6
        ([0.0, 0.0], 2, 2, 1.0),
    ],
)
def test_known_bounds(loads: list[float], ranks: int, slots: int, expected: float) -> None:
    assert lower_bound(np.array([loads]), ranks, slots).tolist() == [expected]


def test_each_layer_has_its_bound() -> None:
    assert lower_bound(np.array([[1.0, 1.0], [3.0, 1.0]]), 2, 2).tolist() == [1.0, 1.5]


def test_many_layers_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = np.random.default_rng(0).pareto(1.0, (40, 12)) + 0.01
    whole = lower_bound(loads, 6, 15)
    monkeypatch.setattr(bounds, "_CELLS", 3 * 12 * 4)
    assert lower_bound(loads, 6, 15).tolist() == whole.tolist()


def test_no_placement_of_a_small_instance_is_better() -> None:
    rng = np.random.default_rng(5)
    for loads in rng.integers(1, 20, (30, 3)):
        best = min(_imbalance(loads, slots) for slots in itertools.product(range(3), repeat=5) if len(set(slots)) == 3)
        assert lower_bound(loads[None].astype(float), 5, 5)[0] == pytest.approx(best)


def _imbalance(loads: np.ndarray[tuple[int], np.dtype[np.int64]], expert_of_rank: tuple[int, ...]) -> float:
    count = np.bincount(expert_of_rank, minlength=len(loads))
    held = (loads / count)[list(expert_of_rank)]
    return float(held.max() / held.mean())


@pytest.mark.parametrize(
    ("loads", "speed", "slots", "expected"),
    [
        ([1.0, 1.0], [1.0, 1.0], 2, 1.0),
        ([1.0, 1.0], [2.0, 1.0], 2, 1.0),  # nothing forbids 4/3 on the fast rank when loads are split at will
        ([2.0, 0.0], [3.0, 1.0], 2, 4 / 3),  # all on the fast rank: 2/3 s, perfect would be 2/4
        ([2.0, 0.0], [3.0, 1.0], 3, 1.0),  # on both
        ([8.0, 1.0, 1.0], [2.0, 1.0, 1.0], 4, 10.0 / 3 / 10 * 4 * 0.8),  # 8 over speeds 2 + 1
    ],
)
def test_ranks_of_other_speeds(loads: list[float], speed: list[float], slots: int, expected: float) -> None:
    assert lower_bound(np.array([loads]), len(speed), slots, np.array(speed))[0] == pytest.approx(expected)


def test_equal_speeds_change_nothing() -> None:
    loads = np.random.default_rng(3).pareto(1.0, (20, 9)) + 0.01
    assert lower_bound(loads, 4, 11, np.full(4, 0.7)) == pytest.approx(lower_bound(loads, 4, 11))


@pytest.mark.parametrize(
    ("skew", "ranks", "slots_per_rank", "any_split", "even"),
    [(1.0, 8, 32, 1.306, 1.4745), (0.6, 144, 2, 1.129, 1.219), (1.0, 32, 9, 1.0, 1.0), (1.0, 288, 1, 3.919, 3.919)],
)
def test_published_power_laws(skew: float, ranks: int, slots_per_rank: int, any_split: float, even: float) -> None:
    """256 experts: with few slots per rank or no redundancy, what shares a rank with the hottest replica counts."""
    loads = power_law(skew)
    assert lower_bound(loads, ranks, ranks * slots_per_rank)[0] == pytest.approx(any_split, abs=5e-4)
    assert even_split_bound(loads, equal(ranks, slots_per_rank))[0] == pytest.approx(even, abs=5e-4)


@pytest.mark.parametrize(
    ("loads", "slots_per_rank", "expected"),
    [
        ([9.0, 1.0, 1.0, 1.0], [2, 2], 10 / 6),  # 9 and the lightest
        ([3.0, 3.0, 3.0, 0.0], [2, 2], 6 / 4.5),  # two of the three heaviest stand together
        ([4.0, 4.0, 1.0, 1.0], [2, 2], 1.0),
        ([4.0, 3.0, 2.0], [2, 1], 5 / 4.5),  # ragged: 3 + 2 | 4; two of three stand together
        ([8.0, 1.0], [2, 1], 1.0),  # 4 + 1 and 4: the rank with the largest replica may have one slot
        ([6.0, 1.0, 1.0], [2, 2], 1.0),  # 3 + 1 twice
        ([6.0, 2.0, 1.0], [2, 2], 4 / 4.5),  # 3 + 1 at least; the mean binds
        ([0.0, 0.0, 0.0], [2, 2], 1.0),
    ],
)
def test_company_of_the_largest_replica(loads: list[float], slots_per_rank: list[int], expected: float) -> None:
    assert even_split_bound(np.array([loads]), np.array(slots_per_rank))[0] == pytest.approx(max(1.0, expected))


def test_spare_slots_may_go_to_the_company() -> None:
    """Three slots on each of two ranks, loads 10, 10, 1: one expert has a single replica beside two halves."""
    # 10 + 5 + 1 against 5 alone is out: an expert cannot stand twice on a rank, so every expert stands on both.
    assert even_split_bound(np.array([[10.0, 10.0, 1.0]]), equal(2, 3))[0] == 1.0
    # Five slots: 10 alone costs 10 + 5; the bound knows that the other two experts may be thin but not absent.
    assert even_split_bound(np.array([[10.0, 10.0, 1.0]]), np.array([3, 2]))[0] == 1.0
    assert even_split_bound(np.array([[30.0, 4.0, 4.0, 4.0, 4.0]]), equal(3, 2))[0] == pytest.approx(19 / (46 / 3))


def test_the_hierarchical_bound_looks_at_every_share() -> None:
    loads = np.random.default_rng(2).lognormal(0, 1, (3, 32))
    node_of_rank, slots = np.repeat([0, 1], 4), equal(8, 5)
    by_group = loads.reshape(3, 8, 4)
    least = np.full(3, np.inf)
    for held in itertools.combinations(range(8), 4):
        sides = (by_group[:, held], by_group[:, [g for g in range(8) if g not in held]])
        nodes = [side.reshape(3, 16) for side in sides]
        worst = np.max([lower_bound(node, 4, 20) * node.sum(axis=1) / 4 for node in nodes], axis=0)
        least = np.minimum(least, worst)
    assert hierarchical_bound(loads, 8, node_of_rank, slots) == pytest.approx(least / (loads.sum(axis=1) / 8))


def test_a_hot_group_cannot_leave_its_node() -> None:
    loads = np.array([[8.0, 8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    # Node loads are 18 and 4 at best: 9 per rank against a mean of 5.5.
    assert hierarchical_bound(loads, 4, np.array([0, 0, 1, 1]), equal(4, 3))[0] == pytest.approx(9 / 5.5)
    assert lower_bound(loads, 4, 12)[0] == 1.0
    assert hierarchical_bound(np.zeros((1, 8)), 4, np.array([0, 0, 1, 1]), equal(4, 3)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("groups", "node_of_rank", "slots_per_rank"),
    [
        (6, [0, 0, 1, 1], [7, 7, 7, 7]),  # groups do not divide the experts
        (3, [0, 0, 1, 1], [7, 7, 7, 7]),  # nor over the nodes
        (4, [0, 0, 0, 1], [7, 7, 7, 7]),  # nodes differ in ranks
        (4, [0, 0, 1, 1], [8, 8, 6, 6]),  # and in slots
        (20, [0, 0, 1, 1], [11, 11, 11, 11]),  # too many shares
    ],
)
def test_where_shares_cannot_be_listed_the_weaker_bound_holds(
    groups: int, node_of_rank: list[int], slots_per_rank: list[int]
) -> None:
    loads = np.random.default_rng(7).pareto(1.0, (4, 20)) + 0.01
    found = hierarchical_bound(loads, groups, np.array(node_of_rank), np.array(slots_per_rank))
    assert found.tolist() == lower_bound(loads, 4, sum(slots_per_rank)).tolist()


def test_windows() -> None:
    tokens = np.array([[[9, 1, 1, 1], [3, 3, 3, 3]], [[1, 2, 1, 1], [0, 0, 0, 0]]])
    found = window_bound(tokens, np.array([2, 1, 1, 1]))
    # Two replicas of 4.5, hence 5 tokens on one rank, mean 3; mean 3; mean 5/4, hence 2 tokens.
    assert found[0].tolist() == [5 / 3, 1.0]
    assert found[1, 0] == pytest.approx(2 / (5 / 4))
    assert np.isnan(found[1, 1])
    expected = window_bound(tokens, np.array([2, 1, 1, 1]), whole=False)
    assert expected[0].tolist() == [1.5, 1.0] and expected[1, 0] == 1.0


def test_windows_without_redundancy_know_what_stands_together() -> None:
    tokens = np.array([[[9, 1, 1, 1]], [[3, 3, 3, 0]]])
    assert window_bound(tokens, equal(2, 2))[:, 0] == pytest.approx([10 / 6, 6 / 4.5])


def test_no_windows() -> None:
    assert window_bound(np.zeros((0, 3, 4)), equal(2, 2)).shape == (0, 3)


def test_rounding_up_never_lifts_a_whole_number() -> None:
    """Three replicas of 300,000 / 3: exactly 100,000 tokens, whatever the float says."""
    tokens = np.array([[[300_000, 1, 1]]])
    assert window_bound(tokens, equal(5, 1))[0, 0] == pytest.approx(100_000 / (300_002 / 5))


def test_windows_on_ranks_of_uneven_speed() -> None:
    """Three slots, no redundancy: 8 on the fast rank is 8 / 2 against 12 / 3; half a token is no wonder there."""
    tokens = np.array([[[8, 2, 2]], [[1, 0, 0]], [[12, 1, 1]]])
    found = window_bound(tokens, np.array([1, 2]), np.array([2.0, 1.0]))
    assert found[:, 0] == pytest.approx([1.0, 1.5, 6 / (14 / 3)])
    assert (
        window_bound(tokens, equal(2, 2), np.array([0.7, 0.7])).tolist() == window_bound(tokens, equal(2, 2)).tolist()
    )

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import BoolArray
from easybalance_sim.plan.exchange import Change, Exchange, exchanges


def held(*ranks: set[int], experts: int = 4) -> BoolArray:
    return np.array([[[expert in rank for expert in range(experts)] for rank in ranks]])


def of(before: BoolArray, after: BoolArray) -> list[Exchange]:
    return exchanges(before, after, np.zeros(before.shape[1], np.int64))


def test_nothing_changes() -> None:
    assert of(held({0, 1}, {2, 3}), held({0, 1}, {2, 3})) == []


def test_two_ranks_that_swap_make_a_ring() -> None:
    (found,) = of(held({0, 1}, {2, 3}), held({0, 2}, {1, 3}))
    assert found.ring and {(c.rank, c.arrives, c.leaves, c.giver) for c in found.changes} == {
        (0, 2, 1, 1),
        (1, 1, 2, 0),
    }


def test_a_spare_replica_gives_way_to_a_copy() -> None:
    (found,) = of(held({0, 1}, {0, 2}, experts=3), held({0, 1}, {1, 2}, experts=3))
    assert found == Exchange(layer=0, changes=(Change(rank=1, arrives=1, leaves=0),))


def test_a_chain_runs_from_the_dropped_replica_to_the_copied_expert() -> None:
    # 0 is dropped on rank 1, whose slot takes 2 from rank 2, whose slot takes a copy of 1.
    (found,) = of(held({0, 1}, {0, 3}, {2, 3}), held({0, 1}, {2, 3}, {1, 3}))
    assert found.changes == (Change(rank=1, arrives=2, leaves=0, giver=2), Change(rank=2, arrives=1, leaves=2))


def test_a_chain_that_comes_back_to_a_rank_leaves_a_ring_behind() -> None:
    before, after = held({0, 1}, {2, 3}, experts=4), held({2, 3}, {0, 1}, experts=4)
    found = of(before, after)
    assert [len(one.changes) for one in found] == [2, 2] and all(one.ring for one in found)


def test_slots_that_come_and_go_need_no_successor() -> None:
    (grown,) = of(held({0, 1}, {2, 3}), held({0, 1, 2}, {2, 3}))
    assert grown.changes == (Change(rank=0, arrives=2, leaves=-1),)
    (closed,) = of(held({0, 1, 2}, {2, 3}), held({0, 1}, {2, 3}))
    assert closed.changes == (Change(rank=0, arrives=-1, leaves=2),)


def test_what_nobody_holds_comes_from_outside() -> None:
    (found,) = of(held({0, 1}, set()), held({0, 1}, {2}))
    assert found.changes == (Change(rank=1, arrives=2, leaves=-1),)


def test_givers_of_the_same_node_come_first() -> None:
    before = held({0}, {1}, {0}, {2}, experts=3)
    after = held({1}, {0}, {2}, {0}, experts=3)
    found = exchanges(before, after, np.array([0, 0, 1, 1]))
    givers = {(c.rank, c.arrives): c.giver for one in found for c in one.changes}
    assert givers[1, 0] == 0 and givers[3, 0] == 2

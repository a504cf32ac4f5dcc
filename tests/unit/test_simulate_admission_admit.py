"""Where requests are admitted, on loads worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.simulate.admission.admit import RECENT_STEPS, Admitted, Rule, admit, by_number, least_loaded
from easybalance_sim.simulate.admission.requests import Requests, requests_of
from tests.admission_cases import life, steps_of

NODES = np.array([0, 0, 1, 1])


def requests(*lives: list[tuple[int, int]], position: int = 0) -> Requests:
    rows = sorted((row for one in lives for row in one), key=lambda row: row[0])
    ids = np.tile(np.array([[[0, 1]]]), (len(rows), 1, 1))
    return requests_of(steps_of(rows, ids, n_experts=2, position=[position] * len(rows)))


def at(admitted: Admitted) -> list[int]:
    return [int(rank) for rank in admitted.rank]


def test_request_mod_ranks() -> None:
    found = by_number(requests(life(0, 3, 4), life(0, 3, 9), life(1, 2, 11)), 4)
    assert at(found) == [0, 1, 3]
    assert not found.spilled.any()


def test_least_loaded_by_hand() -> None:
    # 10 tokens on rank 0, 3 on rank 1; request 2 finds rank 2 empty, then request 3 rank 3, request 4 rank 1 (3 < 5).
    crowd = requests(life(0, 9, 0, 10), life(0, 9, 1, 3), life(1, 9, 2, 5), life(1, 9, 3, 7), life(1, 2, 4, 2))
    assert at(least_loaded(crowd, 4)) == [0, 1, 2, 3, 1]


def test_a_request_goes_where_it_costs_least() -> None:
    crowd = requests(life(0, 5, 0, 4), life(0, 5, 1, 4), life(1, 5, 2, 4))
    cost = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    found = admit(crowd, cost, NODES, Rule(slack=np.inf, price=0.0))
    # In its node the second one takes the rank that is still empty.
    assert at(found) == [0, 2, 3]
    assert not found.spilled.any()


def test_the_limit_sends_requests_elsewhere() -> None:
    crowd = requests(*(life(0, 5, request, 4) for request in range(5)))
    cost = np.tile([0.0, 1.0], (5, 1))
    found = admit(crowd, cost, NODES, Rule(slack=0.5, price=0.0))
    # The first would be twice the mean in either node: forced, to the first of equals. The second would be 2 at home.
    assert found.forced.tolist() == [True, False, False, False, False]
    assert NODES[found.rank].tolist() == [0, 1, 0, 0, 1]
    # After 2 of 3: 4/3 of the mean; after 3 of 4: 3/2, as much as allowed; 4 of 5 would be 8/5.
    np.testing.assert_allclose(found.overload, [2, 1, 4 / 3, 3 / 2, 4 / 5])
    assert found.spilled.tolist() == [False, True, False, False, True]


def test_the_price_of_load_moves_those_who_do_not_care() -> None:
    # Node 0 holds 8 tokens, node 1 4. A request of 4 would make 1.5 and 1.0 of the mean there: 0.5 · price = 0.1.
    crowd = requests(life(0, 5, 0, 8), life(0, 5, 1, 4), life(1, 3, 2, 4), life(4, 2, 3, 1))
    for dear, expected in ((0.05, 1), (0.2, 0)):
        cost = np.array([[0.0, 9.0], [9.0, 0.0], [0.0, dear], [0.0, 0.0]])
        found = admit(crowd, cost, NODES, Rule(slack=9.0, price=0.2))
        assert NODES[found.rank[2]] == expected
        assert bool(found.spilled[2]) == (expected == 1)


def test_a_request_frees_what_it_held() -> None:
    # 100 tokens on rank 0 and 1 on rank 1, then the 100 end; long after, when their work is forgotten too, the cache of
    # rank 1 is the only one that holds anything.
    late = 1 + RECENT_STEPS * 20
    gone = requests(life(0, 1, 0, 100), life(0, late + 9, 1, 1), life(late, 3, 2, 1))
    assert at(least_loaded(gone, 2)) == [0, 1, 0]
    kept = requests(life(0, late, 0, 400), life(0, late + 9, 1, 1), life(late - 1, 3, 2, 1))
    assert at(least_loaded(kept, 2)) == [0, 1, 1]


def test_recent_work_is_load_too() -> None:
    # Rank 0 has just run 100 tokens of a request that is gone; rank 1 holds as much in its cache as rank 0.
    crowd = requests(life(0, 1, 0, 100), life(0, 9, 1, 5), life(1, 9, 2, 5), life(2, 2, 3, 1))
    assert at(least_loaded(crowd, 2)) == [0, 1, 0, 1]


def test_context_counts_as_load() -> None:
    crowd = requests(life(0, 3, 0), life(0, 3, 1), life(0, 3, 2), position=50)
    assert at(least_loaded(crowd, 2)) == [0, 1, 0]


def test_probes_run_on_the_idlest_rank() -> None:
    crowd = requests(life(0, 9, 0, 6), life(1, 9, 1, 4))
    cost = np.tile([0.0, 1.0], (2, 1))
    found = admit(crowd, cost, NODES, Rule(slack=9.0, price=0.0), probed=np.array([3, 3]))
    assert found.probe.tolist() == [0, 1] and at(found) == [0, 1]
    cost = np.tile([1.0, 0.0], (2, 1))
    found = admit(crowd, cost, NODES, Rule(slack=9.0, price=0.0), probed=np.array([3, 3]))
    assert found.probe.tolist() == [0, 0] and at(found) == [2, 3]
    assert found.moved(NODES).tolist() == [True, True]
    source = found.source(crowd)
    for request in range(2):
        of_it = source[crowd.of_token == request].tolist()
        assert of_it == [0] * 3 + [2 + request] * (len(of_it) - 3)


@pytest.mark.parametrize("rule", [Rule(), Rule(slack=0.0, price=1.0)])
def test_the_same_requests_are_admitted_alike(rule: Rule) -> None:
    crowd = requests(*(life(request % 7, 4, request, 1 + request % 5) for request in range(40)))
    cost = np.random.default_rng(0).random((40, 2))
    one, again = (admit(crowd, cost, NODES, rule) for _ in range(2))
    np.testing.assert_array_equal(one.rank, again.rank)

"""Compiled traffic kernels against the specification: same traffic, same walk, same placements."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_traffic, reference_greedy, reference_traffic


def problem(seed: int, ranks: int, nodes: int, slots: int, experts: int, top_k: int = 3) -> dict[str, AnyArray]:
    """Two layers of correlated windows, a token sample of which half know their node, and an EPLB start."""
    rng = np.random.default_rng(seed)
    layers, windows, sampled = 2, 9, 60
    tokens = rng.gamma(0.7, 1.0, (layers, experts, windows)) + 0.01
    tokens *= ranks / tokens.sum(axis=1, keepdims=True)
    chosen = np.argsort(rng.random((layers, sampled, experts)), axis=2)[:, :, :top_k]
    share = rng.dirichlet(np.full(nodes, 3.0), (layers, experts))
    return {
        "start": reference_greedy.greedy(tokens.mean(axis=2), np.full(ranks, slots)),
        "rank_of_slot": frozen(np.repeat(np.arange(ranks), slots), np.int32),
        "node": frozen(np.arange(ranks) * nodes // ranks, np.int64),
        "pace": frozen(rng.uniform(0.8, 1.2, ranks), np.float32),
        "tokens": frozen(tokens, np.float32),
        "share": frozen(share),
        "message": frozen(share * 0.1 * tokens.mean(axis=2, keepdims=True)),
        "ids": frozen(chosen, np.uint8),
        "source": frozen(np.where(rng.random(sampled) < 0.5, -1, rng.integers(0, nodes, sampled)), np.int16),
        "weight": frozen(rng.dirichlet(np.full(nodes, 5.0))),
    }


CASES = {"two nodes": (6, 2, 3, 12), "three nodes": (6, 3, 3, 10), "one node": (4, 1, 3, 9), "no spare": (6, 3, 2, 12)}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("price", [0.0, 2.0])
@pytest.mark.parametrize("kind", ["both", "messages", "sample"])
def test_the_walks_are_the_same(case: tuple[int, int, int, int], price: float, kind: str) -> None:
    given = problem(sum(case), *case)
    given["start"] = frozen(given["start"], np.int32)
    if kind == "messages":
        given["ids"], given["source"] = frozen(given["ids"][:, :0], np.uint8), frozen(given["source"][:0])
    elif kind == "sample":
        given["message"] = frozen(np.zeros_like(given["message"]))
    results, prices, hot, cold = [], np.array([price, price / 2]), np.array([0.3, 0.2]), np.array([0.01, 0.02])
    for module in (numba_traffic, reference_traffic):
        out, objective, traffic = np.zeros_like(given["start"]), np.zeros(2), np.zeros(2)
        module.search_traffic(*given.values(), prices, 400, hot, cold, 11, out, objective, traffic)
        results.append((out, objective, traffic))
    (out, objective, traffic), (wanted, wanted_objective, wanted_traffic) = results
    assert out.tolist() == wanted.tolist()
    assert (out != given["start"]).any()
    np.testing.assert_allclose(objective, wanted_objective, rtol=1e-4)
    np.testing.assert_allclose(traffic, wanted_traffic, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_copies_of_every_way_to_place_ranks(case: tuple[int, int, int, int]) -> None:
    given = problem(5, *case)
    ranks, nodes, _, experts = case
    rng = np.random.default_rng(1)
    has = np.zeros((2, ranks, experts), np.bool_)
    for layer in range(2):
        has[layer, given["rank_of_slot"], given["start"][layer]] = True
    ways = frozen(np.stack([[rng.permutation(given["node"]) for _ in range(3)] for _ in range(2)]), np.int64)
    arguments = (frozen(has), ways, given["message"], given["ids"], given["source"], given["weight"])
    compiled, specified = (module.copies_per_token(*arguments) for module in (numba_traffic, reference_traffic))
    np.testing.assert_allclose(compiled, specified, rtol=1e-6, atol=1e-9)
    assert nodes == 1 or (compiled > 0).all()

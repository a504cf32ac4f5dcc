"""Count traces: exact expected rank loads, expected copies close to real tokens, seeded step draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import LayerCost, LayerSeconds
from easybalance_sim.errors import UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import Subject, links, replay
from easybalance_sim.replay.expected import replay_counts
from easybalance_sim.replay.outcome import Outcome
from tests.replay_cases import batch_of, cost_of, random_plan, replayed, same, small_shape

LAYERS, EXPERTS, RANKS, TOP_K = 2, 24, 8, 4
PLAN = random_plan(1, LAYERS, EXPERTS, [4] * RANKS)
SOME = np.random.default_rng(0).integers(0, 400, (6, LAYERS, EXPERTS))


def expected(
    tokens: IntArray = SOME,
    *,
    plan: Plan = PLAN,
    mode: str = "low_latency",
    ranks_per_node: int = 4,
    step_tokens: int = 64,
    seed: int = 0,
) -> Outcome:
    topology = uniform(plan.ranks, ranks_per_node, int(plan.slots_per_rank.max()))
    cost = cost_of(plan, topology, mode=mode, top_k=TOP_K)
    return replay_counts(tokens, TOP_K, plan, cost, topology, links(topology, mode), step_tokens, seed)


def test_rank_loads_are_the_even_split_over_replicas() -> None:
    found = expected()
    load = np.zeros((len(SOME), LAYERS, RANKS))
    for layer, slot in np.ndindex(LAYERS, PLAN.slots):
        expert = PLAN.expert_of_slot[layer, slot]
        load[:, layer, slot // 4] += SOME[:, layer, expert] / PLAN.replicas[layer, expert]
    assert found.window_imbalance == pytest.approx(load.max(axis=2) / load.mean(axis=2), rel=1e-12)
    assert found.expert_tokens.tolist() == SOME.sum(axis=0).tolist()
    assert found.expected
    assert found.steps == found.windows == len(SOME)
    # Every rank sends the same, so a rank's column holds its load in equal parts.
    assert found.rank_pairs == pytest.approx(np.tile(load.sum(axis=(0, 1)) / RANKS, (RANKS, 1)))
    assert found.node_pairs.sum() == pytest.approx(SOME.sum())


class Watching:
    """A cost model that keeps what it was asked."""

    def __init__(self, cost: LayerCost) -> None:
        self.cost, self.copy_bytes, self.speed = cost, cost.copy_bytes, cost.speed
        self.seen: list[tuple[AnyArray, ...]] = []

    def seconds(self, *counts: AnyArray) -> LayerSeconds:
        self.seen.append(counts)
        return self.cost.seconds(*counts)


def independent_tokens(count: int, seed: int, skew: float = 2) -> AnyArray:
    """int64[T, L, K] tokens whose K choices are distinct; the hottest expert weighs `skew` times the coldest."""
    clocks = np.random.default_rng(seed).standard_exponential((count, LAYERS, EXPERTS))
    ids: AnyArray = np.argsort(clocks * np.linspace(1, skew, EXPERTS), axis=2)[:, :, :TOP_K]
    return ids


def of_tokens(ids: AnyArray) -> IntArray:
    """int64[1, L, E] counts."""
    return np.stack([np.bincount(ids[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])[None]


@pytest.mark.parametrize(("mode", "ranks_per_node"), [("normal", 4), ("normal", 2), ("low_latency", 4)])
def test_pairs_are_close_to_those_of_real_tokens(mode: str, ranks_per_node: int) -> None:
    """Distinct nodes and ranks of a token come from counts alone; distinct choices spread a little more."""
    ids = independent_tokens(40_000, seed=1)
    source = np.arange(len(ids)) % RANKS
    real = replayed(batch_of(np.zeros(len(ids)), source, ids), PLAN, mode=mode, ranks_per_node=ranks_per_node)
    guess = expected(of_tokens(ids), mode=mode, ranks_per_node=ranks_per_node)
    nodes, ranks = (0.05, 0.085) if mode == "normal" else (0.005, 0.06)
    assert guess.node_pairs == pytest.approx(np.asarray(real.node_pairs), rel=nodes)
    assert guess.rank_pairs == pytest.approx(np.asarray(real.rank_pairs), rel=ranks)
    assert guess.cross_node_bytes_per_token == pytest.approx(real.cross_node_bytes_per_token, rel=nodes)
    assert guess.tokens == real.tokens


def test_remote_nodes_of_a_large_model() -> None:
    """Top-8 of 256 on four nodes: a token reaches 4·(1 - C(192, 8)/C(256, 8)) = 3.61 nodes, three in four remote."""
    topology = uniform(32, 8, 8)
    plan = random_plan(0, 1, 256, topology.slots_per_rank)
    cost = cost_of(plan, topology, mode="normal", top_k=8)
    found = replay_counts(np.full((1, 1, 256), 320), 8, plan, cost, topology, links(topology, "normal"), 4096, 0)
    reached = 4 * (1 - math.comb(192, 8) / math.comb(256, 8))
    assert found.tokens == 320 * 256 / 8
    assert found.cross_node_bytes_per_token == pytest.approx(0.75 * reached * cost.copy_bytes, rel=0.005)


@pytest.mark.parametrize(("mode", "step_tokens"), [("normal", 4096), ("low_latency", 512), ("low_latency", 64)])
def test_seconds_are_close_to_those_of_real_steps(mode: str, step_tokens: int) -> None:
    steps = 60
    ids = independent_tokens(steps * step_tokens, seed=2)
    step, source = np.arange(len(ids)) // step_tokens, np.arange(len(ids)) % RANKS
    real = replayed(
        batch_of(step, source, ids), PLAN, mode=mode, ranks_per_node=4, windowing=Windowing(steps=steps)
    )  # fmt: skip
    guess = expected(of_tokens(ids), mode=mode, step_tokens=step_tokens)
    assert np.median(guess.step_seconds()) == pytest.approx(np.median(real.step_seconds()), rel=0.05)
    mean = [
        found.active_slots @ np.arange(len(found.active_slots)) / found.active_slots.sum() for found in (guess, real)
    ]
    assert mean[0] == pytest.approx(mean[1], rel=0.05)
    assert guess.phase_share == pytest.approx(real.phase_share, abs=0.05)


def test_draws_follow_the_seed() -> None:
    assert same(expected(seed=3), expected(seed=3))
    assert not same(expected(seed=3), expected(seed=4))


@pytest.mark.parametrize(("windows", "draws"), [(1, 16), (16, 16), (40, 40), (600, 512)])
def test_number_of_drawn_steps(windows: int, draws: int) -> None:
    assert len(expected(np.ones((windows, LAYERS, EXPERTS), np.int64)).layer_seconds) == draws


def test_replicas_take_turns_over_the_draws() -> None:
    """One token per step and two replicas on two ranks: neither rank may get all of them."""
    plan = Plan(expert_of_slot=np.array([[0, 0]]), slots_per_rank=np.array([1, 1]), experts=1, policy="hand")
    topology = uniform(2, 1, 1)
    cost = Watching(cost_of(plan, topology))
    replay_counts(np.full((20, 1, 1), 3), 1, plan, cost, topology, links(topology, "normal"), 1, 0)  # type: ignore[arg-type]
    slot_tokens = cost.seen[0][0]
    assert slot_tokens.sum(axis=0).tolist() == [[10, 10]]
    assert (slot_tokens.sum(axis=2) == 1).all()


@pytest.mark.parametrize(("mode", "ranks_per_node"), [("normal", 4), ("low_latency", 4), ("low_latency", 8)])
def test_link_copies_are_close_to_those_of_real_steps(mode: str, ranks_per_node: int) -> None:
    """Hot and cold ranks: the former receive more than they send, the latter send more than they receive."""
    step_tokens, steps = 8000, 16
    ids = independent_tokens(steps * step_tokens, seed=3, skew=4)
    batch = batch_of(np.arange(len(ids)) // step_tokens, np.arange(len(ids)) % RANKS, ids)
    topology = uniform(RANKS, ranks_per_node, 4)
    route, watched = links(topology, mode), [Watching(cost_of(PLAN, topology, mode=mode)) for _ in range(2)]
    items = [Subject(plan=PLAN, dispatch=prepare("even", PLAN, route.node, 0), cost=watched[0])]  # type: ignore[arg-type]
    replay([batch], items, route, Windowing(steps=1), RANKS)
    replay_counts(of_tokens(ids), TOP_K, PLAN, watched[1], topology, route, step_tokens, 0)  # type: ignore[arg-type]
    real, guess = ([counts.mean(axis=0) for counts in one.seen[0]] for one in watched)
    for name, wanted, found, limit in zip(
        ("slots", "distinct", "rdma", "nvlink"), real, guess, (0.02, 0.1, 0.06, 0.1), strict=True
    ):
        assert found == pytest.approx(wanted, rel=limit), name


def test_windows_and_layers_without_traffic_stay_empty() -> None:
    counts = SOME.copy()
    counts[2] = 0
    counts[:, 1] = 0
    found = expected(counts)
    assert np.isnan(found.window_imbalance[2]).all()
    assert np.isnan(found.window_imbalance[:, 1]).all()
    assert (found.layer_seconds[:, 1] == 0).all() and (found.layer_seconds[:, 0] > 0).all()
    assert found.tokens == pytest.approx(counts.sum() / TOP_K, abs=1)
    section = found.section(small_shape(LAYERS, EXPERTS, TOP_K))
    assert math.isfinite(section["rank_imbalance"]["mean"])
    assert section["rank_imbalance_by_layer"]["mean"][1] == 1.0


def test_no_tokens_at_all() -> None:
    with pytest.raises(UsageError, match="the windows hold no tokens"):
        expected(np.zeros((3, LAYERS, EXPERTS), np.int64))


def test_the_peak_is_that_of_the_drawn_steps() -> None:
    """64 tokens × 4 experts, spread over 8 ranks that send 8 each; no draw is fuller than all of it."""
    peak = expected().peak
    assert peak.sent == 8
    assert 64 * TOP_K / RANKS < peak.rows <= 64 * TOP_K
    assert peak.slot_rows <= 64 and peak.arriving <= min(64, peak.rows)
    assert expected(step_tokens=60).peak.sent == 8

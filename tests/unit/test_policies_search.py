"""The searches as policies: what they win on held-out windows, what they refuse, which limits they keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.slots import SlotCost
from easybalance_sim.plan.lint import ERROR, lint
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.policies._search import proposals_of, sample_windows, scaled
from tests.window_problems import EXPERTS, LAYERS, balance, chance_windows, problem_of, rank_loads, topic_windows

QUICK = Effort(proposals=60_000)


def search(windows: AnyArray, topology: Topology | None = None, **more: Any) -> Plan:
    return policies.make("window_search", problem_of(windows, topology, **{"effort": QUICK, **more}))


def eplb(windows: AnyArray, topology: Topology | None = None) -> Plan:
    return policies.make("eplb", problem_of(windows, topology))


def require_legal(plan: Plan, topology: Topology) -> None:
    assert plan.slots_per_rank.tolist() == topology.slots_per_rank.tolist()
    assert [finding for finding in lint(plan, topology) if finding.level == ERROR] == []


@pytest.mark.parametrize("seed", range(2))
def test_a_topic_mixture_is_balanced_better_than_by_eplb_on_windows_not_seen(seed: int) -> None:
    fit, held = topic_windows(seed, 64), topic_windows(100 + seed, 200)
    (mean, p99), (eplb_mean, eplb_p99) = balance(search(fit, seed=seed), held), balance(eplb(fit), held)
    assert mean - 1 < 0.6 * (eplb_mean - 1)
    assert p99 - 1 < 0.6 * (eplb_p99 - 1)


def test_rebatched_windows_prepare_for_traffic_that_is_more_concentrated() -> None:
    recorded, held = topic_windows(0, 64, concentration=40.0), topic_windows(1, 200, concentration=0.4)
    rebatched = topic_windows(2, 64, concentration=0.4)
    plain, prepared = (
        np.mean([balance(search(recorded, seed=seed, rebatched=more), held)[1] for seed in range(3)])
        for more in (None, rebatched)
    )
    assert prepared < plain - 0.05


def test_chance_alone_is_not_searched() -> None:
    with pytest.raises(NotApplicable, match=r"batch noise only: rank loads vary by 0\.0"):
        search(chance_windows(0, 64))


@pytest.mark.parametrize("windows", [0, 1, 7])
def test_few_windows_promise_nothing(windows: int) -> None:
    sample = topic_windows(0, windows)
    problem = Problem(forecast=np.ones((LAYERS, EXPERTS)), windows=sample, topology=uniform(8, 8, 5))
    with pytest.raises(NotApplicable, match=f"{windows} windows, a search needs at least 8"):
        policies.make("window_search", problem)


def test_the_seed_alone_decides() -> None:
    windows = topic_windows(0, 24)
    first, again, other = (search(windows, seed=seed).expert_of_slot for seed in (5, 5, 6))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("slots", "speed"),
    [((5,) * 8, None), ((4,) * 8, None), ((12, 12, 11), None), ((2, 9, 6, 3, 7, 8), None), ((1,) * 40, None),
     ((32,), None), ((8, 8, 8, 8, 8), (1.0, 0.5, 2.0, 1.0, 1.0))],
    ids=["uniform", "no redundancy", "three ranks", "ragged", "one slot each", "one rank", "speeds"],
)  # fmt: skip
@pytest.mark.parametrize("slot_cost", [None, SlotCost(token_s=1e-8, active_s=3e-6)], ids=["tokens", "seconds"])
def test_any_cluster_gets_a_legal_plan(
    slots: Sequence[int], speed: Sequence[float] | None, slot_cost: SlotCost | None
) -> None:
    ranks = len(slots)
    cluster = Topology(
        node_of_rank=np.zeros(ranks, np.int64), slots_per_rank=np.array(slots), speed=np.array(speed or np.ones(ranks))
    )
    problem = problem_of(topic_windows(3, 17), cluster, effort=Effort(proposals=3000), slot_cost=slot_cost)
    if ranks == 1:
        with pytest.raises(NotApplicable, match="batch noise only"):
            policies.make("window_search", problem)
        return
    require_legal(policies.make("window_search", problem), cluster)


def test_a_slow_rank_gets_less() -> None:
    speed = np.ones(8)
    speed[3] = 0.5
    cluster = Topology(node_of_rank=np.zeros(8, np.int64), slots_per_rank=np.full(8, 5), speed=speed)
    loads = rank_loads(search(topic_windows(0, 48), cluster), topic_windows(9, 100)).mean(axis=(0, 1))
    assert loads[3] < 0.65 * np.delete(loads, 3).mean()
    assert (loads / speed).max() < 1.25 * (loads / speed).mean()


def mean_active(plan: Plan, windows: AnyArray, steps: float) -> float:
    """Expected active slots of the busiest rank in a step, mean over windows and layers."""
    layer = np.arange(plan.layers)[:, None]
    busy = 1 - np.exp(-(windows / plan.replicas)[:, layer, plan.expert_of_slot] / steps)
    return float(np.add.reduceat(busy, plan.slot_start[:-1], axis=2).max(axis=2).mean())


def test_in_seconds_decode_plans_keep_the_active_experts_of_the_busiest_rank_down() -> None:
    """64 assignments per step over 32 experts: a slot costs its weights, hardly its tokens."""
    fit, held, steps = (*(topic_windows(seed, 64, tokens=64 * 16) for seed in (0, 1)), 16.0)
    price = SlotCost(token_s=1e-9, active_s=1e-5)
    by_seconds = search(fit, window_steps=steps, slot_cost=price)
    by_tokens = search(fit, window_steps=steps)
    assert mean_active(by_seconds, held, steps) < 0.97 * mean_active(by_tokens, held, steps)
    assert balance(by_tokens, held)[0] < balance(by_seconds, held)[0]


@pytest.mark.parametrize("budget_s", [1e-9, 0.05, 0.4])
def test_a_budget_gives_a_legal_plan_that_is_no_worse_on_the_sample(budget_s: float) -> None:
    windows = topic_windows(0, 32, layers=5)
    effort = Effort(proposals=20_000_000, budget_s=budget_s)
    plan = policies.make("window_search", problem_of(windows, effort=effort))
    require_legal(plan, uniform(8, 8, 5))
    assert eighth_power(plan, windows) <= eighth_power(eplb(windows), windows) * (1 + 1e-6)


def test_more_budget_searches_further() -> None:
    windows = topic_windows(0, 32, layers=2)
    little, much = (
        policies.make("window_search", problem_of(windows, effort=Effort(proposals=10**8, budget_s=budget)))
        for budget in (1e-9, 1.0)
    )
    assert eighth_power(much, windows) < eighth_power(little, windows)


def eighth_power(plan: Plan, windows: AnyArray) -> float:
    """The objective on the sample as it is searched: shrunk towards its mean."""
    samples = scaled(problem_of(windows), plan).tokens[:, :, : len(windows)].transpose(2, 0, 1)
    return float((rank_loads(plan, samples).astype(np.float64) ** 8).mean())


def test_samples_have_a_mean_rank_load_of_one_and_keep_their_mean() -> None:
    windows = topic_windows(0, 9)
    samples = scaled(problem_of(windows), eplb(windows))
    assert samples.tokens.shape == (LAYERS, EXPERTS, 16)
    np.testing.assert_allclose(samples.tokens[:, :, :9].sum(axis=1), 8, rtol=1e-5)
    assert (samples.tokens[:, :, 9:] == 0).all() and (samples.per_step[9:] == 0).all()
    np.testing.assert_allclose(samples.per_step[:9], 4096 / 8)
    share = (windows / windows.sum(axis=2, keepdims=True) * 8).transpose(1, 2, 0)
    mean = share.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(samples.tokens[:, :, :9], mean + 9 / 13 * (share - mean), rtol=1e-4)


def test_a_balanced_rank_costs_one_whatever_the_padding_and_the_costs() -> None:
    windows = np.full((9, 2, 40), 100)
    for slot_cost in (None, SlotCost(token_s=2e-7, active_s=3e-5)):
        problem = problem_of(windows, slot_cost=slot_cost)
        samples = scaled(problem, policies.make("eplb", problem))
        x, per_step = samples.tokens[0, 0], samples.per_step
        rank = 5 * (samples.slope * x + samples.active * (1 - np.exp(-x * per_step)))
        assert float((rank.astype(np.float64) ** 8).mean()) == pytest.approx(1.0, rel=1e-4)


def test_sample_windows_are_half_recorded_at_least_and_more_of_few_experts_and_single_steps() -> None:
    recorded, rebatched = chance_windows(0, 1500, layers=1, tokens=64), chance_windows(1, 90, layers=1, tokens=64)
    assert len(sample_windows(problem_of(recorded, window_steps=16.0))) == 1024
    both = sample_windows(problem_of(recorded, window_steps=16.0, rebatched=rebatched))
    assert len(both) == 934 + 90
    np.testing.assert_array_equal(both[934:], rebatched)
    assert len(sample_windows(problem_of(recorded, window_steps=16.0, rebatched=rebatched[:0]))) == 1024
    few = sample_windows(problem_of(recorded[:50], window_steps=16.0, rebatched=recorded[50:]))
    assert len(few) == 1024
    np.testing.assert_array_equal(few[:50], recorded[:50])
    for experts, most in ((64, 384), (128, 256)):
        many = chance_windows(0, 1500, layers=1, experts=experts, tokens=64)
        assert len(sample_windows(problem_of(many, uniform(8, 8, 17), window_steps=16.0))) == most
        assert len(sample_windows(problem_of(many, uniform(8, 8, 17), window_steps=1.0))) == 1024


@pytest.mark.parametrize(
    ("windows", "experts", "asked", "proposals"),
    [
        (16, 32, 0, 600_000), (700, 32, 0, 1_400_000), (1500, 32, 0, 2_000_000), (1500, 32, 7, 7),
        (700, 64, 0, 600_000), (700, 128, 0, 1_000_000),
    ],
)  # fmt: skip
def test_a_walk_is_as_long_as_its_windows_are_many(windows: int, experts: int, asked: int, proposals: int) -> None:
    given = chance_windows(0, windows, layers=1, experts=experts, tokens=64)
    problem = problem_of(given, uniform(8, 8, 17), window_steps=16.0, effort=Effort(proposals=asked))
    assert proposals_of(problem) == proposals
    assert proposals_of(replace(problem, windows=given[:8], rebatched=given[8:])) == proposals


def test_a_layer_without_traffic_does_not_disturb_the_others() -> None:
    windows = topic_windows(0, 16)
    windows[:, 1] = 0
    plan = search(windows)
    require_legal(plan, uniform(8, 8, 5))
    full = search(topic_windows(0, 16))
    assert (plan.expert_of_slot[0] == full.expert_of_slot[0]).all()


@pytest.fixture(scope="module")
def drifted() -> tuple[AnyArray, Plan]:
    """Windows after the model's traffic has drifted, and the plan from before."""
    before = topic_windows(0, 64, layers=4)
    drift = np.exp(0.1 * np.random.default_rng(1).standard_normal((4, EXPERTS)))
    return np.rint(before * drift).astype(np.int64), search(before, effort=Effort(proposals=200_000))


def warm(drifted: tuple[AnyArray, Plan], **effort: Any) -> Plan:
    windows, current = drifted
    return policies.make(
        "warm_search", problem_of(windows, current=current, effort=Effort(**{"proposals": 100_000, **effort}))
    )


def test_a_warm_search_moves_few_and_improves(drifted: tuple[AnyArray, Plan]) -> None:
    windows, current = drifted
    plan, cold = warm(drifted), search(windows)
    moved, afresh = (int(moving_slots(current, made).sum()) for made in (plan, cold))
    assert 0 < moved < 0.5 * afresh
    assert balance(plan, windows)[0] - 1 < 0.85 * (balance(current, windows)[0] - 1)
    require_legal(plan, uniform(8, 8, 5))


def test_a_higher_price_moves_less(drifted: tuple[AnyArray, Plan]) -> None:
    moves = [int(moving_slots(drifted[1], warm(drifted, move_price=price)).sum()) for price in (1e-4, 0.02, 10.0)]
    assert moves[0] > moves[1] > moves[2] == 0


def test_the_front_goes_from_few_moves_to_many_within_the_limit(drifted: tuple[AnyArray, Plan]) -> None:
    windows, current = drifted
    for most in (None, 6):
        given = problem_of(windows, current=current, effort=Effort(proposals=100_000, max_moves=most))
        plans = policies.make_all("warm_search", given)
        moves = [int(moving_slots(current, plan).sum()) for plan in plans]
        power = [eighth_power(plan, windows) for plan in plans]
        assert len({plan.policy for plan in plans}) == 5 and plans[2].policy == "warm_search@0.0035"
        assert moves == sorted(moves) and power == sorted(power, reverse=True)
        assert most is None or moves[-1] == most
        assert (policies.make("warm_search", given).expert_of_slot == plans[2].expert_of_slot).all()
    priced = problem_of(windows, current=current, effort=Effort(proposals=1000, move_price=0.01))
    assert [plan.policy for plan in policies.make_all("warm_search", priced)] == ["warm_search@0.01"]


@pytest.mark.parametrize("most", [0, 1, 3, 10])
def test_a_limit_on_moves_is_kept_and_used(drifted: tuple[AnyArray, Plan], most: int) -> None:
    """Also when there are fewer moves than layers: the neediest layer gets them."""
    windows, current = drifted
    plan = warm(drifted, max_moves=most, move_price=1e-6)
    assert 0.7 * most <= int(moving_slots(current, plan).sum()) <= most
    if most:
        assert eighth_power(plan, windows) < eighth_power(current, windows)


def test_what_stays_on_its_rank_stays_in_its_slot(drifted: tuple[AnyArray, Plan]) -> None:
    current, plan = drifted[1], warm(drifted)
    stays = ~moving_slots(current, plan)
    assert stays.sum() > 100
    assert (plan.expert_of_slot[stays] == current.expert_of_slot[stays]).all()


def test_a_warm_search_needs_windows_unless_the_moves_are_limited(drifted: tuple[AnyArray, Plan]) -> None:
    windows, current = drifted
    few = problem_of(windows[:2], current=current)
    with pytest.raises(NotApplicable, match="2 windows, a search needs at least 8"):
        policies.make("warm_search", few)
    assert int(moving_slots(current, warm((windows[:2], current), max_moves=2, move_price=1e-6)).sum()) == 2
    none = Problem(
        forecast=windows.mean(axis=0), windows=windows[:0], topology=uniform(8, 8, 5), current=current,
        effort=Effort(max_moves=3),
    )  # fmt: skip
    with pytest.raises(NotApplicable, match="0 windows, a search needs at least 1"):
        policies.make("warm_search", none)


def test_a_warm_search_needs_a_clean_plan_in_force(drifted: tuple[AnyArray, Plan]) -> None:
    windows, current = drifted
    with pytest.raises(NotApplicable, match="no plan is in force"):
        policies.make("warm_search", problem_of(windows))
    rows = np.array(current.expert_of_slot)
    spare = np.flatnonzero((current.replicas[0, rows[0]] > 1) & (current.rank_of_slot == current.rank_of_slot[0]))
    target = int(spare[0])
    rows[0, target] = rows[0, 1 if target == 0 else 0]
    twice = Plan(expert_of_slot=rows, slots_per_rank=current.slots_per_rank, experts=EXPERTS, policy="theirs")
    with pytest.raises(NotApplicable, match="an expert twice on a rank"):
        policies.make("warm_search", problem_of(windows, current=twice))


def test_progress_counts_every_layer(drifted: tuple[AnyArray, Plan]) -> None:
    windows, current = drifted
    for name, effort in (
        ("window_search", Effort(proposals=500)),
        ("warm_search", Effort(proposals=500, max_moves=3)),
        ("window_search", Effort(budget_s=1e-9)),
    ):
        done: list[int] = []
        wanted: list[int] = []

        def progress(
            label: str, total: int, done: list[int] = done, wanted: list[int] = wanted
        ) -> Callable[[int], None]:
            wanted.append(total)
            return done.append

        policies.make(name, problem_of(windows, current=current, effort=effort, progress=progress))
        assert [sum(done)] == wanted and sum(done) % 4 == 0


@pytest.mark.parametrize("slot_cost", [None, SlotCost(token_s=1e-8, active_s=3e-6)], ids=["tokens", "seconds"])
def test_windows_without_any_traffic_are_no_trouble(slot_cost: SlotCost | None) -> None:
    windows = topic_windows(0, 16)
    windows[3] = 0
    require_legal(search(windows, slot_cost=slot_cost), uniform(8, 8, 5))
    silent = problem_of(0 * windows, current=eplb(windows), slot_cost=slot_cost, effort=QUICK)
    require_legal(policies.make("warm_search", silent), uniform(8, 8, 5))

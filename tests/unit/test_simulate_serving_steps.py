"""The step model of a plan: its curves, its lines, and that they add up to what replay says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import frozen, stream
from easybalance_sim.cluster.hardware import ExpertTable
from easybalance_sim.cost.anchored import AnchoredCost
from easybalance_sim.cost.expert import ExpertCost
from easybalance_sim.cost.reduction import ReductionSeconds
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.curves import curves, ladder, rank_seconds
from easybalance_sim.simulate.serving.evaluation import at_rows, layer_parts, step_loads
from easybalance_sim.simulate.serving.exact import compare
from easybalance_sim.simulate.serving.mixing import answers, prompts
from easybalance_sim.simulate.serving.replayed import sent
from easybalance_sim.simulate.serving.routed import routed_requests
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds
from easybalance_sim.simulate.serving.steps import slot_shares, step_model
from tests.routed_cases import WORKLOADS, Served, served, token_batch


def as_table(case: Served) -> Served:
    """The same with experts by a user's table."""
    formula = case.cost.expert
    assert isinstance(formula, ExpertCost)
    table = ExpertTable(
        tokens=(1.0, 64.0, 1024.0, 65536.0), us=(50.0, 80.0, 200.0, 9000.0), slots=4, calibrated=True, source="mine.csv"
    )
    return replace(case, cost=replace(case.cost, expert=AnchoredCost(table=table, formula=formula, slots=4)))


@pytest.mark.parametrize(
    ("mode", "rule", "data_ranks", "per_node"),
    [
        ("low_latency", "even", 4, 8),
        ("low_latency", "vllm", 2, 2),
        ("normal", "sglang-dynamic", 4, 2),
        ("normal", "sglang-static", 4, 8),
    ],
)
def test_layers_take_as_long_as_replayed(mode: str, rule: str, data_ranks: int, per_node: int) -> None:
    case = served(1, mode=mode, rule=rule, data_ranks=data_ranks, per_node=per_node)
    model, replay = case.model(run_tokens=64), case.replay()
    serving = np.flatnonzero(~case.routed.aside)
    for steps in (
        answers(case.routed, serving, 60, 16, data_ranks, stream(1, "few")),
        answers(case.routed, serving, 30, 128, data_ranks, stream(1, "many")),
        prompts(case.routed, serving, 30, 64, data_ranks, stream(1, "prompts")),
    ):
        check = compare(steps, case.routed, replay, model)
        assert abs(check.error("mean_s")) < 0.03
        assert abs(check.error("p99_s")) < 0.08
        assert abs(check.error("mean_imbalance")) < 0.04


def test_a_token_is_added_up_once_on_every_rank_that_it_is_sent_to() -> None:
    case, each = served(1, data_ranks=2), ReductionSeconds(fixed=1e-5, token=1e-6)
    model = step_model(
        case.routed, case.plan, case.topology, case.cost, attention=AttentionSeconds(), outside=OutsideSeconds(),
        data_ranks=2, rule=case.rule, summing=each,
    )  # fmt: skip
    steps = answers(case.routed, np.arange(case.routed.requests), 8, 256, 2, stream(1, "sums"))
    rows, distinct = (
        np.concatenate([getattr(part, name) for part in sent(case.replay(), case.routed, steps)])
        for name in ("rank_rows", "distinct")
    )
    assert (rows > distinct).any()
    np.testing.assert_allclose((rows * model.sum_row_s).sum(axis=0), (distinct * each.token).sum(axis=0), rtol=0.04)
    assert model.sum_fixed_s == each.fixed and np.array_equal(model.expert_s, case.model().expert_s)


def test_a_users_table_works_as_well() -> None:
    case = as_table(served(2))
    serving = np.flatnonzero(~case.routed.aside)
    steps = answers(case.routed, serving, 60, 32, case.data_ranks, stream(2, "steps"))
    check = compare(steps, case.routed, case.replay(), case.model())
    assert abs(check.error("mean_s")) < 0.03


def test_traffic_without_chance_is_met_exactly() -> None:
    """All tokens choose the same experts: every rank's rows are known."""
    ids = np.tile([[3, 9]], (400, 1))[:, None]
    routed = routed_requests([token_batch(np.arange(400) // 10, np.ones(400), np.arange(400) % 10, ids)], WORKLOADS, 16)
    case = served(3, slots=4, routed=routed)
    model = case.model()
    steps = answers(routed, np.arange(40), 5, 32, 4, stream(3, "steps"))
    check = compare(steps, routed, case.replay(), model)
    for name in ("mean_imbalance", "p99_imbalance"):
        assert check.error(name) == pytest.approx(0, abs=1e-6)
    for name in ("mean_s", "p99_s"):
        assert check.error(name) == pytest.approx(0, abs=0.02)


def test_curves_are_the_costs_own_at_known_counts() -> None:
    """Ranks of one slot leave nothing to chance."""
    case = served(4, ranks=16, slots=1)
    shares = slot_shares(case.routed, case.plan, case.replay())
    found = curves(case.cost, shares, np.ones((3, 16)), 500, 4)
    counts = np.repeat(found.rows[:, None], 16, axis=1)[:, None, :, None]
    wanted = rank_seconds(case.cost, counts, counts[..., 0])
    np.testing.assert_allclose(found.mean[0], wanted[:, 0].T)
    assert found.sd.max() < 1e-12


def test_lines_between_knots_stay_near() -> None:
    case = served(5, slots=8)
    model = case.model()
    shares = slot_shares(case.routed, case.plan, case.replay())
    found = curves(case.cost, shares, np.ones((3, 4)), 4000, 0)
    rows = np.linspace(4, 3000, 60)[:, None, None] * np.ones((3, 4))
    between = at_rows(model.expert_s, rows, model.knot)
    for layer, rank in np.ndindex(3, 4):
        straight = np.interp(rows[:, layer, rank], found.rows, found.mean[layer, rank])
        np.testing.assert_allclose(between[:, layer, rank], straight, rtol=0.04)


def test_seconds_go_on_beyond_the_last_knot() -> None:
    case = served(6)
    model = case.model()
    last = ((model.expert_s.shape[2] - 1) * model.knot) ** 2
    rows = np.full((1, 3, 4), 4 * last)
    beyond = at_rows(model.expert_s, rows, model.knot)[0]
    counts = np.round(slot_shares(case.routed, case.plan, case.replay()) * 1e9).reshape(3, 4, -1)
    counts = np.floor(counts / counts.sum(axis=2, keepdims=True) * 4 * last)[None]
    wanted = rank_seconds(case.cost, counts, counts.sum(axis=3) / 1.06)[0]
    np.testing.assert_allclose(beyond, wanted, rtol=0.05)


def test_a_slow_rank_takes_longer() -> None:
    case = served(7)
    slow = frozen([1.0, 1.0, 0.5, 1.0], np.float64)
    model = case.model()
    other = replace(case, topology=replace(case.topology, speed=slow), cost=replace(case.cost, speed=slow)).model()
    np.testing.assert_allclose(other.expert_s[:, 2], 2 * model.expert_s[:, 2])
    np.testing.assert_allclose(other.expert_s[:, 0], model.expert_s[:, 0])
    np.testing.assert_allclose(other.even_expert_s, model.even_expert_s * 4 / 3.5)


def test_one_rank_sends_nothing() -> None:
    case = served(8, ranks=1, slots=16)
    model = case.model()
    assert not model.arrive_s.any()
    assert not model.leave_s.any()
    assert not model.link_fixed_s.any()


def test_even_rows_take_what_the_mean_rank_takes() -> None:
    model = served(9).model()
    np.testing.assert_allclose(model.even_expert_s, model.expert_s.mean(axis=1))


def test_what_is_judged_is_not_fitted() -> None:
    """Chance is fitted to requests that were set aside: with none of them nothing is scaled."""
    case = served(10)
    nobody = replace(case, routed=replace(case.routed, aside=np.zeros_like(case.routed.aside)))
    fitted, plain = case.model(), nobody.model()
    assert (fitted.mean == plain.mean).all()
    assert (fitted.expert_s == plain.expert_s).all()
    assert (fitted.chance_rows != plain.chance_rows).any()


def test_the_model_depends_on_its_seed_alone() -> None:
    case = served(11)
    first, again = case.model(seed=1), case.model(seed=1)
    for name in ("mean", "spread", "expert_s", "chance_rows", "arrive_s", "leave_s"):
        assert (getattr(first, name) == getattr(again, name)).all()


def test_data_ranks_must_divide_the_ranks() -> None:
    with pytest.raises(UsageError, match="4 ranks do not form 3 data-parallel ones"):
        served(12, data_ranks=3).model()


def test_rungs_rise_up_to_the_last() -> None:
    for fine in (0.125, 1.0):
        rungs = ladder(5000, fine)
        assert (np.diff(rungs) > 0).all()
        assert rungs[0] == 0
        assert rungs[-2] < 5000 <= rungs[-1]


def test_links_scale_with_what_arrives() -> None:
    case = served(13)
    model = case.model()
    steps = answers(case.routed, np.arange(40), 4, 64, 4, stream(13, "steps"))
    loads = step_loads(model, steps, 0)
    twice = layer_parts(model, replace(loads, rows=2 * loads.rows, tokens=2 * loads.tokens))
    once = layer_parts(model, loads)
    for part, fixed in zip(("dispatch", "combine"), model.link_fixed_s, strict=True):
        np.testing.assert_allclose(getattr(twice, part) - fixed, 2 * (getattr(once, part) - fixed))

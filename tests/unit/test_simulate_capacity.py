"""Capacity scenarios: parsing, and the parts by hand."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.capacity.dispatching import capped, dealt, even
from easybalance_sim.simulate.capacity.run import UNITS, most_gap, run
from easybalance_sim.simulate.capacity.scenario import Scenario, load_scenario
from easybalance_sim.simulate.capacity.speed import point
from easybalance_sim.simulate.capacity.stacking import stacked
from easybalance_sim.simulate.capacity.times import Cluster, cluster_of
from easybalance_sim.simulate.capacity.traffic import chosen
from easybalance_sim.simulate.capacity.variants import REPLICA_RULE, Variants

SCENARIO = Path(__file__).parents[2] / "scenarios" / "easybalance-8xa100.toml"


def test_the_described_set_up_is_read() -> None:
    found = load_scenario(SCENARIO)
    assert found.model.layers * found.model.experts == 512
    assert found.model.params == pytest.approx(130e9, rel=0.01)
    assert found.claim.gain == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("ranks = 8", "ranks = 8\ncolour = 1", "colour"),
        ("top_k = 4", 'top_k = "many"', r"\$\.model\.top_k"),
        ("share = 0.4", "share = 0.3", "shares sum to 0.9"),
        ('shape = "graded"', 'shape = "odd"', "heat.shape: 'odd' is not one of graded"),
        ('sync = "layer"', 'sync = "never"', "service.sync: 'never' is not one of layer, step"),
        ("[service]", '[mechanisms]\nrule = "luck"\n[service]', "mechanisms.rule: 'luck' is not one of fifo"),
        ("gap = 4.0", "layer_peak = 0.5", "heat.layer_peak: 0.5 is no max/mean"),
        ("gap = 4.0", "layers = 64", "heat.layers: 64 layers, the model has 32"),
        ("cold_card = 7", "cold_card = 4", "two of 1..8"),
        ("experts = 16\n", "experts = 12\n", "do not divide"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=line):
        load_scenario(path)


def test_the_placement_in_force_has_the_described_gap() -> None:
    found = load_scenario(SCENARIO)
    seen = stacked(found.model, found.traffic, found.heat, found.ranks, found.seed)
    assert seen.gap == pytest.approx(4.0, rel=1e-3)
    assert (int(seen.heat.argmax()) + 1, int(seen.heat.argmin()) + 1) == (4, 7)


def test_few_hot_layers_cannot_make_the_gap() -> None:
    """24 even layers and 8 that one card serves alone: 24 + 64 over 24."""
    assert most_gap(32, 8, 8) == pytest.approx(88 / 24)
    assert most_gap(8, 8, 8) is None


def test_shares_of_a_layer_sum_to_top_k() -> None:
    shares = chosen(np.array([[4.0, 2.0, 1.0, 1.0]]), 2)
    assert shares.sum() == pytest.approx(2.0)
    assert (np.diff(shares[0]) <= 0).all()


def test_whole_parts_add_up() -> None:
    assert dealt(np.array([7]), np.array([[1.0, 1.0, 2.0]])).sum() == 7
    assert dealt(np.array([5]), np.zeros((1, 3))).tolist() == [[5, 0, 0]]


def _plan() -> Plan:
    """Rank 0 holds experts 0 and 1, rank 1 experts 0 and 2."""
    return Plan(expert_of_slot=frozen([[0, 1, 0, 2]], np.int32), slots_per_rank=np.array([2, 2]), experts=3, policy="x")


def test_a_cap_moves_what_is_too_much() -> None:
    below, moved = capped(frozen([[[20, 10, 2, 0]]], np.int32), _plan(), 1.25)
    assert below.sum() == 32
    assert below[0, 0, :2].sum() == 20
    assert moved == pytest.approx(10 / 32)


def test_all_ranks_alike() -> None:
    assert even(frozen([[[20, 10, 2]]], np.int32), _plan()).tolist() == [[[8, 8, 8, 8]]]


def _small(step_bound_ms: float) -> Scenario:
    whole = load_scenario(SCENARIO)
    return msgspec.structs.replace(
        whole,
        model=msgspec.structs.replace(whole.model, layers=4, dense_params=0.4e9),
        service=msgspec.structs.replace(whole.service, steps=8, step_bound_ms=step_bound_ms),
        other_reading=None,
    )


def test_a_model_that_does_not_fit_is_named_whatever_limits_the_steps() -> None:
    whole = load_scenario(SCENARIO)
    large = msgspec.structs.replace(whole.model, intermediate=60_000, name="too large")
    traffic = msgspec.structs.replace(whole.traffic, output_tokens=0.0)
    with pytest.raises(UsageError, match=r"scenario: model: the weights of 'too large' are .* GB more than 8 × a100"):
        run(msgspec.structs.replace(whole, model=large, traffic=traffic))


def test_spare_slots_that_do_not_fit_are_named() -> None:
    whole = load_scenario(SCENARIO)
    spare = msgspec.structs.replace(whole.mechanisms, spare_slots=14)
    with pytest.raises(UsageError, match=r"mechanisms\.spare_slots: 14 redundant slots per rank"):
        run(msgspec.structs.replace(whole, mechanisms=spare, other_reading=None))


def test_what_looks_at_a_step_waits_for_its_counts_in_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    variants, rung = Variants(cluster_of(_small(20.0))), frozenset({"replicas"})
    waiting = variants.cluster.waiting_s(variants.plan(rung), REPLICA_RULE)
    counts = variants.cluster.waiting_s(variants.plan(rung), None)
    # The budget of the rule for so few slots.
    assert 10e-6 < counts < 40e-6 and waiting - counts == pytest.approx(3e-6)
    with_it, none = point(variants, rung, 2048), point(variants, frozenset(), 2048)
    monkeypatch.setattr(Cluster, "waiting_s", lambda *_: 0.0)
    assert with_it.step_s - point(variants, rung, 2048).step_s == pytest.approx(4 * waiting)
    assert none.step_s == point(variants, frozenset(), 2048).step_s


def test_a_bound_that_no_step_keeps_is_refused() -> None:
    with pytest.raises(UsageError, match="the step bound leaves no room for the smallest step, 128 tokens"):
        run(_small(2.05))


def test_a_small_cluster_from_start_to_end() -> None:
    """Four layers: staggering gains exactly nothing under a barrier per layer, and nothing passes ranks alike."""
    told: list[int] = []
    report = run(_small(20.0), told.append)
    assert {rung.mechanism: rung.alone_gain for rung in report.rungs}["staggering"] == 1.0
    assert 1.0 < report.lossless_gain <= report.total_gain <= report.perfect.qps / report.baseline.qps * 1.001
    assert len(told) <= UNITS
    assert "claim" in report.explained()[0]
    assert json.loads(json.dumps(report.to_dict()))["lossless_gain"] == report.lossless_gain

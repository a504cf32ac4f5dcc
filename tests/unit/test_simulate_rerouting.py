"""Overflow, tiers, diversion and rotation on small made-up recordings; the real one is in test_evidence_rerouting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER, Controller, P
from easybalance_sim.simulate.offsets.loop import Loop, Mechanism, Outcome, Sensor, Untouched, run
from easybalance_sim.simulate.offsets.scores import Scores, scores_of
from easybalance_sim.simulate.quality.judged import judged
from easybalance_sim.simulate.quality.price import DROP, OFFSET, REROUTE, families_of
from easybalance_sim.simulate.rerouting.diversion import Diversion
from easybalance_sim.simulate.rerouting.heat import only_on, relative_threshold
from easybalance_sim.simulate.rerouting.overflow import RULES, Overflow
from easybalance_sim.simulate.rerouting.rotation import STRIPED, Rotation
from easybalance_sim.simulate.rerouting.tiers import Tiers, full_rerouting, graded
from easybalance_sim.simulate.steps.placements import contiguous
from easybalance_sim.trace.schema import ScoreMeta
from tests.scored_steps import scored, scored_steps

LOOP = Loop(warm_up=12)
OFFSETS = Controller(law=P, signal=LAYER, gain=0.1)


def on(mechanism: Mechanism, scores: Scores, plan: Plan | None = None) -> Outcome:
    return run(mechanism, scores, plan or contiguous(scores.layers, scores.experts, 4), LOOP, keep_experts=True)


def doubled(layers: int = 2) -> Plan:
    """16 experts on 4 ranks of 5 slots: expert 0 also on rank 2, expert 1 on rank 3, 2 and 3 on ranks 1 and 0."""
    rows = [[0, 1, 2, 3, 8], [4, 5, 6, 7, 2], [8, 9, 10, 11, 0], [12, 13, 14, 15, 1]]
    slots = np.tile(np.array(rows).ravel(), (layers, 1))
    return Plan(expert_of_slot=frozen(slots, np.int32), slots_per_rank=frozen([5] * 4), experts=16, policy="doubled")


@pytest.mark.parametrize("rule", ["next", "least"])
@pytest.mark.parametrize("cap", [1.0, 1.25])
def test_no_rank_is_over_the_cap(rule: str, cap: float) -> None:
    scores = scored()
    before, after = on(Untouched(), scores), on(Overflow(cap=cap, rule=rule), scores)
    assert before.loads.max() > np.ceil(cap * 12)
    assert after.loads.max() <= np.ceil(cap * 12)
    assert (after.loads.sum(axis=2) == 48).all()
    assert not after.dropped.any()
    over = np.maximum(before.judged - np.ceil(cap * 12), 0).sum() / before.judged.sum()
    assert after.quality.changed == pytest.approx(over)


def test_what_is_dropped_is_counted() -> None:
    scores = scored()
    before, after = on(Untouched(), scores), on(Overflow(cap=1.25, rule="drop"), scores)
    assert (after.dropped > 0).all()
    np.testing.assert_array_equal(after.dropped, np.maximum(before.loads - 15, 0).sum(axis=(1, 2)))
    np.testing.assert_array_equal(after.loads.sum(axis=(1, 2)) + after.dropped, before.loads.sum(axis=(1, 2)))
    assert after.quality.dropped > 0 == after.quality.changed


def test_the_lowest_weights_leave() -> None:
    scores = scored()
    drops = on(Overflow(cap=1.25, rule="drop"), scores).quality
    assert drops.gate_mass_replaced < drops.dropped
    assert drops.top1_lost < drops.dropped


def test_replicas_take_overflow_before_other_experts_do() -> None:
    scores = scored()
    outcome = on(Overflow(cap=1.25), scores, doubled())
    single = on(Overflow(cap=1.25), scores)
    assert outcome.loads.max() <= 15
    assert outcome.quality.changed < single.quality.changed / 2


def test_a_cap_that_nobody_reaches_changes_nothing() -> None:
    scores = scored()
    outcome = on(Overflow(cap=4.0), scores)
    assert outcome.experts is not None
    np.testing.assert_array_equal(outcome.experts, scores.recorded)


def test_overflow_of_an_offset_is_seen_by_its_sensor() -> None:
    scores = scored()
    both = Overflow(cap=1.25, inner=OFFSETS)
    assert families_of(both) == (REROUTE, OFFSET)
    assert both.name == "re-route next cap 1.25 + layer P g=0.1"
    outcome, alone = on(both, scores), on(Overflow(cap=1.25), scores)
    assert outcome.loads.max() <= 15
    assert outcome.quality.changed != alone.quality.changed


def test_logits_weigh_as_their_softmax() -> None:
    steps = scored_steps()
    assert steps.scores is not None
    logits = scores_of(replace(steps, scores=frozen(steps.scores * 8 - 10, np.float16)))
    outcome = on(Overflow(cap=1.25, rule="drop"), logits)
    assert outcome.loads.max() <= 15
    # Of a token's two weights the larger one is more than a half, and it does not leave before the smaller one.
    assert outcome.quality.top1_lost < outcome.quality.dropped


@pytest.mark.parametrize(
    "make",
    [
        lambda: Overflow(cap=0.9),
        lambda: Overflow(cap=float("nan")),
        lambda: Overflow(cap=1.1, rule="best"),
        lambda: Tiers(tiers=((1.2, 0.9), (1.1, 0.8))),
        lambda: Tiers(tiers=((1.2, 0.0),)),
        lambda: Tiers(tiers=((1.2, 0.9),), signal="expert"),
        lambda: Tiers(tiers=()),
        lambda: Diversion(share=0.0),
        lambda: Diversion(share=0.1, signal="expert"),
        lambda: Rotation(active=0),
        lambda: Rotation(active=3, groups=2),
        lambda: Rotation(active=1, kind="heat"),
        lambda: relative_threshold(0.9, 0.0),
    ],
)
def test_nonsense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()


def test_more_groups_than_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="groups"):
        on(Rotation(active=7), scored())


def test_a_tier_takes_load_off_hot_ranks() -> None:
    scores = scored()
    before, after = on(Untouched(), scores), on(Tiers(tiers=((1.05, 0.8),), signal=LAYER), scores)
    assert after.balance.window_mean < before.balance.window_mean
    assert after.quality.top1_lost > 0


def test_a_factor_acts_on_the_score_without_its_bias() -> None:
    """One layer: with a bias as large as the score, a factor on the whole score would move twice as much."""
    steps = scored_steps(layers=1)
    assert steps.scores is not None
    raw = steps.scores.astype(np.float64)
    meta = msgspec.structs.replace(steps.meta, all_scores=ScoreMeta(bias=((0.5,) * 16,)))
    shifted = scores_of(replace(steps, scores=frozen(raw + 0.5, np.float16), meta=meta))
    plain = scores_of(steps)
    tier = Tiers(tiers=((1.05, 0.8),), signal=LAYER)
    assert on(tier, shifted).quality.changed == pytest.approx(on(tier, plain).quality.changed, rel=0.1)


def test_the_heavy_tier_takes_a_rank_out_after_a_while() -> None:
    scores = scored()
    hold = 5
    outcome = on(Tiers(tiers=(), heavy=1.1, hold=hold, signal=LAYER), scores)
    untouched = on(Untouched(), scores)
    assert outcome.experts is not None
    # The first step knows nothing, then the rank has to be hot for `hold` steps and one more.
    np.testing.assert_array_equal(outcome.loads[: hold + 1], untouched.loads[: hold + 1])
    assert outcome.loads[hold + 1, :, 0].max() == 0
    assert (outcome.loads.sum(axis=2) == 48).all()


def test_only_experts_without_a_replica_elsewhere_are_on_hot_ranks() -> None:
    shares = Sensor(1, doubled(), LOOP).shares
    assert np.flatnonzero(only_on(np.array([[True, False, False, False]] * 2), shares)[0]).tolist() == [3]
    assert np.flatnonzero(only_on(np.array([[True, True, False, False]] * 2), shares)[1]).tolist() == [2, 3, 4, 5, 6, 7]


def test_graded_tiers_by_utilisation() -> None:
    assert graded(HEAT, 0.025, mean_utilisation=0.6).heavy == pytest.approx(1.5)
    assert graded(HEAT, 0.025, mean_utilisation=0.95).heavy == pytest.approx(1.11)
    assert graded(HEAT, 0.025).hold == 40
    assert full_rerouting().name == "tiers layer 1.3 out"


def test_diversion_moves_its_share_of_hot_ranks_tokens() -> None:
    scores = scored(tokens=60)
    before, after = on(Untouched(), scores), on(Diversion(share=0.5, signal=LAYER), scores)
    hot = float(before.judged[:, :, 0].sum() / before.judged.sum())
    assert hot / 4 < after.quality.changed < hot
    assert after.quality.top1_lost > after.quality.changed / 2
    again = on(Diversion(share=0.5, signal=LAYER), scores)
    np.testing.assert_array_equal(after.loads, again.loads)
    assert (on(Diversion(share=0.5, signal=LAYER, seed=1), scores).loads != after.loads).any()


def test_before_anything_is_known_nobody_is_diverted() -> None:
    scores = scored()
    outcome, untouched = on(Diversion(share=1.0), scores), on(Untouched(), scores)
    np.testing.assert_array_equal(outcome.loads[0], untouched.loads[0])


def test_resting_ranks_get_nothing() -> None:
    scores = scored()
    outcome = on(Rotation(active=3, every=4), scores)
    resting = np.arange(len(outcome.loads)) // 4 % 4
    np.testing.assert_array_equal(outcome.loads.argmin(axis=2), resting[:, None].repeat(2, axis=1))
    assert outcome.loads.min(axis=2).max() == 0


def test_striped_groups_hold_hot_and_cold_experts() -> None:
    load = np.tile(np.arange(16)[::-1], (2, 1))
    outcome = on(Rotation(active=2, groups=4, kind=STRIPED, load=load), scored())
    assert outcome.counts[0, :, [0, 1, 4, 5]].max() == 0
    assert outcome.counts[0, :, [2, 3, 6, 7]].min(axis=None) >= 0
    assert (outcome.loads.sum(axis=2) == 48).all()


MECHANISMS = (
    *(Overflow(cap=cap, rule=rule) for cap in (1.0, 1.3) for rule in RULES),
    Overflow(cap=1.1, inner=OFFSETS),
    Overflow(cap=1.1, inner=Diversion(share=0.2, signal=LAYER)),
    graded(HEAT, 0.025),
    full_rerouting(threshold=1.05),
    Diversion(share=0.5),
    Rotation(active=3),
    Rotation(active=1, kind=STRIPED),
)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.sampled_from(MECHANISMS), st.booleans())
def test_assignments_are_conserved(seed: int, mechanism: Mechanism, with_replicas: bool) -> None:
    scores = scored(seed, steps=24, tokens=12)
    outcome = on(mechanism, scores, doubled() if with_replicas else None)
    per_step = outcome.loads.sum(axis=(1, 2)) + outcome.dropped
    np.testing.assert_allclose(per_step, 12 * 2 * 2)
    assert (DROP in families_of(mechanism)) or not outcome.dropped.any()
    assert outcome.experts is not None
    kept = np.sort(outcome.experts, axis=2)
    assert ((kept[..., 1:] != kept[..., :-1]) | (kept[..., 1:] < 0)).all()


def test_what_is_said_of_a_run() -> None:
    scores = scored(workloads=2)
    plan = contiguous(2, 16, 4)
    cap = judged(Overflow(cap=1.25), on(Overflow(cap=1.25), scores), plan, on="contiguous")
    document = cap.to_dict()
    assert cap.name == "contiguous + re-route next cap 1.25"
    assert document["sensor"] == "counts of all ranks of the step, before dispatch"
    assert not document["lossless"]
    assert set(document["price"]["by_workload"]) == {"w0", "w1"}
    assert len(document["price"]["by_layer"]) == 2
    none = judged(Untouched(), on(Untouched(), scores), plan)
    assert none.price.free and none.point.lossless and none.sensor == "none"

"""Whatever a controller does, no assignment is lost and no token gets an expert twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import LAWS, SIGNALS, Controller
from easybalance_sim.simulate.offsets.loop import Loop, run
from easybalance_sim.simulate.offsets.scores import scores_of
from tests.recorded_scores import best_per_group, recorded_steps, with_runners_up

CONTROLLERS = st.builds(
    Controller,
    law=st.sampled_from(LAWS),
    signal=st.sampled_from(SIGNALS),
    gain=st.sampled_from([0.0, 0.02, 0.5]),
    integral=st.sampled_from([0.0, 0.05]),
    leak=st.sampled_from([1.0, 0.9]),
    clip=st.sampled_from([None, 0.03]),
)


def plan_of(seed: int, slots: int) -> Plan:
    """Twelve experts and some replicas, shuffled over three ranks."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.concatenate([np.arange(12), rng.integers(0, 12, slots - 12)])) for _ in range(2)]
    return Plan(
        expert_of_slot=frozen(rows, np.int32), slots_per_rank=frozen([slots // 3] * 3), experts=12, policy="random"
    )


@settings(max_examples=30, deadline=None)
@given(
    controller=CONTROLLERS,
    seed=st.integers(0, 1000),
    slots=st.sampled_from([12, 18]),
    kept=st.sampled_from(["all", "per group", "frozen"]),
    delay=st.integers(1, 5),
)
def test_assignments_are_conserved(controller: Controller, seed: int, slots: int, kept: str, delay: int) -> None:
    steps = recorded_steps(seed, steps=25, tokens=8, experts=12, top_k=3, groups=3, topk_group=2)
    if kept != "all":
        every = np.ones((steps.tokens, 2, 12), np.bool_)
        steps = best_per_group(steps, 4) if kept == "per group" else with_runners_up(steps, every, 3)
    loop = Loop(delay=delay, window=4, warm_up=5)
    found = run(controller, scores_of(steps), plan_of(seed, slots), loop, keep_experts=True)
    assert found.experts is not None
    assert found.counts.sum(axis=2).tolist() == [[24, 24]] * 25
    np.testing.assert_allclose(found.loads.sum(axis=2), 24)
    assert (np.diff(np.sort(found.experts, axis=2), axis=2) > 0).all()
    # Nothing is known in the first steps, so nothing changes in them.
    blind = int(steps.start[delay])
    np.testing.assert_array_equal(np.sort(found.experts[:blind]), np.sort(scores_of(steps).recorded[:blind]))
    assert 0 <= found.quality.changed <= 1 and found.quality.dropped == 0
    if not controller.gain and not controller.integral:
        assert found.quality.changed == found.quality.top1_lost == 0

"""The closed loop step by step: what a sensor may know, what controllers make of it, and that nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from easybalance_sim.arrays import Int32Array, frozen
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import EXPERT, HEAT, LAYER, MAX, PI, SIGN, Controller, I, P, error
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Nudge, Sensor, Sent, StepTokens, Untouched, run
from easybalance_sim.simulate.offsets.scores import Scores, scores_of
from easybalance_sim.simulate.steps.placements import contiguous
from tests.recorded_scores import recorded_steps

TWO_RANKS = Plan(
    expert_of_slot=frozen([[0, 1, 2, 2, 3, 0]], np.int32), slots_per_rank=frozen([3, 3]), experts=4, policy="by hand"
)
"""Experts 0 and 2 on both ranks, 1 on the first, 3 on the second."""
NOW = Loop(delay=1, window=2, warm_up=0)


def fed(loop: Loop, *loads: list[float], plan: Plan = TWO_RANKS) -> Sensor:
    """A sensor of one layer that saw counts of experts."""
    sensor = Sensor(20, plan, loop)
    for counts in loads:
        row = np.array([counts])
        sensor.executed(row, np.matmul(row[:, None, :], sensor.shares)[:, 0])
    return sensor


@pytest.mark.parametrize(("delay", "known"), [(1, [14, 0]), (2, [6, 0]), (3, [2, 0]), (4, [0, 0]), (9, [0, 0])])
def test_a_sensor_knows_old_steps_only(delay: int, known: list[int]) -> None:
    sensor = fed(Loop(delay=delay, window=2), [0, 2, 0, 0], [0, 4, 0, 0], [0, 10, 0, 0])
    assert sensor.rank_loads().tolist() == [known]
    assert sensor.expert_loads().tolist() == [[0, known[0], 0, 0]]


def test_a_sensor_sums_other_windows_when_asked() -> None:
    sensor = fed(NOW, [0, 2, 0, 0], [0, 4, 0, 0], [0, 10, 0, 0])
    assert [sensor.rank_loads(steps)[0, 0] for steps in (1, 3, 99)] == [10, 16, 16]
    assert sensor.known == 3


def test_errors_by_hand() -> None:
    # Ranks carry 4 and 8, thus z is -1/3 and 1/3; an expert on both ranks sees 0.
    sensor = fed(NOW, [2, 1, 4, 5])
    assert sensor.rank_loads().tolist() == [[4, 8]]
    np.testing.assert_allclose(error(LAYER, sensor), [[0, -1 / 3, 0, 1 / 3]], atol=1e-12)
    np.testing.assert_allclose(error(HEAT, sensor), error(LAYER, sensor))
    np.testing.assert_allclose(error(EXPERT, sensor), [[-1 / 3, -2 / 3, 1 / 3, 2 / 3]])


def offsets(controller: Controller, *loads: list[float]) -> list[float]:
    """Of the one layer, after each of the loads in turn."""
    scores = replace(scores_of(recorded_steps(layers=1, experts=4, top_k=2)), gap=0.2)
    acting = controller.start(TWO_RANKS, scores, NOW)
    sensor = fed(replace(NOW, window=1))
    found = []
    for counts in loads:
        row = np.array([counts])
        sensor.executed(row, np.matmul(row[:, None, :], sensor.shares)[:, 0])
        nudge = acting.nudge(sensor)
        assert nudge is not None and nudge.offset is not None
        found.append(float(nudge.offset[0, 3]))
    return found


HOT, COLD = [0.0, 1.0, 0.0, 3.0], [0.0, 3.0, 0.0, 1.0]
"""Expert 3 and its rank at z = +0.5 (as an expert: 2) and at -0.5 (0)."""


@pytest.mark.parametrize(
    ("controller", "wanted"),
    [
        (Controller(law=P, signal=LAYER, gain=0.1), [0.05, 0.05, -0.05]),
        (Controller(law=I, signal=LAYER, integral=0.1), [0.05, 0.10, 0.05]),
        (Controller(law=I, signal=LAYER, integral=0.1, leak=0.5), [0.05, 0.075, -0.0125]),
        (Controller(law=I, signal=LAYER, integral=0.1, clip=0.06), [0.05, 0.06, 0.01]),
        (Controller(law=PI, signal=HEAT, gain=0.1, integral=0.02), [0.06, 0.07, -0.04]),
        (Controller(law=SIGN, signal=LAYER, gain=0.1), [0.1, 0.2, 0.1]),
        (Controller(law=MAX, signal=HEAT, gain=0.1), [0.1, 0.1, -0.1]),
        (Controller(law=MAX, signal=HEAT, gain=0.1, clip=0.03), [0.03, 0.03, -0.03]),
        (Controller(law=P, signal=EXPERT, gain=0.1), [0.2, 0.2, 0.0]),
        # 1.5 gaps of 0.2 are the clip of whoever has none of his own.
        (Controller(law=P, signal=EXPERT, gain=0.5), [0.3, 0.3, 0.0]),
        (Controller(law=P, signal=EXPERT, gain=0.5, clipped=False), [1.0, 1.0, 0.0]),
        (Controller(law=MAX, signal=HEAT, gain=0.5), [0.3, 0.3, -0.3]),
        (Controller(law=MAX, signal=HEAT, gain=0.5, clipped=False), [0.5, 0.5, -0.5]),
        (Controller(law=I, signal=LAYER, integral=0.5), [0.25, 0.3, 0.05]),
    ],
    ids=lambda one: one.name if isinstance(one, Controller) else "",
)
def test_laws_by_hand(controller: Controller, wanted: list[float]) -> None:
    assert offsets(controller, HOT, HOT, COLD) == pytest.approx(wanted)


def test_the_sign_of_rounding_moves_nothing() -> None:
    acting = Controller(law=SIGN, signal=LAYER, gain=0.1, clip=1.0).start(TWO_RANKS, scores_of(recorded_steps()), NOW)
    nudge = acting.nudge(fed(NOW, [2, 1, 4, 5]))
    assert nudge is not None and nudge.offset is not None
    assert nudge.offset.tolist() == [[0.0, -0.1, 0.0, 0.1]]


def test_nothing_known_is_no_offset() -> None:
    assert offsets(Controller(law=MAX, signal=HEAT, gain=0.1), [0.0] * 4, [1.0] * 4) == [0.0, 0.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"law": "D", "signal": LAYER},
        {"law": P, "signal": "node"},
        {"law": P, "signal": LAYER, "gain": -1.0},
        {"law": I, "signal": LAYER, "leak": 0.0},
        {"law": P, "signal": LAYER, "clip": 0.0},
    ],
)
def test_controllers_without_sense(settings: dict[str, str | float]) -> None:
    with pytest.raises(UsageError):
        Controller(**settings)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Doing:
    """A mechanism of one act."""

    acting: Acting
    name: str = "doing"

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        return self.acting


class Drops(Acting):
    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        fewer = experts.copy()
        fewer[0] = -1
        return Sent(experts=fewer)


class Loses(Acting):
    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        return Sent(experts=experts[:-1])


class SendsTo(Acting):
    """All to one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        return Sent(experts=experts, ranks=np.full_like(experts, self.rank))


class Closes(Acting):
    """Expert 0 is not allowed."""

    def nudge(self, sensor: Sensor) -> Nudge:
        allowed = np.ones(sensor.shares.shape[:2], np.bool_)
        allowed[:, 0] = False
        return Nudge(allowed=allowed)


STEPS = recorded_steps(steps=12, tokens=5)
PLAN = contiguous(2, 16, 4)
QUICK = Loop(window=3, warm_up=2)


def test_dropped_assignments_are_counted() -> None:
    found = run(Doing(Drops()), scores_of(STEPS), PLAN, QUICK)
    assert found.dropped.tolist() == [6] * 12
    assert found.counts.sum() == 12 * 4 * 6
    assert found.quality.dropped == pytest.approx(0.2)
    assert found.quality.changed == 0.0
    assert (found.quality.top1_lost, found.quality.gate_mass_replaced) == pytest.approx((0.2, 0.2))
    assert found.quality.assignments == 10 * 5 * 6


def test_lost_assignments_are_noticed() -> None:
    with pytest.raises(EbsimError, match=r"step 0: 30 assignments became 24"):
        run(Doing(Loses()), scores_of(STEPS), PLAN, QUICK)


def test_a_mechanism_may_choose_replicas() -> None:
    found = run(Doing(SendsTo(3)), scores_of(STEPS), PLAN, QUICK)
    assert found.loads[0].tolist() == [[0, 0, 0, 15]] * 2
    assert found.balance.step_mean == 4.0


def test_closed_experts_get_nothing() -> None:
    found = run(Doing(Closes()), scores_of(STEPS), PLAN, QUICK)
    assert found.counts[:, :, 0].sum() == 0
    assert found.counts.sum() == STEPS.counts.sum()
    lost = STEPS.counts[2:, :, 0].sum() / STEPS.counts[2:].sum()
    assert found.quality.changed == pytest.approx(float(lost))


def test_shares_are_told_by_layer_and_workload() -> None:
    found = run(Controller(law=P, signal=EXPERT, gain=0.2), scores_of(STEPS), PLAN, QUICK)
    total = found.quality.changed * found.quality.assignments
    layers = sum(one.changed * one.assignments for one in found.by_layer)
    loads = sum(one.changed * one.assignments for one in found.by_workload.values())
    assert total > 0 and layers == pytest.approx(total) and loads == pytest.approx(total)
    assert set(found.by_workload) == {"a", "b"} and len(found.by_layer) == 2
    assert found.to_dict()["quality"]["changed"] == found.quality.changed


def test_progress_counts_steps() -> None:
    heard: list[int] = []
    run(Untouched(), scores_of(STEPS), PLAN, QUICK, advance=heard.append)
    assert sum(heard) == 12


def test_a_plan_of_another_model_is_refused() -> None:
    with pytest.raises(EbsimError, match="the plan has 2 layers of 8 experts, the trace 2 of 16"):
        run(Untouched(), scores_of(STEPS), contiguous(2, 8, 4), QUICK)


def test_steps_that_only_warm_up_are_refused() -> None:
    with pytest.raises(EbsimError, match="12 steps, of which the first 40 only warm up"):
        run(Untouched(), scores_of(STEPS), PLAN)


@pytest.mark.parametrize("settings", [{"delay": 0}, {"window": 0}, {"warm_up": -1}])
def test_sensors_without_sense(settings: dict[str, int]) -> None:
    with pytest.raises(EbsimError, match="sensor"):
        Loop(**settings)

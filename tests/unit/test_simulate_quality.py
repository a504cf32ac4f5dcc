"""The price of other experts, the front of balance and loss, and the file that lossy settings go to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import EbsimError, PlanError, UsageError
from easybalance_sim.exports.linting import is_plan_file, lint_plan
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER, MAX, Controller, P
from easybalance_sim.simulate.offsets.loop import Loop, Untouched, run
from easybalance_sim.simulate.offsets.quality import Quality
from easybalance_sim.simulate.offsets.stability import Margin
from easybalance_sim.simulate.quality.front import STEP_P99, Point, front
from easybalance_sim.simulate.quality.judged import judged
from easybalance_sim.simulate.quality.keeping import run_keeping_offsets
from easybalance_sim.simulate.quality.lossless import chance_alone, lossless, placed, replanned
from easybalance_sim.simulate.quality.lossy_file import LossyDocument, document, read_lossy, write_lossy
from easybalance_sim.simulate.quality.pareto import table_of
from easybalance_sim.simulate.quality.price import (
    DIVERSION,
    DROP,
    LAWS,
    LOSSLESS,
    OFFSET,
    REROUTE,
    band,
    is_free,
    price,
)
from easybalance_sim.simulate.rerouting.overflow import Overflow
from easybalance_sim.simulate.steps.placements import contiguous, planned
from easybalance_sim.simulate.steps.recorded import rank_loads
from tests.scored_steps import scored, scored_steps
from tests.staggering_steps import chance_steps

LOOP = Loop(warm_up=12)
NOTHING = Quality(changed=0.0, score_lost=0.0, gate_mass_replaced=0.0, top1_lost=0.0, dropped=0.0, assignments=100)


def test_a_band_spans_all_proxies_of_its_family() -> None:
    found = band(replace(NOTHING, changed=0.1, gate_mass_replaced=0.08, top1_lost=0.03, score_lost=0.005), [OFFSET])
    # mnat: 0.04 · 8^2.25 = 4.31, 0.52 · 3^1.85 = 3.97, 10.9 · 0.5^0.86 = 6.01; lowest / 1.36, highest · 1.56, ± 2.
    gate, top, lost = found.estimates
    assert gate.low_nats == pytest.approx(0.00431 / 1.32, rel=2e-3)
    assert top.low_nats == pytest.approx(0.00397 / 1.36, rel=2e-3)
    assert lost.high_nats == pytest.approx(0.00601 * 1.56, rel=2e-3)
    assert found.low_nats == pytest.approx(top.low_nats - 0.002)
    assert found.high_nats == pytest.approx(lost.high_nats + 0.002)
    assert not found.beyond
    assert found.to_dict()["calibrated"] == "calibrated on a 14 M model"


def test_a_negative_score_lost_says_nothing() -> None:
    found = band(replace(NOTHING, changed=0.05, score_lost=-0.01, gate_mass_replaced=0.02), [OFFSET])
    assert [one.low_nats for one in found.estimates][2] == 0.0
    assert found.estimates[2].value == -0.01


def test_two_families_share_a_band() -> None:
    lost = replace(NOTHING, changed=0.05, gate_mass_replaced=0.04, top1_lost=0.01)
    both, one, other = (band(lost, families) for families in ([OFFSET, REROUTE], [OFFSET], [REROUTE]))
    assert both.low_nats == min(one.low_nats, other.low_nats)
    assert both.high_nats == max(one.high_nats, other.high_nats)


def test_what_lies_beyond_the_calibration_says_so() -> None:
    assert band(replace(NOTHING, changed=0.5, score_lost=0.14), [DIVERSION]).beyond


def test_nothing_touched_costs_nothing() -> None:
    assert band(NOTHING, [OFFSET]) == LOSSLESS
    assert band(replace(NOTHING, changed=0.5), []) == LOSSLESS
    assert is_free(NOTHING, [REROUTE])


def test_the_free_zone_is_that_of_offsets() -> None:
    little = replace(NOTHING, changed=0.045, gate_mass_replaced=0.036, score_lost=0.0004)
    assert is_free(little, [OFFSET])
    assert not is_free(little, [REROUTE])
    assert not is_free(little, [OFFSET, REROUTE])
    assert not is_free(replace(little, gate_mass_replaced=0.041), [OFFSET])
    assert not is_free(replace(little, score_lost=0.0011), [OFFSET])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(LAWS)), st.floats(0.001, 0.5), st.floats(1.01, 2))
def test_more_of_everything_costs_more(family: str, share: float, more: float) -> None:
    def both(x: float) -> tuple[float, float]:
        quality = Quality(
            changed=x, score_lost=x, gate_mass_replaced=x, top1_lost=x, dropped=x if family == DROP else 0.0,
            assignments=1,
        )  # fmt: skip
        found = band(quality, [family])
        return found.low_nats, found.high_nats

    (low, high), (lower, higher) = both(share), both(share * more)
    assert low < high and low < lower and high < higher


def test_an_unknown_family_is_refused() -> None:
    scores = scored()
    outcome = run(Untouched(), scores, contiguous(2, 16, 4), LOOP)
    with pytest.raises(UsageError, match="no law for 'pruning'"):
        price(outcome, ["pruning"])


def point(name: str, mean: float, low: float = 0.0, high: float = 0.0, slots: int = 64, stable: bool = True) -> Point:
    return Point(
        name=name, step_mean=mean, step_p99=mean + 0.1, loss_low=low, loss_high=high, slots=slots, stable=stable
    )  # fmt: skip


MEASURED = (
    point("contiguous", 1.389),
    point("window plan", 1.235),
    point("window plan, more slots", 1.220, slots=80),
    point("window plan, more slots, least-loaded", 1.080, slots=80),
    point("window plan + offset", 1.233, -0.002, 0.002),
    point("window plan + cap 1.1", 1.110, -0.0017, 0.0045),
    point("window plan + cap 1.1 + offset", 1.110, -0.002, 0.0068),
    point("window plan + cap 1.05", 1.061, -0.0015, 0.0063),
    point("contiguous + cap 1.1", 1.111, -0.0012, 0.0098),
    point("contiguous + rotation", 1.536, 0.07, 0.17),
    point("contiguous + ×0.8", 1.613, 0.022, 0.089),
    point("contiguous + max-normalised heat", 2.101, 0.015, 0.053),
    point("window plan + unstable", 1.0, 0.0, 0.001, stable=False),
)


def test_the_front_and_its_knee() -> None:
    found = front(MEASURED)
    assert [p.name for p in found.points] == [
        "window plan",
        "window plan + cap 1.1",
        "window plan, more slots, least-loaded",
        "window plan + cap 1.05",
    ]
    assert found.knee is not None
    assert found.knee.name == "window plan + cap 1.1"
    assert found.to_dict()["knee"] == "window plan + cap 1.1"
    assert front(MEASURED, STEP_P99).points[0].name == "window plan"


def test_no_knee_without_something_to_pay_for() -> None:
    assert front([]).knee is None
    assert front([point("a", 1.2)]).knee is None
    assert front([point("a", 1.2), point("b", 1.1, slots=80)]).knee is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(100, 120), st.integers(0, 4), st.integers(0, 4), st.integers(1, 2)), min_size=1,
        max_size=8,
    )
)  # fmt: skip
def test_everything_off_the_front_is_beaten_or_tied(drawn: list[tuple[int, int, int, int]]) -> None:
    points = [
        point(f"p{i}", mean / 100, low / 1e3, (low + width) / 1e3, slots)
        for i, (mean, low, width, slots) in enumerate(drawn)
    ]
    found = front(points)
    assert found.points
    best = min(points, key=lambda p: (p.step_mean, p.loss_high, p.slots, p.loss_low, p.name))
    assert any(p.step_mean <= best.step_mean + 0.005 for p in found.points)
    for one in found.points:
        assert not any(
            q.step_mean < one.step_mean - 0.006 and q.loss_low <= one.loss_low and q.loss_high <= one.loss_high
            and q.slots <= one.slots
            for q in points
        )  # fmt: skip


def test_chance_alone_keeps_the_tokens() -> None:
    steps = scored_steps()
    loads = chance_alone(steps, 4)
    assert loads.shape == (60, 2, 4)
    assert (loads.sum(axis=2) == 48).all()
    np.testing.assert_array_equal(loads, chance_alone(steps, 4))


def test_plans_made_anew_follow_their_past_with_a_delay() -> None:
    steps = chance_steps(3, steps=120, tokens=20)
    past, now, cluster = steps.between(0, 72), steps.between(72, 120), uniform(4, 4, 3)
    loads = replanned(past, now, cluster, 16, 8, delay=2)
    assert loads.shape == (48, 3, 4)
    for first in (0, 16, 32):
        newest = 72 + first - 2
        plan = planned("eplb", steps.between(newest - 8, newest), 4, 3)
        np.testing.assert_array_equal(loads[first : first + 16], rank_loads(now.counts, plan)[first : first + 16])
    with pytest.raises(UsageError, match="2 past steps are too few"):
        replanned(past.between(0, 2), now, cluster, 16, 8, delay=2)


def test_the_table_has_fronts_without_floors() -> None:
    steps, plan = scored_steps(), contiguous(2, 16, 4)
    rows = [
        lossless("floor: chance", chance_alone(steps, 4), 16, floor=True),
        placed("contiguous", steps.counts, plan),
    ]
    table = table_of(rows)
    assert [point.name for point in table.by_mean.points] == [point.name for point in table.by_p99.points]
    assert [point.name for point in table.by_mean.points] == ["contiguous"]
    assert json.loads(json.dumps(table.to_dict()))["fronts"][0]["axis"] == "step_mean"


def made(kind: str = "cap", share: float = 0.25) -> LossyDocument:
    scores, plan = scored(), contiguous(2, 16, 4)
    without = run(Untouched(), scores, plan, LOOP).balance
    mechanism = Overflow(cap=1.25) if kind == "cap" else Controller(law=P, signal=LAYER, gain=0.05)
    outcome, offsets = run_keeping_offsets(mechanism, scores, plan, LOOP)
    found = judged(mechanism, outcome, plan)
    if isinstance(mechanism, Overflow):
        return document(
            found, without, plan, scores.steps, warm_up=12, scores=scores.mode, settings={"cap": 1.25}, cap=1.25,
            rule=mechanism.rule,
        )  # fmt: skip
    most = 1.5 * scores.gap
    return document(
        found, without, plan, scores.steps, warm_up=12, scores=scores.mode, settings={"gain": 0.05, "clip": most},
        offsets=offsets, margin=Margin(limit=1 / share, share=share),
    )  # fmt: skip


def test_what_is_not_offered_is_on_no_front_and_in_no_file() -> None:
    scores, plan = scored(), contiguous(2, 16, 4)
    outcome, offsets = run_keeping_offsets(Controller(law=MAX, signal=HEAT, gain=0.1), scores, plan, LOOP)
    shown = judged(Controller(law=MAX, signal=HEAT, gain=0.1), outcome, plan, remark="only to compare")
    assert not shown.offered and shown.to_dict()["remark"] == "only to compare"
    assert not table_of([shown]).by_mean.points
    with pytest.raises(UsageError, match="is a comparison, not for use"):
        document(
            shown, outcome.balance, plan, scores.steps, warm_up=12, scores=scores.mode, settings={"clip": 1.0},
            offsets=offsets,
        )  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{}, {"clip": None}, {"clip": 1.0, "clipped": False}, {"clip": 1e-6}, {"clip": True}]
)
def test_offsets_without_a_clip_are_never_written(settings: dict[str, object], tmp_path: Path) -> None:
    doc = msgspec.structs.replace(made("offsets"), settings=settings)
    with pytest.raises(UsageError, match="an offset table has a clip"):
        write_lossy(tmp_path / "lossy.json", doc)
    assert not list(tmp_path.iterdir())


def test_a_forced_file_says_so() -> None:
    calm, forced = made("offsets"), made("offsets", share=0.8)
    assert not calm.forced and calm.advice.startswith("offsets of the last judged step")
    assert forced.forced and forced.share_of_limit == 0.8 and forced.advice.startswith("forced: ")


@pytest.mark.parametrize("kind", ["cap", "offsets"])
def test_a_lossy_file_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    doc, path = made(kind), tmp_path / "lossy.json"
    fingerprint = write_lossy(path, doc)
    assert read_lossy(path) == doc
    content = json.loads(path.read_text())
    assert content["lossy"] is True
    assert content["fingerprint"] == fingerprint
    assert content["judged_on"]["steps"] == 60
    assert content["price"]["loss_nats"]["calibrated"] == "calibrated on a 14 M model"
    assert (content["offsets"] is None) == (kind == "cap")


def test_the_table_is_what_the_controller_ended_with() -> None:
    doc = made("offsets")
    assert doc.offsets is not None
    table = np.array(doc.offsets)
    assert table.shape == (2, 16)
    # Low ids are chosen more often, so the first rank of four experts is pushed away, all of it alike.
    assert table[0, 0] > 0 > table[0, 15]
    assert len(set(table[0, :4])) == 1


@pytest.mark.parametrize("reader", [read_plan, lint_plan, is_plan_file])
def test_whoever_wants_a_plan_refuses_a_lossy_file(reader: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_lossy(path, made())
    with pytest.raises(PlanError, match="lossy router settings"):
        reader(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lossy": False}, "not a lossy file"),
        ({"format": "ebsim.plan"}, "not a lossy file"),
        ({"version": 2}, "version 1"),
        ({"cap": 1.3}, "it was edited"),
        ({"cap": 0.9}, "at least 1"),
        ({"rule": "best"}, "one of next"),
        ({"kind": "offset-table"}, "not both"),
        ({"kind": "pruning"}, "expected offset-table"),
        ({"price": {}}, "price is missing"),
        ({"surprise": 1}, "unknown field"),
        ({"experts": "16"}, "not a lossy file"),
    ],
)
def test_anything_else_than_a_whole_file_is_refused(change: dict[str, object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "lossy.json"
    write_lossy(path, made())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(EbsimError, match=says) as caught:
        read_lossy(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_cut_file_and_none_at_all_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lossy.json"
    write_lossy(path, made())
    path.write_text(path.read_text()[:-40])
    with pytest.raises(UsageError, match="not JSON, or cut short"):
        read_lossy(path)
    path.write_text("[1]")
    with pytest.raises(UsageError, match="not a lossy file"):
        read_lossy(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_lossy(tmp_path / "none.json")


def test_nothing_is_written_for_a_table_of_another_shape(tmp_path: Path) -> None:
    doc = msgspec.structs.replace(made("offsets"), experts=8)
    with pytest.raises(UsageError, match="rows of 8"):
        write_lossy(tmp_path / "lossy.json", doc)
    assert not list(tmp_path.iterdir())

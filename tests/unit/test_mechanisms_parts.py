"""The parts of a mechanisms report, on the sample that holds every expert's score."""

from __future__ import annotations

from dataclasses import replace

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms.files import write_lossy_file
from easybalance_sim.mechanisms.parts import admission, feedback, front, queue, replicas, rerouting, sensing, staggering
from easybalance_sim.mechanisms.parts.feedback import Router, as_written, asked_for, router_of, usual
from easybalance_sim.mechanisms.prepare import Prepared, prepare
from easybalance_sim.mechanisms.request import OffsetRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.simulate.layer_queue.queue import RULES
from easybalance_sim.simulate.offsets.controllers import LAYER, PI, Controller, P
from easybalance_sim.simulate.offsets.loop import Mechanism, run
from easybalance_sim.simulate.offsets.scores import scores_of
from easybalance_sim.simulate.offsets.stability import LEAST_DELAY, margin
from easybalance_sim.simulate.rerouting.overflow import Overflow
from easybalance_sim.simulate.rerouting.rotation import Rotation
from easybalance_sim.simulate.rerouting.tiers import Tiers
from tests.ebsim_process import ROOT, SAMPLE
from tests.listeners import Heard
from tests.recorded_scores import inside, with_runners_up

SCORES = ROOT / "traces" / "tinymoe_scores.parquet"


@pytest.fixture(scope="module")
def ready() -> Prepared:
    request = OffsetRequest(
        settings=Settings(traces=(SCORES,)), past=(SAMPLE,), past_steps=(700, 900), warm_up=20, sensor_ms=100.0
    )
    return prepare(request, Heard())


@pytest.fixture(scope="module")
def router(ready: Prepared) -> Router:
    return router_of(ready)


def asking(ready: Prepared, **changes: object) -> Prepared:
    return replace(ready, request=replace(ready.request, **changes))  # type: ignore[arg-type]


def test_every_controller_that_is_offered_has_a_clip(ready: Prepared, router: Router) -> None:
    offered = usual(router)
    assert [one.name.split()[:2] for one in offered] == [
        ["layer", "P"], ["layer", "I"], ["heat", "P"], ["expert", "P"], ["expert", "sign"], ["heat", "max"],
    ]  # fmt: skip
    assert all(one.clipped and one.clip == router.clip > 0 for one in offered)
    for name in ("layer-P", "heat-I", "expert-PI"):
        chosen = asked_for(asking(ready, controller=name), router)
        assert chosen.clipped and chosen.clip == router.clip
    for name in ("heat-max", "expert-sign"):
        chosen = asked_for(asking(ready, controller=name, gain=10.0), router)
        assert chosen.clipped and chosen.clip == router.clip
    assert not as_written().clipped


def test_safe_gains_are_a_quarter_of_the_limit_and_larger_ones_are_refused(ready: Prepared, router: Router) -> None:
    safe = asked_for(asking(ready, controller="layer-P"), router)
    assert margin(safe, router.gain, router.loop).share == pytest.approx(0.25, rel=1e-4)
    near = asking(ready, controller="layer-P", gain=3 * safe.gain)
    with pytest.raises(UsageError, match=r"is 0\.75 of what is stable"):
        asked_for(near, router)
    assert asked_for(replace(near, request=replace(near.request, force=True)), router).gain == 3 * safe.gain
    both = asked_for(asking(ready, controller="layer-PI", gain=0.01), router)
    assert (both.law, both.gain, both.integral) == (PI, 0.01, 0.001)


def test_feedback_shows_the_article_s_law_as_it_is_written_beside_the_clipped_one(
    ready: Prepared, router: Router
) -> None:
    section, rows = feedback.section(ready, router, usual(router)[-1:], Heard())
    clipped, bare = rows
    assert (clipped.remark, bare.remark) == ("", feedback.AS_WRITTEN)
    assert clipped.offered and not bare.offered
    assert [run["name"] for run in section["runs"]] == [clipped.name, bare.name] and clipped.name != bare.name
    taken = [row for row in section["largest_stable"] if row["taken"]]
    assert [row["delay_steps"] for row in taken] == [LEAST_DELAY]
    alone, _ = feedback.section(asking(ready, controller="layer-P"), router, usual(router)[:1], Heard())
    assert len(alone["runs"]) == 1


def test_a_bare_controller_is_in_no_lossy_file(ready: Prepared, router: Router) -> None:
    with pytest.raises(UsageError, match="an offset table has a clip"):
        write_lossy_file(asking(ready, controller="heat-max", gain=0.1), router, (as_written(),), SAMPLE)


@pytest.fixture(scope="module")
def frozen(router: Router) -> Router:
    """As of a trace that knows scores inside the recorded groups only."""
    steps = router.scores.steps
    assert steps.scores is not None
    meta = steps.meta
    known = with_runners_up(steps, inside(steps.scores, meta.groups, meta.topk_group) >= 0, 10)
    return replace(router, scores=scores_of(known))


def test_nothing_is_called_stable_where_it_was_not_judged(ready: Prepared, frozen: Router) -> None:
    controller = usual(frozen)[0]
    section, rows = feedback.section(ready, frozen, (controller,), Heard())
    assert [row.stable for row in rows] == [None, None] and section["scores"]["mode"] == "frozen"
    assert [(run["stability"], run["stable"]) for run in section["runs"]] == [(None, None)] * 2
    outcome = run(controller, frozen.scores, ready.plan, frozen.loop)
    assert rerouting.settles(controller, outcome, frozen, ready.plan) is None
    assert rerouting.settles(Overflow(cap=1.1), outcome, frozen, ready.plan) is True


def test_what_settles(ready: Prepared, router: Router) -> None:
    wild = Controller(law=P, signal=LAYER, gain=1.0, clipped=False)

    def verdict(mechanism: Mechanism) -> bool | None:
        return rerouting.settles(mechanism, run(mechanism, router.scores, ready.plan, router.loop), router, ready.plan)

    assert verdict(Overflow(cap=1.1)) is True
    assert verdict(Rotation(active=7, kind="stripe", load=ready.past.counts.sum(axis=0))) is True
    assert verdict(wild) is False
    assert verdict(Controller(law=P, signal=LAYER, gain=0.01)) is True


def test_caps_come_first_and_only_they_where_one_is_asked_for(ready: Prepared) -> None:
    offset = Controller(law=P, signal=LAYER, gain=0.05)
    found = list(rerouting.mechanisms(ready, offset, logits=False))
    assert [one.cap for name, _, one in found if name == "plan" and isinstance(one, Overflow)][:5] == [
        1.5, 1.3, 1.2, 1.1, 1.05,
    ]  # fmt: skip
    assert any(isinstance(one, Tiers) for *_, one in found)
    assert not any(isinstance(one, Tiers) for *_, one in rerouting.mechanisms(ready, offset, logits=True))
    asked = list(rerouting.mechanisms(asking(ready, cap=1.4), offset, logits=False))
    assert [one.name for *_, one in asked] == ["re-route next cap 1.4"] * 2
    assert [name for name, *_ in asked] == ["plan", "window plan, 8 × 8"]


def test_replicas_are_chosen_on_the_first_placement_that_has_any(ready: Prepared) -> None:
    found = replicas.with_replicas(ready)
    assert found is not None and found[0] == "window plan, 8 × 10" and found[1].redundant_slots == 16
    assert replicas.with_replicas(replace(ready, others={})) is None
    assert replicas.section(replace(ready, others={}), Heard()) is None
    section = replicas.section(asking(ready, choice_us=(("optimum", 7.0),)), Heard())
    assert section is not None and section["slots"] == 80
    charged = {row["rule"]: (row["budget_us"], row["budget_source"]) for row in section["rows"]}
    assert charged["optimum"] == (7.0, "stated") and charged["least-loaded"] == (2.0, "measured")


def test_lossless_rows_hold_bounds_and_replicas(ready: Prepared) -> None:
    rows = front.lossless_rows(ready, Heard())
    assert rows[0].name == "chance alone" and rows[-1].name == "floor: window plan in hindsight"
    assert [row.floor for row in rows] == [True, *[False] * (len(rows) - 2), True]
    assert all(row.point.lossless and row.stable for row in rows)
    names = [row.name for row in rows]
    assert names.count("plan") == 1 and "window plan, 8 × 10 + least-loaded replica" in names
    section = front.section(rows)
    assert not {"chance alone", rows[-1].name} & {p["name"] for one in section["fronts"] for p in one["points"]}


def test_labels_and_queues_leave_layers_as_they_are(ready: Prepared) -> None:
    section, plan = staggering.section(ready, Heard())
    assert section["barrier_gain"] == 0 and plan.policy == "contiguous+staggered"
    told = queue.section(replace(ready, judged=ready.judged.between(0, 40)), Heard())
    assert {row["rule"] for row in told["rows"]} == set(RULES) and told["steps"] == 20


def test_what_a_short_trace_cannot_tell(ready: Prepared) -> None:
    with pytest.raises(UsageError, match="too few to look"):
        sensing.section(replace(ready, judged=ready.judged.between(0, 30)), Heard())
    heard = Heard()
    assert admission.section(replace(ready, whole=ready.judged.between(0, 10)), heard) is None
    assert heard.notes[0].startswith("no admission by topic: ")

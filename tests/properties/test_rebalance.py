"""Seconds of control loops add up, whatever a loop asks for and however its plans are taken into service."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.loop import Course, run
from easybalance_sim.simulate.rebalance.report import course_section, served_seconds
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Window
from tests.rebalance_toys import ToyService, toy_plan, toy_service, toy_window

RANKS, SLOTS, EXPERTS, LAYERS = 3, 3, 6, 2
STYLES = st.builds(
    Style,
    chunk_layers=st.integers(0, LAYERS),
    stops=st.booleans(),
    chunk_steps=st.integers(1, 7),
    fixed_s=st.sampled_from([0.0, 0.25, 3.0]),
)


class AtRandom:
    """Asks for a random plan now and then."""

    def __init__(self, style: Style, seed: int, often: float = 0.4) -> None:
        self.name, self.style, self.often = "at random", style, often
        self.rng = np.random.default_rng(seed)

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        return _plan(self.rng) if not busy and self.rng.random() < self.often else None


def _plan(rng: np.random.Generator) -> Plan:
    """Every expert somewhere, none twice on a rank."""
    rows = []
    for _ in range(LAYERS):
        ranks = np.sort(rng.permutation(EXPERTS).reshape(RANKS, -1), axis=1).tolist()
        rows.append([e for own in ranks for e in (*own, int(rng.choice(np.setdiff1d(np.arange(EXPERTS), own))))])
    return toy_plan(rows, RANKS, EXPERTS)


def _windows(seed: int, steps: list[float]) -> list[Window]:
    rng = np.random.default_rng(seed)
    return [toy_window(n, rng.integers(0, 50, (LAYERS, EXPERTS)) + 1, s) for n, s in enumerate(steps)]


def _course(style: Style, seed: int, steps: list[float], service: ToyService) -> Course:
    return run(_windows(seed, steps), [(AtRandom(style, seed), _plan(np.random.default_rng(seed)))], service)[0]


CASES = {
    "style": STYLES,
    "seed": st.integers(0, 2**32 - 1),
    "steps": st.lists(st.sampled_from([0.5, 1.0, 7.0, 16.0, 1000.0]), min_size=1, max_size=12),
    "bytes_per_s": st.sampled_from([0.5, 100.0, 1e9]),
}


@settings(max_examples=60, deadline=None)
@given(**CASES)
def test_money_is_conserved(style: Style, seed: int, steps: list[float], bytes_per_s: float) -> None:
    service = toy_service(RANKS, SLOTS, nvlink_bytes_per_s=bytes_per_s)
    course = _course(style, seed, steps, service)
    assert sum(piece.steps for piece in course.pieces) == pytest.approx(sum(steps))
    section = course_section(course, course, service)
    paid = sum(piece.steps * float(piece.step_s.mean()) for piece in course.pieces) + section["pause_s"]
    assert served_seconds(course) == pytest.approx(paid) and section["saved_s_per_hour"] == 0
    assert section["bytes"] == section["moves"] * service.expert_bytes
    if style.stops and style.chunk_layers == 0:
        assert section["pause_s"] == pytest.approx(section["transfer_s"] + style.fixed_s * section["replans"])
    assert style.stops or section["pause_s"] == 0
    judged = sum(event["steps"] for event in section["events"])
    assert judged <= sum(steps) + 1e-9


@settings(max_examples=30, deadline=None)
@given(**CASES)
def test_the_same_seed_fares_the_same(style: Style, seed: int, steps: list[float], bytes_per_s: float) -> None:
    service = toy_service(RANKS, SLOTS, nvlink_bytes_per_s=bytes_per_s)
    one, other = (course_section(c, c, service) for c in (_course(style, seed, steps, service) for _ in range(2)))
    assert one == other


@settings(max_examples=30, deadline=None)
@given(seed=CASES["seed"], steps=CASES["steps"])
def test_a_loop_that_never_plans_is_plain_serving(seed: int, steps: list[float]) -> None:
    service, plan = toy_service(RANKS, SLOTS), _plan(np.random.default_rng(seed))
    windows = _windows(seed, steps)
    plain = sum(float(service.step_seconds(window, plan).mean()) * window.steps for window in windows)
    for loop in (Fixed(name="never"), AtRandom(Style(), seed, often=0.0)):
        course = run(windows, [(loop, plan)], service)[0]
        assert served_seconds(course) == plain and course.plan is plan


@settings(max_examples=40, deadline=None)
@given(more=st.floats(0, 10), **CASES)
def test_a_longer_pause_never_helps(
    more: float, style: Style, seed: int, steps: list[float], bytes_per_s: float
) -> None:
    service = toy_service(RANKS, SLOTS, nvlink_bytes_per_s=bytes_per_s)
    stops = replace(style, stops=True)
    short = _course(stops, seed, steps, service)
    longer = _course(replace(stops, fixed_s=stops.fixed_s + more), seed, steps, service)
    begun = len(longer.replans)
    assert served_seconds(longer) == pytest.approx(served_seconds(short) + more * begun)
    assert len(short.replans) == begun

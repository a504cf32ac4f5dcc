"""One curve of a sweep: the best plan at every number of slots, chosen on the fit side, judged on the held-out one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT, HELD_OUT
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.candidates import Candidate, choose, score
from easybalance_sim.planning.problems import problem_of
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.policies import NotApplicable, Problem, Progress
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Traffic
from easybalance_sim.sweep.budgets import POWER, cheapest_levels, columns, layer_loss
from easybalance_sim.sweep.grid import Layout
from easybalance_sim.trace.dataset import TokenTrace


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A number of slots with its best plan. outcome: held out (of the fit side when nothing is)."""

    layout: Layout
    best: Candidate
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Points of one number of ranks and one window length, zero redundancy first. proven: judged on held-out traffic,
    else on the fit side · tie_frac: how much slower a plan may be and still count as equally fast."""

    session: Session
    windows: LoadWindows
    points: list[Point]
    proven: bool
    tie_frac: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerBudget:
    """Slots by layer within the memory of a uniform point.

    level: int64[L] index of the point whose plan each layer takes · outcome: that of the uniform point with what can be
    put together by layer replaced.
    """

    level: IntArray
    outcome: Outcome


def trace_curve(
    request: PlanRequest, session: Session, layouts: list[Layout], tie_frac: float, tell: Listener
) -> Curve:
    """Plan every layout and judge the best of each; two passes over the trace for all of them together."""
    traffic = session.traffic(request.split, request.held_out, request.settings.seed)
    windows = traffic.fit_windows()
    if len(windows.window) == 0:
        raise UsageError("no token to fit a plan on", where="trace", fix="choose other --workload, --phase or --split")
    plans = _plans(request, session, traffic, windows, layouts, tell)
    scored = score([plan for several in plans for plan in several], traffic, session)
    best = []
    for several in plans:
        mine, scored = scored[: len(several)], scored[len(several) :]
        best.append(choose(mine, tie_frac))
    proven = traffic.has_held_out()
    if not proven:
        tell.note("nothing is held out: the figures are those of the fit windows, no proof")
    outcomes = traffic.replay([one.plan for one in best], HELD_OUT if proven else FIT, session.bench)
    points = [
        Point(layout=layout, best=one, outcome=outcome)
        for layout, one, outcome in zip(layouts, best, outcomes, strict=True)
    ]
    return Curve(session=session, windows=windows, points=points, proven=proven, tie_frac=tie_frac)


def _plans(
    request: PlanRequest,
    session: Session,
    traffic: Traffic,
    windows: LoadWindows,
    layouts: list[Layout],
    tell: Listener,
) -> list[list[Plan]]:
    """The plans that compete at each layout."""
    shared = problem_of(request, session, traffic, windows, None)
    simple = replace(request, policies=("eplb",))
    found, refused = [], dict[str, dict[int, str]]()
    for number, layout in enumerate(layouts, 1):
        place = replace(session, topology=replace(session.topology, slots_per_rank=layout.slots_per_rank))
        # What follows from the trace alone is made once; the price of a slot depends on how many there are.
        problem = replace(
            problem_of(simple, place, traffic, windows, None),
            finer=shared.finer,
            finer_steps=shared.finer_steps,
            rebatched=shared.rebatched,
            sample=shared.sample,
            progress=_named(session.bench.progress, f"point {number} of {len(layouts)}, {layout.most} slots per rank"),
        )
        found.append(_compete(request, problem, refused))
    for name, reasons in refused.items():
        counts = ", ".join(map(str, reasons))
        tell.note(
            f"{session.topology.ranks} ranks, {windows_in_words(session)}: policy {name} does not apply "
            f"with {counts} slots: {next(iter(reasons.values()))}"
        )
    return found


def _compete(request: PlanRequest, problem: Problem, refused: dict[str, dict[int, str]]) -> list[Plan]:
    """Plans that use all slots; `refused` takes up the reasons of policies, by name and slots.

    Raises `UsageError` when no policy makes a plan.
    """
    plans: list[Plan] = []
    slots = problem.topology.slots
    names = request.names(problem.layers * slots)
    why = f"none of {', '.join(names)} uses them all"
    for name in names:
        try:
            plans += [plan for plan in policies.make_all(name, problem) if plan.slots == slots]
        except NotApplicable as reason:
            why = str(reason)
            refused.setdefault(name, {})[slots] = why
    if not plans:
        raise UsageError(f"no plan for {slots} slots: {why}", where="--policy", fix="add --policy eplb")
    return plans


def windows_in_words(session: Session) -> str:
    """How long the windows of a session are."""
    if not isinstance(session.trace, TokenTrace):
        return "windows as recorded"
    if session.settings.window_seconds:
        return f"windows of {session.settings.window_seconds:g} s"
    steps = session.settings.window_steps
    return f"windows of {steps} step{'' if steps == 1 else 's'}"


def _named(progress: Progress, name: str) -> Progress:
    def begin(label: str, units: int) -> Callable[[int], None]:
        return progress(f"{name}: {label}", units)

    return begin


def layer_budget(curve: Curve, index: int, by_seconds: bool) -> LayerBudget:
    """The slots of point `index` divided among layers so that the fit side loses least, judged on held-out traffic.

    A layer takes the plan of one of the curve's points. by_seconds: lose seconds of a step, else rank imbalance.
    """
    points = curve.points
    fit = [point.best.outcome for point in points]
    loss = [layer_loss(one.layer_seconds) if by_seconds else layer_loss(one.window_imbalance, POWER) for one in fit]
    price = np.array([point.layout.most - points[0].layout.most for point in points])
    level = cheapest_levels(np.stack(loss), price, int(price[index]) * points[0].outcome.plan.layers)
    held = [point.outcome for point in points]
    return LayerBudget(
        level=level,
        outcome=replace(
            held[index],
            window_imbalance=columns([one.window_imbalance for one in held], level),
            window_bound=columns([one.window_bound for one in held], level),
            layer_seconds=columns([one.layer_seconds for one in held], level),
            layer_bracket=columns([one.layer_bracket for one in held], level),
        ),
    )

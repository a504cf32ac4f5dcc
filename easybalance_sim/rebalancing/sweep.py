"""Which interval and which thresholds: chosen on the first half of the windows, judged on the second."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from easybalance_sim.planning.session import Listener
from easybalance_sim.rebalancing.loops import ONE_BY_ONE, stopping
from easybalance_sim.rebalancing.request import NEVER, OURS, STATIC, RebalanceRequest
from easybalance_sim.rebalancing.run import Prepared, described, prepare
from easybalance_sim.simulate.rebalance.controllers import Controller
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.controllers.guarded import Guarded
from easybalance_sim.simulate.rebalance.controllers.periodic import Periodic
from easybalance_sim.simulate.rebalance.report import course_section

INTERVALS = (300, 1000, 3000, 10_000, 30_000)
"""Steps between two plans of a periodic loop."""
ENOUGH = (1.0, 0.95)
"""Utilisation above which a periodic loop keeps its plan, 1 = never."""
MIN_GAINS, COOLDOWNS, CONFIRMATIONS = (0.005, 0.02, 0.05), (4, 16, 64), (1, 2)
KEPT = ("seconds", "saved_s_per_hour", "step_us", "replans", "bytes", "pause_s", "oscillations")


def sweep_loops(request: RebalanceRequest, tell: Listener) -> dict[str, Any]:
    """The JSON object of `ebsim rebalance --sweep`.

    rows: every setting with its figures on either half · chosen: of each family the setting with the fewest seconds on
    the first half; its figures on the second are what it is worth. Raises as `rebalance`.
    """
    ready = prepare(request, tell)
    middle = (ready.first + len(ready.load)) // 2
    rows: list[dict[str, Any]] = [
        {"family": family, "setting": setting} for family, setting, _ in _settings(request, ready)
    ]
    for half, begin, end in (("chosen_on", ready.first, middle), ("judged_on", middle, len(ready.load))):
        courses = ready.serve([loop for _, _, loop in _settings(request, ready)], begin, end, tell)
        for row, course in zip(rows, courses, strict=True):
            section = course_section(course, courses[0], ready.service)
            row[half] = {name: section[name] for name in KEPT}
    families = dict.fromkeys(row["family"] for row in rows)
    best = {
        family: min((row for row in rows if row["family"] == family), key=lambda row: row["chosen_on"]["seconds"])
        for family in families
    }
    return {**described(ready), "rows": rows, "chosen": best}


def _settings(request: RebalanceRequest, ready: Prepared) -> list[tuple[str, dict[str, float], Controller]]:
    """(family, setting, a fresh loop) of every point; the loop that never re-plans first."""
    service = ready.service
    points: list[tuple[str, dict[str, float], Controller]] = [
        (NEVER, {}, Fixed(name=NEVER)),
        (STATIC, {}, Fixed(name=STATIC)),
    ]
    styles = {"periodic": ONE_BY_ONE, "periodic-sync": stopping(request, "vllm-sync", ready.experts)}
    for interval, enough, family in product(INTERVALS, ENOUGH, styles):
        loop = Periodic(
            name=family,
            service=service,
            interval_steps=interval,
            window_steps=min(interval, 1000),
            style=styles[family],
            enough=enough,
        )
        points.append((family, {"interval_steps": interval, "enough": enough}, loop))
    for gain, cooldown, confirm in product(MIN_GAINS, COOLDOWNS, CONFIRMATIONS):
        guard = replace(request.guard, min_gain=gain, cooldown=cooldown, confirm=confirm)
        ours = Guarded(name=OURS, service=service, style=ONE_BY_ONE, guard=guard, seed=request.settings.seed)
        points.append((OURS, {"min_gain": gain, "cooldown": cooldown, "confirm": confirm}, ours))
    return points

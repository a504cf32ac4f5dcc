"""Control loops, one file each: they see a window after it was served and may ask for another plan."""

from __future__ import annotations

from typing import Protocol

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Window


class Controller(Protocol):
    """What a control loop offers."""

    name: str
    """As the table prints it."""

    style: Style
    """How its plans are taken into service."""

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """A window was served, `plan` is in force; the plan to have instead, None = keep it. busy: a plan is on its way
        into service, so the answer has to be None."""

"""No control at all: one plan for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Window


@dataclass(kw_only=True)
class Fixed:
    """Keeps what it has."""

    name: str
    style: Style = field(default_factory=Style)

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Nothing to change."""
        return None

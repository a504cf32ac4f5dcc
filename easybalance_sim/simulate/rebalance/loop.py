"""Several control loops on the same windows, one after the other: serve, charge, observe, decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.controllers import Controller
from easybalance_sim.simulate.rebalance.controllers.guarded import takes_back
from easybalance_sim.simulate.rebalance.rollout_style import Change
from easybalance_sim.simulate.rebalance.serving import Service, Window


@dataclass(frozen=True, kw_only=True)
class Replan:
    """One change of plan. window: after which it was decided · moves: experts that travelled · bytes: of them ·
    transfer_s: until the slowest rank had its own · staging_slots: experts beside a rank's slots while a layer changes
    · oscillates: most of it takes back the change before."""

    window: int
    moves: int
    bytes: int
    transfer_s: float
    staging_slots: int
    oscillates: bool


@dataclass(kw_only=True, eq=False)
class Course:
    """How one control loop fared. step_s: seconds of drawn steps, float64[D] per window · steps: of each window ·
    imbalance: mean over layers of each window · pauses: (window, seconds) that serving waited."""

    controller: Controller
    plan: Plan
    step_s: list[FloatArray] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    imbalance: list[FloatArray] = field(default_factory=list)
    pauses: list[tuple[int, float]] = field(default_factory=list)
    replans: list[Replan] = field(default_factory=list)
    _before: Plan | None = None
    _change: Change | None = None

    def serve(self, window: Window, service: Service) -> None:
        """One window: serve it with the plan in force, then let the loop look at it."""
        plan = self.plan if self._change is None else self._change.serving()
        seconds = service.step_seconds(window, plan)
        self.step_s.append(seconds)
        self.steps.append(window.steps)
        self.imbalance.append(service.imbalance(window, plan))
        if self._change is not None:
            self._go_on(window, float(seconds.mean()) * window.steps)
        if self._change is None:
            asked = self.controller.observe(window, self.plan)
            if asked is not None:
                self._begin(window, asked, service)

    def _begin(self, window: Window, new: Plan, service: Service) -> None:
        moves, transfer_s = service.transfer(self.plan, new)
        if not moves.any():
            return
        back = self._before is not None and takes_back(self._before, self.plan, new)
        self.replans.append(
            Replan(
                window=window.number,
                moves=int(moves.sum()),
                bytes=int(moves.sum()) * service.expert_bytes,
                transfer_s=transfer_s,
                staging_slots=_staging(self.plan, new),
                oscillates=back,
            )
        )
        self._change = Change(
            old=self.plan,
            new=new,
            style=self.controller.style,
            moves=tuple(moves.tolist()),
            transfer_s=transfer_s,
        )
        # What stops serving stops it before the next window.
        self._go_on(window, 0.0, steps=0.0)

    def _go_on(self, window: Window, seconds: float, steps: float | None = None) -> None:
        change = self._change
        if change is None:
            return
        pauses = change.advance(window.steps if steps is None else steps, seconds)
        self.pauses += [(window.number, pause) for pause in pauses]
        if change.is_done:
            self._before, self.plan, self._change = change.old, change.new, None


def _staging(old: Plan, new: Plan) -> int:
    """Experts that the fullest rank holds beside its slots while one layer changes."""
    from easybalance_sim.plan.migration import moving_slots

    arriving = moving_slots(old, new)
    return int(np.add.reduceat(arriving, new.slot_start[:-1], axis=1, dtype=np.int64).max())


def run(
    windows: Iterable[Window],
    controllers: Sequence[tuple[Controller, Plan]],
    service: Service,
    advance: Callable[[int], None] = lambda done: None,
) -> list[Course]:
    """Every control loop, from its own first plan, over all windows; `advance` is told of windows."""
    courses = [Course(controller=controller, plan=plan) for controller, plan in controllers]
    for window in windows:
        for course in courses:
            course.serve(window, service)
        advance(1)
    return courses

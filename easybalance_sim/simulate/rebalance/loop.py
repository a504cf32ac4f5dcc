"""Several control loops on the same windows, one after the other: serve, charge, observe, decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from easybalance_sim.arrays import FloatArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.controllers import Controller
from easybalance_sim.simulate.rebalance.rollout_style import Change
from easybalance_sim.simulate.rebalance.serving import Service, Window
from easybalance_sim.simulate.rebalance.transfer import takes_back


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Steps of a window that one plan served. window: its number · step_s: float64[D] seconds of drawn steps ·
    imbalance: float64[L] of the window · without_s: float64[D] the same steps under the plan before the last change,
    None before the first."""

    window: int
    steps: float
    step_s: FloatArray
    imbalance: FloatArray
    without_s: FloatArray | None = None

    @property
    def seconds(self) -> float:
        """Of all its steps."""
        return float(self.step_s.mean()) * self.steps


@dataclass(frozen=True, kw_only=True)
class Replan:
    """One change of plan. window: after which it was decided · moves: experts that travelled · bytes: of them ·
    transfer_s: of all layers, one after the other · staging_slots: experts beside a rank's slots while a layer changes
    · oscillates: most of it takes back the change before · pauses: seconds that serving waited for it · pieces: that
    its plan served, until the next one was in force."""

    window: int
    moves: int
    bytes: int
    transfer_s: float
    staging_slots: int
    oscillates: bool
    pauses: list[float] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list, repr=False)


@dataclass(kw_only=True, eq=False)
class Course:
    """How one control loop fared. plan: in force · pieces: all that was served, in order."""

    controller: Controller
    plan: Plan
    pieces: list[Piece] = field(default_factory=list)
    replans: list[Replan] = field(default_factory=list)
    _before: Plan | None = None
    _change: Change | None = None

    @property
    def pauses(self) -> list[float]:
        """Seconds of every pause, in order."""
        return [pause for replan in self.replans for pause in replan.pauses]

    def serve(self, window: Window, service: Service) -> None:
        """One window: serve it with the plan in force, then let the loop look at it."""
        left = window.steps
        while left > 0:
            left -= self._piece(window, left, service)
        asked = self.controller.observe(window, self.plan, busy=self._change is not None)
        if asked is not None and self._change is None:
            self._begin(window, asked, service)

    def _piece(self, window: Window, most: float, service: Service) -> float:
        """Serve until the window or a change ends; returns the steps."""
        change = self._change
        plan = self.plan if change is None else change.serving()
        step_s = service.step_seconds(window, plan)
        mean = float(step_s.mean())
        steps = most if change is None else min(most, change.steps_left(mean))
        judged = change is None and self._before is not None
        piece = Piece(
            window=window.number,
            steps=steps,
            step_s=step_s,
            imbalance=service.imbalance(window, plan),
            without_s=service.step_seconds(window, self._before) if judged and self._before is not None else None,
        )
        self.pieces.append(piece)
        if judged:
            self.replans[-1].pieces.append(piece)
        if change is not None:
            self._go_on(change, steps, mean)
        return steps

    def _begin(self, window: Window, new: Plan, service: Service) -> None:
        needs = service.transfer(self.plan, new)
        moves = int(needs.moves.sum())
        if not moves:
            return
        self.replans.append(
            Replan(
                window=window.number,
                moves=moves,
                bytes=moves * service.expert_bytes,
                transfer_s=float(needs.layer_s.sum()),
                staging_slots=needs.staging_slots,
                oscillates=self._before is not None and takes_back(self._before, self.plan, new),
            )
        )
        style = self.controller.style
        self._change = Change(old=self.plan, new=new, style=style, layer_s=tuple(needs.layer_s.tolist()))
        # What stops serving stops it before the next window.
        self._go_on(self._change, 0.0, self.pieces[-1].step_s.mean())

    def _go_on(self, change: Change, steps: float, step_s: float) -> None:
        self.replans[-1].pauses.extend(change.advance(steps, step_s))
        if change.is_done:
            self._before, self.plan, self._change = change.old, change.new, None


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

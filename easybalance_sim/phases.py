"""Two plans from the phases of one trace: prefill pays for tokens, decode for the experts that are active.

Each plan is fitted and judged on the tokens of its phase alone, with the kernel and the all-to-all of that phase. Then
each is replayed on the held-out traffic of the other, which tells whether two plans are worth having.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.hardware import PHASES as PLANNED
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.load.split import FIT, HELD_OUT
from easybalance_sim.pipeline import Made, fit_and_judge, publish
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.relabel import nearest_to
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Listener
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.schema import PHASES, CountTrace

SEVERITY = (2, 3, 1, 0)
"""Exit codes, the worst first."""


def make_phase_plans(request: PlanRequest, tell: Listener) -> tuple[dict[str, Any], int]:
    """One plan per phase that the trace holds, the files named after the phase: plan.json → plan.decode.json.

    Returns {"phases": {phase: report}, "cross": comparison or None} and the worst exit code. Both plans are made before
    the first is written. Raises `EbsimError` subclasses for bad input; `UsageError` when no phase is known.
    """
    made = fit_phases(request, tell)
    codes = [one.verdict.exit_code for one in made.values()]
    return publish_phases(request, made), min(codes, key=SEVERITY.index)


def fit_phases(request: PlanRequest, tell: Listener) -> dict[str, Made]:
    """The plan of each phase that the trace holds, not written yet. Raises as `make_phase_plans`."""
    if request.settings.phase is not None:
        raise UsageError("plans for both phases", where="--per-phase", fix="leave out --phase")
    asked = {phase: of_phase(request, phase) for phase in _phases_of(request, tell)}
    heard = _Heard(tell)
    try:
        return {phase: _made(one, phase, heard) for phase, one in asked.items()}
    finally:
        heard.tell_all()


def publish_phases(request: PlanRequest, made: Mapping[str, Made]) -> dict[str, Any]:
    """Write the files where the request and the verdicts allow it; {"phases": …, "cross": …} as `make_phase_plans`."""
    asked = {phase: of_phase(request, phase) for phase in made}
    reports = {phase: publish(asked[phase], one) for phase, one in made.items()}
    return {"phases": reports, "cross": _cross(made)}


def of_phase(request: PlanRequest, phase: str) -> PlanRequest:
    """The request for the tokens of one phase; its plan in force is the file of that phase where there is one."""
    current = request.current
    if current is not None and named_after(current, phase).exists():
        current = named_after(current, phase)
    return replace(
        request,
        settings=replace(request.settings, phase=phase),
        output=None if request.output is None else named_after(request.output, phase),
        current=current,
    )


def named_after(path: Path, phase: str) -> Path:
    """plan.json → plan.decode.json."""
    return path.with_name(f"{path.stem}.{phase}{path.suffix}")


def _phases_of(request: PlanRequest, tell: Listener) -> list[str]:
    """The phases to plan for; notes what is in no plan."""
    trace = open_trace(request.settings.traces, workers=request.settings.workers())
    if isinstance(trace, CountTrace):
        tokens: IntArray = np.bincount(trace.phase, weights=trace.batch_tokens, minlength=len(PHASES)).astype(np.int64)
    else:
        tokens = trace.scan().phase_tokens
    found = [phase for phase in PLANNED if tokens[PHASES.index(phase)]]
    if not found:
        raise UsageError(
            "the trace does not say which tokens are prefill and which decode",
            where="--per-phase",
            fix="record the phase, or plan without --per-phase",
        )
    unknown = int(tokens.sum()) - sum(int(tokens[PHASES.index(phase)]) for phase in found)
    if unknown:
        tell.note(f"{unknown:,} tokens of unknown phase are in no plan")
    if len(found) == 1:
        tell.note(f"the trace holds {found[0]} only: one plan")
    return found


def _made(request: PlanRequest, phase: str, heard: _Heard) -> Made:
    heard.phase = phase
    try:
        return fit_and_judge(request, heard)
    except EbsimError as error:
        where = f"{phase}: {error.where}" if error.where else phase
        raise type(error)(error.what, where=where, fix=error.fix) from error


class _Heard:
    """A listener that passes on what both phases say once, the rest with the name of its phase."""

    def __init__(self, tell: Listener) -> None:
        self.phase, self._tell = "", tell
        self._said: dict[str, list[str]] = {}

    def note(self, text: str) -> None:
        self._said.setdefault(text, []).append(self.phase)

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        return self._tell.progress(f"{self.phase}: {label}", total)

    def tell_all(self) -> None:
        for text, phases in self._said.items():
            alone = len(set(phases)) == 1
            self._tell.note(f"{phases[0]}: {text}" if alone else text)


def _cross(made: Mapping[str, Made]) -> dict[str, Any] | None:
    """What the two plans have in common, and each plan on the traffic of either phase; None with one plan."""
    if len(made) < len(PLANNED):
        return None
    prefill, decode = (made[phase] for phase in PLANNED)
    near = nearest_to(prefill.plan, decode.plan, prefill.session.topology.rank_kind)
    return {
        "differing_experts": int(moving_slots(prefill.plan, near).sum()),
        "placed_experts": near.slots * near.layers,
        "on": {
            traffic: {phase: _figures(made[traffic], made[phase], traffic == phase) for phase in PLANNED}
            for traffic in PLANNED
        },
    }


def _figures(judged: Made, planned: Made, own: bool) -> dict[str, Any]:
    """A few figures of the plan of `planned` on the held-out traffic of `judged`."""
    if own:
        section = planned.report["plan"]
    else:
        side = HELD_OUT if judged.traffic.has_held_out() else FIT
        (outcome,) = judged.traffic.replay([planned.plan], side, judged.session.bench)
        section = outcome.section(judged.session.shape)
    return {
        "policy": section["policy"],
        "rank_imbalance": {name: section["rank_imbalance"][name] for name in ("mean", "p99")},
        "layer_us": {name: section["layer_us"][name] for name in ("p50", "p99")},
        "active_experts_per_rank": section["active_experts_per_rank"],
    }

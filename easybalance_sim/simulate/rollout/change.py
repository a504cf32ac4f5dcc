"""What `ebsim diff` does: two plan files, and the steps from one to the other while serving."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.errors import UsageError
from easybalance_sim.files import require_place, write_text
from easybalance_sim.plan.difference import Difference, difference
from easybalance_sim.plan.migration_steps import Limits
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.simulate.rollout.facts import widths_of


@dataclass(frozen=True, kw_only=True)
class ChangeRequest:
    """old: the plan in force · new: the plan that follows it · staging_slots: experts that a GPU can hold beside its
    slots, 0 = serving stops for each step · step_mb, step_ms: most that a step may move and take, 0 = no limit · model:
    whose experts travel, empty = the plan's · profile: GPU, for its links, empty = the new plan's · output: where the
    steps are written for a rollout tool."""

    old: Path
    new: Path
    staging_slots: int = 1
    step_mb: float = 0.0
    step_ms: float = 0.0
    model: str = ""
    profile: str = ""
    output: Path | None = None


def change(request: ChangeRequest) -> Difference:
    """The difference; written, whole or not at all, where an output is named.

    Raises `PlanError` for files that are no plans or cannot be compared, `UsageError` for limits without the size of an
    expert and for an output that cannot be written, `ProfileError` for an unknown model or GPU.
    """
    if request.output is not None:
        require_place(request.output, (request.old, request.new))
    old, new = read_plan(request.old), read_plan(request.new)
    expert_bytes = widths_of(request.model, new).expert_bytes
    found = difference(
        old,
        new,
        load_profile(request.profile or new.topology.profile),
        expert_bytes=expert_bytes,
        limits=_limits(request, expert_bytes),
    )
    if request.output is not None:
        write_text(request.output, found.rollout_text())
    return found


def _limits(request: ChangeRequest, expert_bytes: int) -> Limits:
    for flag, limit in (("--step-mb", request.step_mb), ("--step-ms", request.step_ms)):
        if not math.isfinite(limit):
            raise UsageError(f"{limit} is no limit", where=flag, fix="give a number")
        if limit and not expert_bytes:
            raise UsageError("the size of an expert is not known", where=flag, fix="say --model NAME|config.json")
    return Limits(
        staging_slots=request.staging_slots, step_bytes=math.ceil(request.step_mb * 1e6), step_s=request.step_ms / 1e3
    )

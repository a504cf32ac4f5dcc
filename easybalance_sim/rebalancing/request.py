"""What a run of control loops is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from easybalance_sim.planning.session import Settings
from easybalance_sim.simulate.rebalance.controllers.guarded import Guard

NEVER, STATIC, OURS = "never", "static", "guarded"
LOOPS = (NEVER, STATIC, "sglang", "vllm", "vllm-sync", "tensorrt-llm", "vllm-ascend", OURS)
FEWEST_WINDOWS = 16


@dataclass(frozen=True, kw_only=True)
class RebalanceRequest:
    """What the user asked for. current: the plan in force, None = contiguous · first: share of the windows that the
    offline plan is made from and that no loop is judged on · loops: names of `LOOPS` · step_s: seconds of a whole step
    for traces that tell windows in seconds · other_s: of a step outside the MoE layers · pause_s: that a synchronous
    re-plan stops serving, as measured; None = links and planning say · hours: that the trace is taken to last, its
    windows stretched; 0 = as recorded · guard: settings of ours."""

    settings: Settings
    current: Path | None = None
    first: float = 0.2
    loops: tuple[str, ...] = LOOPS
    step_s: float = 0.025
    other_s: float = 0.0
    pause_s: float | None = None
    hours: float = 0.0
    guard: Guard = field(default_factory=Guard)

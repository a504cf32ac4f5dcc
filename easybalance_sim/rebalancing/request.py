"""What a run of control loops is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.planning.session import Settings
from easybalance_sim.simulate.rebalance.controllers.guarded import Guard

NEVER, STATIC, OURS = "never", "static", "guarded"
LOOPS = (NEVER, STATIC, "sglang", "sglang-chunked", "vllm", "vllm-sync", "tensorrt-llm", "vllm-ascend", OURS)
FEWEST_WINDOWS = 16


@dataclass(frozen=True, kw_only=True)
class RebalanceRequest:
    """What the user asked for. current: the plan in force, None = contiguous · first: share of the windows that the
    offline plan is made from and that no loop is judged on · loops: names of `LOOPS` · step_s: seconds of a whole step
    for traces that tell windows in seconds · other_s: of a step outside the MoE layers · pause_s: that a synchronous
    re-plan stops serving, as measured; None = links and planning say · hours: that the trace is taken to last, its
    windows stretched; 0 = as recorded · cold_start: loops begin with the plan in force, as an engine without a map, and
    not with the offline plan · guard: settings of ours. Raises `UsageError` for a loop that there is not and for
    numbers that are not finite."""

    settings: Settings
    current: Path | None = None
    first: float = 0.2
    loops: tuple[str, ...] = LOOPS
    step_s: float = 0.025
    other_s: float = 0.0
    pause_s: float | None = None
    hours: float = 0.0
    cold_start: bool = False
    guard: Guard = field(default_factory=Guard)

    def __post_init__(self) -> None:
        unknown = [name for name in self.loops if name not in LOOPS]
        if unknown:
            fix = f"{did_you_mean(unknown[0], LOOPS)}choose {', '.join(LOOPS)}"
            raise UsageError(f"no control loop {unknown[0]!r}", where="--loop", fix=fix)
        limits = {**vars(self), **vars(self.guard)}
        for name, value in limits.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name.removesuffix('_s').replace('_', ' ')} is {value}", fix="give a finite number")

    @property
    def plans_offline(self) -> bool:
        """Whether a loop needs the offline plan."""
        return not self.cold_start or STATIC in self.loops

"""A public case of re-planning that lost: Kimi-K3 on 16 ranks, 24 synchronous re-arrangements, in simulation.

vLLM PR #50647: 92 MoE layers × 896 experts, top-16. The run took 463.11 s without and 1466.50 s with EPLB, so 41.8 s
for each re-arrangement, while the median of the busiest over the mean rank fell from 1.069 to 1.008 (balancedness
0.936 to 0.992). Not public, so assumed: tokens per step, the shape of the skew (log-normal experts that jitter from one
re-arrangement to the next, set so that both medians come out), no redundant slots, 2 × 8 B200, and the share of a step
that the MoE layers make up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.planning.session import Settings
from easybalance_sim.rebalancing.request import NEVER, RebalanceRequest
from easybalance_sim.rebalancing.run import Prepared, prepare
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.controllers.periodic import Periodic
from easybalance_sim.simulate.rebalance.report import course_section
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.trace.schema import CountTrace, TraceMeta, id_dtype
from easybalance_sim.trace.writer import write_count_trace
from tests.listeners import Heard

RANKS, LAYERS, EXPERTS, TOP_K = 16, 92, 896, 16
RUN_S, WITH_EPLB_S, REARRANGEMENTS = 463.11, 1466.50, 24
PAUSE_S = (WITH_EPLB_S - RUN_S) / REARRANGEMENTS
SKEW, JITTER, STEP_TOKENS = 0.283, 0.0225, 1024


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """never, eplb: sections of the report · steps: in the run without EPLB · before, after: median imbalance."""

    never: dict[str, Any]
    eplb: dict[str, Any]
    steps: float
    before: float
    after: float


def trace(path: Path, layers: int, seed: int) -> Path:
    """One window before the run and one for each re-arrangement."""
    rng, windows = np.random.default_rng(seed), REARRANGEMENTS + 1
    weight = np.exp(rng.normal(0, SKEW, (layers, EXPERTS)))
    share = weight * np.exp(rng.normal(0, JITTER, (windows, layers, EXPERTS)))
    share /= share.sum(axis=2, keepdims=True)
    order, batch = np.arange(windows), STEP_TOKENS * 1000
    write_count_trace(
        path,
        CountTrace(
            meta=TraceMeta(
                kind="counts", layers=tuple(range(1, layers + 1)), experts=EXPERTS, top_k=TOP_K,
                dtype=id_dtype(EXPERTS), model="kimi-k3",
            ),
            paths=(str(path),), tokens=rng.multinomial(batch * TOP_K, share), window=order,
            start_s=order.astype(np.float64), span_s=np.ones(windows), phase=np.ones(windows, np.uint8),
            workload=np.zeros(windows, np.int16), batch_tokens=np.full(windows, batch), workloads=("",),
        ),
    )  # fmt: skip
    return path


def prepared(path: Path, layers: int, *, step_tokens: int = STEP_TOKENS, seed: int = 0) -> Prepared:
    """The cluster, and loops that begin with contiguous ranks as the run did."""
    settings = Settings(
        traces=(trace(path, layers, seed),), ranks=RANKS, ranks_per_node=8, slots_per_rank=EXPERTS // RANKS,
        model="kimi-k3", profile="b200", step_tokens=step_tokens, seed=seed,
    )  # fmt: skip
    request = RebalanceRequest(settings=settings, cold_start=True, loops=(NEVER,), first=0.05, step_s=0.001)
    return prepare(request, Heard())


def outcome(ready: Prepared, moe_share: float, pause_s: float | None) -> Outcome:
    """The run as long as the public one, EPLB after every window. pause_s: None = links say · moe_share: of a step."""
    moe_s = float(np.mean([ready.service.step_seconds(window, ready.start).mean() for window in _windows(ready)]))
    step_s = moe_s / moe_share
    steps = RUN_S / step_s / REARRANGEMENTS
    service = replace(ready.service, other_s=step_s - moe_s)
    load = replace(ready.load, steps=np.full(len(ready.load), steps))
    eplb = Periodic(
        name="eplb", service=service, interval_steps=steps, window_steps=steps, style=Style(measured_s=pause_s)
    )
    run = replace(ready, service=service, load=load)
    never, planned = run.serve([Fixed(name=NEVER), eplb], ready.first, len(load), Heard())
    ratio = [np.concatenate([piece.imbalance for piece in course.pieces[1:]]) for course in (never, planned)]
    return Outcome(
        never=course_section(never, never, service),
        eplb=course_section(planned, never, service),
        steps=steps * REARRANGEMENTS,
        before=float(np.median(ratio[0])),
        after=float(np.median(ratio[1])),
    )


def _windows(ready: Prepared) -> Any:
    from easybalance_sim.rebalancing.load import windows_of

    return windows_of(ready.service, ready.load, ready.first)

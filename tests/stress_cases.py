"""Traffic of known kinds, and plans with a known weakness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.planning.session import Settings
from easybalance_sim.verification import ReplayRequest, replay_plan
from tests.listeners import Heard
from tests.plan_documents import placed_document
from tests.trace_files import Columns, token_meta, write_trace

EXPERTS, TOP_K, RANKS, LAYERS = 16, 2, 4, (3, 5)
AT_ONCE, LIFE = 256, 8
WIDTHS = {"model": "stressed-moe", "hidden": 2048, "intermediate": 1408, "weight_dtype": "bf16"}
USUAL, RARE = (0, 1, 2, 3), (4, 8, 12, 13)
"""Hot experts: those of the usual traffic are all on one rank of the contiguous placement, the rare ones nearly not."""
SHARES = {"usual": 7, "rare": 1}
HOT = {"usual": USUAL, "rare": RARE}


def kinds_columns(
    steps: int = 96,
    *,
    seed: int = 0,
    shares: Mapping[str, int] = SHARES,
    hot: Mapping[str, Sequence[int]] = HOT,
    weight: float = 40.0,
) -> Columns:
    """256 requests at a time, each 8 steps long; shares: places of 8 that a workload has."""
    rng = np.random.default_rng(seed)
    step, slot = np.repeat(np.arange(steps), AT_ONCE), np.tile(np.arange(AT_ONCE), steps)
    names = np.repeat(np.array(list(shares)), list(shares.values()))
    workload = names[slot // LIFE % len(names)]
    weights = np.ones((len(step), EXPERTS))
    for name, chosen in hot.items():
        weights[np.ix_(workload == name, list(chosen))] = weight
    race = rng.exponential(size=(len(step), len(LAYERS), EXPERTS)) / weights[:, None, :]
    return {
        "step": step.astype(np.int32),
        "request": (step + slot % LIFE) // LIFE * AT_ONCE + slot,
        "position": ((step + slot) % LIFE).astype(np.int32),
        "phase": np.full(len(step), "prefill"),
        "source_rank": (slot % RANKS).astype(np.int16),
        "workload": workload,
        "experts": race.argsort(axis=2)[:, :, :TOP_K].astype(np.uint8),
    }


def kinds_trace(path: Path, steps: int = 96, **kinds: Any) -> Path:
    """`kinds_columns` as a trace of a model whose widths are known."""
    meta = token_meta(LAYERS, EXPERTS, TOP_K, ranks=RANKS, **WIDTHS)
    return write_trace(path, kinds_columns(steps, **kinds), meta)


def placed(*ranks: Sequence[int], policy: str = "planted") -> Plan:
    """The same placement in both layers; ranks: experts of each."""
    row = [expert for rank in ranks for expert in rank]
    slots = np.array([len(rank) for rank in ranks])
    return Plan(expert_of_slot=np.array([row] * len(LAYERS)), slots_per_rank=slots, experts=EXPERTS, policy=policy)


OVERFITTED = placed((0, 4, 8, 12), (1, 13, 5, 6), (2, 7, 9, 10), (3, 11, 14, 15))
"""Spreads the usual hot experts, and has three of the rare ones on rank 0: in each layer."""

BALANCED = placed((0, 4, 5, 6), (1, 8, 7, 9), (2, 12, 10, 11), (3, 13, 14, 15))
"""Spreads both."""


def stressed(trace: Path, plan: Plan, folder: Path, **said: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Report of `ebsim replay --stress` for a plan that was made elsewhere, and its findings by criterion."""
    path = folder / "planted.json"
    write_plan(path, placed_document(plan, LAYERS))
    request = {name: said.pop(name) for name in ("baseline", "criteria") if name in said}
    settings = Settings(traces=(trace,), **said)
    report, verdict = replay_plan(ReplayRequest(settings=settings, plan=path, stress=True, **request), Heard())
    return report, {finding.criterion: finding for finding in verdict.findings}

"""Runs of `make_plan` with little effort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from easybalance_sim.gate.verdict import Verdict
from easybalance_sim.pipeline import make_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.policies import Effort
from tests.listeners import Heard

CLUSTER: dict[str, Any] = {"ranks": 4, "slots_per_rank": 5}
QUICK = Effort(proposals=10_000)


def run(path: Path, heard: Heard | None = None, *, said: Any = None, **request: Any) -> tuple[dict[str, Any], Verdict]:
    """Report and verdict on 4 ranks × 5 slots; said: other settings."""
    settings = Settings(traces=(path,), **{**CLUSTER, **(said or {})})
    return make_plan(PlanRequest(settings=settings, **{"effort": QUICK, **request}), heard or Heard())

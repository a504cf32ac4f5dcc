"""The command line's work as functions with results: one module per command, imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easybalance_sim.api.adopting import AdoptResult, adopt
    from easybalance_sim.api.comparing import CompareResult, compare
    from easybalance_sim.api.diffing import DiffResult, diff
    from easybalance_sim.api.explaining import ExplainResult, explain
    from easybalance_sim.api.exporting import ExportResult, export
    from easybalance_sim.api.gating import GateResult, gate
    from easybalance_sim.api.linting import LintResult, lint
    from easybalance_sim.api.mechanisms import ClaimResult, OffsetResult, claim, offset
    from easybalance_sim.api.offloading import OffloadResult, offload
    from easybalance_sim.api.plan_files import PlanResult, load_plan
    from easybalance_sim.api.planning import PhasePlans, plan, plan_phases
    from easybalance_sim.api.rebalancing import RebalanceResult, rebalance
    from easybalance_sim.api.replaying import ReplayResult, replay
    from easybalance_sim.api.simulating import CapacityResult, SimulateResult, capacity, simulate
    from easybalance_sim.api.sweeping import SweepResult, sweep
    from easybalance_sim.api.traces import write_trace

_HOME = {
    "plan": "planning",
    "plan_phases": "planning",
    "PhasePlans": "planning",
    "load_plan": "plan_files",
    "PlanResult": "plan_files",
    "replay": "replaying",
    "ReplayResult": "replaying",
    "sweep": "sweeping",
    "SweepResult": "sweeping",
    "rebalance": "rebalancing",
    "RebalanceResult": "rebalancing",
    "simulate": "simulating",
    "SimulateResult": "simulating",
    "capacity": "simulating",
    "CapacityResult": "simulating",
    "offset": "mechanisms",
    "OffsetResult": "mechanisms",
    "claim": "mechanisms",
    "ClaimResult": "mechanisms",
    "offload": "offloading",
    "OffloadResult": "offloading",
    "gate": "gating",
    "GateResult": "gating",
    "export": "exporting",
    "ExportResult": "exporting",
    "lint": "linting",
    "LintResult": "linting",
    "adopt": "adopting",
    "AdoptResult": "adopting",
    "diff": "diffing",
    "DiffResult": "diffing",
    "explain": "explaining",
    "ExplainResult": "explaining",
    "compare": "comparing",
    "CompareResult": "comparing",
    "write_trace": "traces",
}
"""Which module a name comes from."""

__all__ = [
    "AdoptResult", "CapacityResult", "ClaimResult", "CompareResult", "DiffResult", "ExplainResult", "ExportResult",
    "GateResult", "LintResult", "OffloadResult", "OffsetResult", "PhasePlans", "PlanResult", "RebalanceResult",
    "ReplayResult", "SimulateResult", "SweepResult", "adopt", "capacity", "claim", "compare", "diff", "explain",
    "export", "gate", "lint", "load_plan", "offload", "offset", "plan", "plan_phases", "rebalance", "replay",
    "simulate", "sweep", "write_trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

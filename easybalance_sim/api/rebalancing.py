"""`rebalance`: what `ebsim rebalance` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, PathLike, Traces, names_of, settings_of
from easybalance_sim.api.plan_files import PlanLike, file_of
from easybalance_sim.api.results import PageResult
from easybalance_sim.errors import UsageError
from easybalance_sim.planning.session import Listener
from easybalance_sim.rebalancing.request import LOOPS, RebalanceRequest
from easybalance_sim.rebalancing.run import rebalance as run
from easybalance_sim.rebalancing.strata import rebalance_by
from easybalance_sim.rebalancing.sweep import sweep_loops
from easybalance_sim.simulate.rebalance.controllers.guarded import Guard

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RebalanceResult(PageResult):
    """Control loops that served one trace side by side."""

    def line(self) -> str:
        """How many loops, or settings, over how many windows."""
        parts = [report for _, report in self._parts()]
        rows = sum(len(_rows(report)) for report in parts)
        windows = sum(report["trace"]["windows"] - report["trace"]["offline_windows"] for report in parts)
        return f"{rows} {'settings' if 'rows' in parts[0] else 'loops'} over {windows:,} windows"

    def table(self) -> pd.DataFrame:
        """One row per loop, or per setting that was tried; of each stratum, where there are several."""
        from easybalance_sim.api.tables import rows_of

        return rows_of({**head, **row} for head, report in self._parts() for row in _rows(report))

    def _parts(self) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
        """Of every stratum its name and its report; the whole report where there is one."""
        if "strata" not in self.report:
            yield {}, self.report
            return
        for name, report in self.report["strata"].items():
            yield {self.report["by"]: name}, report


def _rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(report["rows"] if "rows" in report else report["loops"])


def rebalance(
    traces: Traces,
    *,
    cluster: PathLike | None = None,
    ranks: int | None = None,
    ranks_per_node: int | None = None,
    slots_per_rank: int | None = None,
    model: PathLike = "",
    profile: PathLike = "",
    current: PlanLike | None = None,
    first: float = 0.2,
    cold_start: bool = False,
    loop: Names = None,
    sweep: bool = False,
    by: str = "",
    min_gain: float = 0.005,
    confirm: int = 1,
    certainty: float = 2.0,
    cooldown: int = 4,
    min_interval: int = 1,
    horizon: int = 256,
    step_limit: float = 0.25,
    pause_s: float | None = None,
    step_ms: float = 25.0,
    other_ms: float = 0.0,
    hours: float = 0.0,
    window_steps: int = 16,
    window_seconds: float = 0.0,
    step_tokens: int = 0,
    all_to_all: str = "auto",
    overlap: str = "none",
    workload: Names = None,
    phase: str | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> RebalanceResult:
    """Let control loops serve one trace side by side: never re-plan, one offline plan, what engines ship, and ours.

    Options are the flags of `ebsim rebalance`. Raises `EbsimError` subclasses for bad input.
    """
    said = locals()
    call, told = begun(rebalance, said)
    guard = Guard(**{name: said[name] for name in _GUARD})
    with file_of(current) as in_force:
        request = RebalanceRequest(
            settings=settings_of(said), current=in_force, first=first, loops=names_of(loop) or LOOPS,
            step_s=step_ms / 1e3, other_s=other_ms / 1e3, pause_s=pause_s, hours=hours, cold_start=cold_start,
            guard=guard,
        )  # fmt: skip
        report = _run(request, told, sweep=sweep, by=by)
    return RebalanceResult(report={**report, "notes": told.notes}, call=call)


_GUARD = ("min_gain", "confirm", "certainty", "cooldown", "min_interval", "horizon", "step_limit")


def _run(request: RebalanceRequest, tell: Listener, *, sweep: bool, by: str) -> dict[str, Any]:
    if sweep and by:
        raise UsageError("sweep and by exclude each other", fix="name one phase or workload for the sweep")
    if by:
        return rebalance_by(by, request, tell)
    return sweep_loops(request, tell) if sweep else run(request, tell)

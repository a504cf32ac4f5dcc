"""`simulate` and `capacity`: what the commands of these names do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Numbers, PathLike, Traces, numbers_of, paths_of
from easybalance_sim.api.plan_files import PlanLike, named
from easybalance_sim.api.results import PageResult
from easybalance_sim.deployment.request import SimulateRequest
from easybalance_sim.deployment.run import simulate as run_simulation
from easybalance_sim.deployment.scenario import is_claim
from easybalance_sim.deployment.sizing.request import CapacityRequest
from easybalance_sim.deployment.sizing.run import capacity as run_capacity
from easybalance_sim.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

Arrivals = PathLike | Mapping[str, PathLike] | None
"""A file of requests, or one for each tenant by its name; None = the scenario's."""
SIDES = ("before", "after", "even")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulateResult(PageResult):
    """What requests get of a deployment, under one plan and under another."""

    def line(self) -> str:
        """The verdict."""
        return " ".join(self.report["verdict"])

    def table(self) -> pd.DataFrame:
        """The plan before, the plan after, and ranks loaded alike; one row per number of the report."""
        from easybalance_sim.api.tables import side_by_side

        return side_by_side({side: self.report[side] for side in ("before", "even", "after")})[[*SIDES, "change"]]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CapacityResult(PageResult):
    """The most requests per second inside an SLO, and what else was asked."""

    def line(self) -> str:
        """The highest rates."""
        found = self.report["highest_rate"]["stated"]
        before, after = (found[side]["rate_per_s"] for side in ("before", "after"))
        apart = "" if found["told_apart"] else ", within the tolerance of the search"
        return f"{before:.3g} → {after:.3g} requests per second{apart}"

    def table(self) -> pd.DataFrame:
        """The highest rate of every plan, at both ends of what overlap can do."""
        from easybalance_sim.api.tables import rows_of

        found = self.report["highest_rate"]
        ends = {"stated": found["stated"], **found["bracket"]}
        rows = [
            {"overlap": end, "plan": side, **rates[side]}
            for end, rates in ends.items()
            for side in SIDES
            if rates.get(side)
        ]
        return rows_of(rows).set_index(["overlap", "plan"])


def simulate(
    scenario: PathLike,
    *,
    plan: PlanLike = "",
    baseline: PlanLike = "",
    trace: Traces | None = None,
    arrivals: Arrivals = None,
    rate: float | None = None,
    duration: float | None = None,
    overlap: str = "",
    seed: int | None = None,
    ttft_ms: float | None = None,
    tpot_ms: float | None = None,
    progress: bool = False,
) -> SimulateResult:
    """Serve a scenario's requests twice, with the plan before and the plan after, and say what they get.

    Options are the flags of `ebsim simulate`; plan, baseline: results, plan files, policies or "auto". Raises
    `EbsimError` subclasses for bad input, and `UsageError` for a capacity claim, which `claim` takes apart.
    """
    said = locals()
    call, told = begun(simulate, said)
    if is_claim(Path(scenario)):
        raise UsageError("is a capacity claim", where=str(scenario), fix="take it apart with claim(…)")
    with _request(said) as request:
        report = run_simulation(request, told)
    return SimulateResult(report={**report, "notes": told.notes}, call=call)


def capacity(
    scenario: PathLike,
    *,
    plan: PlanLike = "",
    baseline: PlanLike = "",
    fewest_gpus: bool = False,
    rate: float | None = None,
    replicas: Numbers = (),
    parallel: bool = False,
    trace: Traces | None = None,
    arrivals: Arrivals = None,
    duration: float | None = None,
    overlap: str = "",
    seed: int | None = None,
    seeds: int = 1,
    tolerance: float = 0.02,
    ttft_ms: float | None = None,
    tpot_ms: float | None = None,
    progress: bool = False,
) -> CapacityResult:
    """How many requests per second keep the SLO, before and after a plan, by bisection over simulated runs.

    Options are the flags of `ebsim capacity`. Raises `EbsimError` subclasses for bad input.
    """
    said = locals()
    call, told = begun(capacity, said)
    with _request(said) as changed:
        request = CapacityRequest(
            scenario=changed, gpus=fewest_gpus, replicas=numbers_of(replicas), parallel=parallel, seeds=seeds,
            tolerance=tolerance,
        )  # fmt: skip
        report = run_capacity(request, told)
    return CapacityResult(report={**report, "notes": told.notes}, call=call)


@contextmanager
def _request(said: Mapping[str, Any]) -> Iterator[SimulateRequest]:
    """The scenario and what the options change; plans that are results have a file meanwhile."""
    ttft_ms, tpot_ms = said["ttft_ms"], said["tpot_ms"]
    with ExitStack() as files:
        plan, baseline = (files.enter_context(named(said[name])) for name in ("plan", "baseline"))
        yield SimulateRequest(
            scenario=Path(said["scenario"]),
            plan=plan,
            baseline=baseline,
            trace=paths_of(said["trace"]),
            arrivals=_sources(said["arrivals"]),
            rate_per_s=said["rate"],
            duration_s=said["duration"],
            overlap=said["overlap"],
            seed=said["seed"],
            ttft_s=None if ttft_ms is None else ttft_ms / 1e3,
            tpot_s=None if tpot_ms is None else tpot_ms / 1e3,
        )


def _sources(arrivals: Arrivals) -> dict[str, Path]:
    """Files by tenant; the only one, when it is not named, is of the tenants that it says itself."""
    if arrivals is None:
        return {}
    if isinstance(arrivals, Mapping):
        return {tenant: Path(file) for tenant, file in arrivals.items()}
    return {"": Path(arrivals)}

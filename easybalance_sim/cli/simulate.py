"""`ebsim simulate`: what requests get of a deployment, under one plan and under another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.cli import options, report_file, report_table, simulate_options
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    from easybalance_sim.deployment.request import SimulateRequest


def simulate(
    scenario: simulate_options.ScenarioFile,
    plan: simulate_options.After = "",
    baseline: simulate_options.Before = "",
    trace: simulate_options.Trace = None,
    arrivals: simulate_options.Arrivals = None,
    rate: simulate_options.Rate = None,
    duration: simulate_options.Duration = None,
    overlap: simulate_options.Overlap = "",
    seed: simulate_options.Seed = None,
    ttft_ms: simulate_options.TtftMs = None,
    tpot_ms: simulate_options.TpotMs = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Serve a scenario's requests twice, with the plan before and the plan after, and say what they get.

    Time to first token, time per token, requests inside the SLO, tokens per second, where the seconds go, and what
    perfect balance would give. Plans are made from one half of the routing trace, requests in service draw from the
    other. Figures stand in a bracket: no communication hidden behind compute, and all of it. A capacity claim (a file
    with [claim]) is taken apart as `ebsim offset --scenario` does. Exit 0.

    \b
    Example: ebsim simulate scenarios/steady-chat.toml
    """
    console = Console()
    report_file.require(report, figures, [scenario, *(trace or ())])
    report_table.warn_of_first_run(console)
    from easybalance_sim.deployment.run import simulate as run
    from easybalance_sim.deployment.scenario import is_claim

    if is_claim(scenario):
        _require_alone(plan, baseline, trace, arrivals, rate, duration, overlap, seed, ttft_ms, tpot_ms)
        claim = _of_claim(scenario, console)
        _emit_claim(claim, format)
        report_file.write(report, figures, claim)
        return
    request = request_of(scenario, plan, baseline, trace, arrivals, rate, duration, overlap, seed, ttft_ms, tpot_ms)
    found = run(request, console)
    found["notes"] = console.notes
    _emit(found, format)
    report_file.write(report, figures, found)


def request_of(
    scenario: Path, plan: str, baseline: str, trace: list[Path] | None, arrivals: list[str] | None, rate: float | None,
    duration: float | None, overlap: str, seed: int | None, ttft_ms: float | None, tpot_ms: float | None,
) -> SimulateRequest:  # fmt: skip
    """The scenario and what the options change."""
    from easybalance_sim.deployment.request import SimulateRequest

    return SimulateRequest(
        scenario=scenario, plan=plan, baseline=baseline, trace=tuple(trace or ()), arrivals=_sources(arrivals or []),
        rate_per_s=rate, duration_s=duration, overlap=overlap, seed=seed,
        ttft_s=None if ttft_ms is None else ttft_ms / 1e3, tpot_s=None if tpot_ms is None else tpot_ms / 1e3,
    )  # fmt: skip


def _emit(report: dict[str, Any], format: Format) -> None:
    from easybalance_sim.cli import simulate_table

    emit(json_text(report) if format is Format.JSON else simulate_table.of(report))


def _sources(words: list[str]) -> dict[str, Path]:
    """Files by tenant; the only one, when it is not named, is of the tenants that it says itself."""
    from easybalance_sim.simulate.serving.arrivals import named_sources

    return {"": Path(words[0])} if len(words) == 1 and "=" not in words[0] else named_sources(words)


def _require_alone(*others: object) -> None:
    """Refuse what a claim would not look at."""
    from easybalance_sim.errors import UsageError

    if any(other not in (None, "", []) for other in others):
        raise UsageError(
            "a capacity claim brings its own traffic and mechanisms",
            where="simulate",
            fix="leave out all but --format, --report and --figures",
        )


def _of_claim(path: Path, console: Console) -> dict[str, Any]:
    """What becomes of a capacity claim."""
    from easybalance_sim.simulate.capacity.run import UNITS, run

    report = run(path, console.progress("asking what the cluster sustains", UNITS))
    return {"scenario": str(path), **report.to_dict(), "explained": report.explained(), "notes": console.notes}


def _emit_claim(claim: dict[str, Any], format: Format) -> None:
    from easybalance_sim.cli import offset_table

    emit(json_text(claim) if format is Format.JSON else offset_table.of_scenario(claim))

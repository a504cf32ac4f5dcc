"""`ebsim capacity`: the most requests per second inside an SLO, and the least hardware for a given number."""

from __future__ import annotations

from easybalance_sim.cli import capacity_options, options, report_file, report_table, simulate_options
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text


def capacity(
    scenario: simulate_options.ScenarioFile,
    plan: simulate_options.After = "",
    baseline: simulate_options.Before = "",
    fewest_gpus: capacity_options.FewestGpus = False,
    rate: capacity_options.Rate = None,
    replicas: capacity_options.Replicas = "",
    parallel: capacity_options.Parallel = False,
    trace: simulate_options.Trace = None,
    arrivals: simulate_options.Arrivals = None,
    duration: simulate_options.Duration = None,
    overlap: simulate_options.Overlap = "",
    seed: simulate_options.Seed = None,
    seeds: capacity_options.Seeds = 1,
    tolerance: capacity_options.Tolerance = 0.02,
    ttft_ms: simulate_options.TtftMs = None,
    tpot_ms: simulate_options.TpotMs = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """How many requests per second keep the SLO, before and after a plan, by bisection over simulated runs.

    On request also the fewest GPUs for a rate, how many replicas are worth their memory, and expert against tensor
    parallelism on the same GPUs. A rate holds when the scenario's share of requests (slo.share) keeps both limits and
    no queue grows. Rates stand in the bracket of what overlap can do: trust their ratios. Exit 0.

    \b
    Example: ebsim capacity scenarios/steady-chat.toml --duration 8 \\
        --tolerance 0.25
    """
    console = Console()
    report_file.require(report, figures, [scenario, *(trace or ())])
    report_table.warn_of_first_run(console)
    from easybalance_sim.cli import capacity_table
    from easybalance_sim.cli.simulate import request_of
    from easybalance_sim.deployment.sizing.request import CapacityRequest
    from easybalance_sim.deployment.sizing.run import capacity as run

    changed = request_of(scenario, plan, baseline, trace, arrivals, rate, duration, overlap, seed, ttft_ms, tpot_ms)
    request = CapacityRequest(
        scenario=changed, gpus=fewest_gpus, replicas=capacity_options.numbers_of(replicas), parallel=parallel,
        seeds=seeds, tolerance=tolerance,
    )  # fmt: skip
    found = run(request, console)
    found["notes"] = console.notes
    emit(json_text(found) if format is Format.JSON else capacity_table.of(found))
    report_file.write(report, figures, found)

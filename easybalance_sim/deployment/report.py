"""The JSON object of `ebsim simulate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.deployment.checks import check_section
from easybalance_sim.deployment.events import events
from easybalance_sim.deployment.measure import Measured
from easybalance_sim.deployment.pool_report import pool_section, served_section
from easybalance_sim.deployment.prepare import Prepared
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.scoring import lasts
from easybalance_sim.deployment.sizing.growth import growth
from easybalance_sim.deployment.verdict import none_answered, verdict
from easybalance_sim.simulate.serving.results import Seconds
from easybalance_sim.simulate.serving.workload import Workload

MEASURES = ("inside_slo", "goodput_per_s", "input_tokens_per_s", "output_tokens_per_s")
SPREADS = ("ttft_ms", "tpot_ms", "end_to_end_ms")


def of(
    file: Path, prepared: Prepared, runs: Sequence[Measured], others: Sequence[Measured], draws: Sequence[Measured]
) -> dict[str, Any]:
    """runs: before, after and even under the scenario's overlap · others: before and after under the other one · draws:
    before and after in turn, for several draws of routing and chance."""
    scenario = prepared.scenario
    before, after, even = (run_section(run) for run in runs)
    others_of = {run.key: _ends(run_section(run), scenario) for run in others}
    sections = {"before": before, "after": after, "even": even}
    ends = {key: _both(scenario.run.overlap, _ends(sections[key], scenario), others_of[key]) for key in others_of}
    pools = [pool_section(prepared, place) for place in range(len(scenario.pools))]
    for pool, place in zip(pools, range(len(pools)), strict=True):
        for run in runs[:2]:
            pool[run.key]["check"] = check_section(prepared, run, place)
    found = {
        "scenario": _scenario(file, scenario),
        "model": _model(prepared),
        "workload": _workload(runs[0], prepared),
        "routing": _routing(prepared),
        "slo": {"ttft_ms": scenario.slo.ttft_s * 1e3, "tpot_ms": scenario.slo.tpot_s * 1e3},
        "plans": {key: _plans(prepared, key) for key in ("before", "after")},
        "pools": pools,
        **sections,
        "ratios": _ratios(before, after),
        "draws": [_ratios(*(run_section(run) for run in pair)) for pair in zip(draws[::2], draws[1::2], strict=True)],
        "bracket": ends,
        "reasons": list(dict.fromkeys(reason for one in prepared.after for reason in one.model.reasons)),
    }
    return {**found, "nothing_served": none_answered(found), "verdict": verdict(found)}


def run_section(run: Measured) -> dict[str, Any]:
    """What one run gave its requests, and what its pools did."""
    found = run.results
    pools = zip(run.service.runs, found.pools, run.stations, strict=False)
    return {
        "requests": {
            "scored": found.requests,
            "answered": found.finished,
            "refused": found.refused,
            "unfinished": found.unfinished,
        },
        "inside_slo": found.inside_frac,
        "goodput_per_s": found.goodput_per_s,
        "queue_growth": _growth(run),
        "ttft_ms": _ms(found.ttft),
        "tpot_ms": _ms(found.tpot),
        "end_to_end_ms": _ms(found.end_to_end),
        "answered_per_s": found.finished_per_s,
        "input_tokens_per_s": found.prompt_tokens_per_s,
        "output_tokens_per_s": found.output_tokens_per_s,
        "last_answer_s": max(one.end_s for one in run.service.runs),
        "pools": [served_section(*pool, found.from_s, found.to_s) for pool in pools],
    }


def _growth(run: Measured) -> float:
    """Seconds of wait per second of arrivals, of the scored requests that were not turned away."""
    arrival, found = run.service.workload.arrival_s, run.results
    scored = (arrival >= found.from_s) & (arrival < found.to_s)
    return growth(run.service, scored & ~run.service.refused)


def _ms(found: Seconds) -> dict[str, float | None]:
    """Mean and percentiles, null where no request has them."""
    return {name: 1e3 * getattr(found, name) if found.count else None for name in ("mean", "p50", "p95", "p99")}


def _ends(section: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The figures of which both ends of the bracket are told."""
    gpus = sum(pool.gpus for pool in scenario.pools)
    per_gpu = {f"{name}_gpu": section[name] / gpus for name in ("input_tokens_per_s", "output_tokens_per_s")}
    return {name: section[name] for name in (*MEASURES, *SPREADS)} | per_gpu


def _both(overlap: str, mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    serial, overlapped = (mine, other) if overlap == "none" else (other, mine)
    return {"serial": serial, "overlapped": overlapped}


def _ratios(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float | None]:
    """After over before; null where before is 0 or nothing."""
    ratios: dict[str, float | None] = {name: _over(after[name], before[name]) for name in MEASURES}
    for name in SPREADS:
        ratios |= {f"{name}.{at}": _over(value, before[name][at]) for at, value in after[name].items()}
    return ratios


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _scenario(file: Path, scenario: Scenario) -> dict[str, Any]:
    run = scenario.run
    return {
        "file": str(file),
        "title": scenario.title,
        "why": scenario.why.strip(),
        "duration_s": run.duration_s,
        "warm_up_s": run.warm_up_s,
        "seed": run.seed,
        "overlap": run.overlap,
        "events": events(scenario),
    }


def _model(prepared: Prepared) -> dict[str, Any]:
    shape = prepared.ground.shape
    return {
        "name": shape.name,
        "layers": shape.hidden_layers or len(shape.layers),
        "moe_layers": len(shape.layers),
        "experts": shape.experts,
        "top_k": shape.top_k,
        "dtype": shape.dtype,
    }


def _workload(run: Measured, prepared: Prepared) -> dict[str, Any]:
    load, scenario = run.service.workload, prepared.scenario
    # Requests that were stretched to a rate, or that end early, come up to the last one.
    asked = load is prepared.workload and lasts(scenario, run.service)
    arrivals_s = scenario.run.duration_s + scenario.tail_s if asked else load.span_s
    tenants = np.bincount(load.tenant, minlength=len(load.tenants))
    return {
        "source": load.source,
        "requests": load.requests,
        "scored": run.results.requests,
        "scored_s": [run.results.from_s, run.results.to_s],
        "span_s": load.span_s,
        "arrivals_s": arrivals_s,
        "rate_per_s": load.requests / arrivals_s if arrivals_s else load.rate_per_s,
        "prompt_tokens": _lengths(load, "prompt_tokens"),
        "output_tokens": _lengths(load, "output_tokens"),
        "cached_share": float(load.cached_tokens.sum() / load.prompt_tokens.sum()),
        "tenants": {name: int(count) for name, count in zip(load.tenants, tenants, strict=True)},
    }


def _lengths(load: Workload, name: str) -> dict[str, float]:
    values = getattr(load, name)
    return {"mean": float(values.mean()), **{f"p{at}": float(np.percentile(values, at)) for at in (50, 99)}}


def _routing(prepared: Prepared) -> dict[str, Any]:
    """Where routing comes from. A synthesised trace has no file that anybody could look at."""
    ground, said = prepared.ground, prepared.scenario.routing
    serving = len(np.unique(ground.routed.request))
    source = f"synthesised, {said.recipe.kind}" if said.recipe else ", ".join(Path(one).name for one in said.traces)
    return {
        "source": source,
        "serve_share": ground.serve,
        "serving_requests": serving,
        "serving_tokens": len(ground.routed.experts),
        "line": f"routing: {source}; {serving:,} of its requests serve, plans are made from the others",
    }


def _plans(prepared: Prepared, key: str) -> str:
    return ", ".join(dict.fromkeys(one.plan.policy for one in prepared.stations(key)))

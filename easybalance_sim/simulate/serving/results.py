"""What users feel and what the ranks did, from a deployment's runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.pools import Service

LOST = ("lost_dispatch", "lost_expert", "lost_combine")


@dataclass(frozen=True, kw_only=True)
class Slo:
    """What a request has to keep: seconds to its first token, mean seconds per further token. Raises `UsageError`."""

    ttft_s: float
    tpot_s: float

    def __post_init__(self) -> None:
        if not (self.ttft_s > 0 and self.tpot_s > 0):
            raise UsageError("limits must be > 0 seconds", where="slo")


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Percentiles and mean over `count` requests, nan where there is none."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolUse:
    """One pool over its whole run. busy_frac: float64[R] share of the time in which each rank's experts compute ·
    idle_frac: without any request · kv_frac, kv_peak_frac: blocks in use, mean over steps and fullest bucket's mean ·
    running, waiting: requests, mean over steps · waited_frac: of steps × data ranks, those in which a request that was
    there got no token · preemptions · lost_s: by part, above even ranks, one part after the other · balanced_speedup:
    seconds of the steps over what even ranks would need for the same steps."""

    busy_frac: FloatArray
    idle_frac: float
    kv_frac: float
    kv_peak_frac: float
    running: float
    waiting: float
    waited_frac: float
    preemptions: int
    lost_s: dict[str, float]
    balanced_speedup: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """Of the `requests` that arrive in [from_s, to_s): finished, refused, unfinished add up to them · ttft to the first
    token, of those that got one · tpot per further token ((finish − first) / (output − 1), answers of one token left
    out) and end_to_end, of those that finished · goodput_per_s: of them inside the SLO, per second, inside_frac of
    them; one that was refused or did not finish is not inside. Of all requests, whenever they arrived: finished_per_s,
    those that finish in [from_s, to_s), and the tokens that are computed in it, per second, cached ones of a prompt
    included. pools: over their whole runs."""

    from_s: float
    to_s: float
    requests: int
    finished: int
    refused: int
    unfinished: int
    ttft: Seconds
    tpot: Seconds
    end_to_end: Seconds
    goodput_per_s: float
    inside_frac: float
    finished_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    pools: tuple[PoolUse, ...]


def summarised(service: Service, slo: Slo, *, from_s: float = 0.0, to_s: float | None = None) -> Results:
    """The results between warm-up and cool-down; to_s: the end of the arrivals unless given, that of the run where all
    arrive at once. Raises `UsageError` where no request arrives in between."""
    workload = service.workload
    last = workload.span_s or max(run.end_s for run in service.runs)
    until = to_s if to_s is not None else float(np.nextafter(last, np.inf))
    counted = (workload.arrival_s >= from_s) & (workload.arrival_s < until)
    if not counted.any():
        raise UsageError(f"no request arrives from {from_s:g} to {until:g} s", where="results")
    span = until - from_s
    inside = counted & inside_slo(service, slo)
    ended = (service.finish_s >= from_s) & (service.finish_s < until)
    done = counted & ~np.isnan(service.finish_s)
    refused = int((counted & service.refused).sum())
    return Results(
        from_s=from_s,
        to_s=until,
        requests=int(counted.sum()),
        finished=int(done.sum()),
        refused=refused,
        unfinished=int(counted.sum()) - int(done.sum()) - refused,
        ttft=_seconds(ttft_s(service)[counted & ~np.isnan(service.first_token_s)]),
        tpot=_seconds(tpot_s(service)[done & (workload.output_tokens > 1)]),
        end_to_end=_seconds((service.finish_s - workload.arrival_s)[done]),
        goodput_per_s=float(inside.sum() / span),
        inside_frac=float(inside.sum() / counted.sum()),
        finished_per_s=float(ended.sum() / span),
        prompt_tokens_per_s=_prompt_tokens(service, from_s, until) / span,
        output_tokens_per_s=_output_tokens(service, from_s, until) / span,
        pools=tuple(_use(run) for run in service.runs),
    )


def ttft_s(service: Service) -> FloatArray:
    """float64[N] from arrival to the first token."""
    return service.first_token_s - service.workload.arrival_s


def tpot_s(service: Service) -> FloatArray:
    """float64[N] mean seconds per token after the first; 0 for an answer of one token."""
    further = service.workload.output_tokens - 1
    return (service.finish_s - service.first_token_s) / np.maximum(further, 1)


def inside_slo(service: Service, slo: Slo) -> BoolArray:
    """bool[N] requests that finished and kept both limits."""
    kept: BoolArray = (ttft_s(service) <= slo.ttft_s) & (tpot_s(service) <= slo.tpot_s)
    return kept


def _prompt_tokens(service: Service, from_s: float, to_s: float) -> float:
    """Tokens of prompts that are computed in [from_s, to_s), each prompt's evenly from its start to its first token."""
    first = service.runs[0]
    return _inside(service.workload.prompt_tokens, first.start_s, first.first_token_s, from_s, to_s)


def _output_tokens(service: Service, from_s: float, to_s: float) -> float:
    """Tokens of answers that come in [from_s, to_s): the first ones, and the others evenly up to the last."""
    begun = (service.first_token_s >= from_s) & (service.first_token_s < to_s)
    further = service.workload.output_tokens - 1
    return float(begun.sum()) + _inside(further, service.first_token_s, service.finish_s, from_s, to_s)


def _inside(tokens: AnyArray, begins: FloatArray, ends: FloatArray, from_s: float, to_s: float) -> float:
    """Of int[N] tokens that come evenly from `begins` to `ends`, those inside; of what never ends there are none."""
    took = np.maximum(ends - begins, np.finfo(float).tiny)
    inside = np.clip(np.minimum(ends, to_s) - np.maximum(begins, from_s), 0.0, took)
    return float(np.nansum(tokens * (inside / took)))


def _seconds(values: AnyArray) -> Seconds:
    if not len(values):
        return Seconds(count=0, mean=np.nan, p50=np.nan, p95=np.nan, p99=np.nan)
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return Seconds(count=len(values), mean=float(values.mean()), p50=p50, p95=p95, p99=p99)


def _use(run: PoolRun) -> PoolUse:
    line, steps = run.timeline, max(run.step_s, np.finfo(float).tiny)
    over_steps = line.step_s / steps
    return PoolUse(
        busy_frac=frozen(run.busy_frac),
        idle_frac=run.seconds["idle"] / run.end_s if run.end_s > 0 else 0.0,
        kv_frac=float(line.kv_frac @ over_steps),
        kv_peak_frac=float(line.kv_frac.max()),
        running=float(line.running @ over_steps),
        waiting=float(line.waiting @ over_steps),
        waited_frac=run.waited / max(1, run.steps * run.data_ranks),
        preemptions=int(run.preemptions.sum()),
        lost_s={name: run.seconds[name] for name in LOST},
        balanced_speedup=run.step_s / run.seconds["balanced"] if run.seconds["balanced"] > 0 else 1.0,
    )

"""What a run must keep: every request in one place, every token counted once, every second in one part."""

from __future__ import annotations

import math

import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.kernels import serving_state as places
from easybalance_sim.kernels.serving_state import Rules, State
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.workload import Workload

CLOSE = 1e-6
"""Sums of many seconds agree to this share."""


def require_conserved(run: PoolRun, workload: Workload, rules: Rules, state: State) -> None:
    """Raises RuntimeError, which is a fault of the engine, unless

    * the requests that came are those answered, refused, and still there, each counted by itself;
    * tokens computed in steps are those that requests hold or held at their end, plus those preemption dropped;
    * blocks of the cache are free or a request's, who has no more tokens than they hold;
    * Little's law: requests in the system over time are the requests' own times in it (Little, 1961);
    * the parts of all steps and the idle time are the time of the run.
    """
    finished, refused = int(run.finished.sum()), int(run.refused.sum())
    counted, stage = (
        [int(state.totals[name][0]) for name in ("finished", "refused", "present")],
        state.requests["stage"],
    )
    if counted != [finished, refused, run.unfinished] or run.unfinished != int((stage > places.GONE).sum()):
        raise RuntimeError(f"requests were lost or doubled: {counted} counted, {finished}, {refused}, {run.unfinished}")
    computed, held = run.prompt_tokens + run.decode_tokens, int(_own_tokens(workload, rules, state).sum())
    if computed != held + run.dropped_tokens:
        raise RuntimeError(f"{computed} tokens computed, {held} held and {run.dropped_tokens} dropped")
    used, free = int(state.requests["blocks"][stage >= places.PROMPT].sum()), state.ranks["free"]
    if used + int(free.sum()) != rules.kv_blocks * len(free) or free.min() < 0:
        raise RuntimeError("blocks of the cache were lost or doubled")
    filled = _held(workload, rules, state)[stage >= places.PROMPT]
    if (filled > state.requests["blocks"][stage >= places.PROMPT] * rules.block_tokens).any():
        raise RuntimeError("more tokens than blocks of the cache hold")
    _require_close("requests in the system", run.present_s, _present_s(run, workload))
    parts = run.seconds
    _require_close("seconds of steps", run.step_s + parts["idle"], run.end_s)
    _require_close("seconds of parts", step_seconds(parts), run.step_s)


def step_seconds(parts: dict[str, float]) -> float:
    """Seconds of steps from those of their parts."""
    named = ("attention", "outside", "dispatch", "expert", "combine")
    return sum(parts[name] for name in named) - parts["hidden"]


def _own_tokens(workload: Workload, rules: Rules, state: State) -> IntArray:
    """int64[N] tokens of each request's cache that were computed here since it was last empty."""
    requests = state.requests
    came = workload.prompt_tokens if rules.role == places.DECODE_ONLY else workload.cached_tokens
    first = (requests["preemptions"] == 0) & ~np.isnan(requests["start"])
    computed: IntArray = _held(workload, rules, state) - np.where(first, came, 0)
    return computed


def _held(workload: Workload, rules: Rules, state: State) -> IntArray:
    """int64[N] tokens in each request's cache, of those that are done at their end."""
    prompt, output = workload.prompt_tokens.astype(np.int64), workload.output_tokens.astype(np.int64)
    requests, whole = state.requests, prompt if rules.role == places.PREFILL_ONLY else prompt + output - 1
    held: IntArray = np.select(
        [~np.isnan(requests["finish"]), requests["stage"] == places.PROMPT, requests["stage"] == places.DECODING],
        [whole, requests["held"], prompt + output - requests["left"] - 1],
    )
    return held


def _present_s(run: PoolRun, workload: Workload) -> float:
    there = ~run.refused & (np.arange(workload.requests) < run.arrived)
    until = np.where(run.finished, run.finish_s, run.end_s)
    return float((until - workload.arrival_s)[there].sum())


def _require_close(name: str, one: float, other: float) -> None:
    if not math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-9):
        raise RuntimeError(f"{name} do not add up: {one!r} and {other!r}")
